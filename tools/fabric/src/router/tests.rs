//! Forwarding, ICMP errors and their limit, neighbours and lies about them, and hostile packets.

use core::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{IpNumber, Ipv4Header, Ipv6Header};
use proptest::prelude::*;

use super::*;

const S: Duration = Duration::from_secs(1);
const OWN: [Mac; 2] = [Mac::new([2, 0, 0, 0, 1, 0]), Mac::new([2, 0, 0, 0, 1, 1])];
const HOST: [Mac; 2] = [Mac::new([2, 0, 0, 0, 0, 1]), Mac::new([2, 0, 0, 0, 0, 2])];

/// 10.0.0.0/24 and fd00::/64 at port 0, 10.0.1.0/24 and fd01::/64 at port 1.
fn router() -> Router {
    let mut router = Router::new(1);
    for (index, mac) in OWN.into_iter().enumerate() {
        let prefixes = [
            format!("10.0.{index}.254/24"),
            format!("fd0{index}::254/64"),
        ];
        router.add_interface(Interface {
            mac,
            addresses: prefixes.iter().map(|text| text.parse().unwrap()).collect(),
            mtu: 1500,
            up: true,
        });
    }
    router.set_routes([]);
    router
}

fn v4(from: &str, to: &str, ttl: u8, payload: usize) -> Frame {
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut header = Ipv4Header::new(
        payload as u16,
        ttl,
        IpNumber::UDP,
        address(from),
        address(to),
    )
    .unwrap();
    header.header_checksum = header.calc_header_checksum();
    let packet = [&header.to_bytes()[..], &vec![7; payload]].concat();
    ethernet(HOST[0], OWN[0], IPV4, &packet)
}

fn v6(from: &str, to: &str, hops: u8) -> Frame {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let header = Ipv6Header {
        payload_length: 20,
        next_header: IpNumber::UDP,
        hop_limit: hops,
        source: address(from),
        destination: address(to),
        ..Ipv6Header::default()
    };
    let packet = [&header.to_bytes()[..], &[7; 20]].concat();
    ethernet(HOST[0], OWN[0], IPV6, &packet)
}

fn received(router: &mut Router, at: usize, frame: Frame, now: Duration) -> Out {
    let mut out = Out::new();
    router.receive(at, frame, now, &mut out);
    out
}

fn arp(operation: ArpOperation, from: Mac, sender: [u8; 4], asked: [u8; 4], to: Mac) -> Frame {
    let packet = ArpEthIpv4Packet {
        operation,
        sender_mac: from.octets(),
        sender_ipv4: sender,
        target_mac: [0; 6],
        target_ipv4: asked,
    };
    arp_frame(from, to, &packet)
}

fn host_two_answers(router: &mut Router, now: Duration) -> Out {
    let reply = arp(
        ArpOperation::REPLY,
        HOST[1],
        [10, 0, 1, 2],
        [10, 0, 1, 254],
        OWN[1],
    );
    received(router, 1, reply, now)
}

/// The type and code of the ICMP message in a frame.
fn icmp_kind(frame: &Frame) -> [u8; 2] {
    let at = if frame.ether_type() == Some(IPV4) {
        34
    } else {
        54
    };
    *frame.bytes[at..].first_chunk().unwrap()
}

