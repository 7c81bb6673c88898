//! M4 and M11: registration by work request, its four checks, and every consequence of both ways to fail.

use verbena_events::event::Event;
use verbena_mem::{Access, Buffer, Misuse, Pd, Ticket, Tpt};
use verbena_wire::{Stag, To};

use crate::qp::{OnFailure, RegisterError, Registration};
use crate::state::{Personality, QpState, QpType, RdmacState};
use crate::testing::{PD, Pair, SEND, Setup, Side, feed, read, transmit, write};
use crate::wc::{Status, WcOp};
use crate::wr::{RemoteAddr, SendOp, Sge};

fn setup(on_failure: OnFailure) -> Setup {
    let enabled = true;
    Setup {
        registration: Registration {
            enabled,
            on_failure,
        },
        ..Setup::default()
    }
}

/// Both personalities, with Verbena peers and standard ones.
fn every_setup(on_failure: OnFailure, test: impl Fn(Setup)) {
    for personality in [Personality::Roce, Personality::Iwarp] {
        for extensions in [false, true] {
            test(Setup {
                personality,
                extensions,
                ..setup(on_failure)
            });
        }
    }
}

/// An STag with room for `pages`, and memory whose registration under it is prepared.
fn prepared(side: &Side, pages: u32) -> (Buffer, Ticket) {
    let stag = side.tpt.allocate_stag(PD, pages).unwrap();
    prepared_as(side, stag)
}

fn prepared_as(side: &Side, stag: Stag) -> (Buffer, Ticket) {
    Buffer::prepared(&side.tpt, stag, 100, (PD, Access::ALL, false)).unwrap()
}

fn sge_of(buffer: &Buffer, stag: Stag) -> Sge {
    Sge {
        addr: buffer.at(),
        len: 100,
        stag,
    }
}

#[test]
fn later_requests_may_use_posted_registration() {
    for on_failure in [OnFailure::Reactive, OnFailure::Anticipatory] {
        every_setup(on_failure, |setup| {
            let mut pair = Pair::new(setup);
            let (buffer, ticket) = prepared(&pair.a, 1);
            buffer.write(0, &[7; 100]);
            let to = pair.b.remote(0);
            // Nothing has run yet: posted in one go, in this order.
            pair.a.post(1, SendOp::Register(ticket), &[]);
            let own = sge_of(&buffer, ticket.stag());
            pair.a.post(2, write(to), &[own]);
            pair.run();
            let done = [(1, Status::Success), (2, Status::Success)];
            let ends = pair.a.sent();
            let statuses: Vec<_> = ends.iter().map(|wc| (wc.id, wc.status)).collect();
            assert_eq!(statuses, done, "{setup:?}");
            assert_eq!(ends[0].op, WcOp::Register);
            assert_eq!(pair.b.memory.read(0, 100), [7; 100]);
            // Its STag can be sent to the peer, which may use it.
            let remote = RemoteAddr {
                stag: ticket.stag(),
                to: To::new(buffer.at()),
            };
            let from = [pair.b.sge(200, 100)];
            pair.b.post(3, write(remote), &from);
            pair.run();
            assert_eq!(buffer.read(0, 100), [0; 100]);
            assert_eq!(pair.b.statuses(), [(3, Status::Success)]);
        });
    }
}

#[test]
fn unexecuted_registration_gives_no_access() {
    // A local request before the registration, and one without any.
    for registered in [false, true] {
        let mut pair = Pair::new(setup(OnFailure::Anticipatory));
        let (buffer, ticket) = prepared(&pair.a, 1);
        let (to, own) = (pair.b.remote(0), sge_of(&buffer, ticket.stag()));
        pair.a.post(1, write(to), &[own]);
        if registered {
            pair.a.post(2, SendOp::Register(ticket), &[]);
        }
        pair.run();
        assert_eq!(pair.a.statuses()[0], (1, Status::LocProtErr));
        assert!(pair.a.tpt.find_entry(ticket.stag()).is_none());
    }
    let mut pair = Pair::new(setup(OnFailure::Anticipatory));
    let (buffer, ticket) = prepared(&pair.b, 1);
    let remote = RemoteAddr {
        stag: ticket.stag(),
        to: To::new(buffer.at()),
    };
    let from = [pair.a.sge(0, 8)];
    pair.a.post(1, write(remote), &from);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
    let cause = pair.b.qp.cause().unwrap();
    assert!(cause.contains("invalid STag"), "{cause}");
}

