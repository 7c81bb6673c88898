//! Queue pairs over RoCEv2 through the Rust API: out-of-band connections with all kinds of messages, lost packets, and errors.
//! Each test has addresses of its own, because all of them use UDP port 4791.

use std::net::UdpSocket;
use std::time::Duration;

use verbena::handover::Handover;
use verbena::low::{Data, Mtu, Psn, Psns, Qp, QpOptions, QpState, Qpn, StreamPath};
use verbena::{Access, Fault, RemoteMemory, Status};

use crate::common::exchange::{LEN, Side, exchange};
use crate::common::low::{SEND, complete, wr};
use crate::common::{device, virtual_function};
use crate::handover::hand_over_in_process;

fn side(address: &str, settings: &[(&str, &str)]) -> Side {
    let mut all = vec![("device", address), ("wire", "roce")];
    all.extend(settings);
    let device = device(&all);
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let options = QpOptions::default().oob(true);
    Side {
        qp: Qp::new(&pd, &cq, &cq, options).unwrap(),
        memory: pd.memory(2 * LEN + 64, Access::ALL).unwrap(),
        cq,
        device,
    }
}

fn connect(a: &Side, b: &Side, mtu: Mtu) {
    for (side, send, receive) in [(a, 0xff_fff0, 9), (b, 9, 0xff_fff0)] {
        let psn = |n| Psn::new(n).unwrap();
        let psns = Psns {
            send: psn(send),
            receive: psn(receive),
        };
        side.qp.set_attr(|attr| {
            attr.psns = Some(psns);
            attr.path_mtu = Some(mtu);
        });
    }
    a.qp.set_peer(b.qp.endpoint().unwrap()).unwrap();
    b.qp.set_peer(a.qp.endpoint().unwrap()).unwrap();
    for side in [a, b] {
        side.qp.modify(QpState::Rts).unwrap();
    }
}

#[test]
fn roce_connects_devices_out_of_band() {
    for (at, mtu) in [("127.0.61.1", Mtu::B4096), ("127.0.61.2", Mtu::B256)] {
        let (a, b) = (side(at, &[]), side("127.0.61.3", &[]));
        connect(&a, &b, mtu);
        exchange(&a, &b, 1);
        exchange(&b, &a, 2);
    }
}

/// N1: addresses, wire, numbers, path MTU and PSNs, as they were agreed.
#[test]
fn roce_query_says_what_connects() {
    let (a, b) = (side("127.0.69.1", &[]), side("127.0.69.2", &[]));
    let before = a.qp.query().unwrap();
    assert!(before.path.is_none() && before.peer_addr.is_none());
    assert!(before.local_addr.is_none() && before.peer_qpn.is_none());
    connect(&a, &b, Mtu::B2048);
    let number = |side: &Side| side.qp.endpoint().unwrap().number;
    let info = a.qp.query().unwrap();
    assert_eq!(info.path, Some(StreamPath::Roce));
    assert_eq!(info.local_addr, Some("127.0.69.1:4791".parse().unwrap()));
    assert_eq!(info.peer_addr, Some("127.0.69.2:4791".parse().unwrap()));
    assert_eq!(info.qpn.map(Qpn::get), Some(number(&a)));
    assert_eq!(info.peer_qpn.map(Qpn::get), Some(number(&b)));
    let attr = info.attr;
    assert_eq!(attr.path_mtu, Some(Mtu::B2048));
    assert_eq!(attr.retry_count, Some(7));
    assert!(attr.ack_timeout.is_some_and(|timeout| !timeout.is_zero()));
    let psns = attr.psns.unwrap();
    assert_eq!((psns.send.get(), psns.receive.get()), (0xff_fff0, 9));
}

