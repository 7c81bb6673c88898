//! Connections by the connection manager of RoCEv2: two engines, and engines with scripted peers that speak its messages.
//! Each test has addresses of its own in 127.0.0.0/8, since an address has one port 4791. Messages are lost by a peer that ignores them.
//! One test runs all of them, and those of `roce_hostile` and `roce_auto`, once more over IPv6.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver};

use verbena_engine::{
    Error, Incoming, Listening, OobPeer, SidrListener, SidrQuery, SidrRequest, UdEndpoint,
};
use verbena_nic::{Event, QpState, Status};
use verbena_testing::wait_for;
use verbena_wire::ext::DialReject;
use verbena_wire::roce::cm::{
    CmMessage, CmTransport, CmaHeader, Dreq, Rej, RejReason, Rep, Req, Rtu, SidrReq,
};
use verbena_wire::roce::{Aeth, Operation, Packet, Psn, Qpn, Service, Syndrome, Tail};

pub(crate) use crate::common::roce::{Mad, Peer, QP1, ROCE_PORT, cma, parse, request};
use crate::common::{SEND, Side, TEST_TIMEOUT, callable_side, exchange, make_qp, pattern};

/// Private data of a REQ, a REP and a REJ as a program gets it: with zeros behind it.
const REQ_DATA: usize = 56;
const REP_DATA: usize = 196;
const REJ_DATA: usize = 148;
/// The same of a SIDR_REQ and a SIDR_REP.
const SIDR_REQ_DATA: usize = 180;
const SIDR_REP_DATA: usize = 136;

/// Set in a process whose tests use IPv6.
const IPV6: &str = "ROCE_TEST_IPV6";
/// Tests, and addresses of each, that there are IPv6 addresses for.
const IPV6_TESTS: u8 = 100;
const IPV6_ADDRESSES: u8 = 6;

/// Each in a network of its own, since limits for a source are for its network.
fn ipv6(test: u8, number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, test.into(), number.into(), 0, 0, 0, 1)
}

/// An address in the list of a network setting.
pub(crate) fn host_network(address: IpAddr) -> String {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{bits}")
}

/// All tests of these modules once more, in a network namespace whose loopback interface has IPv6 addresses.
#[test]
fn roce_tests_pass_over_ipv6() {
    verbena_testing::own_network!();
    let mut lines = "link set lo up\n".to_owned();
    for test in 1..=IPV6_TESTS {
        for number in 1..=IPV6_ADDRESSES {
            let address = ipv6(test, number);
            lines += &format!("address add {address}/128 dev lo nodad\n");
        }
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut ip = Command::new("ip");
    let mut ip = ip.args(["-batch", "-"]).stdin(reader).spawn().unwrap();
    writer.write_all(lines.as_bytes()).unwrap();
    drop(writer);
    assert!(ip.wait().unwrap().success());
    let ran = Command::new(std::env::current_exe().unwrap())
        .env(IPV6, "yes")
        .args(["roce_", "--skip", "roce_tests_pass_over_ipv6"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert!(!said.contains(" 0 passed"), "{said}");
}

/// Addresses that no other test has, in this process or in one beside it.
pub(crate) fn addresses<const N: usize>() -> [IpAddr; N] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    if std::env::var_os(IPV6).is_some() {
        return std::array::from_fn(|i| ipv6(test, i as u8 + 1).into());
    }
    let process = std::process::id() as u8 & 0x7f | 0x40;
    std::array::from_fn(|i| Ipv4Addr::new(127, process, test, i as u8 + 1).into())
}

pub(crate) fn side_at(address: IpAddr, settings: &[(&str, &str)]) -> Side {
    let device = address.to_string();
    let mut all = vec![("wire", "roce"), ("device", device.as_str())];
    all.extend_from_slice(settings);
    Side::new(&all)
}

pub(crate) fn listen(side: &Side, address: IpAddr) -> (Listening, SocketAddr) {
    let listening = side.engine.listen((address, 0).into(), 16).unwrap();
    let at = listening.local_addr().unwrap();
    (listening, at)
}

pub(crate) type Answer = Receiver<Result<Vec<u8>, Error>>;

pub(crate) fn connect(side: &Side, to: SocketAddr, asks: &[u8]) -> Answer {
    let (done, answer) = mpsc::channel();
    let call = move |result| done.send(result).unwrap();
    side.qp.connect(to, asks, call).unwrap();
    answer
}

pub(crate) fn accept(incoming: Incoming, side: &Side, says: &[u8]) -> Answer {
    let (done, answer) = mpsc::channel();
    let call = move |result| done.send(result).unwrap();
    incoming.accept(&side.qp, says, call).unwrap();
    answer
}

pub(crate) fn wait(answer: &Answer) -> Result<Vec<u8>, Error> {
    answer.recv_timeout(TEST_TIMEOUT).unwrap()
}

fn padded(data: &[u8], len: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(len, 0);
    data
}

/// Two sides, connected; the second one listens.
fn connected() -> (Side, Side) {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    let answer = connect(&a, at, b"");
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
    wait(&answer).unwrap();
    wait(&accepted).unwrap();
    (a, b)
}

/// The device has addresses of interfaces, and programs of one host name the loopback address.
#[test]
fn roce_connects_by_the_loopback_address() {
    let [here, there] = addresses();
    if here.is_loopback() {
        // The addresses of the IPv6 run are no loopback addresses.
        return;
    }
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, Ipv6Addr::UNSPECIFIED.into());
    let loopback: IpAddr = Ipv6Addr::LOCALHOST.into();
    let answer = connect(&a, (loopback, at.port()).into(), b"");
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
    wait(&answer).unwrap();
    wait(&accepted).unwrap();
    assert_eq!(a.qp.peer_addr(), Some((loopback, ROCE_PORT).into()));
    exchange(&a, &b);
}

pub(crate) fn wait_disconnected(side: &Side) {
    let qp = side.qp.number();
    wait_for("the connection ends", || {
        let event = side.engine.events().try_take()?;
        (event == Event::Disconnected { qp }).then_some(())
    });
}

#[test]
fn private_data_travels_both_ways() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    let answer = connect(&a, at, b"hello");
    let incoming = listening.next().unwrap().unwrap();
    assert_eq!(incoming.private_data(), padded(b"hello", REQ_DATA));
    assert_eq!(incoming.peer_addr().ip(), here);
    assert_ne!(incoming.peer_addr().port(), 0);
    assert_eq!(incoming.local_addr().unwrap(), at);
    let accepted = accept(incoming, &b, b"welcome");
    assert_eq!(wait(&answer).unwrap(), padded(b"welcome", REP_DATA));
    assert_eq!(wait(&accepted).unwrap(), padded(b"hello", REQ_DATA));
    for side in [&a, &b] {
        assert_eq!(side.qp.state(), QpState::Rts);
    }
}

