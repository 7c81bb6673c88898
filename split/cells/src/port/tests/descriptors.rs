//! Posting, doorbells, the four kinds of channels, and segmentation.

use verbena_nic::wr::{Data, ReceiveWr};
use verbena_nic::{Outbox, Status, WcOp};
use verbena_split_wire::cell::{Body, Cell, CellPosition, Cells, Tail};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use crate::testing::*;
use crate::{AddressSegment, Config, Error, Peer, Port};

/// P2: all four kinds carry both operations; immediate data is delivered separately from the data.
#[test]
fn all_four_kinds_carry_sends_and_writes() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        assert!(pair.a.memory.write(0, b"through the fabric"));
        pair.b.receive(1, 1000, 50);
        pair.b.receive(2, 1100, 50);
        let piece = [pair.a.sge(0, 18)];
        let remote = pair.b.remote(5000);
        pair.a
            .send(10, None, Some(77), Data::Gather(&piece))
            .unwrap();
        pair.a
            .send(11, Some(remote), Some(0x0705_0100), Data::Gather(&piece))
            .unwrap();
        pair.a
            .send(12, Some(pair.b.remote(6000)), None, Data::Inline(b"silent"))
            .unwrap();
        pair.carry();
        let done = [10, 11, 12].map(|id| (id, Status::Success));
        assert_eq!(pair.a.sent(), done, "{kind:?}");
        let got = pair.b.received();
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].id, got[0].op, got[0].len), (1, WcOp::Receive, 18));
        assert_eq!((got[0].immediate, got[0].src_qp), (Some(77), 20));
        assert_eq!(
            (got[1].id, got[1].op, got[1].len),
            (2, WcOp::ReceiveWriteImm, 18)
        );
        assert_eq!(got[1].immediate, Some(0x0705_0100));
        assert_eq!(pair.b.memory.read(1000, 18), b"through the fabric");
        assert_eq!(pair.b.memory.read(5000, 18), b"through the fabric");
        assert_eq!(pair.b.memory.read(6000, 6), b"silent");
        // The receive that the immediate data consumed was not written.
        assert_eq!(pair.b.memory.read(1100, 50), [0; 50]);
        let from = (!kind.connected).then_some(peer(1));
        assert_eq!(pair.b.port.take_source(WQP, 1), from);
        assert_eq!(pair.b.port.take_source(WQP, 1), None);
        assert!(!pair.wait(), "{kind:?}: nothing waits");
    }
}

/// P2: with the acknowledgement, or when passed to the carrier.
#[test]
fn descriptor_completes_on_acknowledgement_or_on_transmission() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        pair.b.receive(1, 0, 100);
        pair.a.send(5, None, None, Data::Inline(b"x")).unwrap();
        assert_eq!(pair.a.sent(), []);
        let datagram = pair.a.transmit(pair.now).unwrap();
        assert_eq!(pair.a.sent().is_empty(), kind.acknowledged, "{kind:?}");
        pair.b
            .port
            .handle_cells(&datagram, pair.now, &mut pair.b.out);
        let answer = pair.b.transmit(pair.now);
        assert_eq!(answer.is_some(), kind.acknowledged);
        if let Some(answer) = answer {
            pair.a.port.handle_cells(&answer, pair.now, &mut pair.a.out);
            assert_eq!(pair.a.sent(), [(5, Status::Success)]);
        }
        assert_eq!(pair.b.received().len(), 1);
    }
}

/// P1: a descriptor is queued when it is posted, and processed when its doorbell is rung.
#[test]
fn descriptor_waits_for_its_doorbell() {
    let mut pair = Pair::new(kind(false, true));
    let descriptor = pair.a.descriptor(1, None, None, Data::Inline(b"ding"));
    pair.a.port.post_send(WQP, &descriptor).unwrap();
    assert_eq!(pair.a.transmit(pair.now), None);
    let scatter = &[pair.b.sge(0, 10)];
    let wr = ReceiveWr { id: 3, scatter };
    pair.b.port.post_receive(WQP, &wr).unwrap();
    pair.a.port.ring_send(WQP, &mut pair.a.out).unwrap();
    pair.carry();
    assert_eq!(pair.b.counters().no_buffer, 1);
    pair.b.port.ring_receive(WQP, &mut pair.b.out).unwrap();
    pair.a.send(2, None, None, Data::Inline(b"dong")).unwrap();
    pair.carry();
    assert_eq!(pair.b.received().len(), 1);
    assert_eq!(pair.b.memory.read(0, 4), b"dong");
}

