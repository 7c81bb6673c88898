//! Cancelled commands: in every state, after part of their data was sent or received, and with a target that continues regardless.

use verbena_storage_wire::iscsi::{BHS_LEN, FromInitiator, NO_TAG, TaskFunction, TaskRequest};

use super::*;
use crate::wr::CommandState;

impl Rig {
    fn cancel(&mut self, name: CommandId) -> bool {
        self.qp.cancel(name, &mut self.out)
    }

    /// It has completed once, as flushed, and nothing of it is left.
    #[track_caller]
    fn assert_cancelled(&mut self, id: u64, name: CommandId) {
        assert_eq!(self.sent(), [(id, Status::WrFlushErr)]);
        assert_eq!(self.qp.command_state(name), None);
        assert!(!self.cancel(name), "it has ended");
        assert_eq!(self.sent(), []);
        let view = self.qp.view();
        assert_eq!((view.sends, view.commands), (0, 0));
        assert_eq!(self.tpt.len_of(PD), 2, "its entry is gone");
        assert_eq!(self.state(), QpState::Rts);
    }

    /// The connection still works: a read succeeds, under a tag that no other command had.
    #[track_caller]
    fn assert_continues(&mut self, old: u32) {
        let data = [self.sge(90_000, 100)];
        let (name, itt) = self.command(99, Direction::Read, &data);
        assert_ne!(itt, old, "another instance, or another place");
        self.received();
        let answer = self.target.data_in_status(itt, 0, &[0x77; 100]);
        self.deliver(&answer);
        let ups = self.received();
        assert_eq!(ups.len(), 1);
        assert_eq!(ups[0].command, Some(name.0));
        assert_eq!(self.sent(), [(99, Status::Success)]);
        assert_eq!(self.memory.read(90_000, 100), [0x77; 100]);
        assert_eq!(self.qp.view().gap, None);
    }
}

/// Before it was sent: it had no tag, and the next command gets the CmdSN that it would have had.
#[test]
fn cancelled_queued_command_is_never_sent() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(3);
    let data = [rig.sge(0, 1000)];
    let first = rig.post(1, Direction::Write, &data);
    let second = rig.post(2, Direction::None, &[]);
    assert_eq!(rig.qp.command_state(first), Some(CommandState::Queued));
    assert!(rig.cancel(first));
    assert_eq!(rig.sent(), [(1, Status::WrFlushErr)]);
    assert_eq!(rig.qp.command_state(first), None);
    rig.transmit();
    let pdus = rig.take_pdus();
    let [sent] = &pdus[..] else {
        panic!("{pdus:?}")
    };
    let FromInitiator::ScsiCommand(pdu) = sent.pdu else {
        panic!("{sent:?}")
    };
    assert!(!pdu.write);
    let (itt, cmd_sn) = (pdu.itt, pdu.cmd_sn);
    assert_eq!(cmd_sn, 1);
    assert_eq!(
        rig.qp.command_state(second),
        Some(CommandState::Sent { itt, cmd_sn })
    );
    let response = rig.target.response(itt);
    rig.deliver(&response);
    assert_eq!(rig.sent(), [(2, Status::Success)]);
    rig.received();
    rig.assert_continues(itt);
}

/// M12: later PDUs for it fail their checks. Data-In and R2T are delivered whole, responses are dropped, and no data moves.
#[test]
fn pdus_for_a_cancelled_command_are_refused() {
    for way in Split::ALL {
        for direction in [Direction::Read, Direction::Write] {
            let mut rig = Rig::with_split(way);
            let data = [rig.sge(0, 8192)];
            let (name, itt) = rig.command(1, direction, &data);
            assert_eq!(rig.take_pdus().len(), 1);
            assert!(rig.cancel(name));
            rig.assert_cancelled(1, name);
            rig.receive(8);
            let wire = [
                rig.target.data_in(itt, 0, &[0x11; 700]),
                rig.target.r2t(itt, 5, 0, 4000),
                rig.target.data_in_status(itt, 700, &[0x22; 300]),
                rig.target.sense(itt, &[0x33; 20]),
                rig.target.response(itt),
            ];
            rig.deliver(&wire.concat());
            let ups = rig.received();
            // A receive has 1024 bytes: each PDU fits.
            let whole: Vec<&[u8]> = wire[..3].iter().map(Vec::as_slice).collect();
            let got: Vec<&[u8]> = ups.iter().map(|up| &up.bytes[..]).collect();
            assert_eq!(got.len(), 3, "{way:?}");
            for (got, whole) in got.iter().zip(&whole) {
                assert_eq!(got, whole);
            }
            assert!(ups.iter().all(|up| up.command.is_none()));
            assert_eq!(rig.take_pdus(), [], "nothing leaves");
            rig.assert_untouched();
            let counters = rig.qp.view().counters;
            assert_eq!((counters.refused, counters.dropped), (3, 2));
            assert_eq!((counters.placed, counters.copied), (0, 0));
            rig.assert_continues(itt);
        }
    }
}