#[test]
fn data_follows_a_connection() {
    let (a, b) = connected();
    let bytes = pattern(20_000, 7);
    for (from, to) in [(&a, &b), (&b, &a)] {
        assert!(from.memory.write(0, &bytes));
        to.receive(1, &[to.sge(1 << 20, bytes.len())]);
        from.post(2, SEND, &[from.sge(0, bytes.len())]);
        assert_eq!(to.statuses(1), [(1, Status::Success)]);
        assert_eq!(from.statuses(1), [(2, Status::Success)]);
        assert_eq!(to.memory.read(1 << 20, bytes.len()), bytes);
    }
}

#[test]
fn rejection_carries_private_data() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    let answer = connect(&a, at, b"");
    listening.next().unwrap().unwrap().reject(b"not today");
    match wait(&answer) {
        Err(Error::Rejected { peer, private_data }) => {
            assert_eq!((peer, private_data), (at, padded(b"not today", REJ_DATA)));
        }
        other => panic!("{other:?}"),
    }
    // The queue pair can be connected afterwards.
    let answer = connect(&a, at, b"");
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
    wait(&answer).unwrap();
    wait(&accepted).unwrap();
}

#[test]
fn dropped_request_is_rejected() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    let answer = connect(&a, at, b"");
    drop(listening.next().unwrap().unwrap());
    assert!(matches!(wait(&answer), Err(Error::Rejected { .. })));
}

#[test]
fn port_without_listener_is_refused() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    drop(listening);
    match wait(&connect(&a, at, b"")) {
        Err(Error::Unreachable { peer, cause }) => {
            assert_eq!(peer, at);
            assert!(cause.is_refused(), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn private_data_beyond_the_message_is_an_error() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    let long = a.qp.connect(at, &[1; REQ_DATA + 1], |_| ());
    assert!(matches!(
        long,
        Err(Error::PrivateData { got: 57, limit: 56 })
    ));
    let answer = connect(&a, at, &[1; REQ_DATA]);
    let incoming = listening.next().unwrap().unwrap();
    let long = incoming.accept(&b.qp, &[2; REP_DATA + 1], |_| ());
    assert!(matches!(
        long,
        Err(Error::PrivateData {
            got: 197,
            limit: 196
        })
    ));
    assert!(matches!(wait(&answer), Err(Error::Rejected { .. })));
}

#[test]
fn either_side_ends_a_connection() {
    for ends in [0, 1] {
        let (a, b) = connected();
        let (ending, other) = if ends == 0 { (&a, &b) } else { (&b, &a) };
        ending.qp.disconnect().unwrap();
        wait_disconnected(other);
        wait_disconnected(ending);
        assert_eq!(ending.qp.state(), QpState::Err);
    }
}

#[test]
fn destroyed_queue_pair_ends_its_connection() {
    let (a, b) = connected();
    let Side {
        qp,
        cq: _cq,
        engine: _engine,
        ..
    } = a;
    drop(qp);
    wait_disconnected(&b);
}

#[test]
fn engines_at_one_address_share_the_port() {
    let [here] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(here, &[]));
    for (from, to) in [(&a, &b), (&b, &a)] {
        let (listening, at) = listen(to, here);
        let answer = connect(from, at, b"");
        listening.next().unwrap().unwrap().reject(b"over there");
        match wait(&answer) {
            Err(Error::Rejected { private_data, .. }) => {
                assert_eq!(private_data, padded(b"over there", REJ_DATA));
            }
            other => panic!("{other:?}"),
        }
    }
}

type SidrAnswer = Receiver<Result<(UdEndpoint, Vec<u8>), Error>>;

fn query(side: &Side, to: SocketAddr, said: &[u8]) -> (SidrQuery, SidrAnswer) {
    let (done, answer) = mpsc::channel();
    let call = move |result| done.send(result).unwrap();
    let query = side.engine.query_sidr(None, to, said, call).unwrap();
    (query, answer)
}

fn listen_sidr(side: &Side, address: IpAddr) -> (SidrListener, Receiver<SidrRequest>) {
    let listener = side.engine.bind_sidr_listener((address, 0).into()).unwrap();
    let (to, requests) = mpsc::channel();
    let call = move |request| to.send(request).unwrap();
    listener.listen(16, call).unwrap();
    (listener, requests)
}

#[test]
fn datagram_service_is_resolved() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listener, requests) = listen_sidr(&b, there);
    let (query, answer) = query(&a, listener.local_addr(), b"where?");
    let request = requests.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(request.peer_addr(), query.local_addr());
    assert_eq!(request.private_data(), padded(b"where?", SIDR_REQ_DATA));
    let at = UdEndpoint {
        number: Qpn::wrapping(0x4e_2001),
        qkey: 0x0123_4567,
        address: there,
    };
    request.accept(at, b"there").unwrap();
    let answer = answer.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(answer.unwrap(), (at, padded(b"there", SIDR_REP_DATA)));
    assert!(query.is_finished());
}

