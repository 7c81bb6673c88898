//! Writes: immediate, unsolicited and solicited data; sequence numbers, tags and the command window.

use verbena_storage_wire::iscsi::{
    DataOut, FromInitiator, NO_TAG, NopOut, ScsiCommand, TaskRequest,
};
use verbena_storage_wire::iscsi::{TaskFunction, Window};

use super::target::Sent;
use super::*;

fn command(sent: &Sent) -> ScsiCommand {
    match sent.pdu {
        FromInitiator::ScsiCommand(pdu) => pdu,
        other => panic!("{other:?}"),
    }
}

fn data_out(sent: &Sent) -> DataOut {
    match sent.pdu {
        FromInitiator::DataOut(pdu) => pdu,
        other => panic!("{other:?}"),
    }
}

/// A fixture with these parameters whose memory holds a pattern.
fn writing(terms: Terms, split: Split) -> Rig {
    let rig = Rig::new(Setup {
        terms,
        split,
        ..Setup::default()
    });
    rig.memory.write(0, &pattern(0, SIZE));
    rig
}

const R2T_ONLY: Terms = Terms {
    immediate_data: false,
    ..Terms::DEFAULT
};

/// Data-Outs cover a range with these offsets and lengths, correctly numbered and tagged.
#[track_caller]
fn assert_burst(sent: &[Sent], of: &[u8], (itt, ttt): (u32, u32), parts: &[(u32, u32)]) {
    assert_eq!(sent.len(), parts.len());
    for (at, (sent, (offset, len))) in sent.iter().zip(parts).enumerate() {
        let pdu = data_out(sent);
        assert_eq!((pdu.itt, pdu.ttt), (itt, ttt));
        assert_eq!((pdu.offset, pdu.data_len), (*offset, *len));
        assert_eq!(pdu.data_sn, at as u32);
        assert_eq!(pdu.is_final, at + 1 == parts.len());
        assert_eq!(pdu.lun, Lun::new(1).unwrap());
        let range = *offset as usize..(offset + len) as usize;
        assert_eq!(sent.data, of[range]);
    }
}

#[test]
fn immediate_data_is_sent_with_the_command() {
    for way in Split::ALL {
        let terms = Terms {
            max_send: 1000,
            first_burst: 2000,
            ..Terms::DEFAULT
        };
        let mut rig = writing(terms, way);
        // All of it; padded; more than a PDU takes; more than FirstBurstLength.
        for (len, immediate) in [(10, 10), (1000, 1000), (1500, 1000), (5000, 1000)] {
            let data = [rig.sge(100, 3), rig.sge(7000, len - 3)];
            let (_, itt) = rig.command(1, Direction::Write, &data);
            let pdus = rig.take_pdus();
            assert_eq!(pdus.len(), 1, "no more without being asked: {way:?}");
            let pdu = command(&pdus[0]);
            assert!(pdu.write && !pdu.read && pdu.is_final);
            assert_eq!((pdu.expected_len, pdu.data_len), (len, immediate));
            let all = [rig.memory.read(100, 3), rig.memory.read(7000, 4997)].concat();
            assert_eq!(pdus[0].data, all[..immediate as usize]);
            let response = rig.target.response(itt);
            rig.deliver(&response);
            assert_eq!(rig.sent(), [(1, Status::Success)]);
        }
        let terms = Terms {
            first_burst: 600,
            ..Terms::DEFAULT
        };
        let mut rig = writing(terms, way);
        let data = [rig.sge(0, 5000)];
        rig.command(1, Direction::Write, &data);
        assert_eq!(command(&rig.take_pdus()[0]).data_len, 600);
    }
}

