//! Lost, duplicated and damaged cells: acknowledged channels retransmit, others never deliver an incomplete packet.

use core::time::Duration;

use verbena_nic::wr::Data;
use verbena_nic::{Event, Status};
use verbena_split_wire::cell::{Body, Cell, DisconnectReason, NakReason, PacketSeq};

use crate::testing::*;
use crate::{Config, EndReason, Notice, State};

fn is_data(cell: &Cell<'_>, number: u16) -> bool {
    matches!(cell.body, Body::Data(data) if data.position.cell() == number)
}

/// Each cell of a packet of three is lost once: the packet still arrives once.
#[test]
fn lost_cell_causes_one_nak_and_retransmission() {
    for lost in 0..3 {
        let mut pair = Pair::new(kind(true, true));
        pair.b.receive(1, 10_000, 600);
        pair.b.receive(2, 11_000, 600);
        assert!(pair.a.memory.write(0, &[7; 600]));
        let piece = [pair.a.sge(0, 600)];
        for id in 0..2 {
            pair.a.send(id, None, None, Data::Gather(&piece)).unwrap();
        }
        let (mut once, mut naks) = (true, 0);
        pair.carry_filtered(|_, cell| {
            naks += usize::from(matches!(cell.body, Body::Nak(NakReason::Gap)));
            let lose = once && is_data(cell, lost) && cell.packet == FIRST;
            once &= !lose;
            !lose
        });
        assert_eq!(naks, 1, "cell {lost}: one Nak for one gap");
        assert_eq!(pair.a.sent(), [(0, Status::Success), (1, Status::Success)]);
        let ids: Vec<u64> = pair.b.received().iter().map(|wc| wc.id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(pair.b.memory.read(10_000, 600), [7; 600]);
        assert!(pair.b.counters().gap > 0);
        assert_eq!(pair.a.counters().retransmissions, 1);
    }
}

/// The last packet or its acknowledgement is lost, which only the timeout detects.
#[test]
fn timeout_retransmits_and_duplicates_are_dropped() {
    for lose_data in [true, false] {
        let mut pair = Pair::new(kind(true, true));
        pair.b.receive(1, 0, 100);
        pair.a.send(1, None, None, Data::Inline(b"again")).unwrap();
        pair.carry_filtered(|from_a, _| from_a != lose_data);
        assert_eq!(pair.a.sent(), []);
        assert!(pair.wait());
        pair.carry();
        assert_eq!(pair.a.sent(), [(1, Status::Success)]);
        assert_eq!(pair.b.received().len(), 1);
        assert_eq!(pair.b.counters().duplicate, u64::from(!lose_data));
        assert!(!pair.wait(), "nothing is left to wait for");
    }
}

#[test]
fn duplicate_cells_are_dropped_unless_connectionless_and_unacknowledged() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        for id in 0..3 {
            pair.b.receive(id, 100 * id, 100);
            pair.a.send(id, None, None, Data::Inline(b"twice")).unwrap();
        }
        while let Some(datagram) = pair.a.transmit(pair.now) {
            for _ in 0..2 {
                pair.b
                    .port
                    .handle_cells(&datagram, pair.now, &mut pair.b.out);
            }
        }
        pair.carry();
        assert_eq!(pair.a.sent().len(), 3);
        let once = kind.connected || kind.acknowledged;
        assert_eq!(pair.b.received().len(), 3, "{kind:?}");
        // An unacknowledged, connectionless packet that arrives twice is delivered twice.
        assert_eq!(pair.b.counters().duplicate > 0, once);
    }
}

/// The retry limit: an error for the packet, a flush for the rest, a notice, an event, and the peer is told.
#[test]
fn exhausted_retries_fail_and_flush_the_channel() {
    let mut pair = Pair::new(kind(true, true));
    pair.a.receive(9, 0, 10);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    pair.a.send(2, None, None, Data::Inline(b"y")).unwrap();
    let mut waits = 0;
    while pair.a.state() == State::Connected {
        pair.carry_filtered(|_, _| false);
        assert!(pair.wait());
        waits += 1;
    }
    assert_eq!(waits, 9, "eight retries");
    let ends = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(pair.a.sent(), ends);
    let flushed = pair.a.received();
    assert_eq!((flushed[0].id, flushed[0].status), (9, Status::WrFlushErr));
    let ended = Notice::Ended {
        wqp: WQP,
        reason: EndReason::PeerTimeout,
    };
    assert_eq!(pair.a.notices(), [ended]);
    assert!(pair.a.out.events().contains(&Event::QpFatal { qp: 20 }));
    pair.carry();
    assert_eq!(pair.b.state(), State::Ended);
    let why = EndReason::Peer(DisconnectReason::Failed);
    assert_eq!(
        pair.b.notices(),
        [Notice::Ended {
            wqp: WQP,
            reason: why
        }]
    );
    // Descriptors posted now flush; after a reset both can connect again.
    pair.a.send(3, None, None, Data::Inline(b"z")).unwrap();
    assert_eq!(pair.a.sent(), [(3, Status::WrFlushErr)]);
    pair.a.port.reset(WQP).unwrap();
    pair.b.port.reset(WQP).unwrap();
    pair.connect();
    pair.b.receive(1, 0, 10);
    pair.a.send(4, None, None, Data::Inline(b"back")).unwrap();
    pair.carry();
    assert_eq!(pair.a.sent(), [(4, Status::Success)]);
}

