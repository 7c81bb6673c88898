//! One event is one read, and what is removed is not read.

use std::sync::Arc;

use verbena_testing::spawn_blocked;

use super::*;

fn non_blocking<E>(mailbox: &Mailbox<E>) {
    // SAFETY: `fcntl` with `F_SETFL` takes an integer; the mailbox keeps the descriptor open.
    let refused = unsafe { libc::fcntl(mailbox.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(refused, 0);
}

#[test]
fn events_are_taken_in_order_then_eagain() {
    let mailbox = Mailbox::new().unwrap();
    non_blocking(&mailbox);
    for event in 0..3 {
        mailbox.put_if(event, || true);
    }
    mailbox.put_if(9, || false);
    for event in 0..3 {
        assert_eq!(mailbox.take(|_| ()), Ok(event));
    }
    assert_eq!(mailbox.take(|_| ()), Err(Errno::AGAIN));
}

#[test]
fn full_event_queue_reports_overflow_once() {
    let mailbox = Mailbox::new().unwrap();
    non_blocking(&mailbox);
    let all = || core::iter::from_fn(|| mailbox.take(|_| ()).ok()).collect::<Vec<_>>();
    let put = |event| mailbox.put_within(3, event, || true, || -1);
    let accepted: Vec<_> = (0..6).map(put).collect();
    assert_eq!(accepted, [false, false, false, true, false, false]);
    assert_eq!(mailbox.take(|_| ()), Ok(0));
    assert!(
        put(6),
        "there is room for no event, but for the next overflow"
    );
    assert!(!put(7));
    assert_eq!(all(), [1, 2, -1, -1]);
    assert!(!put(8));
    assert_eq!(all(), [8]);
}

#[test]
fn removed_events_do_not_signal_descriptor() {
    let mailbox = Mailbox::new().unwrap();
    non_blocking(&mailbox);
    for event in [1, 2, 1, 1, 2] {
        mailbox.put_if(event, || true);
    }
    mailbox.remove(|event| *event == 1, || ());
    let rest: Vec<_> = core::iter::from_fn(|| mailbox.take(|_| ()).ok()).collect();
    assert_eq!(rest, [2, 2]);
    let mut pollfd = libc::pollfd {
        fd: mailbox.fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `pollfd` is a local, and the count is one.
    assert_eq!(unsafe { libc::poll(&raw mut pollfd, 1, 0) }, 0);
}

#[test]
fn take_racing_remove_loses_no_event() {
    for round in 0..300 {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let taker = mailbox.clone();
        let taker = std::thread::spawn(move || taker.take(|_| ()));
        mailbox.put_if(1, || true);
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        mailbox.remove(|event| *event == 1, || ());
        mailbox.put_if(2, || true);
        let first = taker.join().unwrap().unwrap();
        if first == 1 {
            assert_eq!(mailbox.take(|_| ()), Ok(2));
        } else {
            assert_eq!(first, 2);
        }
    }
}

#[test]
fn destroy_waits_for_all_acknowledgements() {
    let acks = Acks::default();
    acks.wait();
    acks.delivered();
    acks.delivered();
    acks.acknowledged(1);
    std::thread::scope(|scope| {
        let waiter = spawn_blocked(scope, || acks.wait());
        acks.acknowledged(7);
        waiter.join().unwrap();
    });
}
