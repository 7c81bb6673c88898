//! Tests of readiness: tokens, one-shot entries, and a poller inside another.

use verbena_nic::IoOutcome;

use super::super::testing::{TEST_TIMEOUT, connection, loopbacks, receive, send};
use super::super::{Doorbell, Socket};
use super::*;

fn poll_now(poller: &Poller) -> Vec<Ready> {
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
    ready
}

fn wait_ready(poller: &Poller) -> Vec<Ready> {
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(TEST_TIMEOUT)).unwrap();
    ready
}

#[test]
fn token_and_readiness_are_reported() {
    let poller = Poller::new().unwrap();
    let (a, b) = Socket::pair().unwrap();
    let both = Interest {
        write: true,
        ..Interest::READ
    };
    poller.add(&a, u64::MAX, Interest::READ).unwrap();
    assert_eq!(poll_now(&poller), []);
    send(&b, b"x");
    let expected = Ready {
        token: u64::MAX,
        readable: true,
        writable: false,
        hangup: false,
    };
    assert_eq!(poll_now(&poller), [expected]);
    poller.arm(&a, 3, both).unwrap();
    let expected = Ready {
        token: 3,
        writable: true,
        ..expected
    };
    assert_eq!(poll_now(&poller), [expected]);
    drop(b);
    assert!(poll_now(&poller)[0].hangup);
    poller.remove(&a).unwrap();
    assert_eq!(poll_now(&poller), []);
    assert_eq!(poller.remove(&a).unwrap_err().code(), libc::ENOENT);
}

#[test]
fn wait_ends_at_its_timeout() {
    let poller = Poller::new().unwrap();
    let start = now();
    let mut ready = Vec::new();
    let time = Duration::from_millis(3);
    poller.wait(&mut ready, Some(time)).unwrap();
    assert!(ready.is_empty() && now().since(start) >= time);
}

#[test]
fn excess_events_come_with_the_next_wait() {
    let poller = Poller::new().unwrap();
    let doorbells: Vec<Doorbell> = (0..100).map(|_| Doorbell::new().unwrap()).collect();
    for (token, doorbell) in doorbells.iter().enumerate() {
        poller
            .add(doorbell, token as u64, Interest::READ_ONCE)
            .unwrap();
        doorbell.ring();
    }
    let (first, second) = (poll_now(&poller), poll_now(&poller));
    assert_eq!((first.len(), second.len()), (MAX_READY, 100 - MAX_READY));
    let tokens: std::collections::BTreeSet<u64> =
        first.iter().chain(&second).map(|r| r.token).collect();
    assert_eq!(tokens.len(), 100);
}

/// How polling threads borrow connections from a shard: the inner poller's entry in the outer one is disarmed while
/// it is lent, and arming it takes it back. Input in between must be reported.
#[test]
fn rearmed_nested_poller_reports_missed_input() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        let (inner, outer) = (Poller::new().unwrap(), Poller::new().unwrap());
        inner.add(&b, 1, Interest::READ).unwrap();
        outer.add(&inner, 2, Interest::READ_ONCE).unwrap();
        send(&a, b"1");
        assert_eq!(wait_ready(&outer)[0].token, 2);
        // Disarmed, although the byte is still there.
        assert_eq!(poll_now(&outer), []);
        assert_eq!(poll_now(&inner)[0].token, 1);
        // Lent: the borrower reads, and more arrives that it does not see.
        assert_eq!(receive(&b, 9).0, IoOutcome::Bytes(1));
        assert_eq!(poll_now(&inner), []);
        send(&a, b"2");
        assert_eq!(wait_ready(&inner)[0].token, 1);
        assert_eq!(poll_now(&outer), []);
        // Returned: reported at once.
        outer.arm(&inner, 2, Interest::READ_ONCE).unwrap();
        assert_eq!(poll_now(&outer)[0].token, 2);
        // Returned with no input: silent until some arrives.
        assert_eq!(receive(&b, 9).0, IoOutcome::Bytes(1));
        outer.arm(&inner, 2, Interest::READ_ONCE).unwrap();
        assert_eq!(poll_now(&outer), []);
        send(&a, b"3");
        assert_eq!(wait_ready(&outer)[0].token, 2);
    }
}

/// The same with a race: a writer that never waits for the reader, and a reader that arms after each round.
#[test]
fn no_wakeup_is_lost_between_reading_and_arming() {
    const BYTES: usize = 5000;
    let (a, b) = connection(loopbacks()[0]);
    let (inner, outer) = (Poller::new().unwrap(), Poller::new().unwrap());
    inner.add(&b, 1, Interest::READ).unwrap();
    outer.add(&inner, 2, Interest::READ_ONCE).unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..BYTES {
            send(&a, b"x");
        }
        a
    });
    let mut got = 0;
    while got < BYTES {
        assert_eq!(
            wait_ready(&outer).len(),
            1,
            "a wake-up was lost after {got}"
        );
        // One wait, one read; input after them must be reported by arming.
        for _ in poll_now(&inner) {
            if let IoOutcome::Bytes(n) = receive(&b, 64).0 {
                got += n;
            }
        }
        outer.arm(&inner, 2, Interest::READ_ONCE).unwrap();
    }
    drop(writer.join().unwrap());
}

#[test]
fn timeout_is_rounded_up_to_milliseconds() {
    let nanos = |nanos| millis(Duration::from_nanos(nanos));
    assert_eq!(nanos(0), 0);
    assert_eq!(nanos(1), 1);
    assert_eq!(nanos(1_000_000), 1);
    assert_eq!(nanos(1_000_001), 2);
    assert_eq!(nanos(2_999_999_999), 3000);
    assert_eq!(millis(Duration::MAX), i32::MAX);
}
