//! Aborted commands: by timeout, by cancellation, by a unit reset. The target is scripted, so that it can be late, wrong and hostile.

use std::time::{Duration, Instant};

use verbena_storage::iscsi::Direction;
use verbena_storage::session::{Options, Outcome};
use verbena_storage_wire::iscsi::TaskRequest;
use verbena_storage_wire::iscsi::{
    FromInitiator, Lun, NO_TAG, ScsiCommand, TaskFunction, TaskOutcome,
};
use verbena_storage_wire::scsi::Status;

use crate::scripted::{Conn, FILL, LEN, World, good};

/// The status BUSY.
const BUSY: u8 = 8;
/// Time limit of a command.
const LIMIT: Duration = Duration::from_millis(300);
/// Time limit of an answer.
const SILENCE: Duration = Duration::from_millis(500);

fn short_timeouts() -> Options {
    Options {
        command: LIMIT,
        silence: SILENCE,
        ..Options::default()
    }
}

fn patient() -> Options {
    Options {
        silence: SILENCE,
        ..Options::default()
    }
}

/// The request is an ABORT TASK of this command.
#[track_caller]
fn assert_aborts(request: &TaskRequest, command: &ScsiCommand) {
    assert_eq!(request.function, TaskFunction::AbortTask);
    assert!(request.immediate);
    assert_eq!(request.reference, command.itt);
    // RFC 7143 §11.5.5.
    assert_eq!(request.ref_cmd_sn, command.cmd_sn);
    assert_eq!(request.lun, command.lun);
}

