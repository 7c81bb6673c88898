//! Connection setup and end: every answer, lost and old ones, and limits on requests.

use verbena_nic::wr::Data;
use verbena_nic::{Event, Status};
use verbena_split_wire::cell::{
    Body, Cell, CellRoute, Cells, Cookie, DisconnectReason, PacketSeq, PortAddress, RejectReason,
    Terms,
};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use crate::testing::*;
use crate::{Config, EndReason, Error, Notice, State};

#[test]
fn connect_and_accept_exchange_private_data() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.b.port.listen(LISTENER, true).unwrap();
    pair.request_connection();
    pair.carry();
    let notices = pair.b.notices();
    let [
        Notice::Request {
            ticket,
            listener,
            from,
            private,
        },
    ] = &notices[..]
    else {
        panic!("{notices:?}")
    };
    assert_eq!(
        (*listener, *from, &private[..]),
        (LISTENER, peer(1), &b"hello"[..])
    );
    pair.b.port.accept(*ticket, WQP, FIRST, b"yes").unwrap();
    pair.carry();
    let connected = Notice::Connected {
        wqp: WQP,
        peer: peer(2),
        private: b"yes".to_vec(),
    };
    assert_eq!(pair.a.notices(), [connected]);
    assert_eq!(pair.b.port.view(WQP).unwrap().peer, Some(peer(1)));
    assert_eq!(
        pair.b.port.accept(*ticket, WQP, FIRST, b""),
        Err(Error::Unknown(ticket.0))
    );
}

/// A Connect to the wildcard address learns the port's address from either answer.
#[test]
fn accept_and_reject_answer_a_wildcard_connect() {
    for agrees in [true, false] {
        let mut pair = Pair::unconnected(kind(true, true), Config::default());
        pair.b.port.listen(LISTENER, true).unwrap();
        let any = crate::Peer {
            port: PortAddress::ANY,
            wqp: LISTENER,
        };
        pair.a.port.connect(WQP, any, FIRST, b"").unwrap();
        let mut datagram = Vec::new();
        let (port, out) = (&mut pair.a.port, &mut pair.a.out);
        let to = port.poll_transmit(ROOM, pair.now, &mut datagram, out);
        assert_eq!(to, Some(PortAddress::ANY));
        let b = &mut pair.b;
        b.port.handle_cells(&datagram, pair.now, &mut b.out);
        let Some(Notice::Request { ticket, .. }) = b.port.poll_notice() else {
            panic!("a request")
        };
        if agrees {
            b.port.accept(ticket, WQP, FIRST, b"").unwrap();
        } else {
            b.port.reject(ticket, b"").unwrap();
        }
        pair.carry();
        let state = if agrees {
            State::Connected
        } else {
            State::Idle
        };
        assert_eq!(pair.a.state(), state);
        assert_eq!(pair.a.port.view(WQP).unwrap().peer, agrees.then(|| peer(2)));
    }
}

/// Only a Connect may have the wildcard address.
#[test]
fn disconnect_to_wildcard_address_is_dropped() {
    let mut pair = Pair::new(kind(true, true));
    let bye = Cell {
        route: CellRoute {
            to: PortAddress::ANY,
            from: address(1),
            to_wqp: WQP,
            from_wqp: WQP,
        },
        connected: true,
        packet: FIRST,
        body: Body::Disconnect(DisconnectReason::Closed),
    };
    let mut datagram = Vec::new();
    bye.emit(&mut datagram);
    let b = &mut pair.b;
    b.port.handle_cells(&datagram, pair.now, &mut b.out);
    assert_eq!(b.port.counters().wrong_destination, 1);
    assert_eq!(pair.b.state(), State::Connected);
}

/// A carrier that knows the source port drops cells with another one.
#[test]
fn cells_with_forged_source_port_are_dropped() {
    let mut pair = Pair::new(kind(true, true));
    pair.b.receive(1, 0, 100);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    let datagram = pair.a.transmit(pair.now).unwrap();
    let b = &mut pair.b;
    b.port
        .handle_cells_from(address(3), &datagram, pair.now, &mut b.out);
    assert!(b.received().is_empty());
    assert_eq!(b.port.counters().wrong_source, 1);
    b.port
        .handle_cells_from(address(1), &datagram, pair.now, &mut b.out);
    assert_eq!(b.received().len(), 1);
}

