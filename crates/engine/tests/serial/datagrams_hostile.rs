//! Hostile datagrams: whatever arrives at the port is dropped and counted, while valid datagrams are delivered.

use std::net::{SocketAddr, UdpSocket};

use verbena_nic::ud::{GRH_LEN, PKEY, UdCounters};
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::{Path, UdPacket, icrc_over_socket};

use crate::common::datagrams::{GROUP, KEY, LOCALHOST, Side, to_group};
use crate::common::{complete, serialize_tests, wait};

/// A sender with a plain socket, and its target.
struct RawSender {
    socket: UdpSocket,
    path: Path,
}

impl RawSender {
    fn new(target: SocketAddr) -> RawSender {
        let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
        let own = socket.local_addr().unwrap();
        let path = Path {
            src: own.ip(),
            dst: target.ip(),
            src_port: own.port(),
            dst_port: target.port(),
        };
        RawSender { socket, path }
    }

    fn at(side: &Side) -> RawSender {
        let port = (side.ud.number().get() >> 8) as u16;
        RawSender::new(SocketAddr::new(side.address(), port))
    }

    fn send(&self, bytes: &[u8]) {
        let to = (self.path.dst, self.path.dst_port);
        self.socket.send_to(bytes, to).unwrap();
    }

    /// Appends a correct ICRC.
    fn sealed(&self, bytes: &[u8]) -> Vec<u8> {
        let icrc = icrc_over_socket(self.path, bytes);
        [bytes, &icrc].concat()
    }

    fn packet(&self, packet: &UdPacket<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.sealed(&bytes)
    }
}

fn packet(to: Qpn, payload: &[u8]) -> UdPacket<'_> {
    UdPacket {
        dest_qpn: to,
        src_qpn: Qpn::wrapping(0xabcdef),
        qkey: KEY,
        pkey: PKEY,
        psn: Psn::wrapping(7),
        solicited: false,
        immediate: None,
        payload,
    }
}

/// All datagrams received so far, wherever they were counted.
fn counted(side: &Side) -> u64 {
    let drops = side.engine.datagram_drops();
    let UdCounters {
        received,
        wrong_key,
        no_receive,
        too_long,
        not_receiving,
        ..
    } = side.ud.view().counters;
    let by_qp = received + wrong_key + no_receive + too_long + not_receiving;
    drops.malformed + drops.oversized + drops.checksum + drops.partition + drops.no_receiver + by_qp
}

/// A valid datagram is delivered.
fn still_works(a: &Side, b: &Side) {
    b.receive(1, 0, 100);
    a.send(2, b.to(a), &[a.sge(0, 20)]);
    assert_eq!(complete(&b.cq, 1)[0].src_qp, a.ud.number().get());
    complete(&a.cq, 1);
}

#[test]
fn truncated_datagrams_are_dropped_and_counted() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    let whole = other.packet(&packet(b.ud.number(), b"some payload"));
    for len in 0..whole.len() {
        other.send(&whole[..len]);
        // And with a checksum that is correct for the rest.
        other.send(&other.sealed(&whole[..len]));
    }
    let all = 2 * whole.len() as u64;
    wait("all are counted", || counted(&b) == all);
    // Some of them are valid datagrams, shorter than before.
    let drops = b.engine.datagram_drops();
    assert!(drops.malformed > 0 && drops.checksum > 0, "{drops:?}");
    still_works(&a, &b);
}

#[test]
fn invalid_opcodes_and_versions_are_dropped() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    let mut bytes = Vec::new();
    packet(b.ud.number(), b"1234").emit(&mut bytes);
    for opcode in 0..=255 {
        bytes[0] = opcode;
        other.send(&other.sealed(&bytes));
    }
    wait("all are counted", || counted(&b) == 256);
    // The two opcodes of UD find no receive.
    assert_eq!(b.engine.datagram_drops().malformed, 254);
    assert_eq!(b.ud.view().counters.no_receive, 2);
    bytes[0] = 0x64;
    for flags in 0..=255 {
        bytes[1] = flags;
        other.send(&other.sealed(&bytes));
    }
    wait("all are counted", || counted(&b) == 512);
    // One version in sixteen is valid, and any pad count fits four bytes.
    assert_eq!(b.ud.view().counters.no_receive, 2 + 16);
    still_works(&a, &b);
}

