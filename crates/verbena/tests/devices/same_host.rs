//! Connections of one host through shared memory: every kind of request, long and short, asleep and polling, and how they end.
//! Both sides are devices of one process, which is the same host and the same user; programs of several processes are in the tests of the
//! drop-in libraries.

use core::time::Duration;

use verbena::low::{Data, Qp, QpOptions, RecvWr, SendOp, StreamPath, Wc};
use verbena::{Access, Status};

use crate::common::device;
use crate::common::exchange::{LEN, Side, exchange};
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

fn side(settings: &[(&str, &str)]) -> Side {
    side_with(settings, 2 * LEN + 64)
}

fn side_with(settings: &[(&str, &str)], len: usize) -> Side {
    let device = device(settings);
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    Side {
        qp: Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap(),
        memory: pd.memory(len, Access::ALL).unwrap(),
        cq,
        device,
    }
}

fn connected(settings: &[(&str, &str)], others: &[(&str, &str)]) -> (Side, Side) {
    let (a, b) = (side(settings), side(others));
    connect(&a, &b);
    (a, b)
}

fn connect(a: &Side, b: &Side) {
    let listener = b.device.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &a.qp, &b.qp);
}

fn is_shared(side: &Side) -> bool {
    let path = side.qp.query().unwrap().path;
    matches!(path, Some(StreamPath::SharedMemory(peer)) if peer.pid == Some(std::process::id()))
}

fn receive(side: &Side) {
    let scatter = [side.memory.sge(0, 64).unwrap()];
    let receive = RecvWr {
        id: 0,
        scatter: &scatter,
    };
    side.qp.post_recv(&[receive]).unwrap();
}

fn send(side: &Side) {
    let request = wr(0, SEND, Data::Inline(b"eight by"));
    side.qp.post_send(&[request]).unwrap();
}

/// Exchanges short messages until both sides use shared memory.
fn reach_shared_memory(a: &Side, b: &Side) {
    wait_until("both sides use shared memory", || {
        for (from, to) in [(a, b), (b, a)] {
            receive(to);
            send(from);
            complete(&from.cq, 1);
            complete(&to.cq, 1);
        }
        is_shared(a) && is_shared(b)
    });
}

#[test]
fn requests_pass_through_shared_memory() {
    let (a, b) = connected(&[], &[]);
    reach_shared_memory(&a, &b);
    for round in 0..20 {
        exchange(&a, &b, round);
        exchange(&b, &a, round);
    }
    assert!(is_shared(&a) && is_shared(&b));
}

#[test]
fn small_rings_carry_long_messages() {
    let small = [("same_host_ring", "4096")];
    let (a, b) = connected(&small, &small);
    reach_shared_memory(&a, &b);
    for round in 0..5 {
        exchange(&a, &b, round);
        exchange(&b, &a, round);
    }
}

#[test]
fn requests_survive_the_change_to_shared_memory() {
    for round in 0..30 {
        let (a, b) = connected(&[], &[]);
        exchange(&a, &b, round);
        exchange(&b, &a, round);
    }
}

#[test]
fn one_side_can_decline() {
    let (off, auto) = ([("same_host", "off")], []);
    for (ours, theirs) in [(&off[..], &auto[..]), (&auto, &off)] {
        let (a, b) = connected(ours, theirs);
        for round in 0..5 {
            exchange(&a, &b, round);
            exchange(&b, &a, round);
        }
        assert!(!is_shared(&a) && !is_shared(&b));
    }
}

#[test]
fn polling_sides_use_shared_memory() {
    let (a, b) = connected(&[], &[]);
    reach_shared_memory(&a, &b);
    let poll = |side: &Side| {
        let mut some = [Wc::default(); 1];
        while side.cq.poll(&mut some) == 0 {}
        assert_eq!(some[0].status, Status::Success);
    };
    for _ in 0..2000 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            receive(to);
            send(from);
            poll(to);
            poll(from);
        }
    }
}

#[test]
fn requests_fail_after_the_peer_ended() {
    let (a, b) = connected(&[], &[]);
    reach_shared_memory(&a, &b);
    drop(a);
    send(&b);
    let failed = complete(&b.cq, 1)[0].status;
    assert!(failed != Status::Success, "{failed:?}");
    wait_until("the end of the connection", || {
        b.qp.query().unwrap().path.is_none()
    });
}

/// A Terminate may be the first that passes through a ring, and the socket is closed right behind it.
#[test]
fn refusals_survive_the_change_to_shared_memory() {
    for round in 0..60 {
        let (a, b) = connected(&[], &[]);
        let (writer, owner) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let mut remote = owner.memory.remote_addr(0).unwrap();
        remote.to = remote.to.checked_add(4 * LEN as u64).unwrap();
        let write = SendOp::Write {
            remote,
            immediate: None,
        };
        let request = wr(0, write, Data::Inline(b"eight by"));
        writer.qp.post_send(&[request]).unwrap();
        let status = complete(&writer.cq, 1)[0].status;
        assert_eq!(status, Status::RemAccessErr, "round {round}");
    }
}

/// More than a thread sends in one turn, from a thread that does not poll afterwards.
#[test]
fn long_message_is_sent_without_polling() {
    const LONG: usize = 4 << 20;
    // Never full, so that only the limit ends a turn.
    let large = [("same_host_ring", "8388608")];
    let (a, b) = (side_with(&large, LONG), side_with(&large, LONG));
    connect(&a, &b);
    reach_shared_memory(&a, &b);
    // real time: a poller that stays away is noticed by a timer, and then the threads of the adapter sleep.
    std::thread::sleep(Duration::from_millis(100));
    a.memory.write_at(LONG - 8, b"the last").unwrap();
    let write = SendOp::Write {
        remote: b.memory.remote_addr(0).unwrap(),
        immediate: None,
    };
    let whole = [a.memory.sge(0, LONG).unwrap()];
    a.qp.post_send(&[wr(1, write, Data::Gather(&whole))])
        .unwrap();
    wait_until("the last byte arrives", || {
        let mut last = [0; 8];
        b.memory.read_at(LONG - 8, &mut last).unwrap();
        &last == b"the last"
    });
}
