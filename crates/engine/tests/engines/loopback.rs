//! Whole adapters over TCP on loopback: every operation, its bytes, and the start and end of connections.

use std::sync::mpsc;
use std::time::Instant;

use verbena_engine::Error;
use verbena_nic::{Arm, Event, QpState, SendOp, Status};

use crate::common::{
    SEND, Side, TEST_TIMEOUT, connect_sides, loopback, pair, pattern, try_connect_sides, wait,
    within,
};

/// CRC on and off, one shard and two, both personalities.
const KINDS: &[&[(&str, &str)]] = &[
    &[("crc", "off")],
    &[("crc", "on"), ("shards", "1")],
    &[("personality", "iwarp"), ("crc", "off")],
    &[("extensions", "off"), ("rfc7306", "on"), ("crc", "on")],
    &[("fpdu", "mss"), ("markers", "on")],
];

#[test]
fn every_operation_carries_its_bytes() {
    for kind in KINDS {
        let (a, b) = pair(kind);
        for len in [0, 1, 64, 5000, 65536, 1 << 20] {
            let data = pattern(len, 7);
            a.memory.write(0, &data);
            b.receive(9, &[b.sge(2 << 20, 1 << 20)]);
            a.post(1, SEND, &[a.sge(0, len)]);
            assert_eq!(b.statuses(1), [(9, Status::Success)], "{kind:?}");
            assert_eq!(a.statuses(1), [(1, Status::Success)]);
            assert_eq!(b.memory.read(2 << 20, len), data);

            let remote = b.remote(0);
            let immediate = None;
            a.post(2, SendOp::Write { remote, immediate }, &[a.sge(0, len)]);
            let read = SendOp::Read {
                remote,
                local_invalidate: None,
            };
            a.post(3, read, &[a.sge(2 << 20, len)]);
            let done = [(2, Status::Success), (3, Status::Success)];
            assert_eq!(a.statuses(2), done, "{kind:?}");
            assert_eq!(a.memory.read(2 << 20, len), data);
        }
        b.memory.write(64, &5_u64.to_ne_bytes());
        let add = SendOp::FetchAdd {
            remote: b.remote(64),
            add: 3,
            mask: 0,
        };
        a.post(4, add, &[a.sge(0, 8)]);
        assert_eq!(a.statuses(1), [(4, Status::Success)]);
        assert_eq!(a.memory.read(0, 8), 5_u64.to_ne_bytes());
        assert_eq!(b.memory.read(64, 8), 8_u64.to_ne_bytes());
    }
}

/// One-sided operations continue while the target's program sleeps.
#[test]
fn one_sided_operations_need_no_target_call() {
    let (a, b) = pair(&[]);
    for id in 0..200 {
        let remote = b.remote(0);
        let add = SendOp::FetchAdd {
            remote,
            add: 1,
            mask: 0,
        };
        a.post(id, add, &[a.sge(0, 8)]);
        assert_eq!(a.statuses(1), [(id, Status::Success)]);
    }
    assert_eq!(b.memory.read(0, 8), 200_u64.to_ne_bytes());
}

/// M20: with checksums off only headers and trailers pass through a buffer.
#[test]
fn long_write_bypasses_the_stage() {
    let (a, b) = pair(&[("crc", "off")]);
    let write = SendOp::Write {
        remote: b.remote(0),
        immediate: None,
    };
    for id in 0..8 {
        a.post(id, write, &[a.sge(0, 1 << 20)]);
        a.complete(1);
    }
    let (sent, received) = (a.qp.view().counters, b.qp.view().counters);
    let payload = 8 << 20;
    // The last frame of each message is short and cheaper to copy.
    assert!(sent.bytes_direct > payload * 99 / 100, "{sent:?}");
    // The first full stage is read before it is known that runs are long.
    assert!(received.bytes_direct > payload * 9 / 10, "{received:?}");
}

#[test]
fn armed_queue_notifies_its_listener() {
    let (a, b) = pair(&[]);
    let (wake, woken) = mpsc::channel();
    b.cq.set_notify(Some(std::sync::Arc::new(move || wake.send(()).unwrap())));
    for round in 0..50 {
        b.receive(round, &[b.sge(0, 64)]);
        b.cq.arm(Arm::Next);
        a.post(round, SEND, &[a.sge(0, 64)]);
        woken.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(b.statuses(1), [(round, Status::Success)]);
        a.complete(1);
    }
}

#[test]
fn bad_write_fails_both_sides() {
    let (a, b) = pair(&[]);
    let mut remote = b.remote(0);
    remote.stag = verbena_wire::Stag::new(0xdead_0000);
    let immediate = None;
    a.post(1, SendOp::Write { remote, immediate }, &[a.sge(0, 100)]);
    a.post(2, SEND, &[a.sge(0, 100)]);
    let expected = [(1, Status::RemAccessErr), (2, Status::WrFlushErr)];
    assert_eq!(a.statuses(2), expected);
    let cause = a.qp.view().cause.unwrap();
    assert!(cause.contains("the peer sent Terminate"), "{cause}");
    wait("its end", || b.qp.state() == QpState::Err);
    let qp = b.qp.number();
    for expected in [Event::Established { qp }, Event::QpAccess { qp }] {
        // Raised after the locks are released, a moment after the state has changed.
        let mut event = None;
        let end = Instant::now() + TEST_TIMEOUT;
        while event.is_none() && Instant::now() < end {
            event = b.engine.events().try_take();
        }
        assert_eq!(event, Some(expected));
    }
}