/// A read that exceeds its time is aborted and sent again on the same connection, and another continues. The target still answers the
/// first one: none of that data is placed.
#[test]
fn timed_out_command_is_aborted_alone() {
    let mut world = World::new(short_timeouts());
    world.start(0, Direction::Read);
    let first = world.receive_command();
    let request = world.receive_task();
    assert_aborts(&request, &first);
    world.start(1, Direction::Read);
    let other = world.receive_command();
    world.conn.answer(&request, TaskOutcome::Complete);
    let again = world.receive_command();
    assert_eq!(again.cdb, first.cdb);
    assert_ne!(again.itt, first.itt);
    // Late Data-Ins with and without status, and an R2T for a read.
    world.conn.data_in(first.itt, &[0x11; LEN], false);
    world.conn.r2t(first.itt, 0, 512);
    world.conn.data_in(first.itt, &[0x22; LEN], true);
    world.conn.respond(first.itt);
    world.conn.data_in(other.itt, &[0x33; LEN], true);
    assert_eq!(world.take_ended(1), [good(1)]);
    assert_eq!(world.bytes(0), [FILL; LEN]);
    assert_eq!(world.bytes(1), [0x33; LEN]);
    world.conn.data_in(again.itt, &[0x44; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_eq!(world.bytes(0), [0x44; LEN]);
    assert!(!world.conn.closed, "all on one connection");
}

/// RFC 7143 §4.2.3.3: until the target has answered, the command may end with its own response, and a later task with its number is not
/// affected.
#[test]
fn response_before_the_abort_answer_counts() {
    for outcome in [TaskOutcome::Complete, TaskOutcome::NoTask] {
        let mut world = World::new(short_timeouts());
        world.start(0, Direction::Read);
        let first = world.receive_command();
        let request = world.receive_task();
        world.conn.data_in(first.itt, &[0x55; LEN], true);
        assert_eq!(world.take_ended(1), [good(0)]);
        assert_eq!(world.bytes(0), [0x55; LEN]);
        world.start(1, Direction::Read);
        let next = world.receive_command();
        world.conn.answer(&request, outcome);
        world.assert_quiet(LIMIT / 3);
        world.conn.data_in(next.itt, &[0x66; LEN], true);
        assert_eq!(world.take_ended(1), [good(1)]);
    }
}

/// A command that may not be repeated ends as lost; the connection stays.
#[test]
fn unsafe_command_is_not_repeated() {
    let mut world = World::new(short_timeouts());
    let mut command = world.command(1, 0, Direction::Write);
    command.idempotent = false;
    world.session.start(0, command).unwrap();
    let first = world.receive_command();
    let request = world.receive_task();
    assert_aborts(&request, &first);
    world.conn.answer(&request, TaskOutcome::Complete);
    let ends = world.take_ended(1);
    assert!(
        matches!(&ends[..], [(0, Outcome::Lost(why))] if why.contains("longer than")),
        "{ends:?}"
    );
    world.assert_quiet(LIMIT);
}

/// If the target does not abort the command, or does not answer, the connection is closed and the command is sent again on the next one.
#[test]
fn failed_abort_closes_the_connection() {
    for outcome in [
        Some(TaskOutcome::NoTask),
        Some(TaskOutcome::Unsupported),
        Some(TaskOutcome::Rejected),
        None,
    ] {
        // With an answer, it is closed because of the answer.
        let silence = outcome.map_or(SILENCE, |_| Duration::from_secs(600));
        let mut world = World::new(Options {
            silence,
            ..short_timeouts()
        });
        world.start(0, Direction::Read);
        let first = world.receive_command();
        let request = world.receive_task();
        let begun = Instant::now();
        if let Some(outcome) = outcome {
            world.conn.answer(&request, outcome);
        }
        world.until_closed();
        let took = begun.elapsed();
        assert!(took >= SILENCE / 2 || outcome.is_some(), "{took:?}");
        world.accept();
        let again = world.receive_command();
        assert_eq!(again.cdb, first.cdb);
        world.conn.data_in(again.itt, &[0x77; LEN], true);
        assert_eq!(world.take_ended(1), [good(0)]);
    }
}

/// After every abort the command is sent again, until the limit is reached and it ends as lost.
#[test]
fn repeatedly_aborted_command_ends_as_lost() {
    let mut world = World::new(short_timeouts());
    world.start(0, Direction::None);
    for _ in 0..4 {
        let command = world.receive_command();
        let request = world.receive_task();
        assert_aborts(&request, &command);
        world.conn.answer(&request, TaskOutcome::Complete);
    }
    assert!(matches!(&world.take_ended(1)[..], [(0, Outcome::Lost(_))]));
    world.assert_quiet(LIMIT);
}

#[test]
fn cancelled_commands_are_aborted_one_by_one() {
    let mut world = World::new(patient());
    for id in 0..3 {
        world.start(id, Direction::Read);
    }
    let sent: Vec<_> = (0..3).map(|_| world.receive_command()).collect();
    assert!(!world.session.cancel(77), "there is none");
    assert!(world.session.cancel(1));
    assert!(world.session.cancel(1), "twice is once");
    assert!(world.session.cancel(2));
    // One request at a time: a target need not accept more.
    let request = world.receive_task();
    assert_aborts(&request, &sent[1]);
    world.assert_quiet(SILENCE / 4);
    world.conn.answer(&request, TaskOutcome::Complete);
    assert_eq!(world.take_ended(1), [(1, Outcome::Cancelled)]);
    assert!(!world.session.cancel(1), "it has ended");
    let request = world.receive_task();
    assert_aborts(&request, &sent[2]);
    // It ends with its own response before that is answered: it was executed.
    world.conn.data_in(sent[2].itt, &[0x21; LEN], true);
    assert_eq!(world.take_ended(1), [good(2)]);
    world.conn.answer(&request, TaskOutcome::NoTask);
    world.conn.data_in(sent[0].itt, &[0x20; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_eq!(world.bytes(1), [FILL; LEN]);
    world.assert_quiet(SILENCE / 4);
}

/// Half of its data was received; the rest of the PDU comes after it has ended.
#[test]
fn late_data_of_a_cancelled_read_is_dropped() {
    let mut world = World::new(patient());
    world.start(0, Direction::Read);
    let first = world.receive_command();
    world.conn.data_in(first.itt, &[0x31; LEN / 2], false);
    world.until("data", |world| {
        (world.bytes(0)[..LEN / 2] == [0x31; LEN / 2]).then_some(())
    });
    assert!(world.session.cancel(0));
    let request = world.receive_task();
    world.conn.answer(&request, TaskOutcome::Complete);
    assert_eq!(world.take_ended(1), [(0, Outcome::Cancelled)]);
    world.conn.data_in(first.itt, &[0x32; LEN], true);
    world.start(1, Direction::Read);
    let next = world.receive_command();
    world.conn.data_in(next.itt, &[0x33; LEN], true);
    assert_eq!(world.take_ended(1), [good(1)]);
    assert_eq!(world.bytes(0)[..LEN / 2], [0x31; LEN / 2]);
    assert_eq!(world.bytes(0)[LEN / 2..], [FILL; LEN / 2]);
}

/// A write of which a part was requested: later R2Ts are not served.
#[test]
fn cancelled_write_serves_no_further_r2t() {
    let mut world = World::new(patient());
    world.start(0, Direction::Write);
    let first = world.receive_command();
    world.conn.r2t(first.itt, 0, 512);
    let (pdu, data) = world.receive();
    assert!(matches!(pdu, FromInitiator::DataOut(_)), "{pdu}");
    assert_eq!(data, [FILL; 512]);
    assert!(world.session.cancel(0));
    let request = world.receive_task();
    // Until the abort is answered, R2Ts are served.
    world.conn.r2t(first.itt, 512, 512);
    let (pdu, _) = world.receive();
    assert!(matches!(pdu, FromInitiator::DataOut(_)), "{pdu}");
    world.conn.answer(&request, TaskOutcome::Complete);
    assert_eq!(world.take_ended(1), [(0, Outcome::Cancelled)]);
    world.conn.r2t(first.itt, 1024, 512);
    world.assert_quiet(SILENCE / 4);
}

/// A command that was not sent is cancelled without a request to the target.
#[test]
fn unsent_command_is_cancelled_locally() {
    let mut world = World::new(patient());
    world.conn.window_len = 1;
    world.start(0, Direction::None);
    let first = world.receive_command();
    // The window was open after the login; this response closes it.
    world.conn.window_len = 0;
    world.conn.respond(first.itt);
    assert_eq!(world.take_ended(1), [good(0)]);
    // As many as the window of the login still admits.
    let mut id = 1;
    let mut sent = 0;
    while id < 80 {
        let Ok(()) = world
            .session
            .start(id, world.command(1, 0, Direction::None))
        else {
            break;
        };
        id += 1;
    }
    world.until("commands", |world| {
        while world.conn.receive().is_some() {
            sent += 1;
        }
        (sent >= 63).then_some(())
    });
    assert!(world.session.cancel(id - 1), "one that waits");
    assert_eq!(world.take_ended(1), [(id - 1, Outcome::Cancelled)]);
    world.assert_quiet(SILENCE / 4);
}

/// A cancelled command is not sent again after a lost connection.
#[test]
fn cancelled_command_is_not_resent_after_reconnect() {
    let mut world = World::new(patient());
    world.start(0, Direction::Read);
    world.start(1, Direction::Read);
    let sent = [world.receive_command(), world.receive_command()];
    assert!(world.session.cancel(0));
    let request = world.receive_task();
    world.conn.answer(&request, TaskOutcome::Unsupported);
    world.until_closed();
    world.accept();
    let again = world.receive_command();
    assert_eq!(again.cdb, sent[1].cdb);
    world.conn.data_in(again.itt, &[1; LEN], true);
    assert_eq!(world.take_ended(2), [(0, Outcome::Cancelled), good(1)]);
    world.assert_quiet(SILENCE / 4);
}

/// BUSY ends a cancelled command: it is not sent again.
#[test]
fn busy_ends_a_cancelled_command() {
    let mut world = World::new(patient());
    world.start(0, Direction::None);
    let first = world.receive_command();
    assert!(world.session.cancel(0));
    let request = world.receive_task();
    world.conn.respond_with(first.itt, BUSY);
    world.conn.answer(&request, TaskOutcome::NoTask);
    assert_eq!(world.take_ended(1), [(0, Outcome::Status(Status::Busy))]);
    world.assert_quiet(SILENCE / 4);
}

/// Runs a reset, which blocks, with the target on another thread.
fn reset(world: World, target: impl FnOnce(&mut Conn, &TaskRequest) + Send) -> World {
    let World {
        mut session,
        mut conn,
        listener,
        ended,
        memory,
        slept,
    } = world;
    let conn = std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            let request = conn.await_task();
            assert_eq!(request.function, TaskFunction::LogicalUnitReset);
            assert_eq!(request.reference, NO_TAG);
            target(&mut conn, &request);
            conn
        });
        session.reset_unit(Lun::new(1).unwrap()).unwrap();
        there.join().unwrap()
    });
    World {
        session,
        conn,
        listener,
        ended,
        memory,
        slept,
    }
}

