//! Unsolicited PDUs and errors of a target: NOP-In, asynchronous messages, Reject, busy units, data out of order. The target is scripted,
//! since a real one sends most of this rarely.

use std::time::{Duration, Instant};

use verbena_storage::iscsi::Direction;
use verbena_storage::session::{Options, Outcome};
use verbena_storage_wire::iscsi::{
    AsyncEvent, AsyncMessage, DataIn, FromInitiator, LogoutReason, Lun, NO_TAG, NopIn, Reject,
    RejectReason, Residual,
};
use verbena_storage_wire::scsi::Status;

use crate::scripted::{Conn, LEN, World, good};

/// Short enough for a test, and long enough to be distinguished from an immediate reaction.
const SILENCE: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options {
        silence: SILENCE,
        ..Options::default()
    }
}

fn ping(conn: &mut Conn, ttt: u32, data: &[u8]) {
    let pdu = NopIn {
        data_len: data.len() as u32,
        lun: Lun::new(3).unwrap(),
        itt: NO_TAG,
        ttt,
        stat_sn: conn.stat_sn,
        window: conn.window(),
    };
    conn.send_pdu(&pdu.emit(), data);
}

fn message(conn: &mut Conn, event: AsyncEvent, parameters: [u16; 3]) {
    let pdu = AsyncMessage {
        event,
        vcode: 0,
        parameters,
        data_len: 0,
        lun: Lun::default(),
        stat_sn: conn.status(),
        window: conn.window(),
    };
    conn.send_pdu(&pdu.emit(), &[]);
}

fn data_at(conn: &mut Conn, itt: u32, offset: usize, data: &[u8], last: bool) {
    let pdu = DataIn {
        is_final: last,
        acknowledge: false,
        status: last.then_some(0),
        residual: Residual::None,
        data_len: data.len() as u32,
        lun: Lun::default(),
        itt,
        ttt: NO_TAG,
        stat_sn: if last { conn.status() } else { 0 },
        window: conn.window(),
        data_sn: 0,
        offset: offset as u32,
    };
    conn.send_pdu(&pdu.emit(), data);
}