#[test]
fn packet_waits_for_the_neighbour_and_is_forwarded() {
    let mut router = router();
    let out = received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", 9, 30), S);
    let [(1, question)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(
        (question.target(), question.source()),
        (Some(Mac::BROADCAST), Some(OWN[1]))
    );
    let out = host_two_answers(&mut router, S);
    let [(1, packet)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(
        (packet.target(), packet.source()),
        (Some(HOST[1]), Some(OWN[1]))
    );
    let parsed = parse(&packet.bytes[ETH_LEN..]).expect("a right checksum");
    assert_eq!(parsed.hops_left, 8);
    let out = received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", 9, 30), S);
    assert_eq!(out.len(), 1, "known now");
}

#[test]
fn every_ttl_is_decremented_with_a_right_checksum() {
    let mut router = router();
    received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", 9, 30), S);
    host_two_answers(&mut router, S);
    for ttl in 2..=255 {
        let out = received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", ttl, 30), S);
        let parsed = parse(&out[0].1.bytes[ETH_LEN..]).unwrap();
        assert_eq!(parsed.hops_left, ttl - 1);
    }
}

#[test]
fn errors_name_their_reason() {
    let table: [(Frame, [u8; 2]); 7] = [
        (v4("10.0.0.1", "10.0.1.2", 1, 30), [11, 0]),
        (v4("10.0.0.1", "192.0.2.1", 9, 30), [3, 0]),
        (v4("10.0.0.1", "10.0.1.2", 9, 1481), [3, 4]),
        (v4("10.0.0.1", "10.0.1.254", 9, 30), [3, 3]),
        (v6("fd00::1", "fd01::2", 1), [3, 0]),
        (v6("fd00::1", "fd02::2", 9), [1, 0]),
        (v6("fd00::1", "fd01::254", 9), [1, 4]),
    ];
    for (frame, kind) in table {
        let out = received(&mut router(), 0, frame, S);
        let [(0, error)] = &out[..] else {
            panic!("{kind:?}: {out:?}")
        };
        assert_eq!((error.target(), icmp_kind(error)), (Some(HOST[0]), kind));
    }
}

#[test]
fn silent_neighbour_ends_in_host_unreachable() {
    let mut router = router();
    received(&mut router, 0, v4("10.0.0.1", "10.0.1.9", 9, 30), S);
    let (mut out, mut now) = (Out::new(), S);
    while let Some(due) = router.next_timer() {
        assert!(due > now);
        now = due;
        router.tick(now, &mut out);
    }
    let questions = out.iter().filter(|(at, _)| *at == 1).count();
    let error = out.last().map(|(at, frame)| (*at, icmp_kind(frame)));
    assert_eq!((questions, error), (2, Some((0, [3, 1]))));
    assert_eq!(router.neighbour_count(), 0);
}

#[test]
fn errors_are_limited_and_not_about_errors() {
    let mut router = router();
    let count = |router: &mut Router, now| {
        let all = (0..1000).map(|_| received(router, 0, v4("10.0.0.1", "10.0.1.2", 1, 30), now));
        all.map(|out| out.len()).sum::<usize>()
    };
    assert_eq!(count(&mut router, S), 100);
    assert_eq!(count(&mut router, S + S / 2), 50);
    assert_eq!(router.counters.errors_limited, 1850);
    let mut fresh = self::router();
    let error = received(&mut fresh, 0, v4("10.0.0.1", "10.0.1.2", 1, 30), S)
        .remove(0)
        .1;
    // The error itself, sent back with an address that has no route.
    let mut packet = error.bytes[ETH_LEN..].to_vec();
    packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
    packet[16..20].copy_from_slice(&[192, 0, 2, 1]);
    packet[10..12].fill(0);
    let header = Ipv4HeaderSlice::from_slice(&packet).unwrap().to_header();
    packet[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    let out = received(&mut fresh, 0, ethernet(HOST[0], OWN[0], IPV4, &packet), S);
    assert_eq!(out, []);
}

#[test]
fn echo_is_answered_over_both_protocols() {
    use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type};
    let echo = IcmpEchoHeader { id: 1, seq: 2 };
    let header = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), b"data");
    let mut frame = v4("10.0.0.1", "10.0.1.254", 9, 12);
    frame.bytes[23] = 1;
    frame.bytes[34..].copy_from_slice(&[&header.to_bytes()[..], b"data"].concat());
    frame.bytes[24..26].fill(0);
    let ip = Ipv4HeaderSlice::from_slice(&frame.bytes[14..])
        .unwrap()
        .to_header();
    frame.bytes[24..26].copy_from_slice(&ip.calc_header_checksum().to_be_bytes());
    let out = received(&mut router(), 0, frame.clone(), S);
    assert_eq!(
        (out[0].1.target(), icmp_kind(&out[0].1)),
        (Some(HOST[0]), [0, 0])
    );
    assert_eq!(&out[0].1.bytes[42..], b"data");
    frame.bytes[45] ^= 1;
    assert_eq!(received(&mut router(), 0, frame, S), [], "a wrong checksum");

    let mut frame = v6("fd00::1", "fd00::254", 9);
    let addresses: [[u8; 16]; 2] = ["fd00::1", "fd00::254"].map(|text| {
        let address: Ipv6Addr = text.parse().unwrap();
        address.octets()
    });
    let [from, to] = addresses;
    let data = [7; 12];
    let header = Icmpv6Header::with_checksum(Icmpv6Type::EchoRequest(echo), from, to, &data);
    frame.bytes[20] = 58;
    frame.bytes[54..].copy_from_slice(&[&header.unwrap().to_bytes()[..], &data].concat());
    let out = received(&mut router(), 0, frame, S);
    assert_eq!(icmp_kind(&out[0].1), [129, 0]);
}

