//! Commands that cannot be executed: each check of M12, under option 1 (the send queue stops, everything else continues) and option 2
//! (the connection ends).

use verbena_storage_wire::iscsi::FromInitiator;

use super::*;

/// What is wrong with a command.
#[derive(Debug, Clone, Copy)]
enum Defect {
    Mode,
    Opcode,
    Wraps,
    TooLong,
    TableFull,
    Memory,
    Right,
    Domain,
    Directionless,
}

const ALL: [Defect; 9] = [
    Defect::Mode,
    Defect::Opcode,
    Defect::Wraps,
    Defect::TooLong,
    Defect::TableFull,
    Defect::Memory,
    Defect::Right,
    Defect::Domain,
    Defect::Directionless,
];

impl Defect {
    fn expected(self) -> (Status, &'static str) {
        match self {
            Defect::Mode => (Status::LocQpOpErr, "not in iSCSI mode"),
            Defect::Opcode => (Status::LocQpOpErr, "has no command 0x28"),
            Defect::Wraps | Defect::TooLong => (Status::LocQpOpErr, "segments wrap"),
            Defect::TableFull => (Status::MwBindErr, "registration of its memory"),
            Defect::Memory | Defect::Right | Defect::Domain => (Status::LocProtErr, "its memory"),
            Defect::Directionless => (Status::LocQpOpErr, "no direction"),
        }
    }
}

/// A fixture with one valid read outstanding, behind which the invalid command is posted as number 2, followed by 3 and 4.
struct Case {
    rig: Rig,
    good: (CommandId, u32),
    /// Buffers that have to stay registered until the end.
    kept: Vec<Buffer>,
}

fn case(wrong: Defect, on_failure: OnFailure) -> Case {
    let tpt = Arc::new(Tpt::new(1..40, Policy::Verbs, 5));
    let setup = Setup {
        on_failure,
        terms: Terms {
            immediate_data: false,
            ..Terms::DEFAULT
        },
        ..Setup::default()
    };
    let mut rig = Rig::with_tpt(&tpt, setup);
    let data = [rig.sge(0, 100)];
    let good = rig.command(1, Direction::Write, &data);
    let mut kept = Vec::new();
    let mut other = |pd: Pd, access: Access| {
        let buffer = Buffer::new(&tpt, 100, pd, access).unwrap();
        let (at, stag) = (buffer.at(), buffer.stag());
        kept.push(buffer);
        Sge {
            addr: at,
            len: 50,
            stag,
        }
    };
    let mut sge = rig.sge(0, 100);
    let mut data = vec![sge];
    match wrong {
        Defect::Mode => rig
            .qp
            .lock
            .lock_and_run(|inner| inner.full_feature = false, |_| ()),
        Defect::Wraps => {
            sge.addr = u64::MAX - 10;
            data = vec![sge];
        }
        // There is no such memory; it is not accessed.
        Defect::TooLong => {
            sge.len = u32::MAX / 2 + 1;
            data = vec![sge; 2];
        }
        Defect::Memory => data.push(Sge {
            addr: sge.addr + SIZE as u64 - 3,
            ..sge
        }),
        Defect::Right => data.push(other(PD, Access::LOCAL_READ)),
        Defect::Domain => data.push(other(Pd(2), Access::ALL)),
        Defect::TableFull => {
            while let Ok(buffer) = Buffer::new(&tpt, 16, Pd(3), Access::ALL) {
                kept.push(buffer);
            }
        }
        Defect::Opcode | Defect::Directionless => {}
    }
    let mut wr = Rig::wr(2, Direction::Read, &data);
    match wrong {
        Defect::Opcode => wr.device = DeviceType::Enclosure,
        Defect::Directionless => wr.direction = Direction::None,
        _ => {}
    }
    rig.receive(3);
    rig.take_pdus();
    rig.qp.post_command(&wr, &mut rig.out).unwrap();
    rig.post(3, Direction::None, &[]);
    rig.post_pdu(4, nop(false), b"later");
    rig.events();
    Case { rig, good, kept }
}

fn nop(immediate: bool) -> Bhs {
    let mut bhs = [0; 48];
    bhs[0] = if immediate { 0x40 } else { 0 };
    bhs[1] = 0x80;
    bhs[16..24].copy_from_slice(&[0xff; 8]);
    bhs
}