/// During a Data-In: data before the cancellation was placed, data after it is discarded, also when another command has got the slot
/// meanwhile.
#[test]
fn cancelling_mid_data_in_discards_the_rest() {
    for digests in [false, true] {
        for way in Split::ALL {
            for with_status in [false, true] {
                let mut rig = Rig::new(Setup {
                    split: way,
                    terms: Terms {
                        header_digest: digests,
                        data_digest: digests,
                        ..Terms::DEFAULT
                    },
                    ..Setup::default()
                });
                let data = [rig.sge(1000, 3000)];
                let (name, itt) = rig.command(1, Direction::Read, &data);
                rig.receive(2);
                let pdu = match with_status {
                    true => rig.target.data_in_status(itt, 0, &[0x5a; 3000]),
                    false => rig.target.data_in(itt, 0, &[0x5a; 3000]),
                };
                let head = BHS_LEN + if digests { 4 } else { 0 };
                let (before, after) = pdu.split_at(head + 1234);
                rig.feed(before);
                assert_eq!(rig.memory.read(1000, 1234), [0x5a; 1234]);
                assert!(rig.cancel(name));
                rig.assert_cancelled(1, name);
                // The slot belongs to another command before the rest comes.
                let other = [rig.sge(50_000, 3000)];
                let (_, second) = rig.command(2, Direction::Read, &other);
                rig.deliver(after);
                assert!(rig.received().is_empty(), "{way:?}");
                assert_eq!(rig.memory.read(2234, 1766), [FILL; 1766]);
                assert_eq!(rig.memory.read(50_000, 3000), [FILL; 3000]);
                assert_eq!(rig.qp.view().counters.dropped, 1);
                let answer = rig.target.data_in_status(second, 0, &[0x66; 3000]);
                rig.deliver(&answer);
                assert_eq!(rig.memory.read(50_000, 3000), [0x66; 3000]);
                assert_eq!(rig.sent(), [(2, Status::Success)]);
                assert_eq!(rig.received().len(), 1, "its number was taken note of");
                rig.assert_continues(itt);
            }
        }
    }
}

/// During Data-Out: the PDU that was started is completed with the bytes of that moment, and no further one follows.
#[test]
fn cancelling_mid_data_out_completes_the_begun_pdu() {
    let mut rig = Rig::new(Setup {
        terms: Terms {
            immediate_data: false,
            max_send: 1000,
            ..Terms::DEFAULT
        },
        ..Setup::default()
    });
    rig.memory.write(0, &pattern(0, SIZE));
    let data = [rig.sge(0, 60_000)];
    let (name, itt) = rig.command(1, Direction::Write, &data);
    rig.take_pdus();
    rig.receive(2);
    let r2t = rig.target.r2t(itt, 9, 0, 60_000);
    rig.feed(&r2t);
    // One PDU, and a part of the second.
    rig.send_some(48 + 1000 + 48 + 333);
    assert!(rig.cancel(name));
    rig.assert_cancelled(1, name);
    // The buffers belong to the consumer again.
    rig.memory.write(0, &[0xee; SIZE]);
    rig.transmit();
    let pdus = rig.take_pdus();
    assert_eq!(pdus.len(), 2);
    assert_eq!(pdus[1].data, pattern(0, SIZE)[1000..2000]);
    assert!(rig.wire.is_empty());
    // A further R2T fails its checks.
    let r2t = rig.target.r2t(itt, 10, 0, 5000);
    rig.deliver(&r2t);
    assert_eq!(rig.take_pdus(), []);
    assert_eq!(rig.qp.view().counters.refused, 1);
    rig.received();
    rig.assert_continues(itt);
}

/// A command whose PDU is built has a CmdSN that the target expects: it is sent, with the bytes of that moment.
#[test]
fn cancelled_command_with_a_cmdsn_is_sent() {
    let mut rig = Rig::new(Setup {
        terms: Terms {
            initial_r2t: false,
            max_send: 1000,
            ..Terms::DEFAULT
        },
        ..Setup::default()
    });
    rig.memory.write(0, &pattern(0, SIZE));
    rig.receive(3);
    let data = [rig.sge(0, 5000)];
    let first = rig.post(1, Direction::None, &[]);
    let second = rig.post(2, Direction::Write, &data);
    // All is built, and only one byte is sent.
    rig.send_some(1);
    assert!(rig.cancel(second));
    assert!(rig.cancel(first));
    rig.memory.write(0, &[0xee; SIZE]);
    rig.transmit();
    let pdus = rig.take_pdus();
    let [one, two] = &pdus[..] else {
        panic!("{pdus:?}")
    };
    let number = |sent: &target::Sent| match sent.pdu {
        FromInitiator::ScsiCommand(pdu) => pdu.cmd_sn,
        other => panic!("{other:?}"),
    };
    assert_eq!((number(one), number(two)), (1, 2));
    assert_eq!(two.data, pattern(0, 1000));
    let flushed = Status::WrFlushErr;
    assert_eq!(rig.sent(), [(2, flushed), (1, flushed)]);
    let old = rig.target.last_itt;
    rig.assert_continues(old);
}

