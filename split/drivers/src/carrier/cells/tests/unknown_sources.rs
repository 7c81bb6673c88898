//! Datagrams of other senders: garbage, cells from another address, and requests with another peer's port.

use core::time::Duration;
use std::net::UdpSocket;

use verbena::unstable::access::AccessList;
use verbena_nic::wc::Status;
use verbena_split_wire::cell::{
    Body, Cell, CellRoute, Cookie, DisconnectReason, PacketSeq, PortAddress, Terms,
};
use verbena_wire::number::Qpn;

use super::world::{LOCALHOST, Side, connect_pair, connected, run_for, until};
use crate::carrier::CarrierEvent;
use crate::carrier::cells::CellOptions;

const LISTENER: Qpn = Qpn::wrapping(3);

fn connect(to: PortAddress, from: PortAddress, wqp: u32) -> Vec<u8> {
    connect_with(to, from, wqp, None)
}

fn connect_with(to: PortAddress, from: PortAddress, wqp: u32, cookie: Option<Cookie>) -> Vec<u8> {
    let terms = Terms {
        acknowledged: true,
        max_payload: 256,
        private: b"from another host!",
    };
    emit(to, from, wqp, 77, Body::Connect { terms, cookie })
}

fn emit(to: PortAddress, from: PortAddress, wqp: u32, packet: u32, body: Body<'_>) -> Vec<u8> {
    let cell = Cell {
        route: CellRoute {
            to,
            from,
            to_wqp: LISTENER,
            from_wqp: Qpn::wrapping(wqp),
        },
        connected: true,
        packet: PacketSeq::new(packet),
        body,
    };
    let mut bytes = Vec::new();
    cell.emit(&mut bytes);
    bytes
}

/// A request with the cookie that the unit sends for it.
fn connect_with_cookie(
    unknown: &UdpSocket,
    unit: &mut Side,
    (to, from, wqp): (PortAddress, PortAddress, u32),
) -> Vec<u8> {
    unknown
        .send_to(&connect(to, from, wqp), unit.local_addr())
        .unwrap();
    unknown.set_nonblocking(true).unwrap();
    let mut room = [0; 200];
    let mut cookie = None;
    until(&mut [unit], "a cookie", |_| {
        let Ok((len, _)) = unknown.recv_from(&mut room) else {
            return false;
        };
        match Cell::parse(&room[..len]).unwrap().0.body {
            Body::Retry { cookie: got, .. } => cookie = Some(got),
            // The answer to an earlier request.
            Body::Reject { .. } => {}
            other => panic!("{other:?}"),
        }
        cookie.is_some()
    });
    unknown.set_nonblocking(false).unwrap();
    connect_with(to, from, wqp, cookie)
}

/// Only counters change: no request, no route, no deadline.
#[test]
fn request_without_a_cookie_creates_no_state() {
    let mut unit = Side::unit(CellOptions::default());
    let unknown = UdpSocket::bind(LOCALHOST).unwrap();
    let name = PortAddress([2, 9, 9, 9, 9, 9]);
    let any = PortAddress::ANY;
    for _ in 0..3 {
        connect_with_cookie(&unknown, &mut unit, (any, name, 20));
    }
    assert_eq!(unit.carrier.socket.peer_addr(name), None);
    assert_eq!(crate::carrier::Carrier::deadline(&unit.carrier), None);
    let counters = unit.carrier.counters();
    assert_eq!((counters.retries, counters.dropped), (3, 3));
    assert_eq!((counters.datagrams_in, counters.datagrams_out), (0, 0));
    assert!(unit.events.is_empty());
    // A cookie is not valid from another address.
    let ask = connect_with_cookie(&unknown, &mut unit, (any, name, 20));
    let other = UdpSocket::bind(LOCALHOST).unwrap();
    other.send_to(&ask, unit.local_addr()).unwrap();
    until(&mut [&mut unit], "counted", |sides| {
        sides[0].carrier.counters().dropped == 5
    });
    assert!(unit.events.is_empty());
    unknown.send_to(&ask, unit.local_addr()).unwrap();
    until(&mut [&mut unit], "a request", |sides| {
        !sides[0].events.is_empty()
    });
}

