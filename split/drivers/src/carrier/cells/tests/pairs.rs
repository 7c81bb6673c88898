//! Pairs connect, send, write and end; one and many.

use core::time::Duration;

use verbena_nic::wc::{Status, WcOp};
use verbena_nic::wr::RemoteAddr;

use super::world::{Side, connect_pair, connected, pair_options, run_for, until};
use crate::carrier::cells::CellOptions;
use crate::carrier::{Carrier, CarrierEvent, MemoryAccess, Pair, PairOptions, Source};

#[test]
fn both_kinds_connect_and_send_both_ways() {
    for acknowledged in [true, false] {
        let (mut unit, mut host, served, pair) = connected(acknowledged, CellOptions::default());
        host.send(pair, 7, b"from the host");
        unit.send(served, 9, b"from the unit");
        until(&mut [&mut unit, &mut host], "both messages", |sides| {
            sides.iter().all(|side| side.done.len() == 2)
        });
        for (side, id, text) in [
            (&mut unit, 9, &b"from the host"[..]),
            (&mut host, 7, &b"from the unit"[..]),
        ] {
            let came = side.done.iter().find(|wc| wc.op == WcOp::Receive).unwrap();
            assert_eq!((came.id, came.len), (0, 13));
            assert_eq!(side.read(Side::slot(0), 13), text);
            let mut done = side.take_done();
            done.sort_unstable_by_key(|(id, _)| *id);
            assert_eq!(done, [(0, Status::Success), (id, Status::Success)]);
        }
    }
}

