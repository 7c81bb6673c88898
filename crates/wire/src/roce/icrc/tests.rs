//! The invariant CRC: its check value, which bits it does not cover, odd headers, and the headers
//! reconstructed for a UDP socket. Whole packets are in tests/vectors.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::testing::hex;

const IPV4: &str = "45000034 00014000 4011b764 c0a80101 c0a80102 c12312b7 00200000";
const IPV6: &str = "60000000 00201140 fd000000000000000000000000000001
    fd000000000000000000000000000002 c12312b7 002073ea";
const IB: &str = "0430ffff 00000011 80000105 68656c6c6f000000";

#[test]
fn crc32_check_value_matches() {
    assert_eq!(crc32_ieee(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32_ieee(b""), 0);
    // The state after the eight bytes in front of every packet, before the final inversion.
    assert_eq!(!crc32_ieee(&[0xff; LRH_LEN]), 0xdebb_20e3);
}

/// Flips every bit of `headers` and returns those that the checksum does not cover.
fn unseen_bits(headers: &[u8], ib: &[u8]) -> Vec<(usize, u8)> {
    let all = [headers, ib].concat();
    let plain = icrc(headers, ib);
    let unseen = |at: usize| {
        let invisible = (0..8).map(|bit| 1u8 << bit).filter(|bit| {
            let mut bent = all.clone();
            bent[at] ^= bit;
            let (headers, ib) = bent.split_at(headers.len());
            icrc(headers, ib) == plain
        });
        invisible.fold(0, |mask, bit| mask | bit)
    };
    (0..all.len())
        .map(|at| (at, unseen(at)))
        .filter(|(_, mask)| *mask != 0)
        .collect()
}

#[test]
fn icrc_masks_only_mutable_fields() {
    let ib = hex(IB);
    assert_eq!(
        unseen_bits(&hex(IPV4), &ib),
        [
            (1, 0xff),
            (8, 0xff),
            (10, 0xff),
            (11, 0xff),
            (26, 0xff),
            (27, 0xff),
            (28 + 4, 0xff)
        ]
    );
    assert_eq!(
        unseen_bits(&hex(IPV6), &ib),
        [
            (0, 0x0f),
            (1, 0xff),
            (2, 0xff),
            (3, 0xff),
            (7, 0xff),
            (46, 0xff),
            (47, 0xff),
            (48 + 4, 0xff)
        ]
    );
}

#[test]
fn ipv4_options_move_the_udp_checksum() {
    let mut headers = hex(IPV4);
    headers[0] = 0x46;
    headers.splice(20..20, [1, 1, 1, 1]);
    let ib = hex(IB);
    let unseen: Vec<usize> = unseen_bits(&headers, &ib)
        .iter()
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(unseen, [1, 8, 10, 11, 30, 31, 36]);
}

#[test]
fn socket_icrc_equals_icrc_of_headers() {
    let ib = hex(IB);
    let v4 = Path {
        src: Ipv4Addr::new(192, 168, 1, 1).into(),
        dst: Ipv4Addr::new(192, 168, 1, 2).into(),
        src_port: 0xc123,
        dst_port: 4791,
    };
    let mut headers = hex(IPV4);
    headers[5] = 0;
    assert_eq!(icrc_over_socket(v4, &ib), icrc(&headers, &ib));
    let v6 = Path {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
        ..v4
    };
    assert_eq!(icrc_over_socket(v6, &ib), icrc(&hex(IPV6), &ib));
    // With one IPv6 address the IPv4 one is mapped.
    let mixed = Path { src: v4.src, ..v6 };
    let mapped = Path {
        src: Ipv4Addr::new(192, 168, 1, 1).to_ipv6_mapped().into(),
        ..v6
    };
    assert_eq!(icrc_over_socket(mixed, &ib), icrc_over_socket(mapped, &ib));
    assert_eq!(v4.to_string(), "[192.168.1.1]:49443 -> [192.168.1.2]:4791");
}

/// A packet and a path with this identification and flags in its header; the identification that its ICRC gives.
fn found(number: u16, flags: u8, payload: usize) -> Option<(u16, bool)> {
    let mut headers = hex(IPV4);
    let ib = [hex(IB), vec![0x5a; payload]].concat();
    let len = headers.len() + ib.len() + ICRC_LEN;
    headers[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    headers[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    headers[4..6].copy_from_slice(&number.to_be_bytes());
    headers[6] = flags;
    let sent = icrc(&headers, &ib);
    assert_eq!(is_icrc_valid(V4, &ib, sent), flags & !0x40 == 0);
    IcrcChecker::default().identification(icrc_over_socket(V4, &ib), sent, ib.len())
}

const V4: Path = Path {
    src: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)),
    dst: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 2)),
    src_port: 0xc123,
    dst_port: 4791,
};