/// Keep-alive of a channel without work: a peer that answers stays connected, one that does not is noticed.
#[test]
fn keep_alive_probes_idle_peers() {
    let config = Config {
        keep_alive: Some(core::time::Duration::from_secs(1)),
        ..Config::default()
    };
    let mut pair = Pair::with(kind(true, true), config);
    pair.b.receive(1, 0, 100);
    for _ in 0..50 {
        assert!(pair.wait());
        pair.carry();
    }
    assert!(pair.now > Time::ZERO + core::time::Duration::from_secs(20));
    assert_eq!(
        (pair.a.state(), pair.b.state()),
        (State::Connected, State::Connected)
    );
    assert!(pair.a.counters().duplicate + pair.b.counters().duplicate >= 20);
    assert!(pair.b.received().is_empty(), "a question is no packet");
    // Packets sent afterwards arrive.
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    pair.carry();
    assert_eq!((pair.b.received().len(), pair.a.sent().len()), (1, 1));
    let since = pair.now;
    while pair.a.state() == State::Connected {
        assert!(pair.wait());
        pair.carry_filtered(|_, _| false);
    }
    let why = EndReason::PeerTimeout;
    assert_eq!(
        pair.a.notices(),
        [Notice::Ended {
            wqp: WQP,
            reason: why
        }]
    );
    // One second of silence, and eight probes of 200 ms.
    assert!(pair.now.since(since) < core::time::Duration::from_secs(4));
}

/// Each reason for a Reject: no listener, other attributes, the consumer.
#[test]
fn reject_reports_reason_and_returns_to_idle() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    let rejected = |reason| Notice::Rejected {
        wqp: WQP,
        reason,
        private: Vec::new(),
    };
    pair.request_connection();
    pair.carry();
    assert_eq!(pair.a.notices(), [rejected(RejectReason::NoListener)]);
    pair.b.port.listen(LISTENER, false).unwrap();
    pair.request_connection();
    pair.carry();
    assert_eq!(pair.a.notices(), [rejected(RejectReason::Attributes)]);
    pair.b.port.unlisten(LISTENER).unwrap();
    pair.b.port.listen(LISTENER, true).unwrap();
    pair.request_connection();
    pair.carry();
    let Some(Notice::Request { ticket, .. }) = pair.b.port.poll_notice() else {
        panic!("a request")
    };
    pair.b.port.reject(ticket, b"no room").unwrap();
    pair.carry();
    let event = Notice::Rejected {
        wqp: WQP,
        reason: RejectReason::Consumer,
        private: b"no room".to_vec(),
    };
    assert_eq!(pair.a.notices(), [event]);
    assert_eq!(pair.a.state(), State::Idle);
    pair.connect();
}

#[test]
fn unanswered_connect_ends_after_eight_retries() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.request_connection();
    let mut asked = 0;
    while pair.a.state() == State::Connecting {
        pair.carry_filtered(|_, cell| {
            asked += usize::from(matches!(cell.body, Body::Connect { .. }));
            false
        });
        assert!(pair.wait());
    }
    assert_eq!(asked, 9, "once, and eight times again");
    assert_eq!(pair.a.notices(), [Notice::Unanswered { wqp: WQP }]);
    assert!(!pair.wait());
}

/// A Retry repeats the Connect at once with the cookie, and once for each cookie.
#[test]
fn a_retry_repeats_the_connect_with_its_cookie() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.request_connection();
    let said = |pair: &mut Pair| -> Vec<Option<Cookie>> {
        let mut said = Vec::new();
        while let Some(datagram) = pair.a.transmit(pair.now) {
            said.extend(Cells::new(&datagram).map(|cell| match cell.unwrap().body {
                Body::Connect { cookie, terms } => {
                    assert_eq!(terms.private, b"hello");
                    cookie
                }
                other => panic!("{other:?}"),
            }));
        }
        said
    };
    assert_eq!(said(&mut pair), [None]);
    let retry = |pair: &mut Pair, listener, echo, cookie| {
        let way = CellRoute {
            to: address(1),
            from: address(2),
            to_wqp: WQP,
            from_wqp: listener,
        };
        let bytes = bytes(way, PacketSeq::default(), Body::Retry { echo, cookie });
        pair.a.port.handle_cells(&bytes, pair.now, &mut pair.a.out);
    };
    let (one, other) = (Cookie([1; 16]), Cookie([2; 16]));
    retry(&mut pair, LISTENER, FIRST.next(), one);
    retry(&mut pair, Qpn::wrapping(1), FIRST, one);
    assert_eq!(said(&mut pair), [], "not what was asked");
    for cookie in [one, other] {
        retry(&mut pair, LISTENER, FIRST, cookie);
        retry(&mut pair, LISTENER, FIRST, cookie);
        assert_eq!(said(&mut pair), [Some(cookie)]);
    }
    // The Connect is lost: it is repeated after the timeout, with the cookie.
    assert!(pair.wait());
    assert_eq!(said(&mut pair), [Some(other)]);
}

