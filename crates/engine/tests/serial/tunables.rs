//! Settings that change the behaviour of a connection, each observed from the other side.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use verbena_nic::{QpState, Status, Wc};

use crate::common::{
    SEND, Side, TEST_TIMEOUT, accept_next, connect_sides, loopback, pair, serialize_tests, wait,
};

/// An acknowledgement that comes later was deferred: one that is comes after the longest `lend_time`, any other one within milliseconds.
const DEFERRED: Duration = Duration::from_millis(900);

/// B polls until a message is there and stops polling; returns how long A waits for its acknowledgement.
fn acknowledged_after(a: &Side, b: &Side, bytes: usize) -> Duration {
    b.receive(1, &[b.sge(0, 60_000)]);
    let mut some = [Wc::default(); 4];
    // Often enough for the connection to be lent to this thread.
    for _ in 0..20 {
        assert_eq!(b.cq.poll(&mut some), 0);
    }
    let began = Instant::now();
    a.post(2, SEND, &[a.sge(0, bytes)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    while a.cq.poll(&mut some) == 0 {
        assert!(began.elapsed() < TEST_TIMEOUT);
    }
    began.elapsed()
}

/// With these settings the first message of a connection is acknowledged before `lend_time` has passed.
fn assert_acknowledges_at_once(settings: &[(&str, &str)], bytes: usize) {
    let settings = [&[("lend_time", "1s")][..], settings].concat();
    let is_at_once = |_| {
        let (a, b) = (Side::new(&[]), Side::new(&settings));
        connect_sides(&a, &b);
        // real time: the setting is a time, of at most 1 s. On a busy machine a thread may not run for so long, but not three times.
        acknowledged_after(&a, &b, bytes) < DEFERRED
    };
    assert!((0..3).any(is_at_once), "{settings:?}");
}

/// If a polling program does something else after a message, its peer waits once, not each time.
#[test]
fn late_acknowledgements_are_not_deferred_again() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(&[]), Side::new(&[("lend_time", "1s")]));
    connect_sides(&a, &b);
    // A new connection delays nothing.
    for _ in 0..100 {
        acknowledged_after(&a, &b, 64);
    }
    // Whether the first one is delayed depends on the thread that reads it; without the backoff nearly all would be.
    let late = (0..6)
        .filter(|_| acknowledged_after(&a, &b, 64) >= DEFERRED)
        .count();
    assert!(late <= 1, "{late} times");
    assert_acknowledges_at_once(&[("ack_delay", "0s")], 64);
}

/// A program that polls as fast as messages arrive acknowledges them after a limit all the same.
#[test]
fn acknowledgements_are_due_after_requests_or_bytes() {
    let _alone = serialize_tests();
    for (key, value, bytes) in [("ack_requests", "1", 64), ("ack_bytes", "32K", 60_000)] {
        assert_acknowledges_at_once(&[(key, value)], bytes);
    }
}

#[test]
fn receive_wait_limits_a_standard_peer() {
    let _alone = serialize_tests();
    let settings = [("extensions", "off"), ("receive_wait", "200ms")];
    let (a, b) = pair(&settings);
    let began = Instant::now();
    a.post(1, SEND, &[a.sge(0, 8)]);
    wait("the wait ends", || b.qp.state() == QpState::Err);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
}

/// A standard responder without the adapter's code: reads the Request, agrees without the extensions, and sends nothing of its own.
fn silent_responder() -> (
    std::net::SocketAddr,
    std::thread::JoinHandle<std::net::TcpStream>,
) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut raw, _) = listener.accept().unwrap();
        let mut request = [0; 24];
        raw.read_exact(&mut request).unwrap();
        // Revision 2 without the peer-to-peer model, one read at a time.
        raw.write_all(b"MPA ID Rep Frame\x10\x02\0\x04\0\x01\0\x01")
            .unwrap();
        raw.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        raw
    });
    (at, peer)
}

/// Everything that arrives until nothing arrives for a while.
fn read_until_quiet(raw: &mut std::net::TcpStream) -> Vec<u8> {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = raw.read(&mut some) {
        all.extend(&some[..n]);
    }
    all
}