#[test]
fn identification_follows_from_the_icrc() {
    for payload in [0, 4, 256, 1024, 4096, 9000] {
        for number in [0, 1, 2, 0x8000, 0x1234, 0xffff] {
            assert_eq!(found(number, 0x40, payload), Some((number, true)));
            assert_eq!(found(number, 0, payload), Some((number, false)));
            // Reserved bit, and a fragment: no such packet reaches a socket.
            assert_eq!(found(number, 0xc0, payload), None);
            assert_eq!(found(number, 0x60, payload), None);
        }
    }
    assert_eq!(multiply(GENERATOR << 1 | 1, 0x4000_0000), 0x8000_0000);
}

#[test]
fn segments_count_their_identification() {
    let ib = hex(IB);
    for number in [0, 1, 63, 0xffff] {
        let sent = icrc_of_segment(V4, number, &ib);
        let found =
            IcrcChecker::default().identification(icrc_over_socket(V4, &ib), sent, ib.len());
        assert_eq!(found, Some((number, true)));
        assert!(is_icrc_valid(V4, &ib, sent));
    }
}

#[test]
fn checker_follows_the_identifications_of_a_message() {
    let ib = hex(IB);
    let longer = [hex(IB), vec![3; 64]].concat();
    let mut checker = IcrcChecker::default();
    // A burst of ours, the rest of one, another sender's numbers; packets of two lengths.
    let sent = [0, 1, 2, 0, 40, 41, 0xffff, 0, 7, 9];
    let numbers = [0, 1, 2, 0, 0, 1, 2, 3, 0, 1];
    for (at, (id, number)) in sent.into_iter().zip(numbers).enumerate() {
        let bytes = if at % 4 == 3 { &longer } else { &ib };
        let sum = icrc_of_segment(V4, id, bytes);
        assert!(checker.check(V4, number, bytes, sum), "packet {at}");
        assert_eq!(checker.next, id.wrapping_add(1), "packet {at}");
        let damaged = [sum[0] ^ 1, sum[1], sum[2], sum[3]];
        assert!(!checker.clone().check(V4, number, bytes, damaged));
    }
}

#[test]
fn one_damaged_packet_in_2_to_15_is_valid() {
    let ib = hex(IB);
    let right = u32::from_le_bytes(icrc_over_socket(V4, &ib));
    // The differences are spread over all values by a multiplicative hash.
    let damaged = (1..1_u32 << 20).map(|n| right ^ n.wrapping_mul(0x9e37_79b1));
    let valid = damaged.filter(|sum| is_icrc_valid(V4, &ib, sum.to_le_bytes()));
    let valid = valid.count();
    assert!((16..=64).contains(&valid), "{valid} of 2^20, expected 2^5");
    let v6 = Path {
        src: Ipv6Addr::LOCALHOST.into(),
        ..V4
    };
    let right = u32::from_le_bytes(icrc_over_socket(v6, &ib));
    let damaged = (1..1_u32 << 16).map(|n| right ^ n.wrapping_mul(0x9e37_79b1));
    let valid = damaged.filter(|sum| is_icrc_valid(v6, &ib, sum.to_le_bytes()));
    assert_eq!(valid.count(), 0, "IPv6 has no identification");
}

proptest! {
    #[test]
    fn arbitrary_headers_do_not_panic(
        headers in proptest::collection::vec(any::<u8>(), 0..100),
        rest in proptest::collection::vec(any::<u8>(), 0..16),
    ) {
        icrc(&headers, &rest);
    }

    #[test]
    fn oversized_packets_do_not_panic(len in 65_000usize..70_000) {
        let path = Path {
            src: Ipv4Addr::LOCALHOST.into(),
            dst: Ipv4Addr::LOCALHOST.into(),
            src_port: 1,
            dst_port: 2,
        };
        icrc_over_socket(path, &vec![0; len]);
    }
}