/// Of a sender that has not returned a cookie, everything but requests is accepted.
#[test]
fn unproven_connect_leaves_no_state() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.b.port.listen(LISTENER, true).unwrap();
    pair.request_connection();
    let datagram = pair.a.transmit(pair.now).unwrap();
    let (from, now) = (address(1), pair.now);
    let b = &mut pair.b;
    b.port
        .handle_cells_unproven(from, &datagram, now, &mut b.out);
    assert_eq!(b.notices(), []);
    assert_eq!((b.port.counters().unproven, b.port.deadline()), (1, None));
    b.port.handle_cells_from(from, &datagram, now, &mut b.out);
    assert_eq!(b.notices().len(), 1);
}

/// The Accept is lost twice: each repeated Connect is answered, and the consumer is asked once.
#[test]
fn lost_accept_is_repeated() {
    let mut pair = Pair::unconnected(kind(true, true), Config::default());
    pair.b.port.listen(LISTENER, true).unwrap();
    pair.request_connection();
    pair.carry();
    let Some(Notice::Request { ticket, .. }) = pair.b.port.poll_notice() else {
        panic!("a request")
    };
    pair.b.port.accept(ticket, WQP, FIRST, b"").unwrap();
    // Data of the accepting side may overtake its Accept: it is not lost, and does not end the connection.
    pair.a.receive(1, 0, 100);
    pair.b.send(1, None, None, Data::Inline(b"early")).unwrap();
    for _ in 0..2 {
        pair.carry_filtered(|_, cell| !matches!(cell.body, Body::Accept { .. }));
        assert_eq!(pair.a.state(), State::Connecting);
        pair.wait();
    }
    while pair.a.state() == State::Connecting {
        pair.carry();
        pair.wait();
    }
    pair.carry();
    while pair.b.sent().is_empty() {
        assert!(pair.wait());
        pair.carry();
    }
    assert_eq!(pair.a.received().len(), 1);
    assert_eq!(pair.b.notices(), []);
}

#[test]
fn disconnect_ends_peer_and_flushes_both_sides() {
    let mut pair = Pair::new(kind(true, true));
    pair.a.receive(1, 0, 10);
    pair.b.receive(2, 0, 10);
    pair.a.send(3, None, None, Data::Inline(b"x")).unwrap();
    pair.a.port.disconnect(WQP, &mut pair.a.out).unwrap();
    assert_eq!(pair.a.sent(), [(3, Status::WrFlushErr)]);
    assert_eq!(pair.a.received()[0].status, Status::WrFlushErr);
    pair.carry();
    assert_eq!(pair.b.state(), State::Ended);
    assert_eq!(pair.b.received()[0].status, Status::WrFlushErr);
    let why = EndReason::Peer(DisconnectReason::Closed);
    assert_eq!(
        pair.b.notices(),
        [Notice::Ended {
            wqp: WQP,
            reason: why
        }]
    );
    assert!(
        pair.b
            .out
            .events()
            .contains(&Event::Disconnected { qp: 20 })
    );
    let again = pair.a.port.disconnect(WQP, &mut pair.a.out);
    assert_eq!(again, Err(Error::State(State::Ended)));
}

/// One side was destroyed and its Disconnect lost: the other side notices by the answer to its next packet.
#[test]
fn lost_disconnect_is_detected_by_next_packet() {
    check_half_open(true, Status::WrFlushErr);
    // The packet has completed when it was passed to the carrier.
    check_half_open(false, Status::Success);
}

