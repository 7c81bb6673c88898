//! Out-of-band connections: the programs exchange only queue pair number and address.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use verbena_engine::{Error, OobPeer, QueuePair, QueuePairOptions};
use verbena_nic::qp::Psns;
use verbena_nic::{QpState, QpType, ReceiveWr, SendOp, Status, Wc, WcOp};
use verbena_testing::{own_process, readable_within, wait_readable};
use verbena_wire::number::{Psn, Qpn};

use crate::common::{
    LIMITS, SEND, Side, TEST_TIMEOUT, descriptors, exchange_until_shared, pattern, serialize_tests,
    wait,
};

const LOCALHOST: &str = "127.0.0.1";

/// A side on this address whose queue pair can be called.
fn side(settings: &[(&str, &str)], qp_type: QpType) -> Side {
    let device: &[(&str, &str)] = &[("device", LOCALHOST)];
    let mut side = Side::new(&[device, settings].concat());
    side.qp = callable(&side, qp_type);
    side
}

fn callable(side: &Side, qp_type: QpType) -> QueuePair {
    let options = QueuePairOptions {
        oob: true,
        qp_type,
        limits: LIMITS,
        ..QueuePairOptions::new(side.pd)
    };
    side.engine.create_qp(&side.cq, &side.cq, options).unwrap()
}

fn reliable(settings: &[(&str, &str)]) -> Side {
    side(settings, QpType::Rc)
}

fn address(side: &Side) -> IpAddr {
    side.engine.addresses().unwrap()[0]
}

/// The address and number that its peer is told.
fn endpoint(side: &Side) -> (IpAddr, Qpn) {
    (address(side), side.qp.oob_qpn().unwrap())
}

fn set_peer(side: &Side, (address, number): (IpAddr, Qpn)) {
    if side.qp.state() == QpState::Reset {
        side.qp.modify(QpState::Init).unwrap();
    }
    let local = self::address(side);
    side.qp
        .set_peer(OobPeer {
            local,
            address,
            number,
        })
        .unwrap();
}

/// Moves it to RTS.
fn start(side: &Side) {
    side.qp.modify(QpState::Rts).unwrap();
}

fn connect(a: &Side, b: &Side) {
    set_peer(a, endpoint(b));
    set_peer(b, endpoint(a));
    start(a);
    start(b);
}

/// A message each way and a write, every byte checked.
fn exchange(a: &Side, b: &Side) {
    for (from, to, salt) in [(a, b, 1), (b, a, 2)] {
        let words = pattern(3000, salt);
        to.receive(7, &[to.sge(8192, 4096)]);
        assert!(from.memory.write(0, &words));
        from.post(1, SEND, &[from.sge(0, 3000)]);
        let came = to.complete(1)[0];
        assert_eq!(
            (came.status, came.op, came.len),
            (Status::Success, WcOp::Receive, 3000)
        );
        assert_eq!(came.qpn, to.qp.oob_qpn().unwrap().get());
        assert_eq!(from.statuses(1), [(1, Status::Success)]);
        assert!(to.memory.read(8192, 3000) == words);
    }
    let write = SendOp::Write {
        remote: b.remote(0x10000),
        immediate: None,
    };
    a.post(2, write, &[a.sge(0, 3000)]);
    assert_eq!(a.statuses(1), [(2, Status::Success)]);
}

#[test]
fn number_and_address_suffice_to_connect() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    connect(&a, &b);
    exchange(&a, &b);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn first_side_waits_for_its_peer() {
    let _alone = serialize_tests();
    own_process!();
    // In both orders: the side with the lower number calls at once, the other after `dial_delay`.
    for late in [0, 1] {
        let (a, b) = (reliable(&[]), reliable(&[]));
        let (first, second) = if late == 0 { (&a, &b) } else { (&b, &a) };
        let before = descriptors();
        set_peer(first, endpoint(second));
        start(first);
        first.post(9, SEND, &[first.sge(0, 10)]);
        // The socket of the caller, and the accepted one.
        wait("the call is held", || descriptors() >= before + 2);
        second.qp.modify(QpState::Init).unwrap();
        second.receive(5, &[second.sge(0, 64)]);
        set_peer(second, endpoint(first));
        assert_eq!(second.statuses(1), [(5, Status::Success)], "in RTR already");
        assert_eq!(first.statuses(1), [(9, Status::Success)]);
        start(second);
        exchange(second, first);
    }
}

