//! Tests of the combining lock: plain ones, one with threads, and models with the queue it is made for (`--cfg loom`).

use super::*;
use crate::ring::{Consumer, Producer, ring};

/// The value behind the lock: the ends of queues, and what was taken from them.
struct Inbox {
    from: Vec<Consumer<u32>>,
    got: Vec<u32>,
}

impl Inbox {
    fn new<const N: usize>() -> (CombiningLock<Inbox>, [Producer<u32>; N]) {
        let mut from = Vec::new();
        let to = core::array::from_fn(|_| {
            let (tx, rx) = ring();
            from.push(rx);
            tx
        });
        let got = Vec::new();
        (CombiningLock::new(Inbox { from, got }), to)
    }

    fn drain(&mut self) {
        for from in &mut self.from {
            while let Some(value) = from.pop() {
                self.got.push(value);
            }
        }
    }
}

#[cfg(not(loom))]
mod plain {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn ring_on_free_lock_runs_the_work() {
        let (lock, [mut tx]) = Inbox::new();
        tx.push(1);
        assert!(lock.run_or_delegate(Inbox::drain));
        assert_eq!(lock.read(|inbox| inbox.got.clone()), [1]);
    }

    #[test]
    fn holder_handles_rings_before_unlocking() {
        let (lock, [mut tx]) = Inbox::new();
        let mut turns = 0;
        let work = |_: &mut Inbox| {
            // As if from another thread; the holder may ring, too.
            tx.push(1);
            let rang = lock.run_or_delegate(Inbox::drain);
            assert!(!rang, "the holder takes the work");
            7
        };
        let again = |inbox: &mut Inbox| {
            turns += 1;
            inbox.drain();
        };
        assert_eq!(lock.lock_and_run(work, again), 7);
        assert_eq!(turns, 1, "only because it rang");
        assert_eq!(lock.read(|inbox| inbox.got.clone()), [1]);
    }

    #[test]
    fn ring_during_the_repeat_is_handled() {
        let (lock, [mut tx]) = Inbox::new();
        let mut rings = 3;
        let again = |inbox: &mut Inbox| {
            inbox.drain();
            if rings > 0 {
                tx.push(rings);
                rings -= 1;
                assert!(!lock.run_or_delegate(Inbox::drain));
            }
        };
        assert!(lock.run_or_delegate(again));
        assert_eq!(lock.read(|inbox| inbox.got.clone()), [3, 2, 1]);
    }

    #[test]
    fn panic_releases_the_lock() {
        let (lock, [mut tx]) = Inbox::new();
        let serve = || lock.lock_and_run(|_| panic!("a bug"), Inbox::drain);
        assert!(catch_unwind(AssertUnwindSafe(serve)).is_err());
        tx.push(1);
        assert!(lock.run_or_delegate(Inbox::drain));
    }

    #[test]
    fn concurrent_rings_are_never_lost() {
        const COUNT: u32 = 20_000;
        let (lock, to) = Inbox::new::<2>();
        std::thread::scope(|scope| {
            for mut tx in to {
                let lock = &lock;
                scope.spawn(move || {
                    for value in 0..COUNT {
                        tx.push(value);
                        lock.run_or_delegate(Inbox::drain);
                    }
                });
            }
            for _ in 0..1000 {
                lock.lock_and_run(|_| (), Inbox::drain);
                lock.read(|inbox| inbox.got.len());
            }
        });
        assert_eq!(lock.read(|inbox| inbox.got.len()), 2 * COUNT as usize);
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle};

    use super::*;

    fn ringer(
        lock: &Arc<CombiningLock<Inbox>>,
        mut tx: Producer<u32>,
        values: u32,
    ) -> JoinHandle<()> {
        let lock = lock.clone();
        thread::spawn(move || {
            for value in 0..values {
                tx.push(value);
                lock.run_or_delegate(Inbox::drain);
            }
        })
    }

    /// All threads have finished: no value may wait, and `DELEGATED` is unset.
    fn settled(lock: &CombiningLock<Inbox>, values: usize) {
        lock.read(|inbox| {
            assert_eq!(inbox.got.len(), values, "a ring was lost");
            assert!(inbox.from.iter().all(Consumer::is_empty));
        });
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }

    /// Two threads that ring, on queues of their own, and one that serves.
    #[test]
    fn rings_from_two_threads_are_handled() {
        loom::model(|| {
            let (lock, [first, second]) = Inbox::new();
            let lock = Arc::new(lock);
            let ringers = [ringer(&lock, first, 1), ringer(&lock, second, 1)];
            lock.lock_and_run(|_| (), Inbox::drain);
            for ringer in ringers {
                ringer.join().unwrap();
            }
            settled(&lock, 2);
        });
    }

    /// A thread that serves twice against one that rings twice.
    #[test]
    fn repeated_serve_misses_no_ring() {
        loom::model(|| {
            let (lock, [first]) = Inbox::new();
            let lock = Arc::new(lock);
            let ringer = ringer(&lock, first, 2);
            lock.lock_and_run(|_| (), Inbox::drain);
            lock.lock_and_run(Inbox::drain, Inbox::drain);
            ringer.join().unwrap();
            settled(&lock, 2);
        });
    }

    /// A thread in `read` holds the lock and does no work of others; a thread that rings must not rely on it.
    #[test]
    fn look_loses_no_ring() {
        loom::model(|| {
            let (lock, [first, second]) = Inbox::new();
            let lock = Arc::new(lock);
            let ringers = [ringer(&lock, first, 1), ringer(&lock, second, 1)];
            lock.read(|inbox| assert!(inbox.got.len() <= 2));
            for ringer in ringers {
                ringer.join().unwrap();
            }
            settled(&lock, 2);
        });
    }

    /// One thread each in `read`, `serve` and `ring`: a ring during the look is processed by the serving thread or by the ringing one itself.
    #[test]
    fn ring_during_look_and_serve_is_handled() {
        loom::model(|| {
            let (lock, [first]) = Inbox::new();
            let lock = Arc::new(lock);
            let ringer = ringer(&lock, first, 1);
            let server = {
                let lock = lock.clone();
                thread::spawn(move || lock.lock_and_run(|_| (), Inbox::drain))
            };
            lock.read(|inbox| assert!(inbox.got.len() <= 1));
            ringer.join().unwrap();
            server.join().unwrap();
            settled(&lock, 1);
        });
    }
}