fn check_half_open(acknowledged: bool, status: Status) {
    let mut pair = Pair::new(kind(acknowledged, true));
    pair.b.port.destroy(WQP, &mut pair.b.out).unwrap();
    pair.carry_filtered(|_, _| false);
    assert_eq!(pair.a.state(), State::Connected);
    pair.a.send(1, None, None, Data::Inline(b"hello?")).unwrap();
    pair.carry();
    assert_eq!(pair.a.state(), State::Ended);
    let why = EndReason::Peer(DisconnectReason::NoChannel);
    assert_eq!(
        pair.a.notices(),
        [Notice::Ended {
            wqp: WQP,
            reason: why
        }]
    );
    assert_eq!(pair.a.sent(), [(1, status)]);
}

fn way(from: u8, from_wqp: u32, to_wqp: Qpn) -> CellRoute {
    CellRoute {
        to: address(2),
        from: address(from),
        to_wqp,
        from_wqp: Qpn::wrapping(from_wqp),
    }
}

fn bytes(way: CellRoute, packet: PacketSeq, body: Body<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Cell {
        route: way,
        connected: true,
        packet,
        body,
    }
    .emit(&mut bytes);
    bytes
}

/// Cells of an earlier connection between the same two have no effect.
#[test]
fn cells_of_an_earlier_connection_are_ignored() {
    let mut pair = Pair::new(kind(true, true));
    let old = FIRST.plus(1 << 20);
    let way = way(1, 20, WQP);
    let terms = Terms {
        acknowledged: true,
        max_payload: 256,
        private: b"",
    };
    for body in [
        Body::Disconnect(DisconnectReason::Closed),
        Body::Disconnect(DisconnectReason::NoChannel),
        Body::Accept { echo: old, terms },
        Body::Reject {
            echo: old,
            reason: RejectReason::Busy,
            private: b"",
        },
        Body::Ack,
    ] {
        let bytes = bytes(way, old, body);
        pair.b.port.handle_cells(&bytes, pair.now, &mut pair.b.out);
    }
    assert_eq!(pair.b.state(), State::Connected);
    assert_eq!(pair.b.notices(), []);
}

/// Requests are limited in all and per port, and expire.
#[test]
fn a_flood_of_requests_stays_within_its_limits() {
    let config = Config {
        requests: 10,
        requests_per_peer: 4,
        ..Config::default()
    };
    let mut pair = Pair::unconnected(kind(true, true), config);
    pair.b.port.listen(LISTENER, true).unwrap();
    let terms = Terms {
        acknowledged: true,
        max_payload: 256,
        private: &[0; 512],
    };
    for from in 10..20 {
        for wqp in 0..100 {
            let bytes = bytes(
                way(from, wqp, LISTENER),
                FIRST,
                Body::Connect {
                    terms,
                    cookie: None,
                },
            );
            pair.b.port.handle_cells(&bytes, pair.now, &mut pair.b.out);
        }
    }
    let event = pair.b.notices().len();
    assert_eq!(event, 10);
    let counters = pair.b.port.counters();
    assert_eq!(counters.rejected, 990);
    // Answers are limited too.
    assert_eq!(counters.answers_lost, 990 - 128);
    let mut gone = 0;
    let mut datagram = Vec::new();
    while pair
        .b
        .port
        .poll_transmit(ROOM, pair.now, &mut datagram, &mut pair.b.out)
        .is_some()
    {
        gone += 1;
    }
    assert!(gone > 0);
    while pair.wait() {}
    assert_eq!(pair.b.port.deadline(), None);
    pair.connect();
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    let mut pair = Pair::new(kind(true, true));
    let a = &mut pair.a.port;
    assert_eq!(
        a.connect(WQP, peer(2), FIRST, b""),
        Err(Error::State(State::Connected))
    );
    assert_eq!(
        a.connect(WQP, peer(2), FIRST, &[0; 513]),
        Err(Error::Private(513))
    );
    assert_eq!(a.reset(WQP), Err(Error::State(State::Connected)));
    assert_eq!(a.unlisten(LISTENER), Err(Error::Unknown(7)));
    let mut loose = Pair::new(kind(true, false));
    let refused = loose.a.port.connect(WQP, peer(2), FIRST, b"");
    assert_eq!(refused, Err(Error::Kind));
}