#[test]
fn unsolicited_data_follows_its_command() {
    for way in Split::ALL {
        for immediate_data in [false, true] {
            let terms = Terms {
                max_send: 1000,
                first_burst: 2500,
                immediate_data,
                initial_r2t: false,
                ..Terms::DEFAULT
            };
            let mut rig = writing(terms, way);
            let all = rig.bytes();
            rig.receive(2);
            let data = [rig.sge(0, 4000)];
            rig.post(1, Direction::Write, &data);
            rig.post(2, Direction::None, &[]);
            rig.transmit();
            let pdus = rig.take_pdus();
            let pdu = command(&pdus[0]);
            assert!(!pdu.is_final, "more comes unasked");
            assert_eq!(pdu.expected_len, 4000);
            let parts: &[(u32, u32)] = if immediate_data {
                assert_eq!(pdus[0].data, all[..1000]);
                &[(1000, 1000), (2000, 500)]
            } else {
                assert_eq!(pdu.data_len, 0);
                &[(0, 1000), (1000, 1000), (2000, 500)]
            };
            let end = pdus.len() - 1;
            assert_burst(&pdus[1..end], &all, (pdu.itt, NO_TAG), parts);
            assert_eq!(command(&pdus[end]).cmd_sn, 2, "data has no CmdSN");
            // The rest is requested by R2T.
            rig.receive(1);
            let r2t = rig.target.r2t(pdu.itt, 9, 2500, 1500);
            rig.deliver(&r2t);
            let asked = [(2500, 1000), (3500, 500)];
            assert_burst(&rig.take_pdus(), &all, (pdu.itt, 9), &asked);
        }
    }
}

/// Data that fits the command PDU or the first burst needs no R2T.
#[test]
fn final_bit_is_set_when_data_fits() {
    let terms = Terms {
        max_send: 1000,
        first_burst: 3000,
        initial_r2t: false,
        ..Terms::DEFAULT
    };
    let mut rig = writing(terms, Split::Whole);
    let data = [rig.sge(0, 1000)];
    rig.command(1, Direction::Write, &data);
    assert!(command(&rig.take_pdus()[0]).is_final);
    let data = [rig.sge(0, 1001)];
    rig.command(2, Direction::Write, &data);
    let pdus = rig.take_pdus();
    assert!(!command(&pdus[0]).is_final);
    let pdu = data_out(&pdus[1]);
    assert!(pdu.is_final);
    assert_eq!((pdu.offset, pdu.data_len, pdus.len()), (1000, 1, 2));
    // A write of length 0.
    rig.command(3, Direction::Write, &[]);
    let pdus = rig.take_pdus();
    assert!(command(&pdus[0]).is_final && command(&pdus[0]).write);
}

/// RFC 7143 §13.17: the implied R2T of unsolicited data is not counted.
#[test]
fn r2t_is_accepted_while_unsolicited_data_is_sent() {
    let terms = Terms {
        max_send: 50,
        first_burst: 2000,
        initial_r2t: false,
        immediate_data: false,
        ..Terms::DEFAULT
    };
    let mut rig = writing(terms, Split::Whole);
    let all = rig.bytes();
    rig.receive(3);
    let data = [rig.sge(0, 4000)];
    rig.post(1, Direction::Write, &data);
    // The command and a part of its data were sent; more of it remains than is built ahead.
    rig.send_some(48 + 100);
    let wire = core::mem::take(&mut rig.wire);
    rig.wire = rig.target.receive(wire);
    let itt = rig.target.last_itt;
    let r2t = rig.target.r2t(itt, 5, 2000, 2000);
    rig.feed(&r2t);
    assert_eq!(rig.qp.view().counters.refused, 0);
    // That is one; a second is not accepted.
    let r2t = rig.target.r2t(itt, 6, 0, 10);
    rig.feed(&r2t);
    assert_eq!(rig.qp.view().counters.refused, 1);
    rig.transmit();
    let pdus = rig.take_pdus();
    let parts: Vec<(u32, u32)> = (0..80).map(|at| (at * 50, 50)).collect();
    assert_burst(&pdus[1..41], &all, (itt, NO_TAG), &parts[..40]);
    assert_burst(&pdus[41..], &all, (itt, 5), &parts[40..]);
    // Now another is accepted, and no more than one.
    let wire = [7, 8].map(|ttt| rig.target.r2t(itt, ttt, 0, 50));
    rig.receive(2);
    rig.deliver(&wire.concat());
    assert_burst(&rig.take_pdus(), &all, (itt, 7), &[(0, 50)]);
    assert_eq!(rig.qp.view().counters.refused, 2);
}