/// Also from a connected peer: its address may belong to another host by now.
#[test]
fn requests_of_connected_peers_need_a_cookie() {
    let (mut unit, mut host, _, _) = connected(true, CellOptions::default());
    let from = host.carrier.port_address();
    let ask = connect(unit.carrier.port_address(), from, 21);
    // Sent through the host's socket, so that it comes from its address.
    use std::os::fd::AsFd;
    let socket = host.carrier.socket.as_fd();
    rustix::net::send(socket, &ask, rustix::net::SendFlags::empty()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().port.unproven >= 1
    });
    assert!(unit.events.is_empty());
}

#[test]
fn garbage_is_counted_and_harmless() {
    let (mut unit, mut host, _, pair) = connected(true, CellOptions::default());
    let unknown = UdpSocket::bind(LOCALHOST).unwrap();
    let place = unit.local_addr();
    let before = unit.carrier.counters();
    let mut sent = 0;
    for len in [1, 15, 16, 31, 32, 36, 100, 1400, 9000] {
        for fill in [0_u8, 0x14, 0xff] {
            unknown.send_to(&vec![fill; len], place).unwrap();
            sent += 1;
        }
    }
    // A valid request with one wrong bit.
    let mut damaged = connect(PortAddress::ANY, PortAddress([2; 6]), 20);
    *damaged.last_mut().unwrap() ^= 1;
    unknown.send_to(&damaged, place).unwrap();
    sent += 1;
    // An empty datagram is not counted.
    unknown.send_to(&[], place).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().dropped == before.dropped + sent
    });
    assert!(unit.events.is_empty() && unit.done.is_empty());
    host.send(pair, 5, b"still here");
    until(&mut [&mut unit, &mut host], "a message", |sides| {
        !sides[1].done.is_empty()
    });
    assert_eq!(host.take_done(), [(5, Status::Success)]);
}

/// The settings `allow` and `deny` apply to a unit on UDP.
#[test]
fn denied_sources_get_no_answer() {
    let mut config = verbena::Config::default();
    config.set("deny", "127.0.0.2").unwrap();
    let mut unit = Side::unit(CellOptions::default());
    unit.carrier.set_access(AccessList::new(&config));
    let request = connect(PortAddress::ANY, PortAddress([2; 6]), 20);
    let denied = UdpSocket::bind("127.0.0.2:0").unwrap();
    denied.send_to(&request, unit.local_addr()).unwrap();
    until(&mut [&mut unit], "refused", |sides| {
        sides[0].carrier.counters().dropped == 1
    });
    assert!(unit.events.is_empty());
    // An admitted sender gets a cookie.
    let answered = |who: &UdpSocket| who.recv(&mut [0; 2048]).is_ok();
    let other = UdpSocket::bind(LOCALHOST).unwrap();
    for who in [&denied, &other] {
        who.set_nonblocking(true).unwrap();
    }
    other.send_to(&request, unit.local_addr()).unwrap();
    until(&mut [&mut unit], "a cookie", |_| answered(&other));
    assert!(!answered(&denied));
}

/// Damaged cells from a connected peer's address are counted by the port.
#[test]
fn damaged_cells_of_a_peer_are_counted() {
    let (mut unit, mut host, _, _) = connected(true, CellOptions::default());
    let from = host.carrier.port_address();
    let mut bytes = connect(unit.carrier.port_address(), from, 20);
    bytes[40] ^= 1;
    // Sent through the host's socket, so that it comes from its address.
    use std::os::fd::AsFd;
    let socket = host.carrier.socket.as_fd();
    rustix::net::send(socket, &bytes, rustix::net::SendFlags::empty()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().port.cell_crc == 1
    });
}

