//! Datagrams over RoCEv2: from port 4791 to port 4791, with peers that are no Verbena, in multicast groups, and between engines that share the
//! port at one address.

use std::net::{IpAddr, UdpSocket};

use verbena_engine::UdPair;
use verbena_nic::ud::{Destination, PKEY};
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{ICRC_LEN, PORT, Path, UdPacket, icrc_of_segment, icrc_over_socket};

use crate::common::datagrams::{GROUP, KEY, LOCALHOST, Side, to_group};
use crate::common::{complete, serialize_tests};

fn side(device: &str) -> Side {
    Side::with(&[("device", device), ("wire", "roce")])
}

/// One datagram each way.
fn exchange(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        to.receive(1, 0, 3000);
        from.send(2, to.to(from), &[from.sge(0, 2000)]);
        let wc = complete(&to.cq, 1)[0];
        assert_eq!(wc.src_qp, from.ud.number().get());
        assert_eq!(wc.len, 2040);
        complete(&from.cq, 1);
    }
}

#[test]
fn datagrams_of_two_engines_use_port_4791() {
    let _alone = serialize_tests();
    let (a, b) = (side("127.94.1.1"), side("127.94.1.2"));
    exchange(&a, &b);
    // A peer that the setting does not name is reached at its private port.
    let b = Side::new("127.94.1.3");
    let to = b.to(&a);
    b.receive(1, 0, 100);
    a.send(2, to, &[a.sge(0, 20)]);
    complete(&a.cq, 1);
    assert_eq!(b.ud.view().counters.received, 0);
    let a = Side::with(&[
        ("device", "127.94.1.4"),
        ("wire", "roce"),
        ("peers", "127.94.1.3=verbena"),
    ]);
    a.send(2, b.to(&a), &[a.sge(0, 20)]);
    assert_eq!(complete(&b.cq, 1)[0].src_qp, a.ud.number().get());
}

/// The peer is a plain socket at port 4791: it sees the packet, and its answer is accepted with any identification.
#[test]
fn datagrams_are_exchanged_with_a_foreign_adapter() {
    let _alone = serialize_tests();
    let a = Side::with(&[("device", "127.94.2.1"), ("peers", "127.94.2.0/24=roce")]);
    let peer: IpAddr = "127.94.2.2".parse().unwrap();
    let socket = UdpSocket::bind((peer, PORT)).unwrap();
    let foreign = Qpn::wrapping(0x11);
    let to = Destination {
        address: peer,
        source: a.address(),
        number: foreign,
        qkey: KEY,
    };
    assert!(a.memory.write(0, b"a message"));
    a.send(1, to, &[a.sge(0, 9)]);
    let mut room = [0; 200];
    let (len, from) = socket.recv_from(&mut room).unwrap();
    assert_eq!((from.ip(), from.port()), (a.address(), PORT));
    let (packet, icrc) = UdPacket::parse(&room[..len]).unwrap();
    assert_eq!((packet.dest_qpn, packet.qkey), (foreign, KEY));
    assert_eq!(packet.payload, b"a message");
    let path = |src, dst| Path {
        src,
        dst,
        src_port: PORT,
        dst_port: PORT,
    };
    let sum = icrc_over_socket(path(a.address(), peer), &room[..len - ICRC_LEN]);
    assert_eq!(icrc, sum);
    // Its stack chooses identifications, which a plain socket cannot: the ICRC is as if it had.
    a.receive(2, 0, 100);
    a.receive(3, 0, 100);
    for (number, payload) in [(0, b"one"), (0x4711, b"two")] {
        let answer = UdPacket {
            dest_qpn: a.ud.number(),
            src_qpn: foreign,
            qkey: KEY,
            pkey: PKEY,
            psn: Psn::wrapping(1),
            solicited: false,
            immediate: None,
            payload,
        };
        let mut bytes = Vec::new();
        answer.emit(&mut bytes);
        let icrc = icrc_of_segment(path(peer, a.address()), number, &bytes);
        bytes.extend(icrc);
        socket.send_to(&bytes, (a.address(), PORT)).unwrap();
        let done = complete(&a.cq, if number == 0 { 2 } else { 1 });
        assert!(done.iter().any(|wc| wc.src_qp == foreign.get()));
    }
}

#[test]
fn multicast_uses_port_4791() {
    let _alone = serialize_tests();
    let (a, b) = (side(LOCALHOST), side(LOCALHOST));
    let group = GROUP.parse().unwrap();
    b.ud.attach(group).unwrap();
    b.receive(1, 0, 100);
    a.send(2, to_group(&a, group), &[a.sge(0, 20)]);
    assert_eq!(complete(&b.cq, 1)[0].src_qp, a.ud.number().get());
    // One with the setting `tcp` is a member of the group at another port.
    let other = Side::new(LOCALHOST);
    other.ud.attach(group).unwrap();
    other.receive(1, 0, 100);
    b.receive(1, 0, 100);
    a.send(2, to_group(&a, group), &[a.sge(0, 20)]);
    complete(&b.cq, 1);
    assert_eq!(other.ud.view().counters.received, 0);
}

/// Four engines at one address are four members of the group: each gets what is for it, however the kernel steers.
#[test]
fn engines_at_one_address_share_the_port() {
    let _alone = serialize_tests();
    for address in ["127.94.3.1", "::1"] {
        let mut all: Vec<Side> = (0..4).map(|_| side(address)).collect();
        let handed_over = |all: &[Side]| -> u64 {
            let sent = all.iter().map(|side| side.engine.packet_handovers().sent);
            sent.sum()
        };
        let round = |all: &[Side]| {
            for a in 0..all.len() {
                for b in (0..all.len()).filter(|b| *b != a) {
                    exchange(&all[a], &all[b]);
                }
            }
        };
        round(&all);
        assert_eq!(handed_over(&all), 0, "steered to the right member");
        // When one leaves, the last member takes its place, and its packets go to a member that a hash of their addresses chooses.
        let gone = all.remove(1);
        drop(gone);
        round(&all);
        let drops = |side: &Side| side.engine.datagram_drops().no_receiver;
        assert!(all.iter().all(|side| drops(side) == 0));
    }
}

#[test]
fn port_of_another_program_is_reported() {
    let _alone = serialize_tests();
    let _taken = UdpSocket::bind("127.94.4.1:4791").unwrap();
    let settings = [("device", "127.94.4.1"), ("wire", "roce")];
    let engine = verbena_engine::Engine::new(crate::common::config(&settings)).unwrap();
    let pd = engine.function().allocate_pd().unwrap();
    let cq = engine.create_cq(10).unwrap();
    let made: Result<UdPair, _> = engine.create_ud(&cq, &cq, verbena_engine::UdOptions::new(pd));
    let error = made.unwrap_err().to_string();
    assert!(
        error.starts_with("UDP port 4791 at 127.94.4.1 is in use"),
        "{error}"
    );
}