#[test]
fn option_1_stops_only_the_send_queue() {
    for wrong in ALL {
        let Case {
            mut rig,
            good,
            kept: _kept,
        } = case(wrong, OnFailure::Reactive);
        let (status, says) = wrong.expected();
        let entries = rig.tpt.len();
        assert_eq!(rig.transmit(), Sending::Idle);
        assert_eq!(rig.state(), QpState::Sqe, "{wrong:?}");
        assert_ne!(rig.qp.state(), QpState::Err);
        let cause = rig.qp.view().cause.unwrap();
        assert!(
            cause.contains(says) && cause.contains("command 2"),
            "{cause}"
        );
        let flushed = Status::WrFlushErr;
        assert_eq!(rig.sent(), [(2, status), (3, flushed), (4, flushed)]);
        assert!(rig.take_pdus().is_empty(), "nothing is sent of it");
        assert_eq!(rig.events(), [Event::QpRequest { qp: 7 }]);
        assert_eq!(rig.tpt.len(), entries, "and nothing is registered");
        let view = rig.qp.view();
        assert_eq!((view.sends, view.commands), (1, 1), "the one before");

        // What is posted now is flushed, except for immediate delivery.
        rig.post(5, Direction::None, &[]);
        rig.post_pdu(6, nop(false), b"no");
        rig.post_pdu(7, nop(true), b"yes");
        rig.transmit();
        let done = [(5, flushed), (6, flushed), (7, Status::Success)];
        assert_eq!(rig.sent(), done);
        assert_eq!(rig.take_pdus()[0].data, b"yes");

        // Receives, R2Ts and the earlier command continue.
        rig.qp
            .lock
            .lock_and_run(|inner| inner.full_feature = true, |_| ());
        let wire = [rig.target.nop(), rig.target.r2t(good.1, 4, 0, 100)];
        rig.deliver(&wire.concat());
        assert_eq!(rig.received().len(), 2);
        assert_eq!(rig.take_pdus()[0].data, [FILL; 100]);
        let response = rig.target.response(good.1);
        rig.deliver(&response);
        assert_eq!(rig.sent(), [(1, Status::Success)]);
        assert_eq!(rig.received()[0].command, Some(good.0.0));
        assert_eq!(rig.state(), QpState::Sqe);

        // After a restart it continues; CmdSN has no gap.
        assert!(rig.qp.restart_sends());
        assert!(!rig.qp.restart_sends());
        assert_eq!((rig.state(), rig.qp.view().cause), (QpState::Rts, None));
        let view = rig.qp.view();
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 1));
        if let Defect::TableFull = wrong {
            // The entry of the valid command is free again.
            assert_eq!(rig.tpt.len(), entries - 1);
        }
        rig.post(8, Direction::None, &[]);
        rig.transmit();
        let pdus = rig.take_pdus();
        let FromInitiator::ScsiCommand(pdu) = pdus[0].pdu else {
            panic!("{:?}", pdus[0].pdu)
        };
        assert_eq!(pdu.cmd_sn, 2, "{wrong:?}");
        let response = rig.target.response(pdu.itt);
        rig.deliver(&response);
        assert_eq!(rig.sent(), [(8, Status::Success)]);
    }
}

#[test]
fn option_2_ends_the_connection() {
    for wrong in ALL {
        let Case { mut rig, kept, .. } = case(wrong, OnFailure::Anticipatory);
        let (status, says) = wrong.expected();
        assert_eq!(rig.transmit(), Sending::Ended, "{wrong:?}");
        drop(kept);
        rig.assert_ended(says);
        let flushed = Status::WrFlushErr;
        let ends = [(2, status), (1, flushed), (3, flushed), (4, flushed)];
        assert_eq!(rig.sent(), ends);
        let ups: Vec<(u64, Status)> = rig.received().iter().map(|up| (up.id, up.status)).collect();
        let receives: Vec<(u64, Status)> = (1..5).map(|id| (id, flushed)).collect();
        assert_eq!(ups, receives, "receives in posting order");
        assert!(rig.take_pdus().is_empty());
        assert_eq!(rig.events(), [Event::QpFatal { qp: 7 }]);
        assert!(!rig.qp.restart_sends(), "there is no way back");

        // Whatever is posted now is flushed at once.
        rig.post(5, Direction::None, &[]);
        rig.post_pdu(6, nop(true), b"no");
        rig.receive_of(100);
        assert_eq!(rig.sent(), [(5, flushed), (6, flushed)]);
        assert_eq!(rig.received()[0].status, flushed);
        assert_eq!(rig.transmit(), Sending::Ended);
        assert_eq!(rig.read(), Receiving::Ended);
    }
}

/// The first cause is kept while the send queue is stopped; after a restart it is not the cause of a later end.
#[test]
fn first_cause_is_kept_until_a_restart() {
    let Case { mut rig, .. } = case(Defect::Wraps, OnFailure::Reactive);
    rig.transmit();
    rig.qp.fail("failed by the test", &mut rig.out);
    rig.assert_ended("segments wrap");

    let Case { mut rig, .. } = case(Defect::Wraps, OnFailure::Reactive);
    rig.transmit();
    rig.qp.restart_sends();
    rig.qp.fail("failed by the test", &mut rig.out);
    rig.assert_ended("failed by the test");
}

/// Segments that end exactly at the limits do not wrap; the check of the memory fails, as there is none.
#[test]
fn segments_up_to_the_limits_do_not_wrap() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(1);
    let mut sge = rig.sge(0, u32::MAX);
    sge.addr = u64::MAX - u64::from(u32::MAX);
    rig.post(1, Direction::Read, &[sge]);
    rig.transmit();
    assert_eq!(rig.sent(), [(1, Status::LocProtErr)]);
}

/// A segment of length 0 is not checked.
#[test]
fn empty_segment_is_not_checked() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(1);
    let mut sge = rig.sge(0, 0);
    sge.stag = verbena_wire::Stag::new(0x1234_5678);
    rig.post(1, Direction::Read, &[sge]);
    rig.transmit();
    assert_eq!(rig.take_pdus().len(), 1);
}
