//! Tests of queue pairs that are connected out of band: what each state allows, and the numbers that are compared.

use verbena_stream::{Role, Time};
use verbena_wire::number::Psn;

use crate::qp::Psns;
use crate::state::QpState;
use crate::testing::{Pair, SEND, Setup, Side, stream};
use crate::wc::Status;
use crate::wr::SendOp;

fn psns(send: u32, receive: u32) -> Psns {
    Psns {
        send: Psn::new(send).unwrap(),
        receive: Psn::new(receive).unwrap(),
    }
}

/// Both sides in RTR with a stream; `expected` is the number that B expects, where A begins with 7.
fn in_rtr(expected: u32) -> Pair {
    let mut pair = Pair::unconnected(Setup::default());
    for (side, psns, role) in [
        (&mut pair.a, psns(7, 9), Role::Initiator),
        (&mut pair.b, psns(9, expected), Role::Responder),
    ] {
        let out = &mut side.out;
        side.qp.modify(QpState::Init, out).unwrap();
        side.qp.modify(QpState::Rtr, out).unwrap();
        side.qp.set_psns(psns, out);
        assert!(side.qp.attach(stream(role, Setup::default()), true, out));
        assert_eq!(side.qp.state(), QpState::Rtr);
    }
    pair.run();
    pair
}

#[test]
fn rtr_queue_pair_receives_and_answers_reads() {
    let mut pair = in_rtr(7);
    pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
    pair.b.memory.write(0, b"there");
    let (to, sink) = ([pair.b.sge(100, 8)], [pair.a.sge(0, 5)]);
    pair.b.receive(1, &to);
    pair.a.post(1, SEND, &[]);
    let remote = pair.b.remote(0);
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    pair.a.post(2, read, &sink);
    pair.run();
    let done = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(pair.a.statuses(), done);
    assert_eq!(pair.a.memory.read(0, 5), b"there");
    assert_eq!(pair.b.received().len(), 1);
    assert_eq!(pair.b.qp.state(), QpState::Rtr);
    // It sends in RTS.
    pair.b.qp.modify(QpState::Rts, &mut pair.b.out).unwrap();
    pair.a.receive(1, &[]);
    pair.b.post(3, SEND, &[]);
    pair.run();
    assert_eq!(pair.b.statuses(), [(3, Status::Success)]);
}

#[test]
fn posted_requests_wait_for_the_connection() {
    let mut pair = Pair::unconnected(Setup::default());
    for side in [&mut pair.a, &mut pair.b] {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            side.qp.modify(state, &mut side.out).unwrap();
        }
    }
    pair.b.receive(1, &[]);
    pair.a.post(1, SEND, &[]);
    pair.run();
    assert!(pair.a.statuses().is_empty(), "no peer is connected yet");
    for (side, role) in [
        (&mut pair.a, Role::Initiator),
        (&mut pair.b, Role::Responder),
    ] {
        let stream = stream(role, Setup::default());
        assert!(side.qp.attach(stream, true, &mut side.out));
    }
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

/// docs/extensions.md: ACTIVE carries the number that the receiver expects, or the two do not belong together.
#[test]
fn unexpected_peer_number_fails_queue_pair() {
    let mut pair = in_rtr(8);
    pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
    pair.run();
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let cause = pair.b.qp.cause().unwrap();
    assert_eq!(cause, "the peer sends from number 7, expected 8");
}

/// Both sides in RTS; each demands this nonce of the other, whose capabilities carry 1.
fn with_required_nonce(demanded: [u64; 2]) -> Pair {
    let mut pair = Pair::unconnected(Setup::default());
    let sides = [
        (&mut pair.a, Role::Initiator),
        (&mut pair.b, Role::Responder),
    ];
    for ((side, role), nonce) in sides.into_iter().zip(demanded) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            side.qp.modify(state, &mut side.out).unwrap();
        }
        attach(side, role, nonce);
        side.receive(5, &[]);
        side.post(1, SEND, &[]);
    }
    pair
}

