//! Responses: valid ones end their command, invalid ones are dropped and leave the receive for the next PDU. Receives that are missing,
//! too small, or deregistered.

use verbena_storage_wire::iscsi::{BHS_LEN, DataIn, FromInitiator};

use super::*;
use crate::wr::PostError;

/// The PDU is dropped: nothing completes, nothing is written, and the receives are unchanged.
#[track_caller]
fn assert_dropped(rig: &mut Rig, pdu: &[u8]) {
    let before = rig.qp.view();
    let memory = rig.bytes();
    rig.deliver(pdu);
    let after = rig.qp.view();
    assert_eq!(after.counters.dropped, before.counters.dropped + 1);
    assert_eq!(after.receives, before.receives);
    assert_eq!(
        (after.commands, after.sends),
        (before.commands, before.sends)
    );
    assert_eq!(after.state, QpState::Rts);
    assert_eq!((rig.received(), rig.sent()), (vec![], vec![]));
    assert!(rig.bytes() == memory);
}

#[test]
fn response_out_of_sequence_is_dropped() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let (name, itt) = rig.command(1, Direction::None, &[]);
        let next = rig.target.stat_sn;
        for wrong in [next - 1, next + 1, next ^ 0x8000_0000] {
            rig.target.stat_sn = wrong;
            let response = rig.target.sense(itt, &pattern(0, 33));
            assert_dropped(&mut rig, &response);
        }
        rig.target.stat_sn = next;
        let response = rig.target.sense(itt, &pattern(0, 33));
        rig.deliver(&response);
        let ups = rig.received();
        assert_eq!(ups[0].command, Some(name.0));
        assert_eq!(ups[0].bytes, response[..BHS_LEN + 33], "without padding");
    }
}

/// M12: a Data-In with status is also a response; if it is dropped, its data is not placed.
#[test]
fn data_in_status_out_of_sequence_is_dropped() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let data = [rig.sge(0, 100)];
        let (name, itt) = rig.command(1, Direction::Read, &data);
        let next = rig.target.stat_sn;
        for wrong in [next - 1, next + 1] {
            rig.target.stat_sn = wrong;
            let pdu = rig.target.data_in_status(itt, 0, &[7; 99]);
            assert_dropped(&mut rig, &pdu);
        }
        rig.target.stat_sn = next;
        let pdu = rig.target.data_in_status(itt, 0, &[7; 99]);
        rig.deliver(&pdu);
        assert_eq!(rig.received()[0].command, Some(name.0));
        assert_eq!(rig.memory.read(0, 100), [&[7; 99][..], &[FILL]].concat());
    }
}

/// The StatSN of a response that is dropped for its tag is consumed: the next one is in sequence.
#[test]
fn response_for_no_command_is_dropped() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let (_, old) = rig.command(1, Direction::None, &[]);
        let response = rig.target.response(old);
        rig.deliver(&response);
        assert_eq!((rig.received().len(), rig.sent().len()), (1, 1));
        let (name, itt) = rig.command(2, Direction::None, &[]);
        let region = rig.memory.stag().get();
        for wrong in [old, itt ^ 1, region, 0, u32::MAX, 500 << 8] {
            let response = rig.target.sense(wrong, &[1, 2, 3]);
            assert_dropped(&mut rig, &response);
        }
        let response = rig.target.response(itt);
        rig.deliver(&response);
        assert_eq!(rig.received()[0].command, Some(name.0));
        assert_eq!(rig.sent(), [(2, Status::Success)]);
        // A second response to the same command.
        rig.receive(1);
        let twice = rig.target.response(itt);
        assert_dropped(&mut rig, &twice);
    }
}

#[test]
fn response_for_another_queue_pair_is_dropped() {
    for pd in [PD, Pd(2)] {
        let tpt = Arc::new(Tpt::new(1..1000, Policy::Verbs, 5));
        let mut ours = Rig::with_tpt(&tpt, Setup::default());
        let mut theirs = Rig::with_tpt(
            &tpt,
            Setup {
                number: 8,
                pd,
                ..Setup::default()
            },
        );
        let (_, itt) = ours.command(1, Direction::None, &[]);
        let (name, other) = theirs.command(1, Direction::None, &[]);
        let wrong = ours.target.response(other);
        assert_dropped(&mut ours, &wrong);
        let right = theirs.target.response(other);
        theirs.deliver(&right);
        assert_eq!(theirs.received()[0].command, Some(name.0));
        let right = ours.target.response(itt);
        ours.deliver(&right);
        assert_eq!(ours.sent(), [(1, Status::Success)]);
    }
}

