//! Threads that sleep on a channel serve their connections themselves. A separate program, one test at a time: context switches of its
//! threads are counted.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use verbena_engine::WeakCompletionQueue;
use verbena_engine::sys::{Channel, WaitFd};
use verbena_nic::{Arm, Status, Wc};
use verbena_testing::{Tid, own_process, wait_blocked};

use crate::common::{SEND, Side, TEST_TIMEOUT, pair, serialize_tests, wait, within};

/// A thread that is not woken waits for ever.
const LIMIT: Duration = Duration::from_secs(60);

/// A side with a channel that its queue notifies.
struct Sleeper {
    side: Side,
    channel: Arc<Channel>,
}

impl Sleeper {
    fn new(side: Side) -> Sleeper {
        let channel = Arc::new(Channel::new().unwrap());
        side.cq.set_notify(Some(channel.clone()));
        Sleeper { side, channel }
    }

    /// Takes completions; sleeps while there are none.
    fn take(&self) -> Vec<Wc> {
        let mut some = [Wc::default(); 16];
        loop {
            let mut n = self.side.cq.poll(&mut some);
            if n == 0 {
                self.side.cq.arm(Arm::Next);
                n = self.side.cq.poll(&mut some);
            }
            if n > 0 {
                assert!(some[..n].iter().all(|wc| wc.status == Status::Success));
                return some[..n].to_vec();
            }
            assert!(self.side.cq.wait(&self.channel).unwrap());
        }
    }

    /// Sleeps until a message has come.
    fn message(&self) {
        while !self.take().iter().any(|wc| wc.id == RECEIVE) {}
    }

    /// The same beside a descriptor.
    fn message_with_fd(&self, other: &UnixStream) {
        let mut some = [Wc::default(); 16];
        loop {
            let mut n = self.side.cq.poll(&mut some);
            if n == 0 {
                self.side.cq.arm(Arm::Next);
                n = self.side.cq.poll(&mut some);
            }
            if some[..n].iter().any(|wc| wc.id == RECEIVE) {
                return;
            }
            if n == 0 {
                let mut others = [WaitFd::read(other.as_fd())];
                let queues = || [self.side.cq.downgrade()];
                let limit = Some(TEST_TIMEOUT);
                let rung =
                    WeakCompletionQueue::wait_with_fds(&self.channel, queues, &mut others, limit);
                assert!(rung.unwrap());
            }
        }
    }

    fn post(&self) {
        self.side.post(1, SEND, &[self.side.sge(0, 8)]);
    }

    fn receive(&self) {
        self.side.receive(RECEIVE, &[self.side.sge(4096, 64)]);
    }
}

const RECEIVE: u64 = 77;

fn sleepers() -> (Sleeper, Sleeper) {
    sleepers_with(&[])
}

fn sleepers_with(settings: &[(&str, &str)]) -> (Sleeper, Sleeper) {
    let (a, b) = pair(settings);
    let (a, b) = (Sleeper::new(a), Sleeper::new(b));
    a.receive();
    b.receive();
    (a, b)
}

/// Sends `rounds` messages each way, in turn.
fn exchange(a: &Sleeper, b: &Sleeper, rounds: usize) {
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..rounds {
                b.message();
                b.receive();
                b.post();
            }
        });
        for _ in 0..rounds {
            a.post();
            a.message();
            a.receive();
        }
    });
}

/// How often the shards of this process went to sleep.
fn shard_sleeps() -> u64 {
    let mut all = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = status.lines().find(|l| l.starts_with("voluntary"));
        if let Some(count) = line.filter(|_| name.starts_with("verbena-")) {
            let count = count.split_whitespace().last().unwrap();
            all += count.parse::<u64>().unwrap();
        }
    }
    all
}

/// The shards check the sleepers at this interval, and not once per millisecond: their sleeps are those that messages cause.
const RARE_CHECKS: &[(&str, &str)] = &[("lend_time", "1s")];
const ROUNDS: usize = 2000;

/// The shards of two sides were not woken by the messages, of which each side received one per round.
fn assert_shards_slept(sleeps: u64) {
    assert!(sleeps < ROUNDS as u64 / 2, "{sleeps}");
}

#[test]
fn message_wakes_only_the_waiting_thread() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = sleepers_with(RARE_CHECKS);
    exchange(&a, &b, 50);
    let before = shard_sleeps();
    exchange(&a, &b, ROUNDS);
    assert_shards_slept(shard_sleeps() - before);
}

#[test]
fn idle_sleepers_cause_no_wakeups() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = sleepers();
    exchange(&a, &b, 50);
    std::thread::scope(|s| {
        s.spawn(|| b.message());
        // Timers that run expire once more.
        wait("the shards sleep", || {
            let before = shard_sleeps();
            // real time: the subject is that nothing wakes the shards; checks would wake them every millisecond.
            std::thread::sleep(Duration::from_millis(300));
            shard_sleeps() - before <= 4
        });
        a.post();
    });
}

#[test]
fn shard_serves_an_absent_sleeper() {
    let _alone = serialize_tests();
    within(LIMIT, || {
        let (a, b) = sleepers();
        exchange(&a, &b, 50);
        // Its last wait has just ended, and it does not wait again: its adapter must answer all the same.
        for _ in 0..20 {
            a.post();
            while !a.take().iter().any(|wc| wc.id == 1) {}
            b.message();
            b.receive();
        }
        // It takes a message, delays its acknowledgement, and does not wait again.
        for _ in 0..20 {
            a.post();
            b.message();
            b.receive();
            while !a.take().iter().any(|wc| wc.id == 1) {}
        }
    });
}