fn attach(side: &mut Side, role: Role, nonce: u64) {
    let stream = stream(role, Setup::default());
    assert!(side.qp.attach_unauthenticated(stream, nonce, &mut side.out));
    assert!(side.qp.is_unauthenticated());
}

#[test]
fn matching_nonce_proves_the_peer() {
    let mut pair = with_required_nonce([1, 1]);
    pair.run();
    assert!(!pair.a.qp.is_unauthenticated() && !pair.b.qp.is_unauthenticated());
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.statuses(), [(1, Status::Success)]);
}

/// docs/extensions.md: a peer without the nonce is dropped, and posted requests wait for the right one.
#[test]
fn wrong_nonce_drops_stream_and_keeps_requests() {
    let mut pair = with_required_nonce([1, 2]);
    pair.run();
    assert!(!pair.b.qp.has_stream());
    assert_eq!(pair.b.qp.state(), QpState::Rts);
    assert_eq!(pair.b.qp.outstanding(), (1, 1), "all of it waits");
    assert_eq!(pair.b.qp.cause(), None);
    // The other side's stream ends when the connection is closed, and it learned nothing.
    pair.a.qp.handle_eof(false, &mut pair.a.out);
    assert!(!pair.a.qp.has_stream());
    assert_eq!(pair.a.qp.outstanding(), (1, 1));
    attach(&mut pair.a, Role::Initiator, 1);
    attach(&mut pair.b, Role::Responder, 1);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.statuses(), [(1, Status::Success)]);
}

/// docs/extensions.md, a shared key: the program knows that it is connected, so a wrong peer is reported to it.
#[test]
fn wrong_demanded_nonce_fails_queue_pair() {
    for (demanded, met) in [(1, true), (2, false)] {
        let mut pair = Pair::unconnected(Setup::default());
        let sides = [
            (&mut pair.a, Role::Initiator, 1),
            (&mut pair.b, Role::Responder, demanded),
        ];
        for (side, role, nonce) in sides {
            side.qp.modify(QpState::Init, &mut side.out).unwrap();
            side.receive(5, &[]);
            let stream = stream(role, Setup::default());
            let out = &mut side.out;
            assert!(side.qp.attach_requiring_nonce(stream, true, nonce, out));
            assert!(side.qp.is_unauthenticated());
            side.post(1, SEND, &[]);
        }
        pair.run();
        if met {
            assert!(!pair.a.qp.is_unauthenticated() && !pair.b.qp.is_unauthenticated());
            assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
            assert_eq!(pair.b.statuses(), [(1, Status::Success)]);
        } else {
            assert_eq!(pair.b.qp.state(), QpState::Err);
            let cause = pair.b.qp.cause().unwrap();
            assert_eq!(cause, "the peer cannot prove that it knows the key");
            assert!(!pair.a.statuses().contains(&(1, Status::Success)));
        }
    }
}

#[test]
fn failed_unproven_stream_leaves_requests_posted() {
    let mut pair = with_required_nonce([1, 1]);
    let b = &mut pair.b;
    let garbage = [0; 300];
    let mut carrier = crate::MemoryCarrier::with_input(&garbage);
    b.qp.receive(&mut carrier, &mut [0; 1024], Time::ZERO, &mut b.out);
    assert!(!b.qp.has_stream());
    assert_eq!((b.qp.state(), b.qp.cause()), (QpState::Rts, None));
    attach(b, Role::Responder, 1);
    b.qp.handle_eof(true, &mut b.out);
    assert!(!b.qp.has_stream());
    assert_eq!(b.qp.outstanding(), (1, 1));
    assert!(b.statuses().is_empty());
}

#[test]
fn reset_drops_the_unproven_stream() {
    let mut pair = with_required_nonce([1, 1]);
    let b = &mut pair.b;
    b.qp.modify(QpState::Reset, &mut b.out).unwrap();
    assert!(!b.qp.is_unauthenticated() && !b.qp.has_stream());
    let stream = stream(Role::Responder, Setup::default());
    let refused = b.qp.attach_unauthenticated(stream, 9, &mut b.out);
    assert!(
        !refused && !b.qp.is_unauthenticated(),
        "nothing has changed"
    );
}
