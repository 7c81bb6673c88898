//! Sleeping with many commands outstanding: for several answers at once, and never long after one came. The target is scripted, so that the
//! times of its answers are known.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use verbena_storage::iscsi::Direction;
use verbena_storage::session::Options;
use verbena_testing::{Tid, wait_blocked};

use crate::scripted::{World, good};

/// The longest sleep of a session: 20 ms.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// Starts `count` commands without data. Returns their tags.
fn start_commands(world: &mut World, count: u64) -> Vec<u32> {
    (0..count).for_each(|id| world.start(id, Direction::None));
    (0..count).map(|_| world.receive_command().itt).collect()
}

/// Sleeps until `count` commands have ended. Returns the number of sleeps.
fn sleep(world: &mut World, beside: &[BorrowedFd<'_>], count: usize) -> u32 {
    let mut sleeps = 0;
    world.session.poll(&mut world.ended);
    while world.ended.len() < count {
        world.session.wait(beside, None).unwrap();
        world.session.poll(&mut world.ended);
        sleeps += 1;
    }
    sleeps
}

/// One answer at a time, with a long pause after it. Returns the longest time until one was seen.
fn one_by_one(beside: &[BorrowedFd<'_>]) -> Duration {
    const ROUNDS: u64 = 10;
    let mut world = World::new(Options::default());
    let tags = start_commands(&mut world, 32 + ROUNDS);
    let (mut most, session) = (Duration::ZERO, Tid::current());
    for itt in tags.into_iter().take(ROUNDS as usize) {
        let mut conn = world.conn.split();
        let answered = std::thread::scope(|scope| {
            let target = scope.spawn(|| {
                wait_blocked(session);
                let now = Instant::now();
                conn.respond(itt);
                now
            });
            sleep(&mut world, beside, 1);
            target.join().unwrap()
        });
        most = most.max(answered.elapsed());
        world.conn = conn;
        world.ended.clear();
    }
    most
}

/// A session that sleeps for several answers sees a single one soon.
#[track_caller]
fn assert_one_is_soon_seen(beside: &[BorrowedFd<'_>]) {
    // The machine may be busy at times.
    let mut most = (0..10).map(|_| one_by_one(beside));
    assert!(most.any(|most| most < MAX_SLEEP / 2));
}

#[test]
fn single_answer_ends_the_wait_soon() {
    assert_one_is_soon_seen(&[]);
}

#[test]
fn single_answer_ends_a_shared_wait_soon() {
    let (never, _other) = UnixStream::pair().unwrap();
    assert_one_is_soon_seen(&[never.as_fd()]);
}

/// Without an answer a sleep lasts for its whole timeout, also if it is for several answers at first.
#[test]
fn wait_without_answers_lasts_its_timeout() {
    let (never, _other) = UnixStream::pair().unwrap();
    for beside in [&[][..], &[never.as_fd()]] {
        let mut world = World::new(Options::default());
        start_commands(&mut world, 32);
        for round in 0..10 {
            world.session.poll(&mut world.ended);
            let begun = Instant::now();
            world.session.wait(beside, None).unwrap();
            let took = begun.elapsed();
            assert!(took > MAX_SLEEP - MAX_SLEEP / 10, "{took:?}, round {round}");
        }
    }
}

/// An answer below the low-water mark does not wake and is found by polling. It does not wake later either.
#[test]
fn polled_answer_does_not_wake_later() {
    let mut world = World::new(Options::default());
    let tags = start_commands(&mut world, 40);
    for itt in tags.into_iter().take(5) {
        world.session.poll(&mut world.ended);
        world.conn.respond(itt);
        while world.ended.is_empty() {
            world.session.wait(&[], None).unwrap();
            world.session.poll(&mut world.ended);
        }
        world.ended.clear();
        let begun = Instant::now();
        world.session.wait(&[], None).unwrap();
        let took = begun.elapsed();
        assert!(took > MAX_SLEEP - MAX_SLEEP / 10, "{took:?}");
    }
}

/// Sixty-four answers in short succession take a few wake-ups.
#[test]
fn answers_in_succession_share_wakeups() {
    const COUNT: u64 = 64;
    let mut world = World::new(Options::default());
    let mut all = Vec::new();
    for _ in 0..10 {
        let tags = start_commands(&mut world, COUNT);
        let mut conn = world.conn.split();
        let sleeps = std::thread::scope(|scope| {
            let conn = &mut conn;
            scope.spawn(move || {
                for itt in tags {
                    let next = Instant::now() + Duration::from_micros(15);
                    conn.respond(itt);
                    while Instant::now() < next {
                        core::hint::spin_loop();
                    }
                }
            });
            sleep(&mut world, &[], COUNT as usize)
        });
        world.conn = conn;
        assert_eq!(
            world.take_ended(COUNT as usize),
            (0..COUNT).map(good).collect::<Vec<_>>()
        );
        all.push(sleeps);
    }
    // About 16, as long as the target is not delayed.
    all.sort_unstable();
    assert!(
        all[all.len() / 2] <= 32,
        "it slept {all:?} times for {COUNT} answers"
    );
}
