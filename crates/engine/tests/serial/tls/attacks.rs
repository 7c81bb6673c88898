//! Attacks by packets: handshakes that end anywhere, records that were changed, forged ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use verbena_engine::{Error, Listening};
use verbena_nic::Status;

use verbena_testing::{own_process, serve_until};

use super::relay::{Attack, Relay, connect_through};
use super::{ONE, exchange, psk, with};
use crate::common::tcp::unread;
use crate::common::{
    SEND, Side, TEST_TIMEOUT, accept_next, descriptors, dial, loopback, make_qp, pattern,
    read_to_end, resident_bytes, serialize_tests, wait, write_to,
};

/// Accepts every request, until it is told to stop.
fn accept_all(acceptor: &Listening, side: &Side, stop: &AtomicBool) {
    let mut kept = Vec::new();
    serve_until(
        || stop.load(Ordering::Acquire),
        || {
            let Some(request) = acceptor.try_next().unwrap() else {
                return false;
            };
            let qp = make_qp(&side.engine, &side.cq, side.pd);
            // The peer may be gone.
            let _ = request.accept(&qp, b"", |_| ());
            kept.push(qp);
            true
        },
    );
}

/// A cut anywhere in the startup, in both directions, is noticed at once, and other connections continue.
#[test]
fn startup_cut_anywhere_fails_at_once() {
    let _alone = serialize_tests();
    let settings = [
        &psk(ONE)[1..],
        &[("startup_timeout", "60s"), ("half_open", "4")],
    ]
    .concat();
    let (a, b) = (Side::new(&settings), Side::new(&settings));
    let whole = connect_through(&a, &b);
    let lengths = [0, 1].map(|way| whole.seen(way).len());
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| accept_all(&acceptor, &b, &stop));
        for way in [0, 1] {
            for at in (0..lengths[way]).step_by(11) {
                let relay = Relay::new(acceptor.local_addr().unwrap());
                relay.attack(way, Attack::Cut, at);
                let qp = make_qp(&a.engine, &a.cq, a.pd);
                let result = dial(&qp, relay.at);
                assert!(!matches!(result, Err(Error::Timeout { .. })), "{way} {at}");
                relay.end();
            }
        }
        // Changed bytes are noticed as well.
        for way in [0, 1] {
            for at in (0..lengths[way] * 2 / 3).step_by(37) {
                let relay = Relay::new(acceptor.local_addr().unwrap());
                relay.attack(way, Attack::Flip, at);
                let qp = make_qp(&a.engine, &a.cq, a.pd);
                // Some bytes of the first message have no meaning, and with an increased length the reader waits for more.
                let (done, notified) = mpsc::channel();
                qp.connect(relay.at, b"", move |r| drop(done.send(r)))
                    .unwrap();
                wait("the byte has passed", || relay.seen(way).len() > at);
                relay.end();
                drop(notified.recv_timeout(TEST_TIMEOUT).unwrap());
            }
        }
        let qp = make_qp(&a.engine, &a.cq, a.pd);
        dial(&qp, acceptor.local_addr().unwrap()).unwrap();
        stop.store(true, Ordering::Release);
    });
}

/// The bytes of a ClientHello of ours.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind(loopback()).unwrap();
    let side = with(ONE);
    let at = listener.local_addr().unwrap();
    side.qp.connect(at, b"", |_| ()).unwrap();
    let (mut raw, _) = listener.accept().unwrap();
    let mut head = [0; 5];
    raw.read_exact(&mut head).unwrap();
    let mut hello = head.to_vec();
    hello.resize(5 + usize::from(u16::from_be_bytes([head[3], head[4]])), 0);
    raw.read_exact(&mut hello[5..]).unwrap();
    hello
}

#[test]
fn hostile_handshakes_are_closed() {
    let _alone = serialize_tests();
    let b = with(ONE);
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let to = acceptor.local_addr().unwrap();
    // Far from its time limit: what is closed is closed because of its bytes.
    let patient = Side::new(&[&psk(ONE)[1..], &[("startup_timeout", "600s")]].concat());
    let patient_listener = patient.engine.listen(loopback(), 16).unwrap();
    let hello = client_hello();
    let garbage: Vec<u8> = pattern(40_000, 9);
    // A record with the greatest length, and a handshake message of the greatest length in many records.
    let long_record = [&[22, 3, 1, 0x40, 0][..], &vec![1; 16_384]].concat();
    let fragments = [22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff].repeat(8000);
    let cases: [&[u8]; 6] = [
        b"MPA ID Req Frame\0\x01\0\0",
        &garbage,
        &[&hello[..], &garbage].concat(),
        &long_record,
        &fragments,
        &[21, 3, 3, 0, 2, 2, 40],
    ];
    for bytes in cases {
        let mut raw = TcpStream::connect(patient_listener.local_addr().unwrap()).unwrap();
        // The connection may be closed while this is written.
        let _ = raw.write_all(bytes);
        read_to_end(&raw);
    }
    // Silence, before the first byte and within the first message, lasts at most for the startup timeout.
    let silent = [&[][..], &hello[..1], &hello[..hello.len() - 1], &hello].map(|bytes| {
        let mut raw = TcpStream::connect(to).unwrap();
        raw.write_all(bytes).unwrap();
        raw
    });
    silent.iter().for_each(read_to_end);
    assert!(acceptor.try_next().unwrap().is_none(), "nothing was shown");
    let a = with(ONE);
    let (done, notified) = mpsc::channel();
    a.qp.connect(to, b"", move |r| done.send(r).unwrap())
        .unwrap();
    accept_next(&acceptor, &b.qp);
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    exchange(&a, &b);
}