#[test]
fn datagram_service_is_refused() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listener, requests) = listen_sidr(&b, there);
    let at = listener.local_addr();
    let (_query, answer) = query(&a, at, b"");
    requests.recv_timeout(TEST_TIMEOUT).unwrap().reject(b"no");
    match answer.recv_timeout(TEST_TIMEOUT).unwrap() {
        Err(Error::Rejected { peer, private_data }) => {
            assert_eq!((peer, private_data), (at, padded(b"no", SIDR_REP_DATA)));
        }
        other => panic!("{other:?}"),
    }
    drop(listener);
    let (_query, answer) = query(&a, at, b"");
    match answer.recv_timeout(TEST_TIMEOUT).unwrap() {
        Err(Error::Unreachable { cause, .. }) => assert!(cause.is_refused(), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn repeated_datagram_query_is_shown_once() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (listener, requests) = listen_sidr(&b, here);
    let private = cma(there, here, b"");
    let req = CmMessage::SidrReq(SidrReq {
        request_id: 9,
        pkey: 0xffff,
        service: CmaHeader::service_id(CmaHeader::PS_UDP, listener.local_addr().port()),
        private: &private,
    });
    peer.send(here, 5, req);
    let request = requests.recv_timeout(TEST_TIMEOUT).unwrap();
    // It has no answer yet.
    peer.send(here, 5, req);
    let at = UdEndpoint {
        number: Qpn::wrapping(0x4e_2001),
        qkey: 7,
        address: here,
    };
    request.accept(at, b"").unwrap();
    let first = peer.receive();
    assert!(matches!(
        parse(&first),
        (5, CmMessage::SidrRep(rep)) if (rep.status, rep.request_id, rep.qkey) == (0, 9, 7)
    ));
    peer.send(here, 5, req);
    assert_eq!(peer.receive(), first);
    assert!(requests.try_recv().is_err());
}

/// The reply of a scripted peer to a REQ.
pub(crate) fn reply(remote_id: u32, private: &[u8]) -> Rep<'_> {
    Rep {
        local_id: 0xb,
        remote_id,
        qkey: 0,
        qpn: Qpn::wrapping(0x22),
        starting_psn: Psn::wrapping(0x2a_95a8),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: 15,
        failover: 1,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 2,
        private,
    }
}

#[test]
fn lost_request_and_lost_confirmation_are_repeated() {
    let [here, there] = addresses();
    let (a, mut peer) = (side_at(here, &[]), Peer::new(there));
    let answer = connect(&a, (there, 7174).into(), b"hello");
    let first = peer.receive();
    // The first one is lost.
    let again = peer.receive();
    assert_eq!(first, again);
    let (transaction, CmMessage::Req(req)) = parse(&first) else {
        panic!("a REQ");
    };
    assert_eq!(req.service, CmaHeader::service_id(CmaHeader::PS_TCP, 7174));
    let header = CmaHeader::parse(req.private).unwrap();
    assert_eq!((header.src, header.dst), (here, there));
    assert!(req.private[CmaHeader::LEN..].starts_with(b"hello"));
    assert_eq!(req.mtu, 5, "4096 bytes fit the loopback interface");
    let rep = CmMessage::Rep(reply(req.local_id, b"welcome"));
    for _ in 0..2 {
        // The RTU is lost once, and the REP repeated.
        peer.send(here, transaction, rep);
        let rtu = peer.receive();
        let (id, CmMessage::Rtu(rtu)) = parse(&rtu) else {
            panic!("an RTU");
        };
        assert_eq!(
            (id, rtu.local_id, rtu.remote_id),
            (transaction, req.local_id, 0xb)
        );
    }
    assert_eq!(wait(&answer).unwrap(), padded(b"welcome", REP_DATA));
    assert!(answer.try_recv().is_err(), "it is reported once");
}

#[test]
fn repeated_request_is_shown_once() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (listening, at) = listen(&b, here);
    let private = cma(there, here, b"hello");
    let req = CmMessage::Req(request(0xa, at, &private));
    peer.send(here, 77, req);
    let incoming = listening.next().unwrap().unwrap();
    assert_eq!(incoming.peer_addr(), (there, 37_986).into());
    assert_eq!(incoming.depths(), (2, 3));
    // While the program decides, it is told to wait.
    peer.send(here, 77, req);
    let mra = peer.receive();
    assert!(matches!(parse(&mra), (77, CmMessage::Mra(mra)) if mra.remote_id == 0xa));
    let accepted = accept(incoming, &b, b"welcome");
    let first = peer.receive();
    // Lost, and asked for again.
    peer.send(here, 77, req);
    assert_eq!(peer.receive(), first);
    // Without that it is repeated, too.
    assert_eq!(peer.receive(), first);
    let (77, CmMessage::Rep(rep)) = parse(&first) else {
        panic!("a REP");
    };
    assert!(rep.private.starts_with(b"welcome"));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (2, 3));
    let (local_id, remote_id) = (0xa, rep.local_id);
    let rtu = Rtu {
        local_id,
        remote_id,
        private: &[],
    };
    for _ in 0..2 {
        peer.send(here, 77, CmMessage::Rtu(rtu));
    }
    assert_eq!(wait(&accepted).unwrap(), padded(b"hello", REQ_DATA));
    assert!(listening.try_next().unwrap().is_none());
    // A DREQ for another queue pair has no effect; a repeated one is answered again.
    let dreq = Dreq {
        local_id,
        remote_id,
        remote_qpn: rep.qpn,
        private: &[],
    };
    let wrong = Dreq {
        remote_qpn: Qpn::wrapping(rep.qpn.get() ^ 1),
        ..dreq
    };
    peer.send(here, 78, CmMessage::Dreq(wrong));
    let drep = peer.receive();
    assert!(matches!(parse(&drep), (78, CmMessage::Drep(_))));
    assert!(b.engine.events().try_take().is_none());
    for transaction in [79, 80] {
        peer.send(here, transaction, CmMessage::Dreq(dreq));
        let drep = peer.receive();
        let (id, CmMessage::Drep(drep)) = parse(&drep) else {
            panic!("a DREP");
        };
        assert_eq!(
            (id, drep.local_id, drep.remote_id),
            (transaction, remote_id, local_id)
        );
    }
    wait_disconnected(&b);
}