#[test]
fn destroyed_peer_fails_only_new_requests() {
    let (a, b) = pair(&[]);
    drop(b.qp);
    wait("the peer sees the end", || a.qp.view().peer_disconnected);
    assert_eq!(a.qp.state(), QpState::Rts, "nothing needed it");
    a.post(1, SEND, &[a.sge(0, 8)]);
    assert_eq!(a.statuses(1), [(1, Status::RetryExcErr)]);
}

#[test]
fn late_receive_is_waited_for_with_rnr() {
    let (a, b) = pair(&[]);
    a.post(1, SEND, &[a.sge(0, 8)]);
    wait("RNR", || a.qp.view().counters.rnr_received > 0);
    b.receive(2, &[b.sge(0, 8)]);
    assert_eq!(a.statuses(1), [(1, Status::Success)]);
    assert_eq!(b.statuses(1), [(2, Status::Success)]);
    assert_eq!(b.qp.view().counters.rnr_sent, 1);
}

/// A standard peer cannot be asked to send again: its bytes wait in the socket.
#[test]
fn standard_peer_waits_for_a_late_receive() {
    let (a, b) = pair(&[("extensions", "off")]);
    for id in 0..20 {
        a.post(id, SEND, &[a.sge(0, 60_000)]);
    }
    // Its bytes are all in the sockets.
    a.complete(1);
    for id in 0..20 {
        b.receive(id, &[b.sge(0, 60_000)]);
        assert_eq!(b.statuses(1), [(id, Status::Success)]);
    }
    a.complete(19);
}

#[test]
fn rejected_and_unreachable_connects_report_errors() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let listener = b.engine.listen(loopback(), 4).unwrap();
    let (done, notified) = mpsc::channel();
    let to = listener.local_addr().unwrap();
    a.qp.connect(to, b"may I", move |r| done.send(r).unwrap())
        .unwrap();
    listener.next().unwrap().unwrap().reject(b"not you");
    match notified.recv_timeout(TEST_TIMEOUT).unwrap() {
        Err(Error::Rejected { private_data, .. }) => assert_eq!(private_data, b"not you"),
        other => panic!("{other:?}"),
    }
    drop(listener);
    let (done, notified) = mpsc::channel();
    a.qp.connect(to, b"", move |r| done.send(r).unwrap())
        .unwrap();
    let refused = notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    connect_sides(&a, &b);
}

/// A thread in `next` may have taken the signal of the request, and not the request yet.
#[test]
fn try_next_does_not_wait_for_a_signal() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let listener = b.engine.listen(loopback(), 4).unwrap();
    let to = listener.local_addr().unwrap();
    a.qp.connect(to, b"", |_| ()).unwrap();
    let mut signal = [0; 8];
    assert_eq!(rustix::io::read(&listener, &mut signal), Ok(8));
    within(TEST_TIMEOUT, move || {
        assert!(listener.try_next().unwrap().is_some());
        assert!(listener.try_next().unwrap().is_none());
    });
}

#[test]
fn connect_reaches_a_late_listener() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let to = b
        .engine
        .listen(loopback(), 4)
        .unwrap()
        .local_addr()
        .unwrap();
    let (done, notified) = mpsc::channel();
    // The first attempt is made, and refused, within the call.
    a.qp.connect(to, b"soon", move |r| done.send(r).unwrap())
        .unwrap();
    let listener = b.engine.listen(to, 4).unwrap();
    let request = listener.next().unwrap().unwrap();
    request.reject(b"now");
    let answer = notified.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(matches!(answer, Err(Error::Rejected { .. })), "{answer:?}");
}

#[test]
fn ten_peers_share_one_completion_queue() {
    let b = Side::new(&[]);
    let sides: Vec<_> = (0..10).map(|_| Side::new(&[])).collect();
    let peers: Vec<_> = sides
        .iter()
        .map(|a| {
            let peer = crate::common::make_qp(&b.engine, &b.cq, b.pd);
            let listener = b.engine.listen(loopback(), 4).unwrap();
            let (done, notified) = mpsc::channel();
            a.qp.connect(listener.local_addr().unwrap(), b"", move |r| {
                done.send(r).unwrap();
            })
            .unwrap();
            let incoming = listener.next().unwrap().unwrap();
            incoming.accept(&peer, b"", |_| ()).unwrap();
            notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
            for id in 0..20 {
                let scatter = [b.sge(0, 64)];
                let wr = verbena_nic::ReceiveWr {
                    id,
                    scatter: &scatter,
                };
                peer.post_receive(&wr).unwrap();
            }
            peer
        })
        .collect();
    for a in &sides {
        for id in 0..20 {
            a.post(id, SEND, &[a.sge(0, 64)]);
        }
    }
    assert_eq!(b.complete(200).len(), 200);
    for a in &sides {
        a.complete(20);
    }
    assert_eq!(peers.len(), 10);
}

#[test]
fn connected_queue_pair_refuses_to_connect() {
    let (a, b) = pair(&[]);
    assert!(
        try_connect_sides(&a, &b, b"", b"").is_err(),
        "connected already"
    );
}