#[test]
fn each_ring_wakes_one_sleeper() {
    let _alone = serialize_tests();
    let (a, _b) = sleepers();
    let woken = AtomicU32::new(0);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                assert!(a.side.cq.wait(&a.channel).unwrap());
                woken.fetch_add(1, Ordering::SeqCst);
            });
        }
        for count in 1..=3 {
            a.channel.ring();
            wait("a thread", || woken.load(Ordering::SeqCst) == count);
        }
    });
}

/// A queue armed for solicited completions does not notify for others; the peer's sends must still be acknowledged.
#[test]
fn sleeper_acknowledges_without_waking() {
    let _alone = serialize_tests();
    let (a, b) = sleepers();
    exchange(&a, &b, 50);
    b.receive();
    b.side.cq.arm(Arm::Solicited);
    let (tell, notified) = mpsc::channel();
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| {
            tell.send(Tid::current()).unwrap();
            b.side.cq.wait(&b.channel)
        });
        let thread = notified.recv().unwrap();
        for _ in 0..2 {
            wait_blocked(thread);
            a.post();
            while !a.take().iter().any(|wc| wc.id == 1) {}
        }
        assert!(!sleeper.is_finished(), "nothing was solicited");
        b.channel.ring();
        assert_eq!(sleeper.join().unwrap(), Ok(true));
    });
}

/// Messages each way, while one side sleeps beside a descriptor of its own.
#[test]
fn sleeper_with_foreign_descriptors_serves_its_connections() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = sleepers_with(RARE_CHECKS);
    let (tap, _far) = UnixStream::pair().unwrap();
    let play = |rounds: usize| {
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..rounds {
                    b.message();
                    b.receive();
                    b.post();
                }
            });
            for _ in 0..rounds {
                a.post();
                a.message_with_fd(&tap);
                a.receive();
            }
        });
    };
    play(50);
    let before = shard_sleeps();
    play(ROUNDS);
    assert_shards_slept(shard_sleeps() - before);
}

#[test]
fn first_ready_descriptor_wakes_the_sleeper() {
    let _alone = serialize_tests();
    let (a, b) = sleepers();
    let (tap, mut far) = UnixStream::pair().unwrap();
    let sleep = |limit: Option<Duration>| {
        a.side.cq.arm(Arm::Next);
        let mut others = [WaitFd::read(tap.as_fd())];
        let queues = || [a.side.cq.downgrade()];
        let rung =
            WeakCompletionQueue::wait_with_fds(&a.channel, queues, &mut others, limit).unwrap();
        (rung, others[0].ready)
    };
    let (limit, sleeper) = (Duration::from_millis(20), Tid::current());
    let start = Instant::now();
    assert_eq!(sleep(Some(limit)), (false, false));
    assert!(start.elapsed() >= limit);
    std::thread::scope(|s| {
        s.spawn(|| {
            wait_blocked(sleeper);
            far.write_all(b"x").unwrap();
        });
        assert_eq!(sleep(Some(TEST_TIMEOUT)), (false, true));
    });
    (&tap).read_exact(&mut [0]).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            wait_blocked(sleeper);
            b.post();
        });
        assert_eq!(sleep(Some(TEST_TIMEOUT)), (true, false));
    });
    assert!(!a.channel.try_take(), "the ring was taken");
    assert_eq!(a.take()[0].id, RECEIVE);
    // A ring by another thread.
    std::thread::scope(|s| {
        s.spawn(|| {
            wait_blocked(sleeper);
            a.channel.ring();
        });
        assert_eq!(sleep(None), (true, false));
    });
}

/// Messages each way by threads that sleep until there is a completion, beside a shard that serves connections of absent threads:
/// none is missed in any interleaving.
#[test]
fn cq_sleep_misses_no_completion() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = sleepers();
    let message = |who: &Sleeper| {
        let mut some = [Wc::default(); 16];
        loop {
            let n = who.side.cq.poll(&mut some);
            if some[..n].iter().any(|wc| wc.id == RECEIVE) {
                return;
            }
            let start = Instant::now();
            who.side
                .cq
                .sleep(&who.channel, &mut [], TEST_TIMEOUT)
                .unwrap();
            assert!(start.elapsed() < TEST_TIMEOUT, "it was not woken");
        }
    };
    const ROUNDS: usize = 2000;
    std::thread::scope(|s| {
        s.spawn(|| {
            for round in 0..ROUNDS {
                message(&b);
                b.receive();
                // Sometimes it is absent so long that the shard serves its connection.
                if round % 100 == 0 {
                    let before = shard_sleeps();
                    wait("a shard looks", || shard_sleeps() > before + 1);
                }
                b.post();
            }
        });
        for _ in 0..ROUNDS {
            a.post();
            message(&a);
            a.receive();
        }
    });
}

#[test]
fn cq_sleep_ends_by_timeout_or_descriptor() {
    let _alone = serialize_tests();
    let (a, _b) = sleepers();
    for millis in [1, 15, 40] {
        let (start, time) = (Instant::now(), Duration::from_millis(millis));
        a.side.cq.sleep(&a.channel, &mut [], time).unwrap();
        let slept = start.elapsed();
        assert!(slept >= time, "{slept:?} for {time:?}");
    }
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(b"!").unwrap();
    let mut others = [WaitFd::read(there.as_fd())];
    a.side
        .cq
        .sleep(&a.channel, &mut others, TEST_TIMEOUT)
        .unwrap();
    assert!(others[0].ready);
}