/// Each check of M4, as a registration that fails it alone, and the table's error.
fn failures(side: &Side) -> Vec<(&'static str, Ticket, Misuse, Vec<Buffer>)> {
    let (space, no_room) = prepared(side, 0);
    let (gone, freed) = prepared(side, 1);
    side.tpt.deregister(freed.stag()).unwrap();
    let stag = side.tpt.allocate_stag(PD, 1).unwrap();
    let (instance, not_next) = prepared_as(side, Tpt::next_stag(stag));
    let foreign = side.tpt.allocate_stag(Pd(2), 1).unwrap();
    let other = Buffer::prepared(&side.tpt, foreign, 8, (Pd(2), Access::ALL, false));
    let (other, foreign) = other.unwrap();
    vec![
        ("index", freed, Misuse::Stag(freed.stag()), vec![gone]),
        (
            "instance",
            not_next,
            Misuse::Instance {
                stag: not_next.stag(),
                next: stag.key(),
            },
            vec![instance],
        ),
        (
            "space",
            no_room,
            Misuse::Space {
                stag: no_room.stag(),
                pages: 1,
                room: 0,
            },
            vec![space],
        ),
        (
            "domain",
            foreign,
            Misuse::Domain {
                stag: foreign.stag(),
                owner: 2,
                requester: 1,
            },
            vec![other],
        ),
    ]
}

/// A read before it, the failure, and three behind it.
fn post_around(pair: &mut Pair, op: SendOp) {
    pair.b.memory.write(0, &[5; 3000]);
    let (from, sink) = (pair.b.remote(0), [pair.a.sge(1000, 3000)]);
    pair.a.post(1, read(from), &sink);
    pair.a.post(2, op, &[]);
    let (to, own) = (pair.b.remote(5000), [pair.a.sge(0, 10)]);
    pair.a.post(3, write(to), &own);
    pair.a.post(4, read(from), &sink);
    pair.a.post(5, SEND, &own);
}

const REACTIVE: [(u64, Status); 5] = [
    (1, Status::Success),
    (2, Status::MwBindErr),
    (3, Status::WrFlushErr),
    (4, Status::WrFlushErr),
    (5, Status::WrFlushErr),
];

#[test]
fn reactive_failure_stops_only_the_send_queue() {
    every_setup(OnFailure::Reactive, |setup| {
        let rows = failures(&Pair::new(setup).a).len();
        for row in 0..=rows {
            let mut pair = Pair::new(if row < rows {
                setup
            } else {
                // The first check: the queue pair is not enabled.
                let registration = Registration {
                    enabled: false,
                    ..setup.registration
                };
                Setup {
                    registration,
                    ..setup
                }
            });
            let (name, ticket, why, _keep) = if row < rows {
                let (name, ticket, misuse, keep) = failures(&pair.a).remove(row);
                (name, ticket, RegisterError::Refused(misuse), keep)
            } else {
                let (buffer, ticket) = prepared(&pair.a, 1);
                ("enabled", ticket, RegisterError::NotEnabled, vec![buffer])
            };
            let sink = [pair.a.sge(6000, 50)];
            pair.a.receive(8, &sink);
            post_around(&mut pair, SendOp::Register(ticket));
            pair.run();
            // Requests before it have completed, those behind it are flushed, each in its turn.
            assert_eq!(pair.a.statuses(), REACTIVE, "{name} {setup:?}");
            assert_eq!(pair.a.memory.read(1000, 3000), [5; 3000]);
            let view = pair.a.qp.view();
            assert_eq!(view.state, QpState::Sqe, "{name}");
            assert_eq!(view.state.rdmac(), RdmacState::Rts);
            assert_eq!(view.register_error, Some((2, why)), "{name}");
            assert_eq!(view.cause, None, "the queue pair has not failed");
            let drained = Event::SqDrained { qp: 1 };
            assert_eq!(pair.a.events(), [drained], "{name}");
            // The peer notices nothing and continues: receives, Writes and reads.
            pair.b.memory.write(0, &[6; 100]);
            let (ours, from) = (pair.a.remote(7000), [pair.b.sge(0, 50)]);
            pair.b.post(11, SEND, &from);
            pair.b.post(12, write(ours), &from);
            let sink = [pair.b.sge(4000, 50)];
            pair.b.post(13, read(ours), &sink);
            pair.run();
            let all = [11, 12, 13].map(|id| (id, Status::Success));
            assert_eq!(pair.b.statuses(), all, "{name} {setup:?}");
            assert_eq!(pair.a.received()[0].id, 8);
            assert_eq!(pair.b.memory.read(4000, 50), [6; 50]);
            assert!(pair.b.qp.cause().is_none() && pair.b.events().is_empty());
            // Requests posted now are flushed at once.
            pair.a.post(6, SEND, &[]);
            assert_eq!(pair.a.statuses(), [(6, Status::WrFlushErr)], "{name}");
        }
    });
}

