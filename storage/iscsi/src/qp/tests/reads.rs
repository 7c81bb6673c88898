//! Reads: data is placed in the buffers and nowhere else, headers are delivered, the response carries the command's id.

use verbena_storage_wire::iscsi::{BHS_LEN, DataIn, FromInitiator, Residual, ScsiResponse};

use super::*;

/// The buffers of most tests: three segments, out of order, at odd addresses.
fn scattered(rig: &Rig) -> [Sge; 3] {
    [rig.sge(5001, 1003), rig.sge(100, 7), rig.sge(20_000, 3990)]
}

const LEN: usize = 5000;

/// The memory after the buffers were filled with `data` from the beginning.
fn expected(data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![FILL; SIZE];
    let mut rest = data;
    for (at, len) in [(5001, 1003), (100, 7), (20_000, 3990)] {
        let (now, later) = rest.split_at(rest.len().min(len));
        bytes[at..at + now.len()].copy_from_slice(now);
        rest = later;
    }
    bytes
}

#[test]
fn single_data_in_with_status_completes_a_read() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let entries = rig.tpt.len();
        let data = scattered(&rig);
        let (name, itt) = rig.command(40, Direction::Read, &data);
        assert_eq!(rig.tpt.len(), entries + 1);
        let [sent] = &rig.take_pdus()[..] else {
            panic!("one command")
        };
        let FromInitiator::ScsiCommand(pdu) = sent.pdu else {
            panic!("{:?}", sent.pdu)
        };
        assert!(pdu.read && !pdu.write && pdu.is_final && !pdu.immediate);
        assert_eq!((pdu.expected_len, pdu.data_len), (LEN as u32, 0));
        assert_eq!((pdu.cmd_sn, pdu.exp_stat_sn), (1, 0x11));
        assert_eq!(pdu.cdb, Cdb::read10(8, 32).bytes());
        assert_eq!(pdu.lun, Lun::new(1).unwrap());

        let bytes = pattern(3, LEN);
        let pdu = rig.target.data_in_status(itt, 0, &bytes);
        rig.deliver(&pdu);
        assert!(rig.bytes() == expected(&bytes));
        let [up] = &rig.received()[..] else {
            panic!("one header")
        };
        assert_eq!((up.status, up.command), (Status::Success, Some(name.0)));
        assert_eq!(up.bytes, pdu[..BHS_LEN]);
        assert_eq!(rig.sent(), [(40, Status::Success)]);
        assert_eq!(rig.tpt.len(), entries, "its entry is destroyed");
        let view = rig.qp.view();
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 0));
        assert_eq!((view.state, view.cause), (QpState::Rts, None));
        let shown = verbena_nic::UlpQp::ulp_view(&rig.qp);
        assert_eq!((shown.protocol, shown.sends), ("iscsi", Some(0)));
    }
}

#[test]
fn unordered_data_ins_are_placed_before_the_response() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let entries = rig.tpt.len();
        let data = scattered(&rig);
        let (name, itt) = rig.command(1, Direction::Read, &data);
        rig.receive(5);
        let bytes = pattern(9, LEN);
        // Odd lengths, so that all but one are padded; across the boundaries of segments.
        let cuts = [(1009, 2001), (0, 1), (1, 1008), (4999, 1), (3010, 1989)];
        let mut wire = Vec::new();
        let mut headers = Vec::new();
        for (at, len) in cuts {
            let pdu = rig.target.data_in(itt, at, &bytes[at as usize..][..len]);
            headers.push(pdu[..BHS_LEN].to_vec());
            wire.extend(pdu);
        }
        wire.extend(rig.target.response(itt));
        headers.push(wire[wire.len() - BHS_LEN..].to_vec());
        rig.deliver(&wire);
        assert!(rig.bytes() == expected(&bytes), "{way:?}");
        let ups = rig.received();
        let got: Vec<Vec<u8>> = ups.iter().map(|up| up.bytes.clone()).collect();
        assert_eq!(got, headers, "each header, in order");
        let ids: Vec<u64> = ups.iter().map(|up| up.id).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6], "receives in posting order");
        let names: Vec<Option<u32>> = ups.iter().map(|up| up.command).collect();
        assert_eq!(names, [None, None, None, None, None, Some(name.0)]);
        assert_eq!(rig.sent(), [(1, Status::Success)]);
        assert_eq!(rig.tpt.len(), entries);
    }
}

#[test]
fn residuals_are_delivered_unchanged() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let data = [rig.sge(0, 96)];
        let (_, itt) = rig.command(1, Direction::Read, &data);
        let (_, other) = rig.command(2, Direction::Read, &data);
        // As recorded from a real target: INQUIRY of 96 bytes, of which 66 come.
        let stat_sn = rig.target.status();
        let pdu = DataIn {
            is_final: true,
            status: Some(0),
            stat_sn,
            residual: Residual::Underflow(30),
            ..rig.target.data_in_header(itt, 0, 66)
        };
        let pdu = rig.target.pdu(&pdu.emit(), &pattern(0, 66));
        assert_eq!(pdu[..2], [0x25, 0x83]);
        let over = ScsiResponse {
            residual: Residual::Overflow(7),
            ..rig.target.response_header(other)
        };
        let over = rig.target.pdu(&over.emit(), &[]);
        rig.deliver(&[&pdu[..], &over].concat());
        let ups = rig.received();
        let read = DataIn::parse(ups[0].bytes.first_chunk().unwrap()).unwrap();
        assert_eq!(read.residual, Residual::Underflow(30));
        let read = ScsiResponse::parse(ups[1].bytes.first_chunk().unwrap()).unwrap();
        assert_eq!(read.residual, Residual::Overflow(7));
        assert_eq!(rig.memory.read(0, 66), pattern(0, 66));
        assert!(rig.bytes()[66..].iter().all(|byte| *byte == FILL));
    }
}

