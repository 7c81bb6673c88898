//! The settings `allow` and `deny` at every socket that peers can reach, and the loopback-only adapter.
//! 127.0.0.1 and 127.0.0.2 are two source addresses of one machine.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use verbena_engine::notify::monitor::{GREETING, NAME};
use verbena_engine::security::access::RefusedBy;
use verbena_engine::{Engine, OobPeer, QueuePairOptions};
use verbena_nic::{QpState, ReceiveWr};
use verbena_testing::own_process;
use verbena_wire::roce::cm::CmMessage;
use verbena_wire::roce::{Operation, Packet, Psn, Qpn, Service, Tail};

use crate::common::datagrams::Side as UdSide;
use crate::common::roce::{Peer, cma, request};
use crate::common::{
    LIMITS, Side, TEST_TIMEOUT, complete, config, connect_pair, loopback, make_qp, serialize_tests,
    wait,
};

const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// An MPA Request of revision 1 without private data (RFC 5044 §7.1.1).
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01\0\0";

fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&fd, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&fd, &to)?;
    let raw = TcpStream::from(fd);
    raw.set_read_timeout(Some(TEST_TIMEOUT))?;
    Ok(raw)
}

/// The connection is closed without an answer: a reset, perhaps as early as in `connect`.
fn is_refused(source: Ipv4Addr, to: SocketAddr) -> bool {
    let Ok(mut raw) = connect_from(source, to) else {
        return true;
    };
    // If the connection stays open, this panics at the timeout.
    let _ = raw.write_all(REQUEST);
    match raw.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "kept open");
            true
        }
    }
}

fn callable(side: &Side) -> u16 {
    let options = QueuePairOptions {
        oob: true,
        limits: LIMITS,
        ..QueuePairOptions::new(side.pd)
    };
    let qp = side.engine.create_qp(&side.cq, &side.cq, options).unwrap();
    (qp.oob_qpn().unwrap().get() >> 8) as u16
}

#[test]
fn listener_refuses_sources_and_reports_each_once() {
    let _alone = serialize_tests();
    for (setting, value, by) in [
        ("deny", "127.0.0.2", RefusedBy::Deny),
        ("allow", "127.0.0.1,::1", RefusedBy::Allow),
    ] {
        let (a, b) = (Side::new(&[]), Side::new(&[(setting, value)]));
        let reported = Arc::new(Mutex::new(Vec::new()));
        let ours = reported.clone();
        b.engine.access_list().on_refusal(move |refusal| {
            ours.lock().unwrap().push(*refusal);
        });
        let listener = b.engine.listen(loopback(), 16).unwrap();
        let to = listener.local_addr().unwrap();
        for _ in 0..5 {
            assert!(is_refused(FAR, to), "{setting}");
        }
        assert_eq!(b.engine.access_list().refused(), 5);
        let reported = reported.lock().unwrap();
        let about = reported.iter().map(|one| (one.source, one.by, one.count));
        assert_eq!(about.collect::<Vec<_>>(), [(Some(FAR.into()), by, 1)]);
        assert!(listener.try_next().unwrap().is_none(), "nothing was shown");
        // The other source is still served.
        let one = make_qp(&a.engine, &a.cq, a.pd);
        connect_pair(&one, &listener, &b.qp);
        assert_eq!(b.engine.access_list().refused(), 5);
    }
}

#[test]
fn default_access_list_refuses_nothing() {
    let _alone = serialize_tests();
    let side = Side::new(&[]);
    let listener = side.engine.listen(loopback(), 16).unwrap();
    let mut raw = connect_from(FAR, listener.local_addr().unwrap()).unwrap();
    raw.write_all(REQUEST).unwrap();
    assert_eq!(listener.next().unwrap().unwrap().peer_addr().ip(), FAR);
    assert_eq!(side.engine.access_list().refused(), 0);
}

#[test]
fn out_of_band_ports_refuse_sources() {
    let _alone = serialize_tests();
    let side = Side::new(&[("device", "127.0.0.1"), ("deny", "127.0.0.2")]);
    let to = SocketAddr::new(NEAR.into(), callable(&side));
    assert!(is_refused(FAR, to));
    assert_eq!(side.engine.access_list().refused(), 1);
    // A startup that is no call is rejected, too, but with an answer.
    let mut raw = connect_from(NEAR, to).unwrap();
    raw.write_all(REQUEST).unwrap();
    let mut reply = [0; 20];
    raw.read_exact(&mut reply).unwrap();
    assert!(reply.starts_with(b"MPA ID Rep Frame"));
}