#[test]
fn first_packet_replaces_a_lost_confirmation() {
    let [here, there, elsewhere] = addresses();
    let (b, mut peer, spoofer) = (side_at(here, &[]), Peer::new(there), Peer::new(elsewhere));
    let (listening, at) = listen(&b, here);
    let private = cma(there, here, b"hello");
    peer.send(here, 77, CmMessage::Req(request(0xa, at, &private)));
    b.qp.modify(QpState::Init).unwrap();
    b.receive(1, &[b.sge(0, 64)]);
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
    let rep = peer.receive();
    let (77, CmMessage::Rep(rep)) = parse(&rep) else {
        panic!("a REP");
    };
    let first = Packet {
        payload: b"first",
        ack_request: true,
        ..Packet::new(
            Operation::SendOnly(Service::Rc, Tail::Plain),
            rep.qpn,
            rep.starting_psn,
        )
    };
    // Of another address, then of the peer, and repeated.
    spoofer.send_packet(here, &first);
    for _ in 0..2 {
        peer.send_packet(here, &first);
    }
    assert_eq!(wait(&accepted).unwrap(), padded(b"hello", REQ_DATA));
    assert!(accepted.try_recv().is_err(), "it is reported once");
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    assert_eq!(b.memory.read(0, 5), b"first");
    // Later packets reach the connection as well.
    b.receive(2, &[b.sge(64, 64)]);
    let second = Packet {
        psn: Psn::wrapping(rep.starting_psn.get() + 1),
        payload: b"second",
        ..first
    };
    peer.send_packet(here, &second);
    assert_eq!(b.statuses(1), [(2, Status::Success)]);
    // The late RTU has no effect.
    let rtu = Rtu {
        local_id: 0xa,
        remote_id: rep.local_id,
        private: &[],
    };
    peer.send(here, 77, CmMessage::Rtu(rtu));
    b.qp.disconnect().unwrap();
    while !matches!(parse(&peer.receive()), (_, CmMessage::Dreq(_))) {}
    assert!(accepted.try_recv().is_err());
}

#[test]
fn request_waits_for_a_replaced_listener() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (listening, at) = listen(&b, here);
    drop(listening);
    let private = cma(there, here, b"");
    let req = CmMessage::Req(request(0xa, at, &private));
    peer.send(here, 77, req);
    // The rejection of a request for another port shows that the first one was handled, and had no answer.
    let other = SocketAddr::new(here, 9);
    peer.send(here, 5, CmMessage::Req(request(0xb, other, &private)));
    assert!(
        matches!(parse(&peer.receive()), (5, CmMessage::Rej(rej)) if rej.reason == RejReason::INVALID_SERVICE_ID)
    );
    let listening = b.engine.listen(at, 16).unwrap();
    peer.send(here, 77, req);
    listening.next().unwrap().unwrap().reject(b"");
    let rej = peer.receive();
    assert!(matches!(parse(&rej), (77, CmMessage::Rej(rej)) if rej.reason == RejReason::CONSUMER));
}

#[test]
fn sending_state_keeps_the_agreed_numbers() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&b, there);
    for state in [QpState::Init, QpState::Rtr] {
        a.qp.modify(state).unwrap();
    }
    let answer = connect(&a, at, b"");
    let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
    wait(&answer).unwrap();
    a.qp.modify(QpState::Rts).unwrap();
    b.receive(1, &[b.sge(0, 8)]);
    a.post(2, SEND, &[a.sge(0, 8)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
    assert_eq!(a.statuses(1), [(2, Status::Success)]);
    wait(&accepted).unwrap();
}

/// A connection of this side, which has called, with a scripted peer: PSN of the peer's first packet, identifier and number of this side's queue pair.
fn called_by(a: &Side, peer: &mut Peer, address: IpAddr) -> (u32, u32, Qpn) {
    let answer = connect(a, (peer.at.ip(), 7174).into(), b"");
    let first = peer.receive();
    let (transaction, CmMessage::Req(req)) = parse(&first) else {
        panic!("a REQ");
    };
    let rep = CmMessage::Rep(reply(req.local_id, b""));
    peer.send(address, transaction, rep);
    while !matches!(parse(&peer.receive()), (_, CmMessage::Rtu(_))) {}
    wait(&answer).unwrap();
    (req.starting_psn.get(), req.local_id, req.qpn)
}

fn send_to(qpn: Qpn, psn: u32, payload: &[u8]) -> Packet<'_> {
    let operation = Operation::SendOnly(Service::Rc, Tail::Plain);
    Packet {
        payload,
        ack_request: true,
        ..Packet::new(operation, qpn, Psn::wrapping(psn))
    }
}

/// The last acknowledgement was lost, and the program that has the message ends the connection at once.
#[test]
fn ended_connection_repeats_its_acknowledgements() {
    for destroys in [false, true] {
        let [here, there] = addresses();
        let (a, mut peer) = (side_at(here, &[]), Peer::new(there));
        let (psn, _, qpn) = called_by(&a, &mut peer, here);
        a.receive(1, &[a.sge(0, 64)]);
        a.receive(2, &[a.sge(64, 64)]);
        let last = send_to(qpn, psn, b"last");
        peer.send_packet(here, &last);
        assert_eq!(a.statuses(1), [(1, Status::Success)]);
        let acknowledged = peer.receive_for(Qpn::wrapping(0x22));
        a.qp.disconnect().unwrap();
        assert_eq!(a.qp.state(), QpState::Err);
        assert_eq!(a.statuses(1), [(2, Status::WrFlushErr)]);
        let Side { qp, .. } = a;
        let qp = (!destroys).then_some(qp);
        for _ in 0..2 {
            peer.send_packet(here, &last);
            assert_eq!(peer.receive_for(Qpn::wrapping(0x22)), acknowledged);
        }
        // Nothing new is executed: the answer to what is repeated again is the first that comes.
        peer.send_packet(here, &send_to(qpn, psn + 1, b"more"));
        peer.send_packet(here, &last);
        assert_eq!(peer.receive_for(Qpn::wrapping(0x22)), acknowledged);
        drop(qp);
    }
}