#[test]
fn request_reports_source_private_data_and_kind() {
    for acknowledged in [true, false] {
        let mut unit = Side::unit(CellOptions::default());
        let mut host = Side::host(unit.local_addr(), CellOptions::default());
        let pair = host
            .carrier
            .create_pair(pair_options(acknowledged))
            .unwrap();
        host.carrier.connect(pair, b"who I am").unwrap();
        until(&mut [&mut unit, &mut host], "a request", |sides| {
            !sides[0].events.is_empty()
        });
        let place = host.local_addr().to_string();
        match &unit.take_events()[..] {
            [
                CarrierEvent::Request {
                    ticket,
                    from,
                    private_data: private,
                    acknowledged: kind,
                    source,
                },
            ] => {
                assert!(from.contains(&place), "{from}");
                assert_eq!(*source, Some(Source::of(host.local_addr().ip())));
                assert_eq!(
                    (&private[..], *kind),
                    (&b"who I am"[..], Some(acknowledged))
                );
                unit.carrier.reject(*ticket, b"not today");
            }
            other => panic!("{other:?}"),
        }
        until(&mut [&mut unit, &mut host], "an answer", |sides| {
            !sides[1].events.is_empty()
        });
        match &host.take_events()[..] {
            [
                CarrierEvent::Refused {
                    pair: refused,
                    private_data: private,
                    ..
                },
            ] => {
                assert_eq!((*refused, &private[..]), (pair, &b"not today"[..]));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn connecting_to_a_closed_port_is_refused() {
    let gone = Side::unit(CellOptions::default());
    let place = gone.local_addr();
    drop(gone);
    let options = CellOptions {
        connect_timeout: Duration::from_millis(10),
        retries: 4,
        ..CellOptions::default()
    };
    let mut host = Side::host(place, options);
    let pair = host.carrier.create_pair(pair_options(true)).unwrap();
    host.carrier.connect(pair, b"").unwrap();
    until(&mut [&mut host], "given up", |sides| {
        !sides[0].events.is_empty()
    });
    let news = host.take_events();
    assert!(
        matches!(news[..], [CarrierEvent::Refused { pair: refused, .. }] if refused == pair),
        "{news:?}"
    );
}

/// P7: the receiver gets immediate data apart from the data, and a write is placed at its address.
#[test]
fn immediate_data_is_delivered_with_the_write() {
    for acknowledged in [true, false] {
        for len in [1_u32, 1400, 65_536, 300_000] {
            let (mut unit, mut host, _, pair) = connected(acknowledged, CellOptions::default());
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            assert!(host.memory.write(0, &bytes));
            let to = RemoteAddr {
                stag: unit.memory.stag(),
                to: verbena_wire::To::new(unit.memory.address().get() + 5),
            };
            let piece = host.memory.sge(0, len);
            host.carrier
                .post_write(pair, 3, piece, to, Some(0xcafe))
                .unwrap();
            until(&mut [&mut unit, &mut host], "a write", |sides| {
                sides.iter().all(|side| side.done.len() == 1)
            });
            let came = unit.done[0];
            assert_eq!(
                (came.op, came.immediate),
                (WcOp::ReceiveWriteImm, Some(0xcafe))
            );
            assert_eq!(came.len, len);
            assert!(unit.read(5, len as usize) == bytes);
            assert_eq!(host.take_done(), [(3, Status::Success)]);
        }
    }
}

#[test]
fn local_memory_refuses_remote_writes() {
    let (mut unit, mut host, served, pair) = connected(true, CellOptions::default());
    let own = unit
        .carrier
        .register_memory(100, MemoryAccess::Local)
        .unwrap();
    let to = RemoteAddr {
        stag: own.stag(),
        to: own.address(),
    };
    let piece = host.memory.sge(0, 10);
    host.carrier.post_write(pair, 1, piece, to, None).unwrap();
    until(&mut [&mut unit, &mut host], "refused", |sides| {
        sides
            .iter()
            .all(|side| matches!(side.events[..], [CarrierEvent::Ended { .. }]))
    });
    assert_eq!(host.done[0].status, Status::RemAccessErr);
    assert_eq!(unit.carrier.view(served).unwrap().counters.right, 1);
}

#[test]
fn destroyed_pair_ends_its_peer() {
    for acknowledged in [true, false] {
        let (mut unit, mut host, served, pair) = connected(acknowledged, CellOptions::default());
        host.carrier.destroy(pair);
        until(&mut [&mut unit, &mut host], "told", |sides| {
            !sides[0].events.is_empty()
        });
        assert!(matches!(unit.events[..], [CarrierEvent::Ended { pair, .. }] if pair == served));
        assert!(host.done.is_empty() && host.events.is_empty());
        // Posted receives flush, and so do those posted later.
        unit.receive(served, 8);
        unit.turn();
        let flushed: Vec<_> = (0..9).map(|id| (id, Status::WrFlushErr)).collect();
        assert_eq!(unit.take_done(), flushed);
        unit.carrier.destroy(served);
        unit.carrier.destroy(served);
        assert!(unit.carrier.post_receive(served, 1, None).is_err());
        // The route remains: they connect again.
        connect_pair(&mut unit, &mut host, acknowledged);
    }
}

/// Also by a pair that has nothing to send.
#[test]
fn vanished_peer_ends_the_pair() {
    let options = CellOptions {
        retries: 4,
        patience: Duration::ZERO,
        connect_timeout: Duration::from_millis(20),
        keep_alive: Some(Duration::from_millis(50)),
        ..CellOptions::default()
    };
    for sends in [true, false] {
        let (unit, mut host, _, pair) = connected(true, options);
        drop(unit);
        if sends {
            host.send(pair, 8, b"are you there");
        }
        until(&mut [&mut host], "noticed", |sides| {
            !sides[0].events.is_empty()
        });
        assert!(
            matches!(host.events[..], [CarrierEvent::Ended { pair: ended, .. }] if ended == pair)
        );
        assert_eq!(host.done.len(), 8 + usize::from(sends));
        assert!(host.done.iter().all(|wc| wc.status != Status::Success));
    }
}

#[test]
fn idle_pair_stays_connected() {
    let options = CellOptions {
        retries: 2,
        connect_timeout: Duration::from_millis(10),
        keep_alive: Some(Duration::from_millis(10)),
        ..CellOptions::default()
    };
    let (mut unit, mut host, served, pair) = connected(true, options);
    run_for(&mut [&mut unit, &mut host], Duration::from_millis(300));
    assert!(unit.events.is_empty() && host.events.is_empty());
    let asked = unit.carrier.view(served).unwrap().counters.duplicate
        + host.carrier.view(pair).unwrap().counters.duplicate;
    assert!(asked > 3, "they asked each other {asked} times");
}

#[test]
fn many_pairs_of_several_hosts_exchange_messages() {
    const HOSTS: usize = 4;
    const PAIRS: usize = 25;
    let mut unit = Side::unit(CellOptions::default());
    let mut hosts: Vec<Side> = (0..HOSTS)
        .map(|_| Side::host(unit.local_addr(), CellOptions::default()))
        .collect();
    let mut pairs: Vec<(usize, Pair)> = Vec::new();
    for n in 0..PAIRS {
        for (at, host) in hosts.iter_mut().enumerate() {
            pairs.push((at, connect_pair(&mut unit, host, n % 2 == 0)));
        }
    }
    assert_eq!(unit.accepted.len(), HOSTS * PAIRS);
    for (n, (at, pair)) in pairs.iter().enumerate() {
        hosts[*at].send(*pair, 100 + n as u64, &[7; 100]);
    }
    let mut sides: Vec<&mut Side> = hosts.iter_mut().collect();
    sides.push(&mut unit);
    until(&mut sides, "all messages", |sides| {
        sides.iter().map(|side| side.done.len()).sum::<usize>() == 2 * HOSTS * PAIRS
    });
    let mut served: Vec<u32> = unit.done.iter().map(|wc| wc.qpn).collect();
    let mut all: Vec<u32> = unit.accepted.iter().map(|pair| pair.0).collect();
    served.sort_unstable();
    all.sort_unstable();
    assert_eq!(served, all);
    // A host that leaves ends its own pairs, and no others.
    for (_, pair) in pairs.iter().filter(|(at, _)| *at == 0) {
        hosts[0].carrier.destroy(*pair);
    }
    let mut sides: Vec<&mut Side> = hosts.iter_mut().collect();
    sides.push(&mut unit);
    until(&mut sides, "ended", |sides| {
        sides[HOSTS].events.len() == PAIRS
    });
}

#[test]
fn posting_beyond_queue_length_is_refused() {
    let (_unit, mut host, _, _) = connected(true, CellOptions::default());
    let narrow = PairOptions {
        acknowledged: true,
        sends: 2,
        receives: 2,
    };
    let pair = host.carrier.create_pair(narrow).unwrap();
    let piece = host.memory.sge(0, 10);
    host.carrier.post_receive(pair, 0, Some(piece)).unwrap();
    host.carrier.post_receive(pair, 1, None).unwrap();
    let full = host.carrier.post_receive(pair, 2, None).unwrap_err();
    assert!(full.to_string().contains("all 2 are in use"), "{full}");
    let unconnected = host.carrier.post_send(pair, 3, piece).unwrap_err();
    assert!(unconnected.to_string().contains("Idle"), "{unconnected}");
}

/// P2: packets of other hosts are refused, though they are connected to the same unit; before the pair is bound, all are.
#[test]
fn connectionless_pairs_accept_their_peer_only() {
    for acknowledged in [true, false] {
        let (mut unit, mut host, served, pair) = connected(acknowledged, CellOptions::default());
        let mut other = Side::host(unit.local_addr(), CellOptions::default());
        let others_pair = connect_pair(&mut unit, &mut other, acknowledged);
        let [at_unit, at_host, at_other] = [&mut unit, &mut host, &mut other].map(|side| {
            let options = pair_options(acknowledged);
            side.carrier.create_datagram_pair(options).unwrap()
        });
        unit.receives(at_unit, 8);
        let unbound = host.carrier.post_send(at_host, 1, host.memory.sge(0, 1));
        assert!(unbound.is_err(), "it has no destination");
        for (side, with, own) in [
            (&mut host, pair, at_host),
            (&mut other, others_pair, at_other),
        ] {
            let bound = side.carrier.bind_datagrams(own, with, at_unit.0);
            bound.unwrap();
            side.send(own, 1, b"early");
        }
        let refused = |unit: &Side| unit.carrier.view(at_unit).unwrap().counters.channel;
        let mut sides = [&mut unit, &mut host, &mut other];
        until(&mut sides, "two refusals", |sides| refused(sides[0]) >= 2);
        let bound = unit.carrier.bind_datagrams(at_unit, served, at_host.0);
        bound.unwrap();
        let before = refused(&unit);
        other.send(at_other, 2, b"forged");
        host.send(at_host, 2, b"valid");
        let received = |unit: &Side| {
            let of_pair = unit.done.iter().filter(|wc| wc.qpn == at_unit.0);
            of_pair.map(|wc| wc.id).collect::<Vec<u64>>()
        };
        // An acknowledged packet that was refused before is sent again.
        let count = 1 + usize::from(acknowledged);
        let mut sides = [&mut unit, &mut host, &mut other];
        until(&mut sides, "the packets of the peer", |sides| {
            received(sides[0]).len() == count && refused(sides[0]) > before
        });
        for id in received(&unit) {
            let text = unit.read(Side::slot(id), 5);
            assert!(text == b"early" || text == b"valid", "{text:?}");
        }
        let far = unit.carrier.bind_datagrams(at_unit, served, 1 << 24);
        assert!(far.is_err(), "no number of a pair");
        let alone = host
            .carrier
            .create_datagram_pair(pair_options(acknowledged));
        let alone = alone.unwrap();
        let unconnected = host.carrier.bind_datagrams(at_host, alone, at_unit.0);
        assert!(unconnected.is_err(), "no control channel");
    }
}
