//! All other PDUs are delivered whole; their StatSN and command window are evaluated.

use verbena_storage_wire::iscsi::{
    AsyncEvent, AsyncMessage, Bhs, Lengths, LogoutOutcome, LogoutResponse,
};
use verbena_storage_wire::iscsi::{NO_TAG, NopIn, Reject, RejectReason, TaskOutcome, TaskResponse};
use verbena_storage_wire::iscsi::{TextResponse, Window, digest};

use super::*;

const WINDOW: Window = Window {
    exp_cmd_sn: 1,
    max_cmd_sn: 64,
};

fn nop_in(itt: u32, stat_sn: u32, data_len: u32) -> Bhs {
    NopIn {
        data_len,
        lun: Lun::new(0).unwrap(),
        itt,
        ttt: NO_TAG,
        stat_sn,
        window: WINDOW,
    }
    .emit()
}

fn expected_status(rig: &Rig) -> u32 {
    rig.qp.lock.read(|inner| inner.exp_stat_sn.unwrap())
}

/// All kinds, each with the StatSN that it carries, and whether it is consumed.
fn kinds(stat_sn: u32) -> Vec<(Bhs, bool)> {
    vec![
        (nop_in(0x77, stat_sn, 5), true),
        (nop_in(NO_TAG, stat_sn, 0), false),
        (
            TaskResponse {
                response: TaskOutcome::Complete,
                itt: 0x78,
                stat_sn,
                window: WINDOW,
            }
            .emit(),
            true,
        ),
        (
            TextResponse {
                is_final: true,
                more: false,
                data_len: 70,
                lun: Lun::new(0).unwrap(),
                itt: 9,
                ttt: NO_TAG,
                stat_sn,
                window: WINDOW,
            }
            .emit(),
            true,
        ),
        (
            LogoutResponse {
                response: LogoutOutcome::Closed,
                itt: 9,
                stat_sn,
                window: WINDOW,
                time2wait: 2,
                time2retain: 20,
            }
            .emit(),
            true,
        ),
        (
            AsyncMessage {
                event: AsyncEvent::LogoutRequest,
                vcode: 0,
                parameters: [1, 2, 3],
                data_len: 3,
                lun: Lun::new(1).unwrap(),
                stat_sn,
                window: WINDOW,
            }
            .emit(),
            true,
        ),
        (
            Reject {
                reason: RejectReason::ProtocolError,
                data_len: 48,
                stat_sn,
                window: WINDOW,
                data_sn: 0,
            }
            .emit(),
            true,
        ),
    ]
}

#[test]
fn each_kind_is_delivered_whole_and_advances_statsn() {
    for way in Split::ALL {
        // With and without a command that reads: the amount staged ahead differs.
        for reads in [false, true] {
            let mut rig = Rig::with_split(way);
            if reads {
                let data = [rig.sge(0, 100)];
                rig.command(1, Direction::Read, &data);
            }
            for at in 0..kinds(0).len() {
                let before = expected_status(&rig);
                let (bhs, counts) = kinds(before)[at];
                let data = pattern(at, Lengths::of(&bhs).data as usize);
                let pdu = rig.target.pdu(&bhs, &data);
                rig.receive(1);
                rig.deliver(&pdu);
                let ups = rig.received();
                assert_eq!(ups.len(), 1);
                assert_eq!((ups[0].status, ups[0].command), (Status::Success, None));
                assert_eq!(ups[0].bytes, [&bhs[..], &data].concat());
                assert_eq!(expected_status(&rig), before + u32::from(counts));
            }
            rig.assert_untouched();
            let counters = rig.qp.view().counters;
            assert_eq!((counters.refused, counters.dropped), (0, 0));
        }
    }
}

