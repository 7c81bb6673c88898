//! Datagrams of other senders: garbage, cells from another address, and requests with another peer's port.

use core::time::Duration;
use std::net::UdpSocket;

use verbena::access::AccessList;
use verbena_nic::wc::Status;
use verbena_wire::cell::{Body, Cell, Cookie, Ending, PacketSeq, PortAddress, Terms, Way};
use verbena_wire::number::Qpn;

use super::world::{HERE, Side, connected, during, join, until};
use crate::carrier::News;
use crate::carrier::cells::CellOptions;

const LISTENER: Qpn = Qpn::wrapping(3);

fn connect(to: PortAddress, from: PortAddress, wqp: u32) -> Vec<u8> {
    connect_with(to, from, wqp, None)
}

fn connect_with(to: PortAddress, from: PortAddress, wqp: u32, cookie: Option<Cookie>) -> Vec<u8> {
    let terms = Terms {
        acknowledged: true,
        cell: 256,
        private: b"I am somebody else",
    };
    emit(to, from, wqp, 77, Body::Connect { terms, cookie })
}

fn emit(to: PortAddress, from: PortAddress, wqp: u32, packet: u32, body: Body<'_>) -> Vec<u8> {
    let cell = Cell {
        way: Way {
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
fn proven(
    stranger: &UdpSocket,
    unit: &mut Side,
    (to, from, wqp): (PortAddress, PortAddress, u32),
) -> Vec<u8> {
    stranger
        .send_to(&connect(to, from, wqp), unit.place())
        .unwrap();
    stranger.set_nonblocking(true).unwrap();
    let mut room = [0; 200];
    let mut cookie = None;
    until(&mut [unit], "a cookie", |_| {
        let Ok((len, _)) = stranger.recv_from(&mut room) else {
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
    stranger.set_nonblocking(false).unwrap();
    connect_with(to, from, wqp, cookie)
}

/// Only counters change: no request, no route, no deadline.
#[test]
fn request_without_a_cookie_creates_no_state() {
    let mut unit = Side::unit(CellOptions::default());
    let stranger = UdpSocket::bind(HERE).unwrap();
    let name = PortAddress([2, 9, 9, 9, 9, 9]);
    let whoever = PortAddress::WHOEVER;
    for _ in 0..3 {
        proven(&stranger, &mut unit, (whoever, name, 20));
    }
    assert_eq!(unit.carrier.line.place(name), None);
    assert_eq!(crate::carrier::Carrier::deadline(&unit.carrier), None);
    let counters = unit.carrier.counters();
    assert_eq!((counters.retries, counters.strangers), (3, 3));
    assert_eq!((counters.datagrams_in, counters.datagrams_out), (0, 0));
    assert!(unit.news.is_empty());
    // A cookie is not valid from another address.
    let ask = proven(&stranger, &mut unit, (whoever, name, 20));
    let other = UdpSocket::bind(HERE).unwrap();
    other.send_to(&ask, unit.place()).unwrap();
    until(&mut [&mut unit], "counted", |sides| {
        sides[0].carrier.counters().strangers == 5
    });
    assert!(unit.news.is_empty());
    stranger.send_to(&ask, unit.place()).unwrap();
    until(&mut [&mut unit], "a request", |sides| {
        !sides[0].news.is_empty()
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
    let socket = host.carrier.line.as_fd();
    rustix::net::send(socket, &ask, rustix::net::SendFlags::empty()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().port.unproven >= 1
    });
    assert!(unit.news.is_empty());
}

#[test]
fn garbage_is_counted_and_harmless() {
    let (mut unit, mut host, _, pair) = connected(true, CellOptions::default());
    let stranger = UdpSocket::bind(HERE).unwrap();
    let place = unit.place();
    let before = unit.carrier.counters();
    let mut sent = 0;
    for len in [1, 15, 16, 31, 32, 36, 100, 1400, 9000] {
        for fill in [0_u8, 0x14, 0xff] {
            stranger.send_to(&vec![fill; len], place).unwrap();
            sent += 1;
        }
    }
    // A valid request with one wrong bit.
    let mut damaged = connect(PortAddress::WHOEVER, PortAddress([2; 6]), 20);
    *damaged.last_mut().unwrap() ^= 1;
    stranger.send_to(&damaged, place).unwrap();
    sent += 1;
    // An empty datagram is not counted.
    stranger.send_to(&[], place).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().strangers == before.strangers + sent
    });
    assert!(unit.news.is_empty() && unit.done.is_empty());
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
    let request = connect(PortAddress::WHOEVER, PortAddress([2; 6]), 20);
    let denied = UdpSocket::bind("127.0.0.2:0").unwrap();
    denied.send_to(&request, unit.place()).unwrap();
    until(&mut [&mut unit], "refused", |sides| {
        sides[0].carrier.counters().strangers == 1
    });
    assert!(unit.news.is_empty());
    // An admitted sender gets a cookie.
    let answered = |who: &UdpSocket| who.recv(&mut [0; 2048]).is_ok();
    let other = UdpSocket::bind(HERE).unwrap();
    for who in [&denied, &other] {
        who.set_nonblocking(true).unwrap();
    }
    other.send_to(&request, unit.place()).unwrap();
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
    let socket = host.carrier.line.as_fd();
    rustix::net::send(socket, &bytes, rustix::net::SendFlags::empty()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        sides[0].carrier.counters().port.cell_crc == 1
    });
}

#[test]
fn connected_port_cannot_be_taken_over() {
    let (mut unit, mut host, served, pair) = connected(true, CellOptions::default());
    let stranger = UdpSocket::bind(HERE).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let (here, victim) = (unit.carrier.port_address(), host.carrier.port_address());
    for to in [here, PortAddress::WHOEVER] {
        let ask = proven(&stranger, &mut unit, (to, victim, 20));
        stranger.send_to(&ask, unit.place()).unwrap();
    }
    stranger.set_nonblocking(true).unwrap();
    let strangers = unit.carrier.counters().strangers;
    // From the right address it would end the connection: this sender knows the numbers of the host's pair.
    let first = host.carrier.view(pair).unwrap();
    assert!(first.peer.is_some());
    let bye = emit(here, victim, pair.0, 0, Body::Disconnect(Ending::Closed));
    stranger.send_to(&bye, unit.place()).unwrap();
    until(&mut [&mut unit, &mut host], "counted", |sides| {
        let counters = sides[0].carrier.counters();
        (counters.diverted, counters.strangers) == (2, strangers + 1)
    });
    unit.send(served, 4, b"to the host");
    until(&mut [&mut unit, &mut host], "a message", |sides| {
        !sides[1].done.is_empty()
    });
    assert_eq!(host.read(Side::slot(0), 11), b"to the host");
    assert!(unit.news.is_empty());
    let mut room = [0; 100];
    assert!(stranger.recv_from(&mut room).is_err(), "nothing went there");
    // Cells of another port behind an own request are not accepted.
    let own = PortAddress([2, 9, 9, 9, 9, 9]);
    let mut both = proven(&stranger, &mut unit, (here, own, 21));
    both.extend(emit(
        here,
        victim,
        pair.0,
        0,
        Body::Disconnect(Ending::Closed),
    ));
    stranger.send_to(&both, unit.place()).unwrap();
    until(&mut [&mut unit, &mut host], "a request", |sides| {
        !sides[0].news.is_empty()
    });
    assert_eq!(unit.carrier.counters().port.not_theirs, 1);
}

#[test]
fn released_port_can_connect_from_another_address() {
    let (mut unit, mut host, _, pair) = connected(true, CellOptions::default());
    crate::carrier::Carrier::destroy(&mut host.carrier, pair);
    until(&mut [&mut unit, &mut host], "ended", |sides| {
        sides[0]
            .news
            .iter()
            .any(|news| matches!(news, News::Ended { .. }))
    });
    let name = host.carrier.port_address();
    drop(host);
    unit.take_news();
    // The same port from another address, as behind a NAT that lost its mapping.
    let elsewhere = UdpSocket::bind(HERE).unwrap();
    let ask = proven(&elsewhere, &mut unit, (PortAddress::WHOEVER, name, 30));
    elsewhere.send_to(&ask, unit.place()).unwrap();
    until(&mut [&mut unit], "a request", |sides| {
        !sides[0].news.is_empty()
    });
    let told = format!("{}", elsewhere.local_addr().unwrap());
    match &unit.take_news()[..] {
        [News::Request { from, ticket, .. }] => {
            assert!(from.contains(&told), "{from}");
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
    let stranger = UdpSocket::bind(HERE).unwrap();
    let asks: Vec<Vec<u8>> = (0..200)
        .map(|n| {
            let name = PortAddress([2, 1, 0, 0, 0, n]);
            proven(&stranger, &mut unit, (PortAddress::WHOEVER, name, 20))
        })
        .collect();
    for (n, ask) in asks.iter().enumerate() {
        stranger.send_to(ask, unit.place()).unwrap();
        if n % 50 == 0 {
            during(&mut [&mut unit, &mut host], Duration::from_millis(1));
        }
    }
    during(&mut [&mut unit, &mut host], Duration::from_millis(20));
    let requests = unit.take_news();
    assert!((1..=64).contains(&requests.len()), "{}", requests.len());
    assert!(unit.carrier.counters().port.rejected > 0);
    for news in requests {
        if let News::Request { ticket, .. } = news {
            crate::carrier::Carrier::reject(&mut unit.carrier, ticket, b"");
        }
    }
    join(&mut unit, &mut host, true);
}
