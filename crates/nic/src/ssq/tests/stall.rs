//! The stall limit: a channel without progress is failed if others wait, and no other channel is.

use super::*;

/// Checks the queue every ten milliseconds for so long.
fn advance_time(world: &mut World, millis: core::ops::Range<u64>) {
    for now in millis.step_by(10) {
        world.time(now);
        world.run();
    }
}

#[test]
fn stalled_channel_is_failed_when_others_wait() {
    let mut world = World::new(3);
    world.receives(1, 1);
    world.receives(2, 1);
    for at in 0..3 {
        world.send(at, at as u64);
    }
    world.send(0, 3);
    world.pump();
    world.run();
    assert!(world.ssq.timeout_interval().is_some());
    advance_time(&mut world, 0..100);
    assert_eq!(world.ends(), [], "not before the limit");
    advance_time(&mut world, 100..111);
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    let unanswered = Status::RetryExcErr;
    assert_eq!(
        world.ends(),
        [(0, unanswered), (1, well), (2, well), (3, flushed)]
    );
    assert_eq!(world.pairs[0].0.state(), QpState::Err);
    let counters = world.ours.query_ssq(world.ssq.number()).unwrap().counters;
    assert_eq!(counters.stalls, 1);
    assert!(world.ssq.timeout_interval().is_none());
}

#[test]
fn stalled_channel_is_kept_when_none_waits() {
    let mut world = World::new(2);
    world.send(0, 1);
    world.send(0, 2);
    world.pump();
    advance_time(&mut world, 0..1000);
    assert_eq!(world.ends(), []);
    world.receives(0, 2);
    world.run();
    assert_eq!(world.ids(), [1, 2]);
}

#[test]
fn unsendable_channel_is_failed_and_others_continue() {
    let mut world = World::narrow(2);
    world.receives(1, 1);
    world.cut(0, 0);
    world.send(0, 1);
    world.send(0, 2);
    world.send(1, 3);
    world.pump();
    advance_time(&mut world, 0..111);
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    assert_eq!(
        world.ends(),
        [(1, Status::RetryExcErr), (2, flushed), (3, well)]
    );
}

#[test]
fn a_slow_channel_that_moves_is_never_failed() {
    let mut world = World::narrow(2);
    world.receives(0, 1);
    world.receives(1, 1);
    world.cut(0, 1);
    let bytes = [7; 64];
    world
        .ssq
        .post(world.channel(0), &World::wr(1, &bytes))
        .unwrap();
    world.send(1, 2);
    world.pump();
    for now in 0..60 {
        // A byte in half the limit.
        world.time(now * 50);
        let ours = world.pairs[0].0.clone();
        world.wires.send(&ours, &mut world.out);
        world.time(now * 50 + 1);
    }
    assert_eq!(world.pairs[0].0.state(), QpState::Rts);
    world.mend(0);
    world.run();
    assert_eq!(world.ids(), [1, 2]);
}

#[test]
fn reset_channel_does_not_block_others() {
    let mut world = World::new(2);
    world.receives(1, 1);
    world.send(0, 1);
    world.send(1, 2);
    world.pump();
    world.pairs[0]
        .0
        .modify(QpState::Reset, &mut world.out)
        .unwrap();
    world.run();
    assert_eq!(
        world.ends(),
        [],
        "a queue pair that is emptied completes nothing"
    );
    world.time(0);
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    assert_eq!(world.ends(), [(1, flushed), (2, well)]);
}

#[test]
fn requests_for_reset_channel_flush_in_order() {
    let window = Limits {
        sends: 1,
        ..Limits::default()
    };
    let mut world = World::with(2, limits(), Setup::default(), window);
    world.receives(1, 1);
    world.send(0, 1);
    world.send(0, 2);
    world.send(1, 3);
    world.pump();
    world.pairs[0]
        .0
        .modify(QpState::Reset, &mut world.out)
        .unwrap();
    world.time(0);
    world.run();
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    assert_eq!(world.ends(), [(1, flushed), (2, flushed), (3, well)]);
}

/// A channel reset by its program needs no timeout: its requests, given out or waiting, are flushed at once.
#[test]
fn modify_to_reset_flushes_the_channel() {
    let window = Limits {
        sends: 1,
        ..Limits::default()
    };
    let mut world = World::with(2, limits(), Setup::default(), window);
    world.receives(1, 2);
    for (at, id) in [(0, 1), (1, 2), (0, 3), (0, 4), (1, 5)] {
        world.send(at, id);
    }
    world.pump();
    let number = world.channel(0);
    let reset = world.ours.modify_qp(number, QpState::Reset, &mut world.out);
    reset.unwrap();
    world.run();
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    let expected = [
        (1, flushed),
        (2, well),
        (3, flushed),
        (4, flushed),
        (5, well),
    ];
    assert_eq!(world.ends(), expected);
    assert!(
        world.ssq.timeout_interval().is_none(),
        "nothing is left to wait for"
    );
    let info = world
        .ours
        .query_channel(world.ssq.number(), number)
        .unwrap();
    assert_eq!((info.waiting, info.given), (0, 0));
    assert_eq!((info.counters.completed, info.counters.failed), (3, 3));
}

/// Requests posted before a reset of a channel are not sent after it.
#[test]
fn reset_channel_never_sends_earlier_requests() {
    let mut world = World::narrow(2);
    world.cut(1, 0);
    // The second channel cannot start, so that requests behind it wait in the shared queue.
    world.send(1, 1);
    world.send(1, 2);
    world.send(0, 3);
    world.pump();
    let (ours, theirs) = world.pairs[0].clone();
    for (of, qp) in [(&world.ours, &ours), (&world.theirs, &theirs)] {
        let mut out = Outbox::new();
        of.modify_qp(qp.number(), QpState::Reset, &mut out).unwrap();
        of.modify_qp(qp.number(), QpState::Init, &mut out).unwrap();
    }
    for (qp, role) in [(&ours, Role::Initiator), (&theirs, Role::Responder)] {
        assert!(qp.attach(stream(role, Setup::default()), true, &mut world.out));
    }
    world.run();
    world.receives(0, 2);
    world.receives(1, 2);
    world.send(0, 4);
    world.mend(1);
    world.run();
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    assert_eq!(
        world.ends(),
        [(1, well), (2, well), (3, flushed), (4, well)]
    );
}