#[test]
fn neighbours_are_found_over_ipv6() {
    let mut router = router();
    let out = received(&mut router, 0, v6("fd00::1", "fd01::2", 9), S);
    assert_eq!(icmp_kind(&out[0].1), [135, 0]);
    let asked: Ipv6Addr = "fd01::2".parse().unwrap();
    let own: Ipv6Addr = "fd01::254".parse().unwrap();
    let answer = icmp::advertisement(HOST[1], asked, OWN[1], own);
    let out = received(&mut router, 1, answer, S);
    assert_eq!(out[0].1.target(), Some(HOST[1]));
    // The other way round: a host asks for the router.
    let question = icmp::solicitation(HOST[1], asked, own);
    let out = received(&mut router, 1, question, S);
    assert_eq!(
        (out[0].1.target(), icmp_kind(&out[0].1)),
        (Some(HOST[1]), [136, 0])
    );
}

#[test]
fn arp_request_is_answered_and_learnt() {
    let mut router = router();
    let request = arp(
        ArpOperation::REQUEST,
        HOST[0],
        [10, 0, 0, 1],
        [10, 0, 0, 254],
        Mac::BROADCAST,
    );
    let out = received(&mut router, 0, request, S);
    assert_eq!(out[0].1.target(), Some(HOST[0]));
    assert_eq!(router.neighbour_count(), 1);
}

#[test]
fn lies_about_neighbours_are_not_believed() {
    let mut router = router();
    received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", 9, 30), S);
    host_two_answers(&mut router, S);
    let liar = Mac::new([2, 0, 0, 0, 0, 66]);
    let (reply, request) = (ArpOperation::REPLY, ArpOperation::REQUEST);
    let gateway = [10, 0, 1, 254];
    let lies = [
        // Another link address without a question; the router's own address; another network's; the broadcast; a group as the sender.
        arp(reply, liar, [10, 0, 1, 2], gateway, OWN[1]),
        arp(request, liar, gateway, gateway, Mac::BROADCAST),
        arp(request, liar, [10, 9, 9, 9], gateway, Mac::BROADCAST),
        arp(request, liar, [10, 0, 1, 255], gateway, Mac::BROADCAST),
        arp(reply, liar, [10, 0, 1, 77], gateway, OWN[1]),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        assert_eq!(received(&mut router, 1, lie, S), []);
        assert_eq!(router.counters.lies, number as u64 + 1);
    }
    assert_eq!(router.neighbour_count(), 1);
    let out = received(&mut router, 0, v4("10.0.0.1", "10.0.1.2", 9, 30), S);
    assert_eq!(out[0].1.target(), Some(HOST[1]));
}

#[test]
fn cache_and_questions_are_limited() {
    let mut router = router();
    router.interfaces[0].addresses = vec!["10.64.0.254/10".parse().unwrap()];
    router.set_routes([]);
    for n in 0..5000u32 {
        let sender = (0x0a40_0000 + n + 1000).to_be_bytes();
        let request = arp(
            ArpOperation::REQUEST,
            HOST[0],
            sender,
            [10, 64, 0, 254],
            Mac::BROADCAST,
        );
        received(&mut router, 0, request, S);
    }
    assert_eq!(router.neighbour_count(), neighbours::ENTRIES);
    // A scan of addresses that do not answer.
    let mut questions = 0;
    for n in 0..2000u32 {
        let target = Ipv4Addr::from_bits(0x0a7f_0000 + n).to_string();
        let mut frame = v4("10.0.1.2", &target, 9, 30);
        frame.bytes[..6].copy_from_slice(&OWN[1].octets());
        questions += received(&mut router, 1, frame, S).len();
    }
    assert_eq!(questions, neighbours::QUESTIONS);
    assert!(router.neighbour_count() <= neighbours::ENTRIES);
    let mut out = Out::new();
    for _ in 0..4 {
        let Some(due) = router.next_timer() else {
            break;
        };
        router.tick(due, &mut out);
    }
    assert_eq!(router.next_timer(), None);
}