/// A peer that ends the connection may exit when that is confirmed, so what it has not acknowledged is repeated before.
#[test]
fn end_is_confirmed_behind_acknowledgements() {
    let [here, there] = addresses();
    let (a, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (_, remote_id, qpn) = called_by(&a, &mut peer, here);
    a.post(1, SEND, &[a.sge(0, 8)]);
    let first = peer.receive_for(Qpn::wrapping(0x22));
    let dreq = Dreq {
        local_id: 0xb,
        remote_id,
        remote_qpn: qpn,
        private: &[],
    };
    peer.send(here, 99, CmMessage::Dreq(dreq));
    // Its acknowledgement was lost: it comes again, with no DREP before it.
    let again = peer.receive_packet();
    assert_eq!(again, first);
    let (packet, _) = Packet::parse(&again).unwrap();
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    };
    let ack = Packet::new(Operation::Acknowledge(aeth), qpn, packet.psn);
    peer.send_packet(here, &ack);
    assert_eq!(a.statuses(1), [(1, Status::Success)]);
    assert!(matches!(
        parse(&peer.receive()),
        (99, CmMessage::Drep(drep)) if drep.remote_id == 0xb
    ));
    wait_disconnected(&a);
}

/// A peer that is gone does not keep the end from being confirmed.
#[test]
fn end_is_confirmed_without_acknowledgements() {
    let [here, there] = addresses();
    let (a, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (_, remote_id, qpn) = called_by(&a, &mut peer, here);
    a.post(1, SEND, &[a.sge(0, 8)]);
    let dreq = Dreq {
        local_id: 0xb,
        remote_id,
        remote_qpn: qpn,
        private: &[],
    };
    peer.send(here, 99, CmMessage::Dreq(dreq));
    assert!(matches!(
        parse(&peer.receive()),
        (99, CmMessage::Drep(drep)) if drep.remote_id == 0xb
    ));
}

#[test]
fn last_message_succeeds_on_a_lossy_network() {
    let [here, there] = addresses();
    let loss = [("roce_loss", "20000")];
    for _ in 0..12 {
        let (a, b) = (side_at(here, &loss), side_at(there, &loss));
        let (listening, at) = listen(&b, there);
        let answer = connect(&a, at, b"");
        let accepted = accept(listening.next().unwrap().unwrap(), &b, b"");
        b.receive(1, &[b.sge(0, 8)]);
        wait(&answer).unwrap();
        wait(&accepted).unwrap();
        a.post(2, SEND, &[a.sge(0, 8)]);
        assert_eq!(b.statuses(1), [(1, Status::Success)]);
        // The program has its message.
        let Side { qp, .. } = b;
        drop(qp);
        assert_eq!(a.statuses(1), [(2, Status::Success)]);
    }
}

#[test]
fn lossy_network_delays_connections() {
    let [here, there] = addresses();
    // A message and its answer arrive with 0.81: eight attempts fail once in a million connections.
    let loss = [("roce_loss", "100000")];
    let b = side_at(there, &loss);
    let (listening, at) = listen(&b, there);
    for _ in 0..4 {
        let a = side_at(here, &loss);
        let answer = connect(&a, at, b"");
        listening.next().unwrap().unwrap().reject(b"");
        assert!(matches!(wait(&answer), Err(Error::Rejected { .. })));
    }
}

#[test]
fn peer_that_refuses_tcp_is_asked_over_roce() {
    let [here, there] = addresses();
    let device = here.to_string();
    let (a, mut peer) = (Side::new(&[("device", device.as_str())]), Peer::new(there));
    let at: SocketAddr = (there, 7174).into();
    for (reason, is_refused) in [
        (RejReason::CONSUMER, false),
        (RejReason::INVALID_SERVICE_ID, true),
    ] {
        let answer = connect(&a, at, b"hello");
        let req = peer.receive();
        let (transaction, CmMessage::Req(req)) = parse(&req) else {
            panic!("a REQ");
        };
        assert!(req.private[CmaHeader::LEN..].starts_with(b"hello"));
        let rej = Rej {
            local_id: 0,
            remote_id: req.local_id,
            message: 0,
            reason,
            info: &[],
            private: &[],
        };
        peer.send(here, transaction, CmMessage::Rej(rej));
        match wait(&answer) {
            Err(Error::Rejected { .. }) => assert!(!is_refused),
            Err(Error::Unreachable { peer, cause }) => {
                assert!(is_refused && cause.is_refused(), "{cause}");
                assert_eq!(peer, at);
            }
            other => panic!("{other:?}"),
        }
    }
    let answer = connect(&a, at, b"");
    let req = peer.receive();
    let (transaction, CmMessage::Req(req)) = parse(&req) else {
        panic!("a REQ");
    };
    let rep = CmMessage::Rep(reply(req.local_id, b"welcome"));
    peer.send(here, transaction, rep);
    assert_eq!(wait(&answer).unwrap(), padded(b"welcome", REP_DATA));
    assert_eq!(a.qp.state(), QpState::Rts);
}

#[test]
fn silent_peer_that_refuses_tcp_is_refused() {
    let [here, there, nowhere] = addresses();
    let device = here.to_string();
    let (a, _silent) = (Side::new(&[("device", device.as_str())]), Peer::new(there));
    // At the second address no socket of this host has the port, and no message is sent.
    for peer in [there, nowhere] {
        match wait(&connect(&a, (peer, 7174).into(), b"")) {
            Err(Error::Unreachable { cause, .. }) => assert!(cause.is_refused(), "{cause}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn messages_from_other_addresses_change_nothing() {
    let [here, there, elsewhere] = addresses();
    let (a, mut peer, mut spoofer) = (side_at(here, &[]), Peer::new(there), Peer::new(elsewhere));
    let answer = connect(&a, (there, 7174).into(), b"");
    let req = peer.receive();
    let (transaction, CmMessage::Req(req)) = parse(&req) else {
        panic!("a REQ");
    };
    let rep = reply(req.local_id, b"good");
    let rej = Rej {
        local_id: 0xb,
        remote_id: req.local_id,
        message: 0,
        reason: RejReason::CONSUMER,
        info: &[],
        private: &[],
    };
    // Another source, another transaction, another identifier.
    let bad = Rep {
        private: b"bad",
        ..rep
    };
    spoofer.send(here, transaction, CmMessage::Rep(bad));
    spoofer.send(here, transaction, CmMessage::Rej(rej));
    peer.send(here, transaction ^ 1, CmMessage::Rep(bad));
    peer.send(here, transaction ^ 1, CmMessage::Rej(rej));
    let other = Rep {
        remote_id: req.local_id ^ 1,
        ..bad
    };
    peer.send(here, transaction, CmMessage::Rep(other));
    peer.send(here, transaction, CmMessage::Rep(rep));
    let rtu = peer.receive();
    assert!(matches!(parse(&rtu), (_, CmMessage::Rtu(_))));
    assert_eq!(wait(&answer).unwrap(), padded(b"good", REP_DATA));
    // Nor is the connection ended from elsewhere. The answer to an unknown DREQ shows that it was handled.
    let dreq = Dreq {
        local_id: 0xb,
        remote_id: req.local_id,
        remote_qpn: req.qpn,
        private: &[],
    };
    spoofer.send(here, 5, CmMessage::Dreq(dreq));
    assert!(matches!(parse(&spoofer.receive()), (5, CmMessage::Drep(_))));
    assert!(a.engine.events().try_take().is_none());
    a.qp.disconnect().unwrap();
    assert!(matches!(parse(&peer.receive()), (_, CmMessage::Dreq(_))));
}

#[test]
fn flood_of_requests_is_bounded() {
    let [here, there, elsewhere] = addresses();
    let b = side_at(here, &[("half_open", "16")]);
    let (mut flooder, mut peer) = (Peer::new(there), Peer::new(elsewhere));
    let (listening, at) = listen(&b, here);
    for id in 1..=200 {
        let private = cma(there, here, b"");
        let req = request(id, at, &private);
        flooder.send(here, id.into(), CmMessage::Req(req));
    }
    // Another source gets its share.
    let private = cma(elsewhere, here, b"");
    let req = request(1, at, &private);
    peer.send(here, 1, CmMessage::Req(req));
    let (mut flooded, mut waiting) = (0, Vec::new());
    loop {
        let incoming = listening.next().unwrap().unwrap();
        if incoming.peer_addr().ip() == elsewhere {
            break;
        }
        flooded += 1;
        waiting.push(incoming);
    }
    assert_eq!(flooded, 4, "a quarter of all");
}

#[test]
fn four_flooding_sources_leave_room_for_a_fifth() {
    let [here, honest, flooders @ ..] = addresses::<6>();
    let b = side_at(here, &[("half_open", "16")]);
    let listening = b.engine.listen((here, 0).into(), 64).unwrap();
    let at = listening.local_addr().unwrap();
    for flooder in flooders {
        let (mut peer, private) = (Peer::new(flooder), cma(flooder, here, b""));
        for id in 1..=50 {
            let req = request(id, at, &private);
            peer.send(here, id.into(), CmMessage::Req(req));
        }
    }
    let mut peer = Peer::new(honest);
    let private = cma(honest, here, b"hello");
    peer.send(here, 7, CmMessage::Req(request(0xa, at, &private)));
    // The program answers none of the others.
    let mut waiting = Vec::new();
    let incoming = wait_for("the request of the honest peer", || {
        let incoming = listening.try_next().unwrap()?;
        if incoming.peer_addr().ip() == honest {
            return Some(incoming);
        }
        waiting.push(incoming);
        None
    });
    let _accepted = accept(incoming, &b, b"welcome");
    let rep = peer.receive();
    let (7, CmMessage::Rep(rep)) = parse(&rep) else {
        panic!("a REP");
    };
    assert!(rep.private.starts_with(b"welcome"));
    // One of a flooding source was given up for it, perhaps before it was shown.
    let answered = waiting.into_iter().map(|one| {
        let qp = make_qp(&b.engine, &b.cq, b.pd);
        one.accept(&qp, b"", |_| ()).is_ok()
    });
    assert_eq!(answered.filter(|is_accepted| *is_accepted).count(), 15);
}

#[test]
fn unsuitable_requests_are_rejected_with_a_reason() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (listening, at) = listen(&b, here);
    let private = cma(there, here, b"");
    let good = request(0xa, at, &private);
    let unknown = CmaHeader::service_id(CmaHeader::PS_UDP, at.port());
    let bad = [
        (
            Req {
                service: unknown,
                ..good
            },
            RejReason::INVALID_SERVICE_ID,
        ),
        (Req { mtu: 6, ..good }, RejReason::INVALID_MTU),
        (
            Req {
                transport: CmTransport::Rd,
                ..good
            },
            RejReason::INVALID_TRANSPORT,
        ),
        (
            Req {
                private: &[9; 92],
                ..good
            },
            RejReason::UNSUPPORTED,
        ),
    ];
    for (req, reason) in bad {
        peer.send(here, 3, CmMessage::Req(req));
        let rej = peer.receive();
        let (3, CmMessage::Rej(rej)) = parse(&rej) else {
            panic!("a REJ");
        };
        assert_eq!((rej.remote_id, rej.reason), (0xa, reason));
    }
    assert!(listening.try_next().unwrap().is_none());
}

#[test]
fn request_is_withdrawn_by_its_sender() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let (listening, at) = listen(&b, here);
    let private = cma(there, here, b"");
    peer.send(here, 3, CmMessage::Req(request(0xa, at, &private)));
    let incoming = listening.next().unwrap().unwrap();
    let rej = Rej {
        local_id: 0xa,
        remote_id: 0,
        message: 1,
        reason: RejReason::TIMEOUT,
        info: &[],
        private: &[],
    };
    peer.send(here, 3, CmMessage::Rej(rej));
    // Answered only when the withdrawal was handled.
    peer.send(here, 4, CmMessage::Req(request(0xc, at, &private)));
    let _second = listening.next().unwrap().unwrap();
    let late = incoming.accept(&b.qp, b"", |_| ());
    assert!(matches!(late, Err(Error::Startup { .. })), "{late:?}");
}

/// The messages of the connection manager in a capture of rxe, with their senders.
fn captured() -> Vec<(Ipv4Addr, Mad)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../tools/cli/tests/fixtures/40_rxe_cm_rping.pcap");
    let file = std::fs::read(path).unwrap();
    let (mut rest, mut all) = (&file[24..], Vec::new());
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        // Behind the Ethernet header.
        let ip = &rest[16 + 14..16 + len];
        rest = &rest[16 + len..];
        let (packet, _) = Packet::parse(&ip[28..]).unwrap();
        if packet.dest_qpn == QP1 {
            let from = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
            all.push((from, packet.payload.try_into().unwrap()));
        }
    }
    all
}