#[test]
fn registration_can_be_retried_after_reactive_failure() {
    every_setup(OnFailure::Reactive, |setup| {
        let mut pair = Pair::new(setup);
        let stag = pair.a.tpt.allocate_stag(PD, 1).unwrap();
        let (first, standing) = prepared_as(&pair.a, stag);
        let (second, ticket) = prepared_as(&pair.a, Tpt::next_stag(stag));
        second.write(0, &[9; 100]);
        pair.a.post(1, SendOp::Register(standing), &[]);
        // The first registration is still valid.
        let (to, own) = (pair.b.remote(0), [sge_of(&second, ticket.stag())]);
        pair.a.post(2, SendOp::Register(ticket), &[]);
        pair.a.post(3, write(to), &own);
        pair.run();
        let ends = [
            (1, Status::Success),
            (2, Status::MwBindErr),
            (3, Status::WrFlushErr),
        ];
        assert_eq!(pair.a.statuses(), ends, "{setup:?}");
        pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
        pair.a.post(4, SendOp::LocalInvalidate(stag), &[]);
        pair.a.post(5, SendOp::Register(ticket), &[]);
        pair.a.post(6, write(to), &own);
        pair.run();
        let ends = [4, 5, 6].map(|id| (id, Status::Success));
        assert_eq!(pair.a.statuses(), ends, "{setup:?}");
        assert_eq!(pair.b.memory.read(0, 100), [9; 100]);
        assert_eq!(pair.a.qp.state(), QpState::Rts);
        drop(first);
    });
}

#[test]
fn reactive_failure_lets_earlier_requests_finish() {
    let mut pair = Pair::new(setup(OnFailure::Reactive));
    let (_buffer, ticket) = prepared(&pair.a, 0);
    pair.a.memory.write(0, &[4; 3000]);
    let gather = [pair.a.sge(0, 3000)];
    pair.a.post(1, SEND, &gather);
    let immediate = Some(3);
    let remote = pair.b.remote(3000);
    pair.a.post(2, SendOp::Write { remote, immediate }, &gather);
    pair.a.post(3, SendOp::Register(ticket), &[]);
    pair.a.post(4, SEND, &[]);
    pair.run();
    assert!(pair.a.statuses().is_empty(), "they wait for receives");
    assert_eq!(pair.a.qp.state(), QpState::Sqe);
    assert!(pair.a.events().is_empty(), "not drained");
    let scatter = [pair.b.sge(0, 3000)];
    pair.b.receive(7, &scatter);
    pair.b.receive(8, &[]);
    pair.run();
    let ends = [
        (1, Status::Success),
        (2, Status::Success),
        (3, Status::MwBindErr),
        (4, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), ends);
    assert!(pair.b.memory.read(0, 6000).iter().all(|b| *b == 4));
    assert_eq!(pair.a.events(), [Event::SqDrained { qp: 1 }]);
}

#[test]
fn rts_is_allowed_before_earlier_requests_end() {
    let mut pair = Pair::new(setup(OnFailure::Reactive));
    let (_buffer, ticket) = prepared(&pair.a, 0);
    pair.a.post(1, SEND, &[]);
    pair.a.post(2, SendOp::Register(ticket), &[]);
    pair.a.post(3, SEND, &[]);
    pair.run();
    pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
    pair.a.post(4, SEND, &[]);
    pair.run();
    assert!(pair.a.statuses().is_empty());
    pair.b.receive(7, &[]);
    pair.b.receive(8, &[]);
    pair.run();
    let ends = [
        (1, Status::Success),
        (2, Status::MwBindErr),
        (3, Status::WrFlushErr),
        (4, Status::Success),
    ];
    assert_eq!(pair.a.statuses(), ends);
}

