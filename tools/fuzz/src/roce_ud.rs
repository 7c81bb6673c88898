//! RoCEv2 datagrams: BTH, DETH, whole UD packets, and the ICRC over generated headers.
//! A packet that parses must be emitted so that it parses as the same packet, and the ICRC must not depend on fields that routers change.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use verbena_wire::roce::bth::Bth;
use verbena_wire::roce::deth::Deth;
use verbena_wire::roce::icrc::{Path, icrc, icrc_over_socket};
use verbena_wire::roce::ud::UdPacket;

use crate::source::{Source, bit};

/// Reserved bits of the BTH: byte and mask.
const BTH_RESERVED: [(usize, u8); 2] = [(4, 0x3f), (8, 0x7f)];
/// Offsets of fields that routers change, in an IPv4 header of 20 and a UDP header of 8 bytes: TOS, TTL, both checksums.
const V4_VARIANT: [usize; 6] = [1, 8, 10, 11, 26, 27];

/// Runs one input.
pub fn target(data: &[u8]) {
    headers(data);
    packet(data);
    checksum(data);
}

fn headers(data: &[u8]) {
    if let Ok(bth) = Bth::parse(data) {
        let mut came = data[..Bth::LEN].to_vec();
        for (at, mask) in BTH_RESERVED {
            came[at] &= !mask;
        }
        assert_eq!(bth.emit(), came[..]);
        let _ = bth.to_string();
    }
    if let Ok(deth) = Deth::parse(data) {
        let mut came = data[..Deth::LEN].to_vec();
        came[4] = 0;
        assert_eq!(deth.emit(), came[..]);
        let _ = deth.to_string();
    }
}

fn packet(data: &[u8]) {
    let (packet, sum) = match UdPacket::parse(data) {
        Ok(parsed) => parsed,
        Err(error) => return drop(error.to_string()),
    };
    let mut out = Vec::new();
    packet.emit(&mut out);
    assert_eq!(out.len() % 4, 0, "padded to words");
    out.extend(sum);
    assert_eq!(UdPacket::parse(&out), Ok((packet, sum)));
    let _ = packet.to_string();
}

fn checksum(data: &[u8]) {
    let mut source = Source::new(data);
    let (switches, ports) = (source.byte(), source.u32().to_be_bytes());
    let [a, b, c, d] = ports;
    let address = |v6: bool, bytes: [u8; 16]| {
        let [p, q, r, s, ..] = bytes;
        if v6 {
            IpAddr::V6(Ipv6Addr::from(bytes))
        } else {
            IpAddr::V4(Ipv4Addr::new(p, q, r, s))
        }
    };
    let path = Path {
        src: address(bit(switches, 0), source.array()),
        dst: address(bit(switches, 1), source.array()),
        src_port: u16::from_be_bytes([a, b]),
        dst_port: u16::from_be_bytes([c, d]),
    };
    let _ = (
        icrc_over_socket(path, source.clone().rest()),
        path.to_string(),
    );

    let mut headers: [u8; 28] = source.array();
    headers[0] = 0x45;
    let rest = source.rest();
    let sum = icrc(&headers, rest);
    for at in V4_VARIANT {
        headers[at] ^= 0x5a;
    }
    assert_eq!(icrc(&headers, rest), sum, "a router changed the ICRC");
    let _ = icrc(data, rest);
}
