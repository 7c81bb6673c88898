//! Settings that change how a connection behaves, each seen from the other side.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, SEND, Side, join, pair};
use verbena_nic::{QpState, Status, Wc};

/// B polls until a message is there and stays away afterwards; how long A waits to be told that it arrived.
fn acknowledged_after(a: &Side, b: &Side) -> Duration {
    b.receive(1, &[b.sge(0, 64)]);
    let mut some = [Wc::BLANK; 4];
    // Often enough for the connection to be lent to us.
    for _ in 0..20 {
        assert_eq!(b.cq.poll(&mut some), 0);
    }
    let began = Instant::now();
    a.post(2, SEND, &[a.sge(0, 64)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    while a.cq.poll(&mut some) == 0 {
        assert!(began.elapsed() < PATIENCE);
    }
    began.elapsed()
}

/// The peer of a polling program that does something else after a message waits once, not each time.
#[test]
fn acknowledgements_that_were_put_off_for_too_long_are_not_put_off_again() {
    let slow = Duration::from_millis(400);
    let (a, b) = (Side::new(&[]), Side::new(&[("lend_time", "500ms")]));
    join(&a, &b);
    // Whether the first one is put off depends on who reads it; without the memory of it nearly all would be.
    let late = (0..6)
        .filter(|_| acknowledged_after(&a, &b) >= slow)
        .count();
    assert!(late <= 1, "{late} times");
    let settings = [("lend_time", "500ms"), ("ack_delay", "0s")];
    let (a, b) = (Side::new(&[]), Side::new(&settings));
    join(&a, &b);
    assert!(acknowledged_after(&a, &b) < slow, "never");
}

/// One that polls on as fast as messages come acknowledges them now and then all the same.
#[test]
fn acknowledgements_are_due_after_so_many_requests_or_bytes() {
    for (key, value, bytes) in [("ack_requests", "1", 64), ("ack_bytes", "32K", 60_000)] {
        let settings = [("lend_time", "500ms"), (key, value)];
        let (a, b) = (Side::new(&[]), Side::new(&settings));
        join(&a, &b);
        b.receive(1, &[b.sge(0, 60_000)]);
        let mut some = [Wc::BLANK; 4];
        for _ in 0..20 {
            assert_eq!(b.cq.poll(&mut some), 0);
        }
        let began = Instant::now();
        a.post(2, SEND, &[a.sge(0, bytes)]);
        assert_eq!(b.statuses(1), [(1, Status::Success)]);
        assert_eq!(a.statuses(1), [(2, Status::Success)]);
        let took = began.elapsed();
        assert!(took < Duration::from_millis(400), "{key}: {took:?}");
    }
}

#[test]
fn a_standard_peer_waits_for_a_receive_as_long_as_the_setting_says() {
    let settings = [("extensions", "off"), ("receive_wait", "200ms")];
    let (a, b) = pair(&settings);
    let began = Instant::now();
    a.post(1, SEND, &[a.sge(0, 8)]);
    while b.qp.state() != QpState::Err {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    let early = Duration::from_millis(200);
    assert!(took >= early && took < early * 4, "{took:?}");
}