/// One task management request at a time: a command that exceeds its time during a reset is not aborted, and the reset ends it.
#[test]
fn no_abort_is_sent_during_a_reset() {
    let mut world = World::new(short_timeouts());
    world.start(0, Direction::Read);
    let first = world.receive_command();
    let mut world = reset(world, |conn, request| {
        let end = Instant::now() + LIMIT * 2;
        while Instant::now() < end {
            assert_eq!(conn.receive(), None);
            std::thread::yield_now();
        }
        conn.answer(request, TaskOutcome::Complete);
    });
    let again = world.receive_command();
    assert_eq!(again.cdb, first.cdb);
    world.conn.data_in(again.itt, &[0x61; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert!(!world.conn.closed);
}

/// A command that ended and was sent again before the reset was answered has a larger CmdSN than the reset, and continues.
#[test]
fn command_sent_after_a_reset_continues() {
    let mut world = World::new(patient());
    world.start(0, Direction::Read);
    let first = world.receive_command();
    let mut again = None;
    let mut world = reset(world, |conn, request| {
        conn.respond_with(first.itt, BUSY);
        again = Some(conn.await_command());
        conn.answer(request, TaskOutcome::Complete);
    });
    let again = again.unwrap();
    assert!(again.itt != first.itt && again.cmd_sn > first.cmd_sn);
    world.assert_quiet(SILENCE / 4);
    world.conn.data_in(again.itt, &[0x51; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_eq!(world.bytes(0), [0x51; LEN]);
}

/// A reset cancels the commands of one unit, and the connection stays. Responses before its answer count.
#[test]
fn lun_reset_keeps_the_connection() {
    let mut world = World::new(patient());
    for (id, lun) in [(0, 1), (1, 1), (2, 2), (3, 1)] {
        let mut command = world.command(lun, id, Direction::Read);
        command.idempotent = id != 3;
        world.session.start(id, command).unwrap();
    }
    let sent: Vec<_> = (0..4).map(|_| world.receive_command()).collect();
    let first = sent[0].itt;
    let mut world = reset(world, move |conn, request| {
        conn.data_in(first, &[0x41; LEN], true);
        conn.answer(request, TaskOutcome::Complete);
    });
    let again = world.receive_command();
    assert_eq!((again.lun, again.cdb), (sent[1].lun, sent[1].cdb));
    // Late data of commands that the reset has ended, and of another unit's command, which is still outstanding.
    world.conn.data_in(sent[1].itt, &[0x42; LEN], true);
    world.conn.data_in(sent[3].itt, &[0x43; LEN], true);
    world.conn.data_in(sent[2].itt, &[0x44; LEN], true);
    let ends = world.take_ended(3);
    assert_eq!(ends[0], good(0));
    assert_eq!(ends[1], good(2));
    assert!(
        matches!(&ends[2], (3, Outcome::Lost(why)) if why.contains("reset")),
        "{ends:?}"
    );
    assert_eq!(world.bytes(1), [FILL; LEN]);
    assert_eq!(world.bytes(3), [FILL; LEN]);
    world.conn.data_in(again.itt, &[0x45; LEN], true);
    assert_eq!(world.take_ended(1), [good(1)]);
    assert_eq!(world.bytes(0), [0x41; LEN]);
    assert_eq!(world.bytes(2), [0x44; LEN]);
    assert!(!world.conn.closed);
}