#[test]
fn ipv6_addresses_connect_out_of_band() {
    let _alone = serialize_tests();
    let six = [("device", "::1")];
    let (mut a, mut b) = (Side::new(&six), Side::new(&six));
    a.qp = callable(&a, QpType::Rc);
    b.qp = callable(&b, QpType::Rc);
    connect(&a, &b);
    exchange(&a, &b);
}

#[test]
fn queue_pairs_of_one_adapter_connect() {
    let _alone = serialize_tests();
    let a = reliable(&[]);
    let other = callable(&a, QpType::Rc);
    let here = address(&a);
    for (qp, peer) in [(&a.qp, &other), (&other, &a.qp)] {
        qp.modify(QpState::Init).unwrap();
        let number = peer.oob_qpn().unwrap();
        let peer = OobPeer {
            local: here,
            address: here,
            number,
        };
        qp.set_peer(peer).unwrap();
        qp.modify(QpState::Rts).unwrap();
    }
    let scatter = [a.sge(4096, 64)];
    let receive = ReceiveWr {
        id: 1,
        scatter: &scatter,
    };
    other.post_receive(&receive).unwrap();
    assert!(a.memory.write(0, b"to my neighbour"));
    a.post(2, SEND, &[a.sge(0, 15)]);
    let done = a.complete(2);
    assert!(
        done.iter().all(|wc| wc.status == Status::Success),
        "{done:?}"
    );
    assert_eq!(a.memory.read(4096, 15), b"to my neighbour");
}

#[test]
fn queue_pair_connects_to_itself() {
    let _alone = serialize_tests();
    own_process!();
    let a = reliable(&[]);
    set_peer(&a, endpoint(&a));
    start(&a);
    let words = pattern(200_000, 3);
    assert!(a.memory.write(0, &words));
    a.receive(1, &[a.sge(1 << 20, 200_000)]);
    a.post(2, SEND, &[a.sge(0, 200_000)]);
    let done = a.complete(2);
    assert!(
        done.iter().all(|wc| wc.status == Status::Success),
        "{done:?}"
    );
    assert!(a.memory.read(1 << 20, words.len()) == words);
    // More than a socket buffer holds, in both directions at once.
    let write = SendOp::Write {
        remote: a.remote(2 << 20),
        immediate: None,
    };
    let get = SendOp::Read {
        remote: a.remote(0),
        local_invalidate: None,
    };
    for id in 0..20 {
        a.post(id, write, &[a.sge(0, 1 << 20)]);
        a.post(id, get, &[a.sge(3 << 20, 1 << 20)]);
    }
    assert!(a.complete(40).iter().all(|wc| wc.status == Status::Success));
    assert!(a.memory.read(3 << 20, words.len()) == words);
    let open = descriptors();
    drop(a);
    wait("its sockets are closed", || descriptors() < open);
}

#[test]
fn requests_to_an_absent_peer_time_out() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    let gone = endpoint(&b);
    drop(b);
    set_peer(&a, gone);
    start(&a);
    a.qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(600)));
    let began = Instant::now();
    a.post(1, SEND, &[a.sge(0, 10)]);
    a.post(2, SEND, &[a.sge(0, 10)]);
    let done = a.statuses(2);
    assert_eq!(done, [(1, Status::RetryExcErr), (2, Status::WrFlushErr)]);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(600), "{took:?}");
    assert_eq!(a.qp.state(), QpState::Err);
}

#[test]
fn uc_queue_pair_ignores_an_absent_peer() {
    let _alone = serialize_tests();
    let (a, b) = (side(&[], QpType::Uc), side(&[], QpType::Uc));
    connect(&a, &b);
    b.receive(1, &[b.sge(0, 64)]);
    wait("connected", || {
        a.qp.peer_addr().is_some() && b.qp.peer_addr().is_some()
    });
    a.post(1, SEND, &[a.sge(0, 10)]);
    assert_eq!(a.statuses(1), [(1, Status::Success)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);

    let (lonely, gone) = (side(&[], QpType::Uc), endpoint(&b));
    drop(b);
    set_peer(&lonely, gone);
    start(&lonely);
    lonely
        .qp
        .set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(100)));
    lonely.post(3, SEND, &[lonely.sge(0, 10)]);
    assert_eq!(lonely.statuses(1), [(3, Status::Success)]);
    assert_eq!(lonely.qp.state(), QpState::Rts);
}