#[test]
fn longest_prefix_wins_and_flows_spread() {
    let mut router = router();
    let hop = |interface, via: &str| Hop {
        interface,
        via: via.parse().ok(),
    };
    let route = |network: &str, hops: Vec<Hop>| Route {
        network: network.parse().unwrap(),
        hops,
    };
    router.set_routes([
        route("0.0.0.0/0", vec![hop(0, "10.0.0.9")]),
        route("192.0.2.0/24", vec![hop(0, "10.0.0.1"), hop(1, "10.0.1.1")]),
        route("192.0.2.7/32", vec![hop(1, "10.0.1.7")]),
    ]);
    let select = |router: &Router, to: &str, port: u16| {
        let mut frame = v4("10.0.0.1", to, 9, 30);
        frame.bytes[34..36].copy_from_slice(&port.to_be_bytes());
        let packet = parse(&frame.bytes[14..]).unwrap();
        router.select(&packet, &frame)
    };
    assert_eq!(select(&router, "198.51.100.1", 1), Some(hop(0, "10.0.0.9")));
    assert_eq!(select(&router, "192.0.2.7", 1), Some(hop(1, "10.0.1.7")));
    let chosen: Vec<usize> = (0..1000)
        .filter_map(|port| select(&router, "192.0.2.1", port))
        .map(|hop| hop.interface)
        .collect();
    let ones = chosen.iter().filter(|interface| **interface == 1).count();
    assert!((400..600).contains(&ones), "{ones}");
    assert_eq!(
        select(&router, "192.0.2.1", 5),
        select(&router, "192.0.2.1", 5)
    );
    router.set_up(1, false);
    assert_eq!(select(&router, "192.0.2.1", 5), Some(hop(0, "10.0.0.1")));
    assert_eq!(
        select(&router, "192.0.2.7", 5),
        Some(hop(0, "10.0.0.1")),
        "the next longest"
    );
}

#[test]
fn truncated_packets_change_nothing() {
    let arp = arp(
        ArpOperation::REQUEST,
        HOST[0],
        [10, 0, 0, 1],
        [10, 0, 0, 254],
        Mac::BROADCAST,
    );
    for whole in [
        v4("10.0.0.1", "10.0.1.2", 9, 30),
        v6("fd00::1", "fd01::2", 9),
        arp,
    ] {
        for len in 0..whole.bytes.len() {
            let mut router = router();
            let frame = Frame::plain(whole.bytes[..len].to_vec());
            assert_eq!(received(&mut router, 0, frame, S), []);
            assert_eq!(router.neighbour_count(), 0);
        }
    }
}

#[test]
fn addresses_that_are_not_forwarded_are_refused() {
    for (from, to) in [
        ("127.0.0.1", "10.0.1.2"),
        ("224.0.0.1", "10.0.1.2"),
        ("255.255.255.255", "10.0.1.2"),
        ("0.0.0.0", "10.0.1.2"),
        ("10.0.0.1", "127.0.0.1"),
        ("10.0.0.1", "224.0.0.5"),
        ("10.0.0.1", "255.255.255.255"),
        ("10.0.0.1", "10.0.1.255"),
        ("169.254.0.1", "10.0.1.2"),
    ] {
        let mut router = router();
        assert_eq!(
            received(&mut router, 0, v4(from, to, 9, 30), S),
            [],
            "{from} {to}"
        );
        assert_eq!(router.counters.malformed, 1, "{from} {to}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_bytes_neither_panic_nor_grow(
        kind in prop::sample::select(vec![IPV4, IPV6, ARP, 0x8100, 0x1234]),
        version in prop::sample::select(vec![0x45, 0x46, 0x4f, 0x60, 0]),
        mut payload in prop::collection::vec(any::<u8>(), 0..120),
        broadcast in any::<bool>(),
    ) {
        if let Some(first) = payload.first_mut() {
            *first = version;
        }
        let to = if broadcast { Mac::BROADCAST } else { OWN[0] };
        let mut router = router();
        for _ in 0..3 {
            let out = received(&mut router, 0, ethernet(HOST[0], to, kind, &payload), S);
            prop_assert!(out.len() <= 2);
        }
        prop_assert!(router.neighbour_count() <= 1);
    }
}