#[test]
fn burst_is_split_at_the_target_segment_length() {
    for way in Split::ALL {
        let terms = Terms {
            max_send: 1111,
            ..R2T_ONLY
        };
        let mut rig = writing(terms, way);
        let (a, b) = (rig.memory.read(50, 2500), rig.memory.read(30_000, 4500));
        let all = [a, b].concat();
        let data = [rig.sge(50, 2500), rig.sge(30_000, 4500)];
        let (name, itt) = rig.command(8, Direction::Write, &data);
        let pdu = command(&rig.take_pdus()[0]);
        assert_eq!((pdu.data_len, pdu.is_final), (0, true));
        rig.receive(2);
        let first = rig.target.r2t(itt, 0xd00a_e6c1, 0, 3000);
        rig.deliver(&first);
        let parts = [(0, 1111), (1111, 1111), (2222, 778)];
        assert_burst(&rig.take_pdus(), &all, (itt, 0xd00a_e6c1), &parts);
        let second = rig.target.r2t(itt, 3, 3000, 4000);
        rig.deliver(&second);
        let parts = [(3000, 1111), (4111, 1111), (5222, 1111), (6333, 667)];
        assert_burst(&rig.take_pdus(), &all, (itt, 3), &parts);
        let response = rig.target.response(itt);
        rig.deliver(&response);
        let ups = rig.received();
        assert_eq!(ups[0].bytes, first);
        assert_eq!(ups[1].bytes, second);
        assert_eq!((ups[2].command, ups.len()), (Some(name.0), 3));
        assert_eq!(rig.sent(), [(8, Status::Success)]);
        assert_eq!(rig.qp.view().counters.gathered, 7000, "nothing is copied");
    }
}

#[test]
fn r2ts_are_served_in_order_of_arrival() {
    for way in Split::ALL {
        let terms = Terms {
            max_send: 1000,
            max_r2t: 2,
            ..R2T_ONLY
        };
        let mut rig = writing(terms, way);
        let all = rig.bytes();
        let data = [rig.sge(0, 3000)];
        let (_, a) = rig.command(1, Direction::Write, &data);
        let (_, b) = rig.command(2, Direction::Write, &data);
        let into = [rig.sge(50_000, 2000)];
        let (_, c) = rig.command(3, Direction::Read, &into);
        rig.take_pdus();
        rig.receive(6);
        let wire = [
            rig.target.r2t(b, 1, 0, 1500),
            rig.target.data_in(c, 0, &[7; 999]),
            rig.target.r2t(a, 2, 2000, 1000),
            rig.target.r2t(b, 3, 1500, 1500),
            rig.target.data_in_status(c, 999, &[8; 1001]),
        ];
        // All of it is received before anything is sent.
        rig.feed(&wire.concat());
        rig.transmit();
        let pdus = rig.take_pdus();
        assert_burst(&pdus[..2], &all, (b, 1), &[(0, 1000), (1000, 500)]);
        assert_burst(&pdus[2..3], &all, (a, 2), &[(2000, 1000)]);
        assert_burst(&pdus[3..], &all, (b, 3), &[(1500, 1000), (2500, 500)]);
        // Data-Out carries ExpStatSN.
        let expected = rig.target.stat_sn;
        assert!(
            pdus.iter()
                .all(|sent| data_out(sent).exp_stat_sn == expected)
        );
        assert_eq!(rig.memory.read(50_000, 999), [7; 999]);
        assert_eq!(rig.memory.read(50_999, 1001), [8; 1001]);
    }
}