#[test]
fn terminate_is_processed_after_reactive_failure() {
    every_setup(OnFailure::Reactive, |setup| {
        let mut pair = Pair::new(setup);
        let (_buffer, ticket) = prepared(&pair.a, 0);
        let sink = [pair.a.sge(0, 10)];
        pair.a.receive(8, &sink);
        pair.a.post(1, SendOp::Register(ticket), &[]);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::MwBindErr)]);
        // The peer ends the stream because of its own memory.
        let (ours, bad) = (pair.a.remote(0), pair.b.sge(0, 10));
        let bad = Sge {
            stag: Stag::new(0xff_ff00),
            ..bad
        };
        pair.b.post(2, write(ours), &[bad]);
        pair.run();
        let end = match setup.personality {
            Personality::Roce => QpState::Err,
            Personality::Iwarp => QpState::Terminate,
        };
        assert_eq!(pair.a.qp.state(), end, "{setup:?}");
        let cause = pair.a.qp.cause().unwrap();
        assert!(cause.contains("the peer sent Terminate"), "{cause}");
        assert_eq!(pair.a.received()[0].status, Status::WrFlushErr);
    });
}

#[test]
fn an_anticipatory_failure_ends_the_connection() {
    every_setup(OnFailure::Anticipatory, |setup| {
        let rows = failures(&Pair::new(setup).a).len();
        for row in 0..rows {
            let mut pair = Pair::new(setup);
            let (name, ticket, why, _keep) = failures(&pair.a).remove(row);
            let sink = [pair.a.sge(6000, 50)];
            pair.a.receive(8, &sink);
            post_around(&mut pair, SendOp::Register(ticket));
            pair.run();
            // The read before it was not answered.
            let mut ends = REACTIVE;
            ends[0].1 = Status::WrFlushErr;
            assert_eq!(pair.a.statuses(), ends, "{name} {setup:?}");
            let flushed = pair.a.received();
            assert_eq!(flushed.len(), 1);
            assert_eq!((flushed[0].id, flushed[0].status), (8, Status::WrFlushErr));
            let cause = pair.a.qp.cause().unwrap();
            assert!(cause.contains(&why.to_string()), "{name}: {cause}");
            let ends = match setup.personality {
                Personality::Roce => QpState::Err,
                Personality::Iwarp => QpState::Terminate,
            };
            assert_eq!((pair.a.qp.state(), pair.b.qp.state()), (ends, ends));
            let cause = pair.b.qp.cause().unwrap();
            assert!(cause.contains("the peer sent Terminate"), "{name}: {cause}");
            assert!(pair.a.qp.modify(QpState::Rts, &mut pair.a.out).is_err());
        }
    });
}

/// Requests that have completed by then have succeeded; those that wait for the peer are flushed, and nothing behind it is sent.
#[test]
fn anticipatory_failure_flushes_waiting_requests() {
    let mut pair = Pair::new(setup(OnFailure::Anticipatory));
    pair.a.memory.write(0, &[4; 100]);
    let gather = [pair.a.sge(0, 100)];
    let (first, behind) = (write(pair.b.remote(4000)), write(pair.b.remote(5000)));
    pair.a.post(1, first, &gather);
    pair.run();
    let (_buffer, ticket) = prepared(&pair.a, 0);
    // The peer has no receive.
    pair.a.post(2, SEND, &gather);
    pair.run();
    pair.a.post(3, SendOp::Register(ticket), &[]);
    pair.a.post(4, behind, &gather);
    pair.run();
    let ends = [
        (1, Status::Success),
        (2, Status::WrFlushErr),
        (3, Status::MwBindErr),
        (4, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), ends);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.b.memory.read(4000, 100), [4; 100]);
    assert_eq!(pair.b.memory.read(5000, 100), [0; 100]);
}

#[test]
fn disabled_registration_is_mw_bind_err() {
    let mut pair = Pair::roce();
    let (_buffer, ticket) = prepared(&pair.a, 1);
    pair.a.post(1, SendOp::Register(ticket), &[]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::MwBindErr)]);
    let cause = pair.a.qp.cause().unwrap();
    assert!(cause.contains("not enabled"), "{cause}");
    assert!(pair.a.tpt.discard(ticket), "it is still prepared");
}

fn register_send(ticket: Ticket) -> SendOp {
    SendOp::RegisterSend {
        ticket,
        invalidate: None,
        immediate: None,
    }
}