#[test]
fn initial_psns_must_match() {
    let _alone = serialize_tests();
    let psn = |n| Psn::new(n).unwrap();
    for (sends, expects, right) in [(77, 77, true), (77, 78, false)] {
        let (a, b) = (reliable(&[]), reliable(&[]));
        let psns = |side: &Side, send, receive| {
            let psns = Psns {
                send: psn(send),
                receive: psn(receive),
            };
            side.qp.set_attr(|attr| attr.psns = Some(psns));
        };
        psns(&a, sends, 5);
        psns(&b, 5, expects);
        if right {
            connect(&a, &b);
            exchange(&a, &b);
        } else {
            set_peer(&a, endpoint(&b));
            set_peer(&b, endpoint(&a));
            start(&a);
            wait("it is noticed", || b.qp.state() == QpState::Err);
            assert!(b.qp.view().cause.unwrap().contains("77"));
        }
    }
}

#[test]
fn reset_queue_pair_can_be_connected_again() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    for _ in 0..3 {
        connect(&a, &b);
        exchange(&a, &b);
        a.qp.modify(QpState::Reset).unwrap();
        b.qp.modify(QpState::Reset).unwrap();
    }
    // Reset while its call is in progress.
    for _ in 0..20 {
        set_peer(&a, endpoint(&b));
        a.qp.modify(QpState::Reset).unwrap();
        a.qp.modify(QpState::Init).unwrap();
    }
    connect(&a, &b);
    exchange(&a, &b);
}

#[test]
fn vanished_peer_fails_only_posted_requests() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    connect(&a, &b);
    exchange(&a, &b);
    drop(b);
    wait("it is gone", || a.qp.view().peer_disconnected);
    assert_eq!(a.qp.state(), QpState::Rts);
    a.post(4, SEND, &[a.sge(0, 1)]);
    assert_eq!(a.statuses(1), [(4, Status::RetryExcErr)]);
}

#[test]
fn reads_beyond_the_peers_ird_succeed() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[("ird", "2")]));
    a.qp.set_attr(|attr| attr.ord = Some(4));
    connect(&a, &b);
    let read = SendOp::Read {
        remote: b.remote(0),
        local_invalidate: None,
    };
    for id in 0..100 {
        a.post(id, read, &[a.sge(0, 4096)]);
    }
    let done = a.complete(100);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
}

#[test]
fn qp_numbers_are_unique_and_not_reused_soon() {
    let _alone = serialize_tests();
    let a = Side::new(&[("device", LOCALHOST), ("ports", "21000-21999")]);
    let qps: Vec<QueuePair> = (0..300).map(|_| callable(&a, QpType::Rc)).collect();
    let mut numbers: Vec<u32> = qps.iter().map(|qp| qp.oob_qpn().unwrap().get()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 300);
    let mut ports: Vec<u32> = numbers.iter().map(|n| n >> 8).collect();
    ports.dedup();
    assert_eq!(ports.len(), 2, "256 at a port");
    assert!(ports.iter().all(|port| (21000..=21999).contains(port)));
    drop(qps);
    let again = callable(&a, QpType::Rc).oob_qpn().unwrap().get();
    assert!(!numbers.contains(&again), "it rests for a while");
}

#[test]
fn invalid_calls_are_refused() {
    let _alone = serialize_tests();
    let a = reliable(&[]);
    let plain = crate::common::make_qp(&a.engine, &a.cq, a.pd);
    let peer = OobPeer {
        local: address(&a),
        address: address(&a),
        number: a.qp.oob_qpn().unwrap(),
    };
    assert!(matches!(
        plain.set_peer(peer),
        Err(Error::NoOobNumber { .. })
    ));
    let state = a.qp.set_peer(peer);
    assert!(
        matches!(state, Err(Error::NotConnectable { .. })),
        "{state:?}"
    );
    a.qp.modify(QpState::Init).unwrap();
    let elsewhere = OobPeer {
        local: "192.0.2.1".parse().unwrap(),
        ..peer
    };
    assert!(matches!(
        a.qp.set_peer(elsewhere),
        Err(Error::NotLocalAddress { .. })
    ));
    assert_eq!(a.qp.state(), QpState::Init, "nothing has changed");
    let side = Side::new(&[("device", "eth4095")]);
    assert!(matches!(side.engine.addresses(), Err(Error::NoDevice)));
}