/// A message of the capture with other identifiers, and of another transaction.
fn with_ids(mad: &Mad, transaction: u64, local: Option<u32>, remote: Option<u32>) -> Mad {
    let mut mad = *mad;
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    if let Some(local) = local {
        mad[24..28].copy_from_slice(&local.to_be_bytes());
    }
    if let Some(remote) = remote {
        mad[28..32].copy_from_slice(&remote.to_be_bytes());
    }
    mad
}

#[test]
fn rxe_connects_to_us_as_captured() {
    let [here, there] = addresses();
    let (b, mut peer) = (side_at(here, &[]), Peer::new(there));
    let listening = b.engine.listen((here, 7174).into(), 16).unwrap();
    let all = captured();
    let client = Ipv4Addr::new(10, 2, 0, 1);
    let mut theirs = all.iter().filter(|(from, _)| *from == client);
    let mut next = || theirs.next().unwrap().1;
    let req = next();
    let (transaction, CmMessage::Req(asked)) = parse(&req) else {
        panic!("a REQ");
    };
    peer.send_mad(here, &req);
    let incoming = listening.next().unwrap().unwrap();
    assert_eq!(incoming.peer_addr(), (there, 0x9462).into());
    assert_eq!(incoming.depths(), (1, 1));
    let accepted = accept(incoming, &b, b"");
    let rep = peer.receive();
    let (answered, CmMessage::Rep(rep)) = parse(&rep) else {
        panic!("a REP");
    };
    assert_eq!(
        (answered, rep.remote_id, rep.failover),
        (transaction, asked.local_id, 1)
    );
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    let rtu = with_ids(&next(), transaction, None, Some(rep.local_id));
    peer.send_mad(here, &rtu);
    wait(&accepted).unwrap();
    let mut dreq = with_ids(&next(), transaction, None, Some(rep.local_id));
    // It names our queue pair.
    dreq[32..35].copy_from_slice(&rep.qpn.get().to_be_bytes()[1..]);
    peer.send_mad(here, &dreq);
    assert!(matches!(
        parse(&peer.receive()),
        (_, CmMessage::Drep(drep)) if drep.remote_id == asked.local_id
    ));
    wait_disconnected(&b);
}