/// The outstanding command is sent again on a new connection, and succeeds.
#[track_caller]
fn assert_resent(world: &mut World) {
    world.accept();
    let again = world.receive_command();
    world.conn.data_in(again.itt, &[2; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_eq!(world.bytes(0), [2; LEN]);
}

/// RFC 7143 §11.19: a NOP-In with a target transfer tag is answered with that tag and LUN, and without consuming a CmdSN; one without a
/// tag is not answered.
#[test]
fn nop_in_with_a_tag_is_answered() {
    let mut world = World::new(Options::default());
    for (ttt, data) in [(7, &b""[..]), (0, b"four"), (0xffff_fffe, &[1; 100])] {
        ping(&mut world.conn, ttt, data);
        match world.receive() {
            (FromInitiator::NopOut(answer), data) => {
                assert!(answer.immediate);
                assert_eq!((answer.itt, answer.ttt), (NO_TAG, ttt));
                assert_eq!(answer.lun, Lun::new(3).unwrap());
                assert!(data.is_empty(), "§11.18: an echo was not requested");
            }
            other => panic!("{other:?}"),
        }
    }
    ping(&mut world.conn, NO_TAG, b"news of the window");
    world.assert_quiet(Duration::from_millis(200));
}

/// RFC 7143 §11.9.1: after a request for logout or negotiation the initiator logs out in time, once outstanding commands have ended.
#[test]
fn logout_request_is_followed() {
    for event in [AsyncEvent::LogoutRequest, AsyncEvent::Negotiation] {
        let mut world = World::new(options());
        world.start(0, Direction::Read);
        let sent = world.receive_command();
        message(&mut world.conn, event, [0, 0, 10]);
        world.assert_quiet(Duration::from_millis(100));
        // New commands wait for the next connection.
        world.start(1, Direction::None);
        world.assert_quiet(Duration::from_millis(100));
        world.conn.data_in(sent.itt, &[1; LEN], true);
        assert_eq!(world.take_ended(1), [good(0)]);
        let itt = match world.receive().0 {
            FromInitiator::LogoutRequest(request) => {
                assert_eq!(request.reason, LogoutReason::CloseSession);
                request.itt
            }
            other => panic!("{other}"),
        };
        world.conn.logout_response(itt);
        world.until_closed();
        world.accept();
        let later = world.receive_command();
        world.conn.respond(later.itt);
        assert_eq!(world.take_ended(1), [good(1)]);
    }
}

/// A session with a command that does not end; the target requests a logout within a second.
fn logout_during_a_command(options: Options) -> World {
    let mut world = World::new(options);
    world.start(0, Direction::Read);
    world.receive_command();
    message(&mut world.conn, AsyncEvent::LogoutRequest, [0, 0, 1]);
    match world.receive().0 {
        FromInitiator::LogoutRequest(_) => world,
        other => panic!("{other}"),
    }
}

/// The time given is the reason that the logout is sent: every other limit is longer than tests wait.
#[test]
fn logout_waits_no_longer_than_requested() {
    logout_during_a_command(Options {
        silence: Duration::from_secs(600),
        command: Duration::from_secs(600),
        ..options()
    });
}

#[test]
fn unanswered_logout_resends_the_command() {
    let mut world = logout_during_a_command(options());
    world.until_closed();
    assert_resent(&mut world);
}

/// After a connection or session drop the initiator reconnects, after the time that the target names.
#[test]
fn connection_drop_event_causes_reconnect() {
    for event in [AsyncEvent::ConnectionDrop, AsyncEvent::SessionDrop] {
        // It is closed because of the event: the answer to a request is waited for much longer.
        let silence = Duration::from_secs(600);
        let mut world = World::new(Options {
            silence,
            ..options()
        });
        world.start(0, Direction::Read);
        world.receive_command();
        let begun = Instant::now();
        message(&mut world.conn, event, [0, 1, 0]);
        world.until_closed();
        assert_resent(&mut world);
        assert!(begun.elapsed() >= Duration::from_secs(1), "Time2Wait");
    }
}

/// Events of units, vendor-specific and unknown events do not close the connection.
#[test]
fn other_async_events_keep_the_connection() {
    let mut world = World::new(options());
    world.start(0, Direction::Read);
    let sent = world.receive_command();
    let events = [
        AsyncEvent::Scsi,
        AsyncEvent::TaskTermination,
        AsyncEvent::Vendor,
        AsyncEvent::from_code(77),
    ];
    for event in events {
        message(&mut world.conn, event, [0; 3]);
    }
    world.assert_quiet(Duration::from_millis(200));
    world.conn.data_in(sent.itt, &[1; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
}

/// RFC 7143 §7.1: at error recovery level 0 a Reject closes the connection, and safe commands are sent again.
#[test]
fn reject_closes_the_connection() {
    for whole in [true, false] {
        let mut world = World::new(options());
        world.start(0, Direction::Read);
        let sent = world.receive_command();
        let header = sent.emit();
        let data: &[u8] = if whole { &header } else { &header[..5] };
        let pdu = Reject {
            reason: RejectReason::ProtocolError,
            data_len: data.len() as u32,
            stat_sn: world.conn.status(),
            window: world.conn.window(),
            data_sn: 0,
        };
        world.conn.send_pdu(&pdu.emit(), data);
        world.until_closed();
        assert_resent(&mut world);
    }
}

/// After BUSY the command is sent again; that does not count towards the limit for lost connections.
#[test]
fn busy_command_is_retried_across_reconnects() {
    let mut world = World::new(options());
    world.start(0, Direction::Read);
    for status in [
        Status::Busy,
        Status::TaskSetFull,
        Status::Busy,
        Status::TaskAborted,
        Status::Busy,
    ] {
        let sent = world.receive_command();
        world.conn.respond_with(sent.itt, status.code());
    }
    world.receive_command();
    world.conn = world.conn.shut_down();
    assert_resent(&mut world);
}

/// The number of retries after BUSY is limited.
#[test]
fn busy_retries_are_limited() {
    let mut world = World::new(options());
    world.start(0, Direction::None);
    let ended = world.until("end", |world| {
        if let Some((FromInitiator::ScsiCommand(sent), _)) = world.conn.receive() {
            world.conn.respond_with(sent.itt, Status::Busy.code());
        }
        world.ended.pop()
    });
    assert_eq!(ended.outcome, Outcome::Status(Status::Busy));
}

/// RFC 7143 §13.18, §13.19: data is in order. With a gap or a repetition it is incomplete.
#[test]
fn data_in_with_gaps_closes_the_connection() {
    let half = LEN / 2;
    for (first, second) in [(0, 0), (half, half), (half, 0), (0, half - 4)] {
        let mut world = World::new(options());
        world.start(0, Direction::Read);
        let sent = world.receive_command();
        data_at(&mut world.conn, sent.itt, first, &[1; LEN / 2], false);
        data_at(&mut world.conn, sent.itt, second, &[1; LEN / 2], true);
        world.until_closed();
        assert_eq!(
            world.ended,
            [],
            "nothing was acknowledged: {first} {second}"
        );
        assert_resent(&mut world);
    }
}

/// RFC 7143 §11.4.5: good status without a residual count, although not all data of the write was requested, is a violation.
#[test]
fn good_status_without_all_data_is_refused() {
    let half = LEN as u32 / 2;
    for asked in [&[][..], &[(0, half)], &[(0, half), (0, half)]] {
        let mut world = World::new(options());
        world.start(0, Direction::Write);
        let sent = world.receive_command();
        assert_eq!(sent.data_len, 0, "all of it is asked for");
        for &(offset, len) in asked {
            world.conn.r2t(sent.itt, offset, len);
            assert!(
                matches!(world.receive(), (FromInitiator::DataOut(_), data) if data.len() == len as usize)
            );
        }
        world.conn.respond(sent.itt);
        world.until_closed();
        assert_eq!(world.ended, [], "nothing was acknowledged: {asked:?}");

        world.accept();
        let again = world.receive_command();
        for offset in [0, half] {
            world.conn.r2t(again.itt, offset, half);
            assert!(matches!(world.receive(), (FromInitiator::DataOut(_), _)));
        }
        world.conn.respond(again.itt);
        assert_eq!(world.take_ended(1), [good(0)]);
    }
}

/// If connections are repeatedly lost right after login, attempts to reconnect are delayed.
#[test]
fn repeated_losses_delay_reconnects() {
    let mut world = World::new(options());
    world.conn = world.conn.shut_down();
    let (end, mut came) = (Instant::now() + Duration::from_secs(2), 0);
    while Instant::now() < end {
        world.turn();
        world.conn.receive();
        if let Ok((stream, _)) = world.listener.accept() {
            world.conn = Conn::over(stream);
            came += 1;
            // The login succeeds, and the connection is closed.
            let soon = Instant::now() + Duration::from_millis(30);
            while Instant::now() < soon {
                world.conn.receive();
                world.turn();
            }
            world.conn = world.conn.shut_down();
        }
    }
    assert!((2..=8).contains(&came), "{came} times in two seconds");
}
