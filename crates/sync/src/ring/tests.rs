//! Tests of the queue without a lock: plain ones, one with threads, and models of every interleaving (`--cfg loom`).

use super::*;

#[cfg(not(loom))]
mod plain {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_come_out_in_order_across_chunks() {
        let (mut tx, mut rx) = ring();
        assert!(rx.is_empty() && rx.pop().is_none());
        for id in 0..5 * SLOTS + 3 {
            tx.push(id);
        }
        assert!(!rx.is_empty());
        for id in 0..5 * SLOTS + 3 {
            assert_eq!(rx.pop(), Some(id));
        }
        assert!(rx.is_empty() && rx.pop().is_none());
    }

    /// Every pattern of bursts against a `VecDeque`.
    #[test]
    fn bursts_behave_like_a_vecdeque() {
        for burst in 1..=3 * SLOTS {
            for left in 0..3 {
                let (mut tx, mut rx) = ring();
                let mut plain = VecDeque::new();
                for id in 0..8 * SLOTS {
                    tx.push(id);
                    plain.push_back(id);
                    if id % burst == burst - 1 {
                        while plain.len() > left {
                            assert_eq!(rx.pop(), plain.pop_front());
                        }
                        assert_eq!(rx.is_empty(), plain.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn an_idle_queue_owns_no_chunk() {
        let (tx, rx) = ring::<[u64; 8]>();
        assert!(tx.chunk.is_null() && rx.position.chunk.is_null());
    }

    /// One push, one pop: always the same chunk.
    #[test]
    fn ping_pong_stays_on_one_chunk() {
        let (mut tx, mut rx) = ring();
        tx.push(0);
        let chunk = tx.chunk;
        assert_eq!(rx.pop(), Some(0));
        for id in 1..10 * SLOTS {
            tx.push(id);
            assert_eq!(rx.pop(), Some(id));
            assert_eq!(tx.chunk, chunk);
            let spare = tx.shared.spare.load(Ordering::Relaxed);
            assert!(spare.is_null());
        }
    }

    /// A queue that is never quite empty alternates between two chunks and allocates no third.
    #[test]
    fn drained_chunk_is_used_again() {
        let (mut tx, mut rx) = ring();
        tx.push(0);
        let mut chunks = vec![tx.chunk];
        for id in 1..10 * SLOTS {
            tx.push(id);
            assert_eq!(rx.pop(), Some(id - 1));
            if !chunks.contains(&tx.chunk) {
                chunks.push(tx.chunk);
            }
        }
        assert_eq!(chunks.len(), 2);
    }

    #[test]
    fn remaining_values_are_dropped_with_either_end() {
        let value = Arc::new(());
        for popped in [0, 1, SLOTS - 1, SLOTS, SLOTS + 1, 2 * SLOTS] {
            for more in [0, 1, SLOTS, SLOTS + 1] {
                for consumer_first in [true, false] {
                    let (mut tx, mut rx) = ring();
                    (0..2 * SLOTS).for_each(|_| tx.push(value.clone()));
                    (0..popped).for_each(|_| drop(rx.pop()));
                    if consumer_first {
                        drop(rx);
                        (0..more).for_each(|_| tx.push(value.clone()));
                        drop(tx);
                    } else {
                        (0..more).for_each(|_| tx.push(value.clone()));
                        drop(tx);
                        assert_eq!(rx.is_empty(), popped == 2 * SLOTS && more == 0);
                        drop(rx);
                    }
                    assert_eq!(Arc::strong_count(&value), 1, "{popped} {more}");
                }
            }
        }
    }

    #[test]
    fn two_threads_lose_nothing() {
        const COUNT: u64 = 200_000;
        let (mut tx, mut rx) = ring();
        std::thread::scope(|scope| {
            scope.spawn(move || (0..COUNT).for_each(|id| tx.push(Box::new(id))));
            let mut next = 0;
            while next < COUNT {
                match rx.pop() {
                    Some(id) => {
                        assert_eq!(*id, next);
                        next += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
            assert!(rx.is_empty());
        });
    }
}

/// Chunks of two slots, values that loom counts, and chunks whose leaks it detects.
#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Pops at most so often, checking order; returns the next number expected.
    fn pop(rx: &mut Consumer<u32>, times: u32, mut next: u32) -> u32 {
        for _ in 0..times {
            if let Some(id) = rx.pop() {
                assert_eq!(id, next, "lost or out of order");
                next += 1;
            }
        }
        next
    }

    /// Five values over three chunks against a consumer that tries as often: each end of a chunk is reached by either
    /// side first, and the chunk is used again, left, or kept.
    #[test]
    fn order_is_kept_across_chunks() {
        loom::model(|| {
            let (mut tx, mut rx) = ring();
            let producer = thread::spawn(move || (0..5).for_each(|id| tx.push(id)));
            let next = pop(&mut rx, 5, 0);
            producer.join().unwrap();
            assert_eq!(rx.is_empty(), next == 5);
            assert_eq!(pop(&mut rx, 5 - next, next), 5);
            assert!(rx.is_empty() && rx.pop().is_none());
        });
    }

    /// There are a chunk and a spare already: the handshakes among chunks in use.
    #[test]
    fn a_spare_chunk_is_used_again() {
        loom::model(|| {
            let (mut tx, mut rx) = ring();
            (0..4).for_each(|id| tx.push(id));
            assert_eq!(pop(&mut rx, 3, 0), 3);
            assert!(!tx.shared.spare.load(Ordering::Relaxed).is_null());
            let producer = thread::spawn(move || {
                (4..8).for_each(|id| tx.push(id));
                tx
            });
            let next = pop(&mut rx, 4, 3);
            let _tx = producer.join().unwrap();
            assert_eq!(pop(&mut rx, 8 - next, next), 8);
        });
    }

    /// Either end is dropped while the other works: every value and every chunk is freed.
    #[test]
    fn either_end_may_be_dropped_first() {
        loom::model(|| {
            let (mut tx, mut rx) = ring();
            let value = Arc::new(());
            let ours = value.clone();
            let producer = thread::spawn(move || (0..3).for_each(|_| tx.push(ours.clone())));
            drop(rx.pop());
            drop(rx.pop());
            drop(rx);
            producer.join().unwrap();
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }

    /// `is_empty` is as reliable as a pop: what happened before is seen.
    #[test]
    fn is_empty_sees_earlier_pushes() {
        loom::model(|| {
            let (mut tx, mut rx) = ring();
            let producer = thread::spawn(move || {
                tx.push(0);
                tx.push(1);
            });
            if !rx.is_empty() {
                assert_eq!(rx.pop(), Some(0));
            }
            producer.join().unwrap();
            assert!(!rx.is_empty());
        });
    }
}