#[test]
fn rxe_accepts_our_request_as_captured() {
    let [here, there] = addresses();
    let (a, mut peer) = (side_at(here, &[]), Peer::new(there));
    let all = captured();
    let server = Ipv4Addr::new(10, 2, 0, 2);
    let mut theirs = all.iter().filter(|(from, _)| *from == server);
    let mut next = || theirs.next().unwrap().1;
    let answer = connect(&a, (there, 7174).into(), b"");
    let req = peer.receive();
    let (transaction, CmMessage::Req(req)) = parse(&req) else {
        panic!("a REQ");
    };
    let rep = with_ids(&next(), transaction, None, Some(req.local_id));
    let (_, CmMessage::Rep(accepts)) = parse(&rep) else {
        panic!("a REP");
    };
    peer.send_mad(here, &rep);
    assert!(matches!(
        parse(&peer.receive()),
        (_, CmMessage::Rtu(rtu)) if rtu.remote_id == accepts.local_id
    ));
    wait(&answer).unwrap();
    a.qp.disconnect().unwrap();
    let dreq = peer.receive();
    let (ending, CmMessage::Dreq(dreq)) = parse(&dreq) else {
        panic!("a DREQ");
    };
    assert_eq!(
        (dreq.local_id, dreq.remote_id, dreq.remote_qpn),
        (req.local_id, accepts.local_id, accepts.qpn)
    );
    let drep = with_ids(&next(), ending, None, Some(req.local_id));
    peer.send_mad(here, &drep);
    wait_disconnected(&a);
}

const KEY: (&str, &str) = ("key", "the key of these tests");