#[test]
fn register_and_send_complete_as_one_request() {
    every_setup(OnFailure::Reactive, |setup| {
        let mut pair = Pair::new(setup);
        let (buffer, ticket) = prepared(&pair.a, 1);
        buffer.write(0, &[7; 100]);
        let sink = [pair.b.sge(0, 100)];
        pair.b.receive(8, &sink);
        // The data may lie in the memory that is registered with it.
        let own = [sge_of(&buffer, ticket.stag())];
        pair.a.post(1, register_send(ticket), &own);
        pair.run();
        let ends = pair.a.sent();
        assert_eq!((ends[0].id, ends[0].status), (1, Status::Success));
        assert_eq!((ends.len(), ends[0].op), (1, WcOp::Send), "{setup:?}");
        assert_eq!(pair.b.memory.read(0, 100), [7; 100]);
        assert!(pair.a.tpt.find_entry(ticket.stag()).is_some());
        // M11: the peer invalidates it, and its STag is invalid from then on.
        pair.a.receive(9, &[]);
        let invalidate = Some(ticket.stag());
        let answer = SendOp::Send {
            invalidate,
            immediate: None,
        };
        pair.b.post(2, answer, &[]);
        pair.run();
        assert_eq!(pair.a.received()[0].invalidated, invalidate);
        assert!(pair.a.tpt.find_entry(ticket.stag()).is_none());
    });
}

#[test]
fn a_registration_that_fails_sends_nothing() {
    for on_failure in [OnFailure::Reactive, OnFailure::Anticipatory] {
        every_setup(on_failure, |setup| {
            let mut pair = Pair::new(setup);
            let (_buffer, ticket) = prepared(&pair.a, 0);
            pair.a.memory.write(0, &[77; 100]);
            let sink = [pair.b.sge(0, 100)];
            pair.b.receive(8, &sink);
            let own = [pair.a.sge(0, 100)];
            pair.a.post(1, register_send(ticket), &own);
            pair.a.post(2, SEND, &own);
            let sent = transmit(&pair.a.qp, 9000, pair.now, &mut pair.a.out);
            assert!(!sent.windows(20).any(|w| w == [77; 20]), "{setup:?}");
            feed(&pair.b.qp, &sent, pair.now, &mut pair.b.out);
            pair.run();
            let ends = pair.a.sent();
            let statuses: Vec<_> = ends.iter().map(|wc| (wc.id, wc.status)).collect();
            let expected = [(1, Status::MwBindErr), (2, Status::WrFlushErr)];
            assert_eq!(statuses, expected, "{setup:?}");
            assert_eq!(ends[0].op, WcOp::Register);
            let received = pair.b.received();
            let delivered = received.iter().any(|wc| wc.status == Status::Success);
            assert!(!delivered, "{setup:?}");
            assert_eq!(pair.b.memory.read(0, 100), [0; 100]);
        });
    }
}

#[test]
fn restarted_send_registers_once() {
    let mut pair = Pair::new(setup(OnFailure::Anticipatory));
    let (buffer, ticket) = prepared(&pair.a, 1);
    buffer.write(0, &[7; 100]);
    let own = [sge_of(&buffer, ticket.stag())];
    pair.a.post(1, register_send(ticket), &own);
    pair.run();
    assert!(pair.a.statuses().is_empty(), "the peer has no receive");
    let sink = [pair.b.sge(0, 100)];
    pair.b.receive(8, &sink);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.memory.read(0, 100), [7; 100]);
}

#[test]
fn unreliable_registration_succeeds_without_peer() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..setup(OnFailure::Reactive)
    });
    let (_first, one) = prepared(&pair.a, 1);
    let (_second, two) = prepared(&pair.a, 1);
    let (_third, bad) = prepared(&pair.a, 0);
    pair.a.qp.handle_eof(true, &mut pair.a.out);
    pair.a.post(1, SendOp::Register(one), &[]);
    pair.a.post(2, register_send(two), &[]);
    pair.a.post(3, register_send(bad), &[]);
    pair.a.post(4, SEND, &[]);
    let ends = [
        (1, Status::Success),
        (2, Status::Success),
        (3, Status::MwBindErr),
        (4, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), ends);
    for ticket in [one, two] {
        assert!(pair.a.tpt.find_entry(ticket.stag()).is_some());
    }
}