/// M12: the receive for the response is posted first.
#[test]
fn command_without_a_posted_receive_is_refused() {
    let mut rig = Rig::new(Setup::default());
    let wr = Rig::wr(1, Direction::None, &[]);
    let none = PostError::NoReceive {
        receives: 0,
        commands: 0,
    };
    assert_eq!(rig.qp.post_command(&wr, &mut rig.out), Err(none));
    rig.receive(1);
    rig.qp.post_command(&wr, &mut rig.out).unwrap();
    let one = PostError::NoReceive {
        receives: 1,
        commands: 1,
    };
    assert_eq!(rig.qp.post_command(&wr, &mut rig.out), Err(one));
    let view = rig.qp.view();
    assert_eq!((view.sends, view.commands, view.receives), (1, 1, 1));
    // Its response frees a request, and takes its receive.
    rig.transmit();
    let response = rig.target.response(rig.target.last_itt);
    rig.deliver(&response);
    assert_eq!(rig.qp.post_command(&wr, &mut rig.out), Err(none));
    assert_eq!(rig.sent().len(), 1);
}

/// A receive that a dropped response did not use counts for the next command.
#[test]
fn unused_receive_counts_for_the_next_command() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(2);
    let wrong = rig.target.response(99);
    assert_dropped(&mut rig, &wrong);
    rig.post(1, Direction::None, &[]);
    rig.post(2, Direction::None, &[]);
    rig.transmit();
    assert_eq!(rig.take_pdus().len(), 2);
    // It is still the first.
    let response = rig.target.response(rig.target.last_itt);
    rig.deliver(&response);
    assert_eq!(rig.received()[0].id, 1);
}

/// All bytes came in one read that asked for more. No further byte will signal that a PDU waits, so the read itself has to.
#[test]
fn staged_pdu_without_a_receive_reports_held() {
    let mut rig = Rig::new(Setup::default());
    rig.receive(1);
    let wire = [rig.target.nop(), rig.target.nop()].concat();
    let mut carrier = MemoryCarrier::with_input(&wire);
    assert_eq!(rig.qp.receive(&mut carrier, &mut rig.out), Receiving::Held);
    assert!(carrier.input.is_empty(), "it was read");
    assert_eq!(rig.received().len(), 1);
    rig.receive(1);
    assert_eq!(
        rig.qp.receive(&mut carrier, &mut rig.out),
        Receiving::WouldBlock
    );
    assert_eq!(rig.received().len(), 1);
}

#[test]
fn missing_receive_holds_the_stream() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let data = [rig.sge(0, 6000)];
        let (_, itt) = rig.command(1, Direction::Read, &data);
        let bytes = pattern(4, 6000);
        // The first takes the only receive; the others wait.
        let wire = [
            rig.target.data_in(itt, 0, &bytes[..2001]),
            rig.target.data_in(itt, 2001, &bytes[2001..5000]),
            rig.target.data_in_status(itt, 5000, &bytes[5000..]),
        ];
        rig.feed(&wire.concat());
        assert_eq!(rig.received().len(), 1);
        assert_eq!(rig.read(), Receiving::Held, "{way:?}");
        assert!(rig.inbox.len() >= 3000, "most of it stays where it is");
        assert_eq!(rig.memory.read(2001, 1), [FILL]);
        // Sending continues meanwhile.
        let nop = [&[0x40, 0x80][..], &[0; 14], &[0xff; 8], &[0; 24]].concat();
        rig.post_pdu(3, *nop.first_chunk().unwrap(), b"x");
        rig.transmit();
        assert!(matches!(
            rig.take_pdus().last().unwrap().pdu,
            FromInitiator::NopOut(_)
        ));
        rig.receive(1);
        assert_eq!(rig.received().len(), 1);
        assert_eq!(rig.read(), Receiving::Held);
        rig.receive(1);
        assert_eq!(rig.received().len(), 1);
        assert_eq!(rig.read(), Receiving::WouldBlock);
        assert_eq!(rig.memory.read(0, 6000), bytes);
        assert_eq!(rig.sent(), [(3, Status::Success), (1, Status::Success)]);
        assert_eq!(rig.qp.view().counters.copied, 0);
    }
}