#[test]
fn only_immediate_delivery_passes_the_command_window() {
    let mut rig = Rig::new(Setup::default());
    rig.qp
        .lock
        .lock_and_run(|inner| inner.window.max_cmd_sn = 2, |_| ());
    rig.target.window.max_cmd_sn = 2;
    rig.receive(8);
    for id in 1..=4 {
        rig.post(id, Direction::None, &[]);
    }
    assert_eq!(rig.transmit(), Sending::Idle);
    let pdus = rig.take_pdus();
    let numbers: Vec<u32> = pdus.iter().map(|sent| command(sent).cmd_sn).collect();
    assert_eq!(numbers, [1, 2]);

    // A NOP-Out for immediate delivery passes, with the next CmdSN; one that is not waits.
    let mut nop = NopOut {
        immediate: true,
        data_len: 0,
        lun: Lun::new(0).unwrap(),
        itt: 0x77,
        ttt: NO_TAG,
        cmd_sn: 0,
        exp_stat_sn: 0,
    };
    rig.post_pdu(5, nop.emit(), b"ping");
    nop.immediate = false;
    rig.post_pdu(6, nop.emit(), b"wait");
    rig.transmit();
    let [ping] = &rig.take_pdus()[..] else {
        panic!("one ping")
    };
    let FromInitiator::NopOut(pdu) = ping.pdu else {
        panic!("{:?}", ping.pdu)
    };
    assert_eq!((pdu.cmd_sn, pdu.exp_stat_sn, pdu.itt), (3, 0x11, 0x77));
    assert_eq!(ping.data, b"ping");
    assert_eq!(rig.sent(), [(5, Status::Success)]);

    // The window opens by one, and then far; never backwards.
    rig.target.window = Window {
        exp_cmd_sn: 3,
        max_cmd_sn: 3,
    };
    let news = rig.target.nop();
    rig.deliver(&news);
    assert_eq!(command(&rig.take_pdus()[0]).cmd_sn, 3);
    rig.target.window.max_cmd_sn = 2;
    let old = rig.target.nop();
    rig.deliver(&old);
    assert!(rig.take_pdus().is_empty());
    rig.target.window.max_cmd_sn = 40;
    let news = rig.target.nop();
    rig.deliver(&news);
    let pdus = rig.take_pdus();
    assert_eq!(command(&pdus[0]).cmd_sn, 4);
    let FromInitiator::NopOut(pdu) = pdus[1].pdu else {
        panic!("{:?}", pdus[1].pdu)
    };
    assert_eq!(pdu.cmd_sn, 5, "one that is not immediate has a number");
    assert_eq!(rig.sent(), [(6, Status::Success)]);
}

/// Sequence numbers wrap (RFC 7143 §4.2.2).
#[test]
fn sequence_numbers_wrap() {
    let mut rig = Rig::new(Setup::default());
    rig.qp.lock.lock_and_run(
        |inner| {
            inner.cmd_sn = u32::MAX;
            inner.exp_stat_sn = Some(u32::MAX);
            inner.window.max_cmd_sn = 0;
        },
        |_| (),
    );
    rig.target.stat_sn = u32::MAX;
    rig.target.window.max_cmd_sn = 0;
    let (_, a) = rig.command(1, Direction::None, &[]);
    let (_, b) = rig.command(2, Direction::None, &[]);
    rig.receive(1);
    rig.post(3, Direction::None, &[]);
    rig.transmit();
    let pdus = rig.take_pdus();
    let numbers: Vec<u32> = pdus.iter().map(|sent| command(sent).cmd_sn).collect();
    assert_eq!(numbers, [u32::MAX, 0], "the third is beyond the window");
    let wire = [rig.target.response(a), rig.target.response(b)];
    rig.deliver(&wire.concat());
    assert_eq!(rig.sent().len(), 2);
    rig.target.window = Window {
        exp_cmd_sn: 1,
        max_cmd_sn: 9,
    };
    rig.receive(1);
    let news = rig.target.nop();
    rig.deliver(&news);
    let pdu = command(&rig.take_pdus()[0]);
    assert_eq!((pdu.cmd_sn, pdu.exp_stat_sn), (1, 1));
}