/// Part of the response was received: the command is cancelled all the same, and no response is delivered.
#[test]
fn cancelling_mid_response_completes_the_command_once() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let (name, itt) = rig.command(1, Direction::None, &[]);
        let sense = rig.target.sense(itt, &[0x70; 40]);
        rig.feed(&sense[..60]);
        assert!(rig.cancel(name));
        rig.assert_cancelled(1, name);
        rig.deliver(&sense[60..]);
        assert!(rig.received().is_empty());
        assert_eq!(rig.qp.view().receives, 1, "the receive waits again");
        rig.assert_continues(itt);
    }
}

#[test]
fn ended_or_unknown_commands_cannot_be_cancelled() {
    let mut rig = Rig::new(Setup::default());
    assert!(!rig.cancel(CommandId(0)));
    let (name, itt) = rig.command(1, Direction::None, &[]);
    assert!(!rig.cancel(CommandId(name.0 + 1)));
    assert!(!rig.cancel(CommandId(u32::MAX)));
    let response = rig.target.response(itt);
    rig.deliver(&response);
    assert!(!rig.cancel(name), "its response came first");
    assert_eq!(rig.sent(), [(1, Status::Success)]);
    assert_eq!(rig.received().len(), 1);
    let (name, _) = rig.command(2, Direction::None, &[]);
    rig.qp.fail("the end", &mut rig.out);
    assert!(!rig.cancel(name));
    assert_eq!(rig.sent(), [(2, Status::WrFlushErr)]);
}

/// RFC 7143 §4.2.3.2: a task management request affects commands with smaller CmdSN, in whatever order they were posted.
#[test]
fn task_request_cmdsn_is_known_once_sent() {
    let mut rig = Rig::new(Setup::default());
    let (first, _) = rig.command(1, Direction::None, &[]);
    rig.receive(2);
    let second = rig.post(2, Direction::None, &[]);
    let request = TaskRequest {
        immediate: true,
        function: TaskFunction::LogicalUnitReset,
        lun: Lun::new(1).unwrap(),
        itt: 9,
        reference: NO_TAG,
        cmd_sn: 0,
        exp_stat_sn: 0,
        ref_cmd_sn: 0,
        exp_data_sn: 0,
    };
    rig.post_pdu(3, request.emit(), &[]);
    assert_eq!(rig.qp.task_request_cmd_sn(9), None, "it has not left");
    rig.transmit();
    // It is for immediate delivery, and was sent before the second.
    assert_eq!(rig.qp.task_request_cmd_sn(9), Some(2));
    assert_eq!(rig.qp.task_request_cmd_sn(8), None);
    let number = |name| match rig.qp.command_state(name) {
        Some(CommandState::Sent { cmd_sn, .. }) => cmd_sn,
        other => panic!("{other:?}"),
    };
    assert_eq!((number(first), number(second)), (1, 2));
}

/// RFC 7143 §7.9: a skipped StatSN is detected with every kind of PDU; one that comes twice is not a gap.
#[test]
fn statsn_gap_is_recorded() {
    for kind in 0..3 {
        let mut rig = Rig::new(Setup::default());
        let (_, itt) = rig.command(1, Direction::None, &[]);
        let data = [rig.sge(0, 10)];
        let (_, read) = rig.command(2, Direction::Read, &data);
        let expected = rig.target.stat_sn;
        rig.target.stat_sn = expected.wrapping_sub(1);
        let old = rig.target.response(itt);
        rig.deliver(&old);
        assert_eq!(rig.qp.view().gap, None, "that one came before");
        rig.target.stat_sn = expected.wrapping_add(2);
        let got = rig.target.stat_sn;
        let pdu = match kind {
            0 => rig.target.response(itt),
            1 => rig.target.data_in_status(read, 0, &[1; 10]),
            _ => {
                let mut nop = rig.target.nop();
                // An answer to a NOP-Out of ours has a StatSN of its own.
                nop[16..20].copy_from_slice(&[0, 0, 0, 2]);
                nop
            }
        };
        rig.deliver(&pdu);
        assert_eq!(rig.qp.view().gap, Some(crate::Gap { expected, got }));
        rig.assert_untouched();
        assert_eq!(rig.sent(), []);
    }
}
