//! Tests of completion queues: order, arming, overflow, resize, pollers that race with producers, and models of that (`--cfg loom`).

use verbena_events::event::Reason;

use super::*;
use crate::wc::{Status, WcOp};

fn wc(id: u64) -> Wc {
    Wc {
        id,
        qpn: (id % 2) as u32,
        status: Status::Success,
        op: WcOp::Receive,
        ..Wc::default()
    }
}

fn ids(cq: &Cq) -> Vec<u64> {
    let mut out = [wc(0); 100];
    let n = cq.poll(&mut out);
    out[..n].iter().map(|w| w.id).collect()
}

#[test]
fn polls_return_entries_in_order() {
    let cq = Cq::new(1, 10).unwrap();
    for id in 0..5 {
        assert!(cq.push(wc(id), &mut Outbox::new()));
    }
    let mut two = [wc(9); 2];
    assert_eq!(cq.poll(&mut two), 2);
    assert_eq!([two[0].id, two[1].id], [0, 1]);
    assert_eq!((cq.len(), ids(&cq)), (3, vec![2, 3, 4]));
    assert_eq!(cq.poll(&mut two), 0);
}

std::thread_local! {
    /// The clock of this test's thread.
    static NOW: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

fn clock() -> Timestamp {
    let monotonic = NOW.get();
    Timestamp {
        monotonic,
        realtime: monotonic + 1000,
    }
}

fn stamped(capacity: usize, ignore_overrun: bool) -> Cq {
    let options = CqOptions {
        clock: Some(clock),
        ignore_overrun,
    };
    Cq::with_options(1, capacity, options).unwrap()
}

fn push_at(cq: &Cq, id: u64, now: u64) {
    NOW.set(now);
    assert!(cq.push(wc(id), &mut Outbox::new()));
}

fn times(cq: &Cq) -> Vec<(u64, u64)> {
    let next = || cq.poll_stamped().map(|(wc, at)| (wc.id, at.monotonic));
    core::iter::from_fn(next).collect()
}

#[test]
fn entries_have_the_time_of_writing() {
    let cq = stamped(10, false);
    for id in 0..40 {
        push_at(&cq, id, id * 10);
        NOW.set(9999);
        if id % 4 == 3 {
            let expected: Vec<_> = (id - 3..=id).map(|id| (id, id * 10)).collect();
            assert_eq!(times(&cq), expected);
        }
    }
    // A poll without timestamps takes them out as well.
    push_at(&cq, 50, 500);
    push_at(&cq, 51, 510);
    assert_eq!(cq.poll(&mut [wc(0)]), 1);
    assert_eq!(times(&cq), [(51, 510)]);
    assert_eq!(cq.poll_stamped(), None);
}

#[test]
fn kept_entries_keep_their_time() {
    let cq = stamped(10, false);
    (1..=6).for_each(|id| push_at(&cq, id, id * 10));
    // The odd ones are of this queue pair.
    cq.discard_qp_entries(1);
    push_at(&cq, 8, 80);
    assert_eq!(times(&cq), [(2, 20), (4, 40), (6, 60), (8, 80)]);
    push_at(&cq, 10, 100);
    assert_eq!(times(&cq), [(10, 100)]);
}

#[test]
fn full_queue_with_clock_overflows() {
    let cq = stamped(2, false);
    let mut outbox = Outbox::new();
    assert!(cq.push(wc(1), &mut outbox) && cq.push(wc(2), &mut outbox));
    assert!(!cq.push(wc(3), &mut outbox) && !cq.push(wc(4), &mut outbox));
    assert_eq!(outbox.events(), [Event::CqOverflow { cq: 1 }]);
    cq.resize(4).unwrap();
    push_at(&cq, 5, 50);
    let seen = times(&cq);
    assert_eq!(seen.iter().map(|at| at.0).collect::<Vec<_>>(), [1, 2, 5]);
    assert_eq!(seen[2].1, 50, "lost entries leave no timestamp");
}

#[test]
fn ignored_overrun_replaces_oldest_entries() {
    for clock in [None, Some(clock as fn() -> Timestamp)] {
        let options = CqOptions {
            clock,
            ignore_overrun: true,
        };
        let cq = Cq::with_options(1, 3, options).unwrap();
        let mut outbox = Outbox::new();
        assert!((1..=10).all(|id| cq.push(wc(id), &mut outbox)));
        assert!(outbox.events().is_empty() && !cq.has_overflowed());
        assert_eq!((cq.len(), ids(&cq)), (3, vec![8, 9, 10]));
        assert!(cq.push(wc(11), &mut outbox));
        assert_eq!(ids(&cq), [11]);
        cq.arm(Arm::Next);
        assert!(cq.push(wc(12), &mut outbox));
        assert_eq!(outbox.events().len(), 1);
    }
}

#[test]
fn one_notification_per_arming() {
    let cq = Cq::new(7, 10).unwrap();
    let mut outbox = Outbox::new();
    cq.push(wc(1), &mut outbox);
    assert!(outbox.events().is_empty(), "not armed");
    cq.arm(Arm::Next);
    cq.push(wc(2), &mut outbox);
    cq.push(wc(3), &mut outbox);
    assert_eq!(
        outbox.events(),
        [Event::Completion {
            cq: 7,
            reason: Reason::Next
        }]
    );
}

/// N7: a request may ask for its own notification.
#[test]
fn entry_can_request_notification_without_arming() {
    let cq = Cq::new(7, 10).unwrap();
    let mut outbox = Outbox::new();
    assert!(cq.push_and_notify(wc(1), &mut outbox));
    cq.arm(Arm::Solicited);
    assert!(cq.push_and_notify(wc(2), &mut outbox));
    cq.push(wc(3), &mut outbox);
    assert_eq!(
        outbox.events().len(),
        2,
        "once each, and the arming is used up"
    );
}

#[test]
fn solicited_arming_waits_for_urgent_entry() {
    let cq = Cq::new(7, 10).unwrap();
    let mut outbox = Outbox::new();
    cq.arm(Arm::Solicited);
    cq.push(wc(1), &mut outbox);
    assert!(outbox.events().is_empty());
    let urgent = Wc {
        solicited: true,
        ..wc(2)
    };
    cq.push(urgent, &mut outbox);
    assert_eq!(outbox.events().len(), 1);
    cq.arm(Arm::Next);
    cq.arm(Arm::Solicited);
    cq.push(wc(3), &mut outbox);
    assert_eq!(outbox.events().len(), 2, "next outweighs solicited");
}

#[test]
fn overflow_raises_one_event() {
    let cq = Cq::new(7, 2).unwrap();
    let mut outbox = Outbox::new();
    assert!(cq.push(wc(1), &mut outbox) && cq.push(wc(2), &mut outbox));
    assert!(!cq.push(wc(3), &mut outbox) && !cq.push(wc(4), &mut outbox));
    assert_eq!(outbox.events(), [Event::CqOverflow { cq: 7 }]);
    assert!(cq.has_overflowed());
    assert_eq!(ids(&cq), [1, 2]);
}

#[test]
fn invalid_sizes_are_refused_on_create_and_resize() {
    assert_eq!(Cq::new(1, 0).unwrap_err(), CqError::Size(0));
    assert!(Cq::new(1, MAX_ENTRIES + 1).is_err());
    let cq = Cq::new(1, 3).unwrap();
    for id in 0..3 {
        cq.push(wc(id), &mut Outbox::new());
    }
    let (waiting, wanted) = (3, 2);
    assert_eq!(cq.resize(2), Err(CqError::Waiting { waiting, wanted }));
    cq.resize(4).unwrap();
    assert!(cq.push(wc(3), &mut Outbox::new()));
    assert_eq!(ids(&cq), [0, 1, 2, 3]);
}

#[test]
fn a_destroyed_queue_pair_leaves_no_entries() {
    let cq = Cq::new(1, 10).unwrap();
    for id in 0..6 {
        cq.push(wc(id), &mut Outbox::new());
    }
    cq.discard_qp_entries(1);
    assert_eq!(ids(&cq), [0, 2, 4]);
    assert!(cq.is_empty());
}

#[test]
fn forgetting_a_queue_pair_preserves_entry_order() {
    let cq = Cq::new(1, 100).unwrap();
    let push = |ids: core::ops::Range<u64>| {
        for id in ids {
            assert!(cq.push(wc(id), &mut Outbox::new()));
        }
    };
    push(0..40);
    cq.discard_qp_entries(1);
    assert_eq!(cq.len(), 20);
    push(40..44);
    let mut some = [wc(0); 19];
    assert_eq!(cq.poll(&mut some), 19);
    assert!(some.iter().map(|wc| wc.id).eq((0..38).step_by(2)));
    cq.discard_qp_entries(1);
    assert_eq!(ids(&cq), [38, 40, 42]);
    assert!(cq.is_empty());
}

#[test]
fn forgotten_entries_make_room() {
    let cq = Cq::new(1, 4).unwrap();
    for id in 0..4 {
        cq.push(wc(id), &mut Outbox::new());
    }
    cq.discard_qp_entries(0);
    let mut outbox = Outbox::new();
    assert!(cq.push(wc(5), &mut outbox) && cq.push(wc(7), &mut outbox));
    assert!(!cq.push(wc(9), &mut outbox));
    assert_eq!(ids(&cq), [1, 3, 5, 7]);
}

/// Two cache lines for the ends, one for the number and the padding: thousands of queues may be idle.
#[test]
fn queue_struct_fits_in_320_bytes() {
    assert!(size_of::<Cq>() <= 320, "{}", size_of::<Cq>());
}

#[test]
fn concurrent_pollers_see_entries_in_order() {
    const COUNT: u64 = 5_000;
    let cq = Cq::new(1, COUNT as usize).unwrap();
    let seen = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                assert!(cq.push(wc(id), &mut Outbox::new()));
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = None;
                while seen.load(Ordering::SeqCst) < COUNT as usize {
                    assert!(cq.len() <= COUNT as usize);
                    cq.discard_qp_entries(2);
                    let mut out = [wc(0); 5];
                    let n = cq.poll(&mut out);
                    seen.fetch_add(n, Ordering::SeqCst);
                    for wc in &out[..n] {
                        assert!(last < Some(wc.id), "each poller sees the order");
                        last = Some(wc.id);
                    }
                }
            });
        }
    });
    assert!(cq.is_empty());
}