/// P3: 600 bytes are three cells; the address is in the first, immediate data and packet checksum are in the last.
#[test]
fn a_packet_is_cut_into_cells() {
    let mut pair = Pair::new(kind(true, true));
    let piece = [pair.a.sge(0, 250), pair.a.sge(1000, 350)];
    let remote = pair.b.remote(0);
    pair.b.receive(1, 9000, 0);
    pair.a
        .send(1, Some(remote), Some(9), Data::Gather(&piece))
        .unwrap();
    let datagram = pair.a.transmit(pair.now).unwrap();
    let cells: Vec<Cell<'_>> = Cells::new(&datagram).map(Result::unwrap).collect();
    let shapes: Vec<_> = cells
        .iter()
        .map(|cell| {
            let Body::Data(data) = cell.body else {
                panic!("{cell}")
            };
            assert_eq!(cell.packet, FIRST);
            let block = match data.position {
                CellPosition::WriteFirst(block) => Some(block.len),
                _ => None,
            };
            let immediate = match data.tail {
                Tail::Last { immediate, .. } => immediate,
                Tail::More => None,
            };
            (data.position.cell(), data.payload.len(), block, immediate)
        })
        .collect();
    let expected = [
        (0, 256, Some(600), None),
        (1, 256, None, None),
        (2, 88, None, Some(9)),
    ];
    assert_eq!(shapes, expected);
    // One datagram holds as many whole cells as fit.
    let largest = pair.a.port.config().largest_cell();
    pair.a.send(2, None, None, Data::Gather(&piece)).unwrap();
    let mut small = Vec::new();
    let mut out = Outbox::new();
    let mut cells = 0;
    while pair
        .a
        .port
        .poll_transmit(largest, pair.now, &mut small, &mut out)
        .is_some()
    {
        assert!(small.len() <= largest);
        cells += Cells::new(&small).map(Result::unwrap).count();
    }
    assert_eq!(cells, 3);
}

/// P2: more than one cell is rejected when posted, and so is a packet without a destination.
#[test]
fn connectionless_packets_are_one_cell() {
    for acknowledged in [true, false] {
        let mut pair = Pair::new(kind(acknowledged, false));
        let long = [pair.a.sge(0, 257)];
        let refused = pair.a.send(1, None, None, Data::Gather(&long));
        let error = Error::Length {
            got: 257,
            limit: 256,
        };
        assert_eq!(refused, Err(error));
        let mut nowhere = pair.a.descriptor(1, None, None, Data::Inline(b"x"));
        nowhere.address = None;
        assert_eq!(pair.a.port.post_send(WQP, &nowhere), Err(Error::Address));
        pair.b.receive(1, 0, 256);
        let fits = [pair.a.sge(0, 256)];
        pair.a.send(1, None, None, Data::Gather(&fits)).unwrap();
        pair.carry();
        assert_eq!(pair.b.received().len(), 1);
    }
}