/// P3: nothing is delivered of a packet with a missing cell, and its receive is used for the next one.
#[test]
fn unacknowledged_packets_are_whole_or_lost() {
    for lost in 0..3 {
        let mut pair = Pair::new(kind(false, true));
        pair.b.receive(1, 10_000, 600);
        let piece = [pair.a.sge(0, 600)];
        for id in 0..2 {
            pair.a
                .send(id, None, Some(id as u32), Data::Gather(&piece))
                .unwrap();
        }
        pair.carry_filtered(|_, cell| !(is_data(cell, lost) && cell.packet == FIRST));
        let got = pair.b.received();
        assert_eq!(got.len(), 1, "cell {lost}");
        assert_eq!((got[0].id, got[0].immediate), (1, Some(1)));
        assert_eq!(pair.a.sent().len(), 2, "on the wire is done");
    }
}

/// A late cell of an earlier connection between the same two, with an arbitrary number, does not advance the receiver.
#[test]
fn stale_cell_does_not_advance_expected_packet_number() {
    let mut pair = Pair::new(kind(false, true));
    pair.b.receive(1, 10_000, 600);
    pair.a.send(1, None, None, Data::Inline(b"old")).unwrap();
    let datagram = pair.a.transmit(pair.now).unwrap();
    let (mut old, _) = Cell::parse(&datagram).unwrap();
    old.packet = FIRST.plus(1 << 30);
    let mut late = Vec::new();
    old.emit(&mut late);
    pair.b.port.handle_cells(&late, pair.now, &mut pair.b.out);
    assert_eq!(pair.b.received().len(), 0);
    assert_eq!(pair.b.counters().channel, 1);
    // The sender is told that there is no channel, and ignores it because the number is not its own.
    pair.a.send(2, None, None, Data::Inline(b"new")).unwrap();
    pair.carry();
    assert_eq!(pair.b.received().len(), 1);
    assert_eq!(
        (pair.a.state(), pair.b.state()),
        (State::Connected, State::Connected)
    );
}

/// Cells in the wrong order are a gap, on every channel with packets of several cells.
#[test]
fn cells_in_the_wrong_order_are_not_placed() {
    let mut pair = Pair::new(kind(false, true));
    pair.b.receive(1, 10_000, 600);
    let piece = [pair.a.sge(0, 600)];
    pair.a.send(1, None, None, Data::Gather(&piece)).unwrap();
    let datagram = pair.a.transmit(pair.now).unwrap();
    let cells: Vec<_> = verbena_split_wire::cell::Cells::new(&datagram)
        .map(Result::unwrap)
        .collect();
    let mut mixed = Vec::new();
    for at in [0, 2, 1] {
        cells[at].emit(&mut mixed);
    }
    pair.b.port.handle_cells(&mixed, pair.now, &mut pair.b.out);
    assert_eq!(pair.b.received().len(), 0);
    assert_eq!(pair.b.counters().gap, 2);
    assert_eq!(pair.b.port.view(WQP).unwrap().receives, 1);
}

/// A receive that is posted late: the sender waits, is told, and the packet arrives once.
#[test]
fn no_receive_makes_an_acknowledged_sender_try_again() {
    for kind in [kind(true, true), kind(true, false)] {
        let mut pair = Pair::new(kind);
        pair.a
            .send(1, None, None, Data::Inline(b"patience"))
            .unwrap();
        for _ in 0..3 {
            pair.carry();
            assert_eq!(pair.a.sent(), []);
            assert!(pair.wait());
        }
        pair.carry();
        pair.b.receive(1, 0, 100);
        pair.carry();
        if !kind.connected {
            assert!(pair.wait());
            pair.carry();
        }
        // On a connected channel the receive doorbell triggers the retransmission.
        assert_eq!(pair.a.sent(), [(1, Status::Success)], "{kind:?}");
        assert_eq!(pair.b.received().len(), 1);
        assert!(pair.b.counters().no_buffer >= 3);
    }
    // On an unacknowledged channel the packet is dropped and counted.
    let mut pair = Pair::new(kind(false, true));
    pair.a.send(1, None, None, Data::Inline(b"lost")).unwrap();
    pair.carry();
    assert_eq!(pair.b.counters().no_buffer, 1);
    pair.b.receive(1, 0, 100);
    pair.carry();
    assert_eq!(pair.b.received().len(), 0);
}