#[test]
fn hundred_connections_leave_no_descriptors() {
    let _alone = serialize_tests();
    own_process!();
    let (a, b) = (reliable(&[]), reliable(&[]));
    connect(&a, &b);
    exchange_until_shared([&a, &b], || exchange(&a, &b));
    let before = descriptors();
    let end = Instant::now() + TEST_TIMEOUT;
    for _ in 0..100 {
        let (one, two) = (callable(&a, QpType::Rc), callable(&b, QpType::Rc));
        for (qp, other) in [(&one, &two), (&two, &one)] {
            qp.modify(QpState::Init).unwrap();
            let here = address(&a);
            let number = other.oob_qpn().unwrap();
            let peer = OobPeer {
                local: here,
                address: here,
                number,
            };
            qp.set_peer(peer).unwrap();
        }
        wait("connected", || {
            one.peer_addr().is_some() && two.peer_addr().is_some()
        });
        assert!(Instant::now() < end);
    }
    wait("all is closed", || descriptors() <= before + 2);
    let mut some = [Wc::default(); 4];
    assert_eq!(a.cq.poll(&mut some), 0);
}

#[test]
fn reset_does_not_raise_the_dial_rate() {
    let _alone = serialize_tests();
    let a = reliable(&[]);
    // A port where calls are counted and never answered.
    let listener = std::net::TcpListener::bind((LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let unknown = Qpn::new(u32::from(port) << 8).unwrap();
    // Every call is closed at once.
    let accept = |count: usize| {
        for _ in 0..count {
            wait_readable("the next call", &listener);
            listener.accept().unwrap();
        }
    };
    for round in 0..40 {
        set_peer(&a, (address(&a), unknown));
        if round % 4 == 0 {
            accept(1);
        }
        a.qp.modify(QpState::Reset).unwrap();
    }
    set_peer(&a, (address(&a), unknown));
    while readable_within(&listener, Duration::ZERO) {
        listener.accept().unwrap();
    }
    // The interval has grown to `redial_max` after these.
    accept(8);
    let began = Instant::now();
    accept(8);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "8 calls in {took:?}");
}

#[test]
fn mapped_ipv4_addresses_connect() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    let mapped = |side: &Side| match address(side) {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        six => six,
    };
    for (one, other) in [(&a, &b), (&b, &a)] {
        one.qp.modify(QpState::Init).unwrap();
        let peer = OobPeer {
            local: mapped(one),
            address: mapped(other),
            number: other.qp.oob_qpn().unwrap(),
        };
        one.qp.set_peer(peer).unwrap();
        start(one);
    }
    exchange(&a, &b);
}

#[test]
fn posts_after_engine_drop_fail() {
    let _alone = serialize_tests();
    let (a, b) = (reliable(&[]), reliable(&[]));
    set_peer(&a, (address(&b), b.qp.oob_qpn().unwrap()));
    start(&a);
    let sge = a.sge(0, 8);
    let crate::common::Side { qp, cq, engine, .. } = a;
    drop(engine);
    let wr = verbena_nic::SendWr {
        id: 3,
        op: SEND,
        flags: verbena_nic::Flags::SIGNALED,
        data: verbena_nic::wr::Data::Gather(&[sge]),
    };
    qp.post_send(&wr).unwrap();
    assert_eq!(
        crate::common::complete(&cq, 1)[0].status,
        Status::RetryExcErr
    );
}

#[test]
fn privileged_ports_are_never_dialled() {
    let _alone = serialize_tests();
    // Numbers at such ports belong to connections of a connection manager; a listener there is an ordinary server.
    let Some(listener) =
        (900..1024).find_map(|port| std::net::TcpListener::bind((LOCALHOST, port)).ok())
    else {
        eprintln!("not done: such ports are for the privileged");
        return;
    };
    listener.set_nonblocking(true).unwrap();
    let a = reliable(&[]);
    a.qp.set_attr(|m| m.peer_timeout = Some(Duration::from_millis(600)));
    let port = listener.local_addr().unwrap().port();
    set_peer(
        &a,
        (address(&a), Qpn::new(u32::from(port) << 8 | 1).unwrap()),
    );
    start(&a);
    a.post(4, SEND, &[a.sge(0, 8)]);
    assert_eq!(a.statuses(1), [(4, Status::RetryExcErr)]);
    assert!(listener.accept().is_err(), "a call arrived");
}
