//! How sessions with many commands under way wait: for several answers at once, and never long for one that came. The target is scripted, so
//! that its answers come exactly when they should.

#[path = "common/scripted.rs"]
mod scripted;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use scripted::{World, good};
use verbena::low::Direction;
use verbena_storage::session::Options;

/// A session sleeps no longer than this anyhow: 20 ms.
const ANYHOW: Duration = Duration::from_millis(20);

/// So many commands without data are under way; their tags.
fn under_way(world: &mut World, count: u64) -> Vec<u32> {
    (0..count).for_each(|id| world.start(id, Direction::None));
    (0..count).map(|_| world.hear_command().itt).collect()
}

/// Sleeps until so many commands have ended; how often.
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

/// One answer comes at a time, and for long no other; how long each took to be seen at most.
fn one_by_one(beside: &[BorrowedFd<'_>]) -> Duration {
    const ROUNDS: u64 = 10;
    let mut world = World::new(Options::default());
    let tags = under_way(&mut world, 32 + ROUNDS);
    let mut most = Duration::ZERO;
    for itt in tags.into_iter().take(ROUNDS as usize) {
        let mut conn = world.conn.split();
        let answered = std::thread::scope(|scope| {
            let target = scope.spawn(|| {
                // It sleeps by now, and would for long.
                std::thread::sleep(Duration::from_millis(3));
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

/// Whoever sleeps for several answers sees one all the same, and soon.
#[track_caller]
fn assert_one_is_soon_seen(beside: &[BorrowedFd<'_>]) {
    // The machine may have other work once in a while.
    let mut most = (0..10).map(|_| one_by_one(beside));
    assert!(most.any(|most| most < ANYHOW / 2));
}

#[test]
fn an_answer_is_not_kept_back_for_others() {
    assert_one_is_soon_seen(&[]);
}

#[test]
fn nor_while_the_session_sleeps_on_something_else_as_well() {
    let (never, _other) = UnixStream::pair().unwrap();
    assert_one_is_soon_seen(&[never.as_fd()]);
}

/// Nothing comes: a sleep lasts as long as it may, also if it is for several answers at first.
#[test]
fn a_sleep_lasts() {
    let (never, _other) = UnixStream::pair().unwrap();
    for beside in [&[][..], &[never.as_fd()]] {
        let mut world = World::new(Options::default());
        under_way(&mut world, 32);
        for round in 0..10 {
            world.session.poll(&mut world.ended);
            let begun = Instant::now();
            world.session.wait(beside, None).unwrap();
            let took = begun.elapsed();
            assert!(took > ANYHOW - ANYHOW / 10, "{took:?}, round {round}");
        }
    }
}

/// An answer that is there already is too little to be woken for, and found by looking. That wakes nobody afterwards.
#[test]
fn what_was_found_by_looking_is_not_told_again() {
    let mut world = World::new(Options::default());
    let tags = under_way(&mut world, 40);
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
        assert!(took > ANYHOW - ANYHOW / 10, "{took:?}");
    }
}

/// Sixty-four answers, one shortly after the other, are worth waking up a few times.
#[test]
fn answers_that_come_together_are_waited_for_together() {
    const COUNT: u64 = 64;
    let mut world = World::new(Options::default());
    let mut all = Vec::new();
    for _ in 0..10 {
        let tags = under_way(&mut world, COUNT);
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
            world.ends(COUNT as usize),
            (0..COUNT).map(good).collect::<Vec<_>>()
        );
        all.push(sleeps);
    }
    // About 16, as long as the target is not held up.
    all.sort_unstable();
    assert!(
        all[all.len() / 2] <= 32,
        "it slept {all:?} times for {COUNT} answers"
    );
}