#[test]
fn arming_poller_misses_no_entry() {
    let cq = Cq::new(1, 100_000).unwrap();
    let fired = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for base in [0, 1_000_000] {
            let (cq, fired) = (&cq, &fired);
            scope.spawn(move || {
                for id in 0..20_000 {
                    let mut outbox = Outbox::new();
                    assert!(cq.push(wc(base + id), &mut outbox));
                    fired.fetch_add(outbox.events().len(), Ordering::SeqCst);
                }
            });
        }
        let mut seen = [0, 0];
        let mut armed = 0;
        while seen[0] + seen[1] < 40_000 {
            cq.arm(Arm::Next);
            armed += 1;
            let mut out = [wc(0); 64];
            let n = cq.poll(&mut out);
            for w in &out[..n] {
                let side = usize::from(w.id >= 1_000_000);
                assert_eq!(
                    w.id % 1_000_000,
                    seen[side],
                    "each producer's order is kept"
                );
                seen[side] += 1;
            }
        }
        assert!(fired.load(Ordering::SeqCst) <= armed);
    });
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle};

    use super::*;

    /// Pushes the entries; returns the events.
    fn producer(cq: &Arc<Cq>, ids: core::ops::Range<u64>) -> JoinHandle<Vec<Event>> {
        let cq = cq.clone();
        thread::spawn(move || {
            let mut outbox = Outbox::new();
            for id in ids {
                cq.push(wc(id), &mut outbox);
            }
            outbox.events().to_vec()
        })
    }

    /// Arm, poll once more, sleep if empty: never asleep with an entry waiting and no notification (N7).
    #[test]
    fn poller_that_arms_and_finds_nothing_is_notified() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 4).unwrap());
            let producer = producer(&cq, 0..2);
            let mut found = ids(&cq).len();
            assert!(cq.len() <= 2, "an entry left before it was counted");
            cq.arm(Arm::Next);
            found += ids(&cq).len();
            let fired = producer.join().unwrap().len();
            assert!(fired <= 1, "one notification per arming");
            assert!(fired == 1 || found == 2, "asleep, and entries wait");
        });
    }

    /// The same with two producers, either of which may notify.
    #[test]
    fn either_of_two_producers_notifies() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 4).unwrap());
            let producers = [producer(&cq, 0..1), producer(&cq, 1..2)];
            cq.arm(Arm::Next);
            let found = ids(&cq).len();
            let events = producers.map(|producer| producer.join().unwrap().len());
            let fired: usize = events.iter().sum();
            assert!(fired <= 1, "one notification per arming");
            assert!(fired == 1 || found == 2, "asleep, and entries wait");
            assert_eq!(found + ids(&cq).len(), 2);
        });
    }

    /// A push into a full queue takes the oldest entry out, also while a thread polls: each entry is seen once at most, and the last one.
    #[test]
    fn ignored_overrun_races_with_poll() {
        loom::model(|| {
            let cq = Arc::new(stamped(1, true));
            let producer = producer(&cq, 0..2);
            let mut seen = ids(&cq);
            assert!(producer.join().unwrap().is_empty());
            seen.extend(ids(&cq));
            assert!(seen == [0, 1] || seen == [1], "{seen:?}");
        });
    }

    /// A thread that sees an event finds its entry, without taking a lock.
    #[test]
    fn an_entry_is_visible_before_its_event() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 4).unwrap());
            let received = Arc::new(AtomicUsize::new(0));
            cq.arm(Arm::Next);
            let raise = {
                let (cq, received) = (cq.clone(), received.clone());
                thread::spawn(move || {
                    let mut outbox = Outbox::new();
                    cq.push(wc(0), &mut outbox);
                    received.store(outbox.events().len(), Ordering::Release);
                })
            };
            if received.load(Ordering::Acquire) == 1 {
                assert!(!cq.is_empty());
                assert_eq!(ids(&cq), [0]);
            }
            raise.join().unwrap();
            assert_eq!(received.load(Ordering::Relaxed), 1);
        });
    }

    /// A thread that sees a count finds the entry, and counts are consistent while others push and poll.
    #[test]
    fn a_count_is_never_ahead_of_the_entries() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 4).unwrap());
            let producer = producer(&cq, 0..1);
            let looker = {
                let cq = cq.clone();
                thread::spawn(move || assert!(cq.len() <= 1, "left before it was counted"))
            };
            let waits = !cq.is_empty();
            let found = ids(&cq).len();
            assert!(found == 1 || !waits, "counted, but not there");
            producer.join().unwrap();
            looker.join().unwrap();
        });
    }

    /// A queue of two entries, and three pushes: a poll makes room, or the third is lost and the overflow is raised once.
    #[test]
    fn full_queue_overflows_unless_polled() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 2).unwrap());
            let producer = producer(&cq, 0..3);
            let mut one = [wc(9)];
            let polled = cq.poll(&mut one);
            assert!(polled == 0 || one[0].id == 0);
            let events = producer.join().unwrap();
            let lost = usize::from(cq.has_overflowed());
            assert_eq!(events.len(), lost, "told once");
            assert!(lost == 0 || polled <= 1);
            assert!(lost == 1 || polled == 1, "without a poll there is no room");
            let left: Vec<u64> = (polled as u64..3 - lost as u64).collect();
            assert_eq!(ids(&cq), left);
        });
    }

    /// Forgetting a queue pair between a poller and a producer of another: the others keep their order, none is lost.
    #[test]
    fn concurrent_forget_loses_no_other_entry() {
        loom::model(|| {
            let cq = Arc::new(Cq::new(1, 8).unwrap());
            for id in 0..3 {
                cq.push(wc(id), &mut Outbox::new());
            }
            let producer = {
                let cq = cq.clone();
                thread::spawn(move || cq.push(wc(4), &mut Outbox::new()))
            };
            let poller = {
                let cq = cq.clone();
                thread::spawn(move || {
                    let mut out = [wc(9); 2];
                    let n = cq.poll(&mut out);
                    assert!(cq.len() <= 3);
                    out[..n].iter().map(|wc| wc.id).collect::<Vec<u64>>()
                })
            };
            cq.discard_qp_entries(1);
            assert!(producer.join().unwrap());
            let mut seen = poller.join().unwrap();
            seen.extend(ids(&cq));
            assert!(seen == [0, 2, 4] || seen == [0, 1, 2, 4], "{seen:?}");
            assert!(cq.is_empty());
        });
    }
}