#[test]
fn invalid_descriptors_are_refused_without_effect() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    let early = pair.a.send(1, None, None, Data::Inline(b"x"));
    assert_eq!(early, Err(Error::State(crate::State::Idle)));
    pair.connect();
    let a = &mut pair.a;
    let mut aimed = a.descriptor(1, None, None, Data::Inline(b"x"));
    aimed.address = Some(AddressSegment {
        remote: None,
        destination: Some(peer(2)),
    });
    assert_eq!(a.port.post_send(WQP, &aimed), Err(Error::Address));
    let mut aimless = a.descriptor(1, Some(a.remote(0)), None, Data::Inline(b"x"));
    aimless.address = None;
    assert_eq!(a.port.post_send(WQP, &aimless), Err(Error::Address));
    let many = [a.sge(0, 1); 17];
    let refused = a.send(1, None, None, Data::Gather(&many));
    assert_eq!(refused, Err(Error::Segments { got: 17, limit: 16 }));
    let refused = a.send(1, None, None, Data::Inline(&[0; 257]));
    assert_eq!(
        refused,
        Err(Error::Inline {
            got: 257,
            limit: 256
        })
    );
    let huge = [a.sge(0, u32::MAX), a.sge(0, 1)];
    let refused = a.send(1, None, None, Data::Gather(&huge));
    let limit = a.port.config().packet;
    assert_eq!(
        refused,
        Err(Error::Length {
            got: u32::MAX,
            limit
        })
    );
    assert_eq!(
        a.port.post_send(Qpn::wrapping(9), &aimed),
        Err(Error::Unknown(9))
    );
    assert_eq!(a.port.view(WQP).unwrap().sends, 0);
    for id in 0..128 {
        a.send(id, None, None, Data::Inline(b"x")).unwrap();
    }
    let full = a.send(128, None, None, Data::Inline(b"x"));
    assert_eq!(full, Err(Error::Full(128)));
}

#[test]
fn invalid_configuration_makes_no_port() {
    let base = Config::default();
    for config in [
        Config { cell: 0, ..base },
        Config { cell: 8833, ..base },
        Config { window: 0, ..base },
        Config { window: 65, ..base },
        Config { packet: 0, ..base },
        Config {
            timeout: core::time::Duration::ZERO,
            ..base
        },
        Config { answers: 0, ..base },
    ] {
        assert!(Port::new(address(1), config).is_err());
    }
    let mut port = Port::new(address(1), Config { pairs: 1, ..base }).unwrap();
    let side = Pair::new(kind(false, false)).a;
    port.create(side.init(WQP)).unwrap();
    assert_eq!(port.create(side.init(WQP)), Err(Error::Full(1)));
    assert_eq!(port.listen(WQP, true), Err(Error::InUse(WQP)));
}

/// The smaller cell size applies, in both directions, jumbo cells too.
#[test]
fn smaller_cell_size_is_negotiated() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.a = Pair::unconnected(
        kind(true, true),
        Config {
            cell: 8832,
            ..Config::default()
        },
    )
    .a;
    pair.connect();
    assert_eq!(pair.a.port.view(WQP).unwrap().cell, 256);
    assert_eq!(pair.b.port.view(WQP).unwrap().cell, 256);
    let jumbo = Config {
        cell: 8832,
        ..Config::default()
    };
    let mut pair = Pair::with(kind(true, true), jumbo);
    pair.b.receive(1, 0, 20_000);
    let piece = [pair.a.sge(0, 20_000)];
    pair.a.send(1, None, None, Data::Gather(&piece)).unwrap();
    pair.carry();
    assert_eq!(pair.a.sent(), [(1, Status::Success)]);
    assert_eq!(pair.a.counters().cells_sent, 3);
}

/// A connectionless queue serves several peers; one that does not answer fails its own packets and no others.
#[test]
fn unreachable_destination_fails_its_own_packets_only() {
    let mut pair = Pair::new(kind(true, false));
    pair.b.receive(1, 0, 100);
    pair.a.to = Peer {
        port: address(2),
        wqp: Qpn::wrapping(99),
    };
    pair.a.send(1, None, None, Data::Inline(b"gone")).unwrap();
    pair.a.to = peer(2);
    pair.a.send(2, None, None, Data::Inline(b"here")).unwrap();
    pair.carry();
    assert_eq!(pair.b.received().len(), 1);
    assert_eq!(pair.b.port.counters().unknown, 1);
    // Completions are in posting order, so there is none before the first packet has failed.
    assert_eq!(pair.a.sent(), []);
    while pair.wait() {
        pair.carry();
    }
    assert_eq!(
        pair.a.sent(),
        [(1, Status::RetryExcErr), (2, Status::Success)]
    );
    assert_eq!(
        pair.b.received().len(),
        0,
        "the second was not delivered again"
    );
    assert_eq!(pair.a.state(), crate::State::Open);
    assert!(pair.now > Time::ZERO);
}