#[test]
fn empty_reads_and_empty_data_ins_complete() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        // No data, segments of length 0, and a Data-In of length 0 for a command that has data.
        let (_, none) = rig.command(1, Direction::None, &[]);
        let empty = [rig.sge(9, 0), rig.sge(0, 0)];
        let (_, zero) = rig.command(2, Direction::Read, &empty);
        let data = [rig.sge(9, 0), rig.sge(10, 4), rig.sge(0, 0)];
        let (_, some) = rig.command(3, Direction::Read, &data);
        rig.receive(1);
        let wire = [
            rig.target.data_in(some, 4, &[]),
            rig.target.response(none),
            rig.target.data_in_status(zero, 0, &[]),
            rig.target.data_in_status(some, 0, &[1, 2, 3]),
        ];
        rig.deliver(&wire.concat());
        assert_eq!(rig.received().len(), 4);
        let done = [1, 2, 3].map(|id| (id, Status::Success));
        assert_eq!(rig.sent(), done);
        assert_eq!(rig.memory.read(9, 6), [FILL, 1, 2, 3, FILL, FILL]);
    }
}

#[test]
fn command_ids_return_with_unordered_responses() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(10);
    let data = [rig.sge(0, 512)];
    let names: Vec<CommandId> = (0..10)
        .map(|id| rig.post(id, Direction::Read, &data))
        .collect();
    // Nothing was transmitted yet.
    assert!(rig.take_pdus().is_empty());
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name));
    }
    rig.transmit();
    let mut itts = Vec::new();
    for (at, sent) in rig.take_pdus().iter().enumerate() {
        let FromInitiator::ScsiCommand(pdu) = sent.pdu else {
            panic!("{:?}", sent.pdu)
        };
        assert_eq!(pdu.cmd_sn, 1 + at as u32, "in posting order");
        itts.push(pdu.itt);
    }
    for at in [3, 1, 4, 0, 5, 9, 2, 6, 8, 7] {
        let response = rig.target.response(itts[at]);
        rig.deliver(&response);
        assert_eq!(rig.received()[0].command, Some(names[at].0));
        assert_eq!(rig.sent(), [(at as u64, Status::Success)]);
    }
}

#[test]
fn unsignaled_command_raises_no_send_completion() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(1);
    let quiet = CommandWr {
        flags: Flags::NONE,
        ..Rig::wr(1, Direction::None, &[])
    };
    rig.qp.post_command(&quiet, &mut rig.out).unwrap();
    rig.transmit();
    let response = rig.target.response(rig.target.last_itt);
    rig.deliver(&response);
    assert_eq!((rig.sent().len(), rig.received().len()), (0, 1));
    assert_eq!(rig.qp.view().sends, 0);
}

/// M20: while commands read nothing is copied, as long as the carrier returns the bytes asked for.
#[test]
fn read_data_is_not_copied() {
    for (header_digest, data_digest) in [(false, false), (true, true)] {
        for way in Split::ALL {
            let mut rig = Rig::new(Setup {
                terms: Terms {
                    header_digest,
                    data_digest,
                    ..Terms::DEFAULT
                },
                split: way,
                ..Setup::default()
            });
            let data = scattered(&rig);
            let (_, itt) = rig.command(1, Direction::Read, &data);
            let (_, other) = rig.command(2, Direction::Read, &[]);
            rig.receive(7);
            let bytes = pattern(9, LEN);
            let nop = rig.target.nop();
            let wire = [
                rig.target.data_in(itt, 0, &bytes[..1001]),
                rig.target.data_in(itt, 1001, &bytes[1001..3001]),
                nop.clone(),
                rig.target.data_in(itt, 3001, &bytes[3001..4000]),
                rig.target.sense(other, &[0, 3, 1, 2, 3]),
                rig.target.data_in_status(itt, 4000, &bytes[4000..]),
            ];
            rig.deliver(&wire.concat());
            assert!(rig.bytes() == expected(&bytes));
            let counters = rig.qp.view().counters;
            assert_eq!((counters.placed, counters.copied), (LEN as u64, 0));
            assert_eq!(counters.pdus_in, 7);
            assert_eq!(counters.commands, 2);
        }
    }
}

/// More segments than one read takes: 32 grants at a time.
#[test]
fn data_in_fills_more_segments_than_a_read() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let data: Vec<Sge> = (0..40).map(|i| rig.sge(i * 300 + 1, 101)).collect();
        let (_, itt) = rig.command(1, Direction::Read, &data);
        let bytes = pattern(1, 4040);
        let pdu = rig.target.data_in_status(itt, 0, &bytes);
        rig.deliver(&pdu);
        for (i, part) in bytes.chunks(101).enumerate() {
            assert_eq!(rig.memory.read(i * 300 + 1, 101), part);
        }
        assert_eq!(rig.sent(), [(1, Status::Success)]);
    }
}