/// N1: the connection manager has chosen the numbers, and they are those of the peer.
#[test]
fn roce_query_says_what_was_negotiated() {
    let at = |address| device(&[("device", address), ("wire", "roce")]);
    let (ours, theirs) = (at("127.0.69.3"), at("127.0.69.4"));
    let listener = theirs.listen("127.0.69.4:0").unwrap();
    let (pd, cq) = (ours.pd().unwrap(), ours.cq(8).unwrap());
    let (peer_pd, peer_cq) = (theirs.pd().unwrap(), theirs.cq(8).unwrap());
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let peer = Qp::new(&peer_pd, &peer_cq, &peer_cq, QpOptions::default()).unwrap();
    let connecting = qp.connect(listener.local_addr().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    let accepting = request.accept_on(&peer, b"").unwrap();
    connecting.wait().unwrap();
    accepting.wait().unwrap();
    let (here, there) = (qp.query().unwrap(), peer.query().unwrap());
    assert!(here.qpn.is_some() && here.qpn == there.peer_qpn);
    assert!(there.qpn.is_some() && there.qpn == here.peer_qpn);
    assert_eq!(here.local_addr, there.peer_addr);
    assert_eq!(here.peer_addr, there.local_addr);
    let (psns, peers) = (here.attr.psns.unwrap(), there.attr.psns.unwrap());
    assert_eq!((psns.send, psns.receive), (peers.receive, peers.send));
    assert_eq!(here.attr.path_mtu, there.attr.path_mtu);
}

#[test]
fn roce_works_over_ipv6_and_with_one_address() {
    let (a, b) = (side("::1", &[]), side("::1", &[]));
    connect(&a, &b, Mtu::B1024);
    exchange(&a, &b, 3);
}

#[test]
fn roce_survives_lost_packets() {
    let lossy = [("roce_loss", "20000")];
    let (a, b) = (side("127.0.62.1", &lossy), side("127.0.62.2", &lossy));
    connect(&a, &b, Mtu::B1024);
    for round in 0..5 {
        exchange(&a, &b, round);
        exchange(&b, &a, round);
    }
}

#[test]
fn roce_connections_carry_memory_handles() {
    let at = |address| device(&[("device", address), ("wire", "roce")]);
    let (ours, theirs) = (at("127.0.68.1"), at("127.0.68.2"));
    let shared = theirs.memory(4096, Access::ALL).unwrap();
    let listener = theirs.listen("127.0.68.2:0").unwrap();
    let own = ours.memory(64, Access::ALL).unwrap();
    let said = own.remote().to_bytes();
    let connecting = ours
        .connector(&said)
        .connect(listener.local_addr().unwrap());
    let request = listener.next().wait().unwrap();
    // Private data has zeros behind it, as on every adapter.
    assert!(request.private_data().len() > said.len());
    let received = RemoteMemory::from_bytes(request.private_data()).unwrap();
    assert_eq!(received, own.remote());
    let accepting = request.accept(&shared.remote().to_bytes());
    let (here, there) = (connecting.wait().unwrap(), accepting.wait().unwrap());
    let remote = RemoteMemory::from_bytes(here.private_data()).unwrap();
    assert_eq!(remote, shared.remote());
    let buf = ours.buffer_from(b"over RoCEv2").unwrap();
    here.write(buf, &remote.slice(0, 11).unwrap())
        .wait()
        .0
        .unwrap();
    assert_eq!(shared.get::<[u8; 11]>(0).unwrap(), *b"over RoCEv2");
    let receiving = there.recv(theirs.buffer(16).unwrap());
    here.send(ours.buffer_from(b"done").unwrap())
        .wait()
        .0
        .unwrap();
    assert_eq!(receiving.wait().1[..], *b"done");
}

#[test]
fn roce_peer_that_is_absent_fails_requests() {
    let quick = [("dead_after", "1s")];
    let (a, gone) = (side("127.0.63.1", &quick), side("127.0.63.2", &[]));
    let endpoint = gone.qp.endpoint().unwrap();
    drop(gone);
    a.qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(300)));
    a.qp.set_peer(endpoint).unwrap();
    a.qp.modify(QpState::Rts).unwrap();
    a.qp.post_send(&[wr(1, SEND, Data::Inline(b"hello"))])
        .unwrap();
    assert_eq!(complete(&a.cq, 1)[0].status, Status::RetryExcErr);
}

#[test]
fn roce_port_in_use_is_named() {
    let held = UdpSocket::bind("127.0.64.1:4791").unwrap();
    let (a, b) = (side("127.0.64.1", &[]), side("127.0.64.2", &[]));
    let error = a.qp.set_peer(b.qp.endpoint().unwrap()).unwrap_err();
    assert_eq!(error.fault(), Fault::System, "{error}");
    assert!(error.to_string().contains("4791"), "{error}");
    drop(held);
}

#[test]
fn roce_queue_pair_is_not_migrated() {
    let (a, b) = (side("127.0.65.1", &[]), side("127.0.65.2", &[]));
    connect(&a, &b, Mtu::B1024);
    exchange(&a, &b, 1);
    let function = virtual_function(&a.device);
    let (pd, cq) = (function.pd().unwrap(), function.cq(64).unwrap());
    let refused = a.qp.migrate(&pd, &cq, &cq, None).unwrap_err();
    assert!(refused.to_string().contains("RoCEv2"), "{refused}");
    let a = Side {
        qp: refused.qp,
        ..a
    };
    exchange(&a, &b, 2);
}

#[test]
fn roce_queue_pair_is_not_handed_over() {
    let (a, b) = (side("127.0.71.1", &[]), side("127.0.71.2", &[]));
    connect(&a, &b, Mtu::B1024);
    exchange(&a, &b, 1);
    let mut handover = Handover::default();
    handover.qp(7, a.qp);
    let kept = hand_over_in_process(handover, |_| panic!("nothing is sent"));
    let kept = kept.unwrap_err();
    assert!(kept.to_string().contains("RoCEv2"), "{kept}");
    // It goes on where it was.
    let (_, mut qps, _) = kept.handover.into_parts();
    let (tag, qp) = qps.remove(0);
    assert_eq!(tag, 7);
    let a = Side { qp, ..a };
    exchange(&a, &b, 2);
    exchange(&b, &a, 3);
}