#[test]
fn pad_count_beyond_the_payload_is_dropped() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    let mut bytes = Vec::new();
    packet(b.ud.number(), b"").emit(&mut bytes);
    for pad in 1..4 {
        bytes[1] = pad << 4;
        other.send(&other.sealed(&bytes));
    }
    wait("all are dropped", || {
        b.engine.datagram_drops().malformed == 3
    });
    still_works(&a, &b);
}

#[test]
fn oversized_datagrams_are_dropped() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    b.receive(9, 0, 1 << 20);
    let long = vec![3; 65_000];
    for len in [4097, 4098, 4100, 4101, 9000, 65_000] {
        let giant = packet(b.ud.number(), &long[..len]);
        other.send(&other.packet(&giant));
    }
    wait("all are dropped", || {
        b.engine.datagram_drops().oversized == 6
    });
    // The longest that is allowed, with immediate data.
    let longest = UdPacket {
        immediate: Some([1, 2, 3, 4]),
        ..packet(b.ud.number(), &long[..4096])
    };
    other.send(&other.packet(&longest));
    assert_eq!(complete(&b.cq, 1)[0].len as usize, GRH_LEN + 4096);
    still_works(&a, &b);
}

#[test]
fn wrong_icrc_pkey_qkey_or_number_is_dropped() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    b.receive(1, 0, 100);
    let good = packet(b.ud.number(), b"x");
    let mut bytes = other.packet(&good);
    *bytes.last_mut().unwrap() ^= 1;
    other.send(&bytes);
    for pkey in [0, 1, 0x7fff, 0xfffe] {
        other.send(&other.packet(&UdPacket { pkey, ..good }));
    }
    for qkey in [0, KEY + 1, !KEY, 0x8000_0000] {
        other.send(&other.packet(&UdPacket { qkey, ..good }));
    }
    let index = |index: u32| Qpn::wrapping(b.ud.number().get() & !0xff | index);
    let others = (0..256).map(index).filter(|n| *n != b.ud.number());
    // Also the multicast number, and one of another port.
    for dest_qpn in others.chain([0xff_ffff, 0, 1].map(Qpn::wrapping)) {
        other.send(&other.packet(&UdPacket { dest_qpn, ..good }));
    }
    wait("all are counted", || counted(&b) == 1 + 4 + 4 + 258);
    let drops = b.engine.datagram_drops();
    assert_eq!(
        (drops.checksum, drops.partition, drops.no_receiver),
        (1, 4, 258)
    );
    assert_eq!(b.ud.view().counters.wrong_key, 4);
    // The receive is still posted.
    other.send(&other.packet(&good));
    assert_eq!(complete(&b.cq, 1)[0].src_qp, 0xabcdef);
    still_works(&a, &b);
}

#[test]
fn random_datagrams_are_counted() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let other = RawSender::at(&b);
    let good = other.packet(&packet(b.ud.number(), b"some payload to change"));
    let mut seed = 1_u64;
    let mut random = move || {
        // Xorshift: any sequence will do.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut sent = 0;
    for round in 0..20_000_u64 {
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(random() as usize % (bytes.len() + 1));
        if round % 2 == 0 {
            bytes = other.sealed(&bytes);
        }
        other.send(&bytes);
        sent += 1;
        if round % 100 == 0 {
            // A socket buffer is bounded, and what it loses cannot be counted.
            wait("all are counted", || counted(&b) == sent);
        }
    }
    wait("all are counted", || counted(&b) == sent);
    still_works(&a, &b);
}

/// A datagram to a group's port must carry the multicast number; others are dropped and counted, and members still receive.
#[test]
fn unicast_number_at_group_port_is_dropped() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let group = GROUP.parse().unwrap();
    b.ud.attach(group).unwrap();
    let port = b.engine.config().multicast_port;
    let other = RawSender::new(SocketAddr::new(group, port));
    let here = LOCALHOST.parse().unwrap();
    rustix::net::sockopt::set_ip_multicast_if(&other.socket, &here).unwrap();
    let unicast = packet(b.ud.number(), b"x");
    other.send(&other.packet(&unicast));
    other.send(b"");
    wait("both are dropped", || {
        let drops = b.engine.datagram_drops();
        (drops.no_receiver, drops.malformed) == (1, 1)
    });
    b.receive(1, 0, 100);
    a.send(2, to_group(&a, group), &[a.sge(0, 20)]);
    assert_eq!(complete(&b.cq, 1)[0].src_qp, a.ud.number().get());
}