#[test]
fn datagrams_of_refused_sources_are_dropped() {
    let _alone = serialize_tests();
    let denying = UdSide::with(&[("device", "127.0.0.1"), ("deny", "127.0.0.2")]);
    let (far, near) = (UdSide::new("127.0.0.2"), UdSide::new("127.0.0.1"));
    denying.receive(1, 0, 200);
    for side in [&far, &near] {
        side.send(7, denying.to(side), &[side.sge(0, 32)]);
    }
    let came = complete(&denying.cq, 1);
    assert_eq!(came.len(), 1);
    wait("the other one is refused", || {
        denying.engine.access_list().refused() == 1
    });
    // The source address in the IPv4 header before the message.
    assert_eq!(denying.memory.read(32, 4), NEAR.octets());
    assert_eq!(denying.ud.view().counters.no_receive, 0);
}

#[test]
fn sidr_requests_of_refused_sources_are_dropped() {
    let _alone = serialize_tests();
    let engine = Engine::new(config(&[("deny", "127.0.0.2")])).unwrap();
    let sidr = engine.bind_sidr_listener(loopback()).unwrap();
    sidr.listen(4, drop).unwrap();
    for (source, malformed) in [(FAR, 0), (NEAR, 1)] {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.send_to(b"what?", sidr.local_addr()).unwrap();
        wait("it was read", || {
            engine.access_list().refused() == 1 && sidr.counters().malformed == malformed
        });
    }
}

/// The socket of RoCEv2 is one for connections, their requests and datagrams.
const ROCE_NEAR: &str = "127.94.5.1";
const ROCE_FAR: &str = "127.94.5.2";

/// One packet was refused.
fn wait_refused(engine: &Engine) {
    wait("it is refused", || engine.access_list().refused() == 1);
}

fn roce_settings(device: &str) -> [(&str, &str); 3] {
    [("device", device), ("wire", "roce"), ("deny", ROCE_FAR)]
}

#[test]
fn roce_requests_of_refused_sources_are_dropped() {
    let _alone = serialize_tests();
    let device: IpAddr = "127.94.5.3".parse().unwrap();
    let side = Side::new(&roce_settings("127.94.5.3"));
    let listener = side.engine.listen((device, 0).into(), 16).unwrap();
    let at = listener.local_addr().unwrap();
    for source in [ROCE_FAR, ROCE_NEAR] {
        let source: IpAddr = source.parse().unwrap();
        let private = cma(source, device, b"");
        let req = CmMessage::Req(request(0xa, at, &private));
        Peer::new(source).send(device, 3, req);
    }
    // The later one is shown.
    let shown = listener.next().unwrap().unwrap();
    assert_eq!(shown.peer_addr().ip().to_string(), ROCE_NEAR);
    wait_refused(&side.engine);
    assert!(listener.try_next().unwrap().is_none());
}

#[test]
fn roce_packets_for_other_processes_are_not_refused() {
    let _alone = serialize_tests();
    let device: IpAddr = "127.94.5.6".parse().unwrap();
    let (far, near): (IpAddr, IpAddr) = (ROCE_FAR.parse().unwrap(), ROCE_NEAR.parse().unwrap());
    // Both share the port, and the kernel gives messages for queue pair 1 to either.
    let denying = Side::new(&roce_settings("127.94.5.6"));
    let refused = denying.engine.listen((device, 0).into(), 16).unwrap();
    let admitting = [("device", "127.94.5.6"), ("wire", "roce")];
    let admitting = Side::new(&admitting);
    let listener = admitting.engine.listen((device, 0).into(), 16).unwrap();
    let at = listener.local_addr().unwrap();
    for source in [far, near] {
        let private = cma(source, device, b"");
        let req = CmMessage::Req(request(0xb, at, &private));
        Peer::new(source).send(device, 3, req);
    }
    for _ in 0..2 {
        listener.next().unwrap().unwrap();
    }
    let private = cma(far, device, b"");
    let own = CmMessage::Req(request(0xc, refused.local_addr().unwrap(), &private));
    Peer::new(far).send(device, 3, own);
    wait_refused(&denying.engine);
    assert!(refused.try_next().unwrap().is_none());
    assert_eq!(admitting.engine.access_list().refused(), 0);
}

#[test]
fn roce_packets_of_refused_sources_are_dropped() {
    let _alone = serialize_tests();
    let device: IpAddr = "127.94.5.4".parse().unwrap();
    let side = Side::new(&roce_settings("127.94.5.4"));
    // Connections that the program makes itself are not refused, the packets of their peers are.
    let sent = [ROCE_FAR, ROCE_NEAR].map(|peer| {
        let peer: IpAddr = peer.parse().unwrap();
        let options = QueuePairOptions {
            oob: true,
            limits: LIMITS,
            ..QueuePairOptions::new(side.pd)
        };
        let qp = side.engine.create_qp(&side.cq, &side.cq, options).unwrap();
        qp.modify(QpState::Init).unwrap();
        let scatter = [side.sge(0, 64)];
        let scatter = &scatter;
        qp.post_receive(&ReceiveWr { id: 1, scatter }).unwrap();
        let number = Qpn::wrapping(0x11);
        let (local, address) = (device, peer);
        qp.set_peer(OobPeer {
            local,
            address,
            number,
        })
        .unwrap();
        let packet = Packet {
            payload: b"hello",
            ack_request: true,
            ..Packet::new(
                Operation::SendOnly(Service::Rc, Tail::Plain),
                qp.oob_qpn().unwrap(),
                Psn::wrapping(0),
            )
        };
        Peer::new(peer).send_packet(device, &packet);
        qp
    });
    // The packet of the other peer was sent later.
    let came = complete(&side.cq, 1);
    assert_eq!(came[0].qpn, sent[1].oob_qpn().unwrap().get());
    wait_refused(&side.engine);
    assert_eq!(sent[0].view().counters.messages_in, 0);
}