/// WRITE(10), its R2T and its Data-Outs as recorded with a real target; tags are ours.
#[test]
fn write_pdus_equal_a_recording() {
    let mut rig = writing(R2T_ONLY, Split::Whole);
    rig.qp.lock.lock_and_run(
        |inner| {
            inner.cmd_sn = 7;
            inner.exp_stat_sn = Some(8);
            inner.window.max_cmd_sn = 64;
        },
        |_| (),
    );
    rig.receive(3);
    let data = [rig.sge(0, 0x4000)];
    rig.post(1, Direction::Write, &data);
    rig.transmit();
    let itt = rig.target.last_itt;
    let with_tag = |hex: &str| {
        let hex: String = hex.split(' ').collect();
        let mut bhs: Vec<u8> = (0..48)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs
    };
    let pdus = rig.take_pdus();
    let req = "01a10000 00000000 0001000000000000 00000008 00004000 00000007 00000008 \
               2a00 00000008 00 0020 00 000000000000";
    assert_eq!(
        pdus[0].bhs[..],
        with_tag(&req.replace("               ", " "))
    );
    let r2t = "31800000 00000000 0001000000000000 00000008 d00ae6c1 00000008 00000008 00000088 \
               00000000 00000000 00004000";
    rig.deliver(&with_tag(r2t));
    let outs = [
        "05000000 00002000 0001000000000000 00000008 d00ae6c1 00000000 00000008 00000000 00000000 \
         00000000 00000000",
        "05800000 00002000 0001000000000000 00000008 d00ae6c1 00000000 00000008 00000000 00000001 \
         00002000 00000000",
    ];
    let pdus = rig.take_pdus();
    assert_eq!(pdus.len(), 2);
    for (sent, hex) in pdus.iter().zip(outs) {
        assert_eq!(sent.bhs[..], with_tag(hex));
    }
    // The recorded target declared the window 8..=0x88 with it.
    rig.qp.lock.read(|inner| {
        assert_eq!(
            (inner.window.exp_cmd_sn, inner.window.max_cmd_sn),
            (8, 0x88)
        );
    });
}

/// LOGICAL UNIT RESET and TEST UNIT READY as recorded with a real target.
#[test]
fn reset_and_test_unit_ready_equal_a_recording() {
    let mut rig = Rig::new(Setup::default());
    rig.qp
        .lock
        .lock_and_run(|inner| inner.exp_stat_sn = Some(2), |_| ());
    rig.receive(1);
    rig.post(1, Direction::None, &[]);
    let reset = TaskRequest {
        immediate: true,
        function: TaskFunction::LogicalUnitReset,
        lun: Lun::new(1).unwrap(),
        itt: 0x78,
        reference: NO_TAG,
        cmd_sn: 0,
        exp_stat_sn: 0,
        ref_cmd_sn: 0,
        exp_data_sn: 0,
    };
    rig.post_pdu(2, reset.emit(), &[]);
    rig.transmit();
    let pdus = rig.take_pdus();
    // The PDU for immediate delivery is sent first, with the CmdSN of the next one.
    assert_eq!(pdus[0].bhs[..4], [0x42, 0x85, 0, 0]);
    assert_eq!(pdus[0].bhs[24..32], [0, 0, 0, 1, 0, 0, 0, 2]);
    let tur = &pdus[1].bhs;
    assert_eq!(tur[..8], [0x01, 0x81, 0, 0, 0, 0, 0, 0]);
    assert_eq!(tur[8..16], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(tur[20..32], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(tur[32..], [0; 16]);
}

/// The lengths in the header of a consumer's PDU are overwritten.
#[test]
fn pdu_lengths_are_overwritten() {
    let mut rig = Rig::new(Setup::default());
    let mut bhs = [0; 48];
    bhs[0] = 0x40;
    bhs[1] = 0x80;
    bhs[4..8].copy_from_slice(&[3, 1, 2, 3]);
    bhs[16..24].copy_from_slice(&[0xff; 8]);
    rig.post_pdu(1, bhs, b"hello");
    rig.transmit();
    let pdus = rig.take_pdus();
    assert_eq!(pdus[0].data, b"hello");
    assert_eq!(pdus[0].bhs[4..8], [0, 0, 0, 5]);
}