#[test]
fn too_small_receive_reports_and_the_stream_continues() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let data = [rig.sge(0, 100)];
        rig.receive_of(20);
        rig.receive_of(50);
        rig.receive_of(0);
        rig.receive_of(48);
        rig.receive_of(48 + 33);
        rig.post(1, Direction::Read, &data);
        rig.post(2, Direction::None, &[]);
        rig.post(3, Direction::None, &[]);
        rig.post(4, Direction::None, &[]);
        rig.transmit();
        let itts: Vec<u32> = rig
            .take_pdus()
            .iter()
            .map(|sent| u32::from_be_bytes(sent.bhs[16..20].try_into().unwrap()))
            .collect();
        let wire = [
            rig.target.data_in_status(itts[0], 0, &[3; 100]),
            rig.target.sense(itts[1], &[5; 33]),
            rig.target.nop(),
            rig.target.response(itts[2]),
            rig.target.sense(itts[3], &[6; 33]),
        ];
        rig.deliver(&wire.concat());
        let ups = rig.received();
        let (short, good) = (Status::LocLenErr, Status::Success);
        let got: Vec<(Status, Option<u32>, &[u8])> = ups
            .iter()
            .map(|up| (up.status, up.command, &up.bytes[..]))
            .collect();
        assert_eq!(
            got,
            [
                (short, Some(0), &wire[0][..20]),
                (short, Some(1), &wire[1][..50]),
                (short, None, &[]),
                (good, Some(2), &wire[3][..]),
                (good, Some(3), &wire[4][..81]),
            ]
        );
        let done = [1, 2, 3, 4].map(|id| (id, good));
        assert_eq!(rig.sent(), done, "commands end by their responses");
        assert_eq!(rig.memory.read(0, 100), [3; 100]);
        assert_eq!(rig.state(), QpState::Rts);
    }
}

/// A receive of several segments is one range of bytes.
#[test]
fn receive_of_several_segments_is_filled_in_order() {
    for way in Split::ALL {
        let mut rig = Rig::with_split(way);
        let scatter = [
            rig.sge(10, 5),
            rig.sge(1000, 50),
            rig.sge(0, 2),
            rig.sge(3000, 500),
        ];
        let id = 77;
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        rig.qp.post_receive(&wr, &mut rig.out).unwrap();
        rig.post(1, Direction::None, &[]);
        rig.transmit();
        let pdu = rig.target.sense(rig.target.last_itt, &pattern(2, 200));
        rig.deliver(&pdu);
        let got: Vec<u8> = scatter
            .iter()
            .flat_map(|sge| {
                rig.memory
                    .read((sge.addr - rig.memory.at()) as usize, sge.len as usize)
            })
            .collect();
        assert_eq!(got[..248], pdu[..248]);
        let wc = poll(&rig.qp.init().recv_cq);
        assert_eq!((wc[0].id, wc[0].len), (77, 248));
    }
}

#[test]
fn receive_into_inaccessible_memory_ends_the_connection() {
    for region in [false, true] {
        let mut rig = Rig::new(Setup::default());
        let other = Buffer::new(&rig.tpt, 100, PD, Access::LOCAL_READ).unwrap();
        let (at, stag) = (other.at(), other.stag());
        if region {
            drop(other);
        }
        let scatter = &[Sge {
            addr: at,
            len: 100,
            stag,
        }];
        let wr = ReceiveWr { id: 99, scatter };
        rig.qp.post_receive(&wr, &mut rig.out).unwrap();
        rig.receive(1);
        rig.post(1, Direction::None, &[]);
        rig.transmit();
        let response = rig.target.response(rig.target.last_itt);
        rig.deliver(&response);
        let ends: Vec<(u64, Status)> = rig.received().iter().map(|up| (up.id, up.status)).collect();
        assert_eq!(ends, [(99, Status::LocProtErr), (1, Status::WrFlushErr)]);
        assert_eq!(rig.state(), QpState::Err);
        let cause = rig.qp.view().cause.unwrap();
        assert!(cause.contains("memory of a receive"), "{cause}");
        assert_eq!(rig.sent(), [(1, Status::WrFlushErr)]);
    }
}

/// Data may be sent twice: it is placed twice, and both headers are delivered.
#[test]
fn repeated_data_is_placed_again() {
    let mut rig = Rig::new(Setup::default());
    let data = [rig.sge(0, 100)];
    let (_, itt) = rig.command(1, Direction::Read, &data);
    rig.receive(2);
    for byte in [1, 2] {
        let pdu = rig.target.data_in(itt, 0, &[byte; 100]);
        rig.deliver(&pdu);
        assert_eq!(rig.memory.read(0, 100), [byte; 100]);
    }
    let ups = rig.received();
    let header = DataIn::parse(ups[1].bytes.first_chunk().unwrap()).unwrap();
    assert_eq!((header.itt, ups.len()), (itt, 2));
}