/// siw may leave the first frame unread until further bytes arrive; a repeated empty Write makes it read.
#[test]
fn silent_standard_peer_is_nudged_once() {
    let _alone = serialize_tests();
    const EMPTY_WRITE: &[u8] = b"\0\x0e\xc1\x40\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0";
    const SENT: usize = 2 + 18 + 8 + 4;
    for (nudge, sends, answers, expected) in [
        ("20ms", true, false, SENT + EMPTY_WRITE.len()),
        // Nothing was sent that it could have missed.
        ("20ms", false, false, 0),
        // The peer has answered.
        ("100ms", true, true, SENT),
        ("0s", true, false, SENT),
    ] {
        let a = Side::new(&[("rtr", "none"), ("crc", "off"), ("nudge", nudge)]);
        let (at, peer) = silent_responder();
        crate::common::dial(&a.qp, at).unwrap();
        a.receive(9, &[a.sge(64, 64)]);
        if sends {
            a.post(1, SEND, &[a.sge(0, 8)]);
        }
        let mut raw = peer.join().unwrap();
        if answers {
            raw.write_all(b"\0\x12\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0")
                .unwrap();
            assert_eq!(a.statuses(2).len(), 2);
        }
        let came = read_until_quiet(&mut raw);
        assert_eq!(came.len(), expected, "{nudge} {sends} {answers}: {came:x?}");
        if expected > SENT {
            assert_eq!(&came[SENT..], EMPTY_WRITE);
        }
        assert_eq!(a.qp.state(), QpState::Rts);
    }
}

/// A peer of our kind without the extensions ignores it, whatever was negotiated.
#[test]
fn nudge_does_not_disturb_a_peer() {
    let _alone = serialize_tests();
    for rtr in ["none", "write", "read"] {
        let (a, b) = pair(&[("extensions", "off"), ("nudge", "10ms"), ("rtr", rtr)]);
        b.receive(1, &[b.sge(0, 8)]);
        a.post(1, SEND, &[a.sge(0, 8)]);
        let before = a.qp.view().counters.bytes_out;
        assert_eq!(b.statuses(1), [(1, Status::Success)]);
        // A peer that has answered the read is not nudged.
        if rtr != "read" {
            wait("the nudge", || a.qp.view().counters.bytes_out > before);
        }
        b.receive(2, &[b.sge(0, 8)]);
        a.post(2, SEND, &[a.sge(0, 8)]);
        assert_eq!(b.statuses(1), [(2, Status::Success)], "{rtr}");
        assert_eq!(a.statuses(2).len(), 2);
        assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
    }
}

/// RFC 5044 has a responder wait for the first frame; a client on siw may wait for its server's.
#[test]
fn responder_sends_first_after_speak_first() {
    let _alone = serialize_tests();
    for (speak_first, speaks) in [("20ms", true), ("0s", false)] {
        for request in [
            &b"MPA ID Req Frame\0\x01\0\0"[..],
            b"MPA ID Req Frame\x10\x02\0\x04\0\x01\0\x01",
        ] {
            let side = Side::new(&[("crc", "off"), ("speak_first", speak_first)]);
            let listener = side.engine.listen(loopback(), 4).unwrap();
            let mut raw = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            raw.write_all(request).unwrap();
            accept_next(&listener, &side.qp);
            let mut reply = vec![0; request.len()];
            raw.read_exact(&mut reply).unwrap();
            side.post(1, SEND, &[side.sge(0, 8)]);
            side.receive(2, &[side.sge(64, 8)]);
            let mut sent = [0; 2 + 18 + 8 + 4];
            if speaks {
                raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                raw.read_exact(&mut sent).unwrap();
            } else {
                raw.set_read_timeout(Some(Duration::from_millis(200)))
                    .unwrap();
                assert!(raw.read(&mut sent).is_err(), "silent until the first frame");
            }
            // The peer's own first frame is accepted before and after.
            raw.write_all(b"\0\x12\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0")
                .unwrap();
            let mut ended = side.statuses(2);
            ended.sort_unstable_by_key(|(id, _)| *id);
            assert_eq!(ended, [(1, Status::Success), (2, Status::Success)]);
            assert_eq!(side.qp.state(), QpState::Rts);
        }
    }
}

/// A close directly after the Terminate overtakes siw's own establishment.
#[test]
fn close_follows_terminate_after_a_delay() {
    let _alone = serialize_tests();
    let a = Side::new(&[("rtr", "none"), ("crc", "off")]);
    let (at, peer) = silent_responder();
    crate::common::dial(&a.qp, at).unwrap();
    let mut raw = peer.join().unwrap();
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let began = Instant::now();
    // A message on an unknown queue.
    raw.write_all(b"\0\x12\x41\x43\0\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0")
        .unwrap();
    let said = read_until_quiet(&mut raw);
    assert!(began.elapsed() >= Duration::from_millis(100));
    // The RDMAP opcode of a Terminate.
    assert_eq!(said.get(3), Some(&0x47), "{said:x?}");
}