#[test]
fn roce_datagrams_of_refused_sources_are_dropped() {
    let _alone = serialize_tests();
    let denying = UdSide::with(&roce_settings("127.94.5.5"));
    let [far, near] =
        [ROCE_FAR, ROCE_NEAR].map(|device| UdSide::with(&[("device", device), ("wire", "roce")]));
    denying.receive(1, 0, 200);
    denying.receive(2, 200, 200);
    for side in [&far, &near] {
        side.send(7, denying.to(side), &[side.sge(0, 32)]);
    }
    let came = complete(&denying.cq, 1);
    assert_eq!(came[0].src_qp, near.ud.number().get());
    wait_refused(&denying.engine);
    assert_eq!(denying.ud.view().counters.received, 1);
}

#[test]
fn monitor_shows_refusals() {
    let _alone = serialize_tests();
    own_process!();
    let side = Side::new(&[("deny", "127.0.0.0/8")]);
    let listener = side.engine.listen(loopback(), 16).unwrap();
    let name = format!("{NAME}{}/0", std::process::id());
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let stream = UnixStream::connect_addr(&name).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), GREETING);
    assert!(is_refused(FAR, listener.local_addr().unwrap()));
    let line = lines.next().unwrap().unwrap();
    let words = line.split_once(' ').unwrap().1;
    assert_eq!(words, "access refused source=127.0.0.2 by=deny count=1");
}

/// Local addresses of this process's TCP listeners and UDP sockets, as the system lists them.
fn reachable() -> Vec<IpAddr> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let ours: HashSet<String> = links
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for (table, states) in [
        ("tcp", ["0A"]),
        ("tcp6", ["0A"]),
        ("udp", ["07"]),
        ("udp6", ["07"]),
    ] {
        let Ok(table) = std::fs::read_to_string(format!("/proc/net/{table}")) else {
            continue;
        };
        for row in table.lines().skip(1) {
            let columns: Vec<&str> = row.split_whitespace().collect();
            if states.contains(&columns[3]) && ours.contains(columns[9]) {
                found.push(address(columns[1].split(':').next().unwrap()));
            }
        }
    }
    found
}

/// The 32-bit words of an address in `/proc`, each in native byte order.
fn address(hex: &str) -> IpAddr {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).unwrap();
        u32::from_str_radix(word, 16).unwrap().to_ne_bytes()
    });
    let bytes: Vec<u8> = words.flatten().collect();
    match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => Ipv4Addr::from(four).into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).unwrap()).into(),
    }
}

#[test]
fn loopback_device_binds_only_loopback_addresses() {
    let _alone = serialize_tests();
    own_process!();
    let before = reachable().len();
    let side = Side::new(&[("device", "127.0.0.1")]);
    let ud = UdSide::new("127.0.0.1");
    let port = callable(&side);
    let wildcard: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let listener = side.engine.listen(wildcard, 16).unwrap();
    assert_eq!(listener.local_addr().unwrap().ip(), NEAR);
    let shared = side.engine.reserve_shared(wildcard).unwrap();
    let shared = shared.listen(16).unwrap();
    let six = side.engine.listen("[::]:0".parse().unwrap(), 16);
    let sidr = side.engine.bind_sidr_listener(wildcard).unwrap();
    let found = reachable();
    assert!(found.len() >= before + 5, "{found:?}");
    assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    let elsewhere = "192.0.2.1:0".parse().unwrap();
    let refused = side.engine.listen(elsewhere, 16).unwrap_err().to_string();
    assert!(refused.contains("`device`"), "{refused}");
    // Connections work as usual.
    let one = make_qp(&side.engine, &side.cq, side.pd);
    connect_pair(&one, &listener, &side.qp);
    assert_ne!(port, 0);
    drop((ud, six, sidr, shared));
}

/// Only a `device` of loopback addresses restricts listeners: otherwise the wildcard address can be bound, even if the interface is absent.
#[test]
fn absent_device_allows_wildcard_listeners() {
    let _alone = serialize_tests();
    let absent = Side::new(&[("device", "eth4095")]);
    absent
        .engine
        .listen("0.0.0.0:0".parse().unwrap(), 16)
        .unwrap();
    let side = Side::new(&[]);
    let listener = side
        .engine
        .listen("0.0.0.0:0".parse().unwrap(), 16)
        .unwrap();
    assert!(listener.local_addr().unwrap().ip().is_unspecified());
}