/// The bound that docs/connections.md states: each connection has sent its ClientHello, and most of a further record.
#[test]
fn unauthenticated_tls_connection_memory_is_bounded() {
    const MANY: usize = 200;
    const STATED: usize = 48 << 10;
    let _alone = serialize_tests();
    own_process!();
    let limit = MANY.to_string();
    let more = [("half_open", &*limit), ("startup_timeout", "600s")];
    let b = Side::new(&[&psk(ONE)[1..], &more].concat());
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let to = acceptor.local_addr().unwrap();
    let hello = client_hello();
    let unfinished = [&hello[..], &[23, 3, 3, 0x40, 0x11], &vec![7; 16_000]].concat();
    let open = |count| -> Vec<_> {
        let raws = (0..count).map(|_| {
            let mut raw = TcpStream::connect(to).unwrap();
            raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            raw.write_all(&unfinished).unwrap();
            // It was read, since it is answered.
            raw.read_exact(&mut [0; 128]).unwrap();
            raw
        });
        raws.collect()
    };
    // Allocations that do not depend on the number happen before.
    let files = descriptors();
    drop(open(8));
    wait("they are closed", || descriptors() <= files);
    let before = resident_bytes();
    let raws = open(MANY);
    wait("everything is read", || unread(to) == 0);
    let each = resident_bytes().saturating_sub(before) / MANY;
    println!("{each} bytes for each unauthenticated connection");
    assert!(each < STATED, "{each}");
    drop(raws);
}

/// The first completion of `side` is that of a write it posts now, which finds the connection closed.
fn has_received_nothing(side: &Side, peer: &Side) {
    side.post(4, write_to(peer.remote(0)), &[side.sge(0, 8)]);
    assert_eq!(side.statuses(1), [(4, Status::RetryExcErr)]);
}

#[test]
fn changed_record_is_not_delivered() {
    let _alone = serialize_tests();
    for (way, ahead) in [(0, 3), (0, 5), (0, 40), (1, 6)] {
        let (a, b) = (with(ONE), with(ONE));
        let relay = connect_through(&a, &b);
        exchange(&a, &b);
        let (from, to) = if way == 0 { (&a, &b) } else { (&b, &a) };
        assert!(from.memory.write(0, b"a message that must not arrive"));
        to.receive(1, &[to.sge(4096, 64)]);
        relay.attack_next(way, Attack::Flip, ahead);
        from.post(2, SEND, &[from.sge(0, 30)]);
        if ahead == 3 {
            // The changed record is longer than the message: it ends with the bytes that follow.
            for _ in 0..3 {
                from.post(3, write_to(to.remote(8192)), &[from.sge(8192, 200_000)]);
            }
        }
        let (_, sent) = from.statuses(1)[0];
        assert_eq!(sent, Status::RetryExcErr, "{way} {ahead}");
        // The other direction has ended as well.
        has_received_nothing(to, from);
        assert_eq!(to.memory.read(4096, 64), [0; 64], "{way} {ahead}");
    }
}

/// An attacker on the path can acknowledge bytes by TCP and end the connection: nothing is inferred from either.
#[test]
fn forged_end_completes_nothing() {
    let _alone = serialize_tests();
    for attack in [Attack::Cut, Attack::Swallow] {
        let (a, b) = (with(ONE), with(ONE));
        let relay = connect_through(&a, &b);
        exchange(&a, &b);
        b.receive(1, &[b.sge(0, 1 << 20)]);
        let before = relay.seen(0).len();
        relay.attack_next(0, attack, 100_000);
        a.post(2, SEND, &[a.sge(0, 500_000)]);
        wait("it is on its way", || {
            relay.seen(0).len() > before + 100_000
        });
        relay.end();
        assert_eq!(a.statuses(1), [(2, Status::RetryExcErr)]);
        has_received_nothing(&b, &a);
    }
}

#[test]
fn orderly_close_is_no_failure() {
    let _alone = serialize_tests();
    let (a, b) = (with(ONE), with(ONE));
    let relay = connect_through(&a, &b);
    exchange(&a, &b);
    // Posted last and closed at once: all of it arrives.
    for id in 0..16 {
        b.receive(id, &[b.sge(0, 64 << 10)]);
    }
    for id in 0..16 {
        a.post(id, SEND, &[a.sge(0, 64 << 10)]);
    }
    let sent = a.statuses(16);
    assert!(sent.iter().all(|(_, status)| *status == Status::Success));
    let Side { qp, .. } = a;
    drop(qp);
    let came = b.statuses(16);
    assert!(came.iter().all(|(_, status)| *status == Status::Success));
    b.post(1, write_to(b.remote(0)), &[b.sge(0, 8)]);
    assert_eq!(b.statuses(1), [(1, Status::RetryExcErr)]);
    drop(relay);
}