#[test]
fn key_rejects_requests_without_peers_entry() {
    let [here, there, known] = addresses();
    let entry = format!("{known}=roce");
    let b = side_at(here, &[KEY, ("peers", &entry)]);
    let (mut peer, mut admitted) = (Peer::new(there), Peer::new(known));
    let (listening, at) = listen(&b, here);
    let private = cma(there, here, b"");
    peer.send(here, 3, CmMessage::Req(request(0xa, at, &private)));
    let rej = peer.receive();
    let (3, CmMessage::Rej(rej)) = parse(&rej) else {
        panic!("a REJ");
    };
    assert_eq!((rej.remote_id, rej.reason), (0xa, RejReason::CONSUMER));
    let told = DialReject::KeyMismatch.emit();
    assert!(rej.private.starts_with(&told));
    assert_eq!(b.engine.access_list().refused(), 1);
    assert!(listening.try_next().unwrap().is_none(), "nothing was shown");
    let private = cma(known, here, b"");
    admitted.send(here, 4, CmMessage::Req(request(0xb, at, &private)));
    let incoming = listening.next().unwrap().unwrap();
    assert_eq!(incoming.peer_addr().ip(), known);
    assert_eq!(b.engine.access_list().refused(), 1);
}

#[test]
fn key_refuses_to_connect_without_peers_entry() {
    let [here, there] = addresses();
    let (a, peer) = (side_at(here, &[KEY]), Peer::new(there));
    let at = (there, 7174).into();
    match a.qp.connect(at, b"", |_| ()) {
        Err(Error::Unauthenticated { peer }) => assert_eq!(peer, at),
        other => panic!("{other:?}"),
    }
    drop(a);
    let entry = format!("{there}=roce");
    let a = side_at(here, &[KEY, ("peers", &entry)]);
    let _answer = connect(&a, at, b"hello");
    // The first message is of this attempt.
    let req = peer.receive();
    let (_, CmMessage::Req(req)) = parse(&req) else {
        panic!("a REQ");
    };
    assert!(req.private[CmaHeader::LEN..].starts_with(b"hello"));
}

/// Over RoCEv2, with a queue pair that can be connected by number.
fn callable_at(address: IpAddr, settings: &[(&str, &str)]) -> Side {
    let device = address.to_string();
    let mut all = vec![("wire", "roce"), ("device", device.as_str())];
    all.extend_from_slice(settings);
    callable_side(&all)
}

fn set_peer(side: &Side, local: IpAddr, address: IpAddr, number: Qpn) -> Result<(), Error> {
    if side.qp.state() == QpState::Reset {
        side.qp.modify(QpState::Init).unwrap();
    }
    side.qp.set_peer(OobPeer {
        local,
        address,
        number,
    })
}

#[test]
fn key_refuses_numbers_without_peers_entry() {
    let [here, there] = addresses();
    let a = callable_at(here, &[KEY]);
    match set_peer(&a, here, there, Qpn::wrapping(0x11)) {
        Err(Error::Unauthenticated { peer }) => assert_eq!(peer, (there, ROCE_PORT).into()),
        other => panic!("{other:?}"),
    }
    assert_eq!(a.qp.state(), QpState::Init);
    drop(a);
    let entries = [format!("{there}=roce"), format!("{here}=roce")];
    let (a, b) = (
        callable_at(here, &[KEY, ("peers", &entries[0])]),
        callable_at(there, &[KEY, ("peers", &entries[1])]),
    );
    let numbers = [&a, &b].map(|side| side.qp.oob_qpn().unwrap());
    set_peer(&a, here, there, numbers[1]).unwrap();
    set_peer(&b, there, here, numbers[0]).unwrap();
    for side in [&a, &b] {
        side.qp.modify(QpState::Rts).unwrap();
    }
    exchange(&a, &b);
}

#[test]
fn tls_refuses_roce() {
    let [here, there] = addresses();
    let entry = format!("{there}=roce");
    let tls = [KEY, ("tls", "psk"), ("peers", entry.as_str())];
    let a = callable_at(here, &tls);
    let number = set_peer(&a, here, there, Qpn::wrapping(0x11));
    assert!(matches!(number, Err(Error::NoDatagrams)), "{number:?}");
    assert_eq!(a.qp.state(), QpState::Init);
    let to: SocketAddr = (there, 7174).into();
    let connect = a.qp.connect(to, b"", |_| ());
    assert!(matches!(connect, Err(Error::NoDatagrams)), "{connect:?}");
    let query = a.engine.query_sidr(None, to, b"", |_| ());
    assert!(matches!(query, Err(Error::NoDatagrams)), "{query:?}");
    let listen = a.engine.listen((here, 0).into(), 16);
    assert!(matches!(listen, Err(Error::NoDatagrams)), "{listen:?}");
}

/// A key protects connections. Datagrams have the Q_Key, and what a query tells is no more than that.
#[test]
fn key_leaves_datagram_queries_open() {
    let [here, there] = addresses();
    let (a, b) = (side_at(here, &[KEY]), side_at(there, &[KEY]));
    let (listener, requests) = listen_sidr(&b, there);
    let (_query, answer) = query(&a, listener.local_addr(), b"");
    requests.recv_timeout(TEST_TIMEOUT).unwrap().reject(b"");
    let answer = answer.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(matches!(answer, Err(Error::Rejected { .. })), "{answer:?}");
}

/// Requests reach the engine that has the port for longer; the one that listens now gets them from it.
#[test]
fn listener_is_handed_over() {
    let [here, there] = addresses();
    let (a, b, c) = (side_at(here, &[]), side_at(here, &[]), side_at(there, &[]));
    let (listening, at) = listen(&a, here);
    let descriptor = listening.duplicate().unwrap();
    // It is paused: the request is repeated until the next process listens.
    let answer = connect(&c, at, b"hello");
    let taken = b.engine.take_listener(descriptor).unwrap();
    listening.close_handed_over();
    let taken = taken.listen(16).unwrap();
    let accepted = accept(taken.next().unwrap().unwrap(), &b, b"welcome");
    assert_eq!(wait(&answer).unwrap(), padded(b"welcome", REP_DATA));
    assert_eq!(wait(&accepted).unwrap(), padded(b"hello", REQ_DATA));
    b.receive(1, &[b.sge(0, 8)]);
    c.post(2, SEND, &[c.sge(0, 8)]);
    assert_eq!(b.statuses(1), [(1, Status::Success)]);
}