/// Unknown opcodes, opcodes of initiators, contradictory headers, and additional header segments.
#[test]
fn unknown_pdus_are_delivered_whole() {
    for digests in [false, true] {
        for way in Split::ALL {
            let mut rig = Rig::new(Setup {
                terms: Terms {
                    header_digest: digests,
                    data_digest: digests,
                    ..Terms::DEFAULT
                },
                split: way,
                ..Setup::default()
            });
            let data = [rig.sge(0, 100)];
            let (name, itt) = rig.command(1, Direction::Read, &data);
            let tag = itt.to_be_bytes();
            // Opcode, flags, TotalAHSLength, bytes of data.
            let strange: [(u8, u8, u8, u8); 8] = [
                (0x3e, 0x80, 0, 7),
                (0x01, 0x80, 0, 100),
                (0x05, 0x80, 3, 9),
                (0x1f, 0, 0, 0),
                // Data-In with status and not final; with both residuals; with an AHS.
                (0x25, 0x01, 0, 8),
                (0x25, 0x87, 0, 8),
                (0x25, 0x81, 2, 8),
                (0x21, 0x86, 255, 3),
            ];
            for (opcode, flags, words, len) in strange {
                let mut head = vec![0; 48 + usize::from(words) * 4];
                head[..2].copy_from_slice(&[opcode, flags]);
                (head[4], head[7]) = (words, len);
                head[16..20].copy_from_slice(&tag);
                head[24..28].copy_from_slice(&rig.target.stat_sn.to_be_bytes());
                for (at, byte) in head.iter_mut().enumerate().skip(48) {
                    *byte = at as u8;
                }
                let data = pattern(opcode.into(), len.into());
                let mut wire = head.clone();
                let mut padded = data.clone();
                padded.resize(data.len().next_multiple_of(4), 0);
                if digests {
                    wire.extend(digest(&head));
                }
                wire.extend(&padded);
                if digests && len > 0 {
                    wire.extend(digest(&padded));
                }
                let at = rig.receive_wide();
                rig.deliver(&wire);
                let whole = [head, data].concat();
                let ups = poll(&rig.qp.init().recv_cq);
                assert_eq!(
                    (ups[0].status, ups[0].len),
                    (Status::Success, whole.len() as u32)
                );
                assert_eq!(rig.memory.read(at, whole.len()), whole);
                assert_eq!(ups[0].immediate, None, "{opcode:#x} ends nothing");
            }
            assert_eq!(rig.memory.read(0, 100), [FILL; 100]);
            rig.receive(1);
            let pdu = rig.target.data_in_status(itt, 0, &[1; 100]);
            rig.deliver(&pdu);
            assert_eq!(rig.received()[0].command, Some(name.0));
        }
    }
}

impl Rig {
    /// Posts a receive of 2000 bytes at the end of the memory, after using up those that were posted.
    fn receive_wide(&mut self) -> usize {
        let waiting = self.qp.view().receives;
        for _ in 0..waiting {
            let pdu = self.target.nop();
            self.deliver(&pdu);
        }
        self.received();
        let at = SIZE - 2000;
        let scatter = &[self.sge(at, 2000)];
        let wr = ReceiveWr { id: 5, scatter };
        self.qp.post_receive(&wr, &mut self.out).unwrap();
        at
    }
}

/// ExpStatSN never goes back, and an unsolicited NOP-In, which carries the next StatSN, does not consume it.
#[test]
fn expstatsn_never_goes_back() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(3);
    let next = expected_status(&rig);
    let old = rig.target.pdu(&nop_in(5, next - 4, 0), &[]);
    rig.deliver(&old);
    assert_eq!(expected_status(&rig), next);
    let ahead = rig.target.pdu(&nop_in(5, next + 10, 0), &[]);
    rig.deliver(&ahead);
    assert_eq!(expected_status(&rig), next + 11);
}

/// Before the full feature phase everything is delivered, also what looks like data.
#[test]
fn everything_is_delivered_before_full_feature_phase() {
    let tpt = Arc::new(Tpt::new(1..1000, Policy::Verbs, 5));
    let mut rig = Rig::unconnected(&tpt, Setup::default());
    assert!(rig.qp.attach());
    assert!(!rig.qp.attach(), "once");
    rig.receive(3);
    let wire = [
        rig.target.data_in(0x100, 0, &[1; 10]),
        rig.target.r2t(0x100, 1, 0, 10),
        rig.target.response(0x100),
    ];
    rig.deliver(&wire.concat());
    let ups = rig.received();
    assert_eq!(ups.len(), 3);
    assert_eq!(ups[0].bytes, wire[0][..58]);
    let counters = rig.qp.view().counters;
    assert_eq!((counters.refused, counters.dropped), (0, 0));
}