/// P9: retries are over soon on a fast path; with `patience`, a peer that is busy for seconds is not considered gone.
#[test]
fn silent_peer_is_kept_until_patience_expires() {
    for sends in [true, false] {
        let config = Config {
            patience: Duration::from_secs(30),
            keep_alive: Some(Duration::from_secs(1)),
            ..Config::default()
        };
        let mut pair = Pair::with(kind(true, true), config);
        pair.b.receive(1, 0, 100);
        if sends {
            pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
        }
        let start = pair.now;
        while pair.a.state() == State::Connected && pair.now.since(start) < config.patience / 2 {
            pair.carry_filtered(|_, _| false);
            assert!(pair.wait());
        }
        for _ in 0..4 {
            pair.carry();
            pair.wait();
        }
        assert_eq!(pair.a.state(), State::Connected);
        assert_eq!(pair.b.received().len(), usize::from(sends));
        if sends {
            pair.a.send(2, None, None, Data::Inline(b"y")).unwrap();
        }
        let start = pair.now;
        while pair.a.state() == State::Connected {
            pair.carry_filtered(|_, _| false);
            assert!(pair.wait());
        }
        let took = pair.now.since(start);
        assert!(
            took >= config.patience && took < config.patience * 2,
            "{took:?}"
        );
    }
}

#[test]
fn exhausted_busy_retries_fail_the_channel() {
    let config = Config {
        busy_retries: 5,
        ..Config::default()
    };
    let mut pair = Pair::with(kind(true, true), config);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    for _ in 0..20 {
        pair.carry();
        pair.wait();
    }
    assert_eq!(pair.a.sent(), [(1, Status::RnrRetryExcErr)]);
    let ended = Notice::Ended {
        wqp: WQP,
        reason: EndReason::NoReceive,
    };
    assert_eq!(pair.a.notices(), [ended]);
}

/// Acknowledgements of numbers that are not in flight are ignored, from any source.
#[test]
fn acknowledgements_of_unsent_packets_are_ignored() {
    let mut pair = Pair::new(kind(true, true));
    let piece = [pair.a.sge(0, 2000)];
    pair.a.send(1, None, None, Data::Gather(&piece)).unwrap();
    // Some of its cells were sent, not all.
    assert!(pair.a.transmit(pair.now).is_some());
    let way = |from: u8| {
        let mut way = verbena_split_wire::cell::CellRoute {
            to: address(1),
            from: address(2),
            to_wqp: WQP,
            from_wqp: WQP,
        };
        way.from = address(from);
        way
    };
    let says = |from, packet, body| {
        let mut bytes = Vec::new();
        Cell {
            route: way(from),
            connected: true,
            packet,
            body,
        }
        .emit(&mut bytes);
        bytes
    };
    let nak = Body::Nak(NakReason::Right);
    let stale: [(u8, PacketSeq, Body<'_>); 5] = [
        (2, FIRST, Body::Ack),
        (2, FIRST.plus(9), Body::Ack),
        (2, FIRST.next(), nak),
        (2, FIRST.previous(), nak),
        (5, FIRST, nak),
    ];
    for (from, packet, body) in stale {
        let bytes = says(from, packet, body);
        pair.a.port.handle_cells(&bytes, pair.now, &mut pair.a.out);
    }
    assert_eq!(pair.a.counters().stale_acks, 5);
    assert_eq!(pair.a.sent(), []);
    assert_eq!(pair.a.state(), State::Connected);
}

/// The number of Naks for the same packet is limited.
#[test]
fn repeated_naks_fail_the_channel() {
    let mut pair = Pair::new(kind(true, true));
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    let mut bytes = Vec::new();
    let way = verbena_split_wire::cell::CellRoute {
        to: address(1),
        from: address(2),
        to_wqp: WQP,
        from_wqp: WQP,
    };
    Cell {
        route: way,
        connected: true,
        packet: FIRST,
        body: Body::Nak(NakReason::Crc),
    }
    .emit(&mut bytes);
    let mut rounds = 0;
    while pair.a.state() == State::Connected {
        while pair.a.transmit(pair.now).is_some() {}
        pair.a.port.handle_cells(&bytes, pair.now, &mut pair.a.out);
        rounds += 1;
        assert!(rounds < 5000);
    }
    assert_eq!(pair.a.sent(), [(1, Status::RemOpErr)]);
}