#[test]
fn connected_port_cannot_be_taken_over() {
    let (mut unit, mut host, served, pair) = connected(true, CellOptions::default());
    let unknown = UdpSocket::bind(LOCALHOST).unwrap();
    unknown.set_nonblocking(true).unwrap();
    let (here, victim) = (unit.carrier.port_address(), host.carrier.port_address());
    for to in [here, PortAddress::ANY] {
        let ask = connect_with_cookie(&unknown, &mut unit, (to, victim, 20));
        unknown.send_to(&ask, unit.local_addr()).unwrap();
    }
    unknown.set_nonblocking(true).unwrap();
    let strangers = unit.carrier.counters().dropped;
    // From the right address it would end the connection: this sender knows the numbers of the host's pair.
    let first = host.carrier.view(pair).unwrap();
    assert!(first.peer.is_some());
    let bye = emit(
        here,
        victim,
        pair.0,
        0,
        Body::Disconnect(DisconnectReason::Closed),
    );
    unknown.send_to(&bye, unit.local_addr()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        let counters = sides[0].carrier.counters();
        (counters.spoofed, counters.dropped) == (2, strangers + 1)
    });
    unit.send(served, 4, b"to the host");
    until(&mut [&mut unit, &mut host], "a message", |sides| {
        !sides[1].done.is_empty()
    });
    assert_eq!(host.read(Side::slot(0), 11), b"to the host");
    assert!(unit.events.is_empty());
    let mut room = [0; 100];
    assert!(unknown.recv_from(&mut room).is_err(), "nothing went there");
    // Cells of another port behind an own request are not accepted.
    let own = PortAddress([2, 9, 9, 9, 9, 9]);
    let mut both = connect_with_cookie(&unknown, &mut unit, (here, own, 21));
    both.extend(emit(
        here,
        victim,
        pair.0,
        0,
        Body::Disconnect(DisconnectReason::Closed),
    ));
    unknown.send_to(&both, unit.local_addr()).unwrap();
    until(&mut [&mut unit, &mut host], "a request", |sides| {
        !sides[0].events.is_empty()
    });
    assert_eq!(unit.carrier.counters().port.wrong_source, 1);
}

#[test]
fn released_port_can_connect_from_another_address() {
    let (mut unit, mut host, _, pair) = connected(true, CellOptions::default());
    crate::carrier::Carrier::destroy(&mut host.carrier, pair);
    until(&mut [&mut unit, &mut host], "ended", |sides| {
        sides[0]
            .events
            .iter()
            .any(|news| matches!(news, CarrierEvent::Ended { .. }))
    });
    let name = host.carrier.port_address();
    drop(host);
    unit.take_events();
    // The same port from another address, as behind a NAT that lost its mapping.
    let elsewhere = UdpSocket::bind(LOCALHOST).unwrap();
    let ask = connect_with_cookie(&elsewhere, &mut unit, (PortAddress::ANY, name, 30));
    elsewhere.send_to(&ask, unit.local_addr()).unwrap();
    until(&mut [&mut unit], "a request", |sides| {
        !sides[0].events.is_empty()
    });
    let address = format!("{}", elsewhere.local_addr().unwrap());
    match &unit.take_events()[..] {
        [CarrierEvent::Request { from, ticket, .. }] => {
            assert!(from.contains(&address), "{from}");
            unit.accept(*ticket, true, b"");
        }
        other => panic!("{other:?}"),
    }
    unit.turn();
    let mut room = [0; 200];
    elsewhere
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let (len, _) = elsewhere.recv_from(&mut room).unwrap();
    let (cell, _) = Cell::parse(&room[..len]).unwrap();
    assert!(matches!(cell.body, Body::Accept { .. }), "{cell}");
}

/// Above the limit of waiting requests, further ones are rejected as busy, and connected hosts are not affected.
#[test]
fn waiting_requests_are_limited() {
    let (mut unit, mut host, _, _) = connected(true, CellOptions::default());
    let unknown = UdpSocket::bind(LOCALHOST).unwrap();
    let asks: Vec<Vec<u8>> = (0..200)
        .map(|n| {
            let name = PortAddress([2, 1, 0, 0, 0, n]);
            connect_with_cookie(&unknown, &mut unit, (PortAddress::ANY, name, 20))
        })
        .collect();
    for (n, ask) in asks.iter().enumerate() {
        unknown.send_to(ask, unit.local_addr()).unwrap();
        if n % 50 == 0 {
            run_for(&mut [&mut unit, &mut host], Duration::from_millis(1));
        }
    }
    run_for(&mut [&mut unit, &mut host], Duration::from_millis(20));
    let requests = unit.take_events();
    assert!((1..=64).contains(&requests.len()), "{}", requests.len());
    assert!(unit.carrier.counters().port.rejected > 0);
    for news in requests {
        if let CarrierEvent::Request { ticket, .. } = news {
            crate::carrier::Carrier::reject(&mut unit.carrier, ticket, b"");
        }
    }
    connect_pair(&mut unit, &mut host, true);
}
