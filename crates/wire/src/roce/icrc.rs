//! The invariant CRC at the end of every RoCEv2 packet: a CRC-32 over everything from the IP
//! header on, with the fields that routers change set to ones. [`icrc`] takes the headers as sent;
//! [`icrc_over_socket`] reconstructs the headers that the kernel will put in front of a payload
//! sent through a UDP socket.

use core::fmt;
use core::net::IpAddr;

use crc_fast::{CrcAlgorithm, Digest, crc32_iso_hdlc};

#[cfg(test)]
mod tests;

/// Bytes of the checksum.
pub const ICRC_LEN: usize = 4;

/// In place of InfiniBand's local route header, which Ethernet packets lack.
const DUMMY_LRH: [u8; 8] = [0xff; 8];
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// IPv4 with the most options, and UDP.
const MAX_HEADERS: usize = 60 + UDP_LEN;
const PROTOCOL_UDP: u8 = 17;
/// Byte of the BTH with the FECN and BECN bits, which routers may set.
const BTH_CONGESTION: usize = 4;

/// CRC-32 as Ethernet uses it.
pub fn crc32_ieee(bytes: &[u8]) -> u32 {
    crc32_iso_hdlc(bytes)
}

/// The ICRC of a packet whose IP and UDP headers are `headers`, as sent, and whose UDP payload
/// without the ICRC is `rest`.
///
/// Headers that are neither IPv4 nor IPv6 are taken as they are, so the result will not match.
pub fn icrc(headers: &[u8], rest: &[u8]) -> [u8; ICRC_LEN] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    digest.update(&DUMMY_LRH);
    let (front, beyond) = headers
        .split_at_checked(MAX_HEADERS)
        .unwrap_or((headers, &[]));
    let mut masked = [0; MAX_HEADERS];
    for (to, from) in masked.iter_mut().zip(front) {
        *to = *from;
    }
    mask_headers(&mut masked);
    digest.update(masked.get(..front.len()).unwrap_or_default());
    digest.update(beyond);
    match rest.split_at_checked(BTH_CONGESTION) {
        Some((before, [_, after @ ..])) => {
            digest.update(before);
            digest.update(&[0xff]);
            digest.update(after);
        }
        _ => digest.update(rest),
    }
    // `Digest` returns 64 bits for every algorithm; a 32-bit checksum is the lower half.
    (digest.finalize() as u32).to_le_bytes()
}

/// Sets the bits that may change between sender and receiver: ToS or traffic class, TTL or hop
/// limit, flow label, and the two checksums that depend on them.
fn mask_headers(headers: &mut [u8; MAX_HEADERS]) {
    let [first, ..] = *headers;
    let udp = match first >> 4 {
        4 => {
            for at in [1, 8, 10, 11] {
                mask(headers, at, 0xff);
            }
            usize::from(first & 0x0f) * 4
        }
        6 => {
            for (at, bits) in [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)] {
                mask(headers, at, bits);
            }
            IPV6_LEN
        }
        _ => return,
    };
    mask(headers, udp + 6, 0xff);
    mask(headers, udp + 7, 0xff);
}

fn mask(headers: &mut [u8; MAX_HEADERS], at: usize, bits: u8) {
    if let Some(byte) = headers.get_mut(at) {
        *byte |= bits;
    }
}

/// The addresses and ports of a UDP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            src,
            dst,
            src_port,
            dst_port,
        } = self;
        write!(f, "[{src}]:{src_port} -> [{dst}]:{dst_port}")
    }
}

/// The ICRC of `ib_bytes` (BTH to pad) sent through a UDP socket, where the IP and UDP headers are
/// not visible to the program.
///
/// IPv4 headers are assumed to have identification 0, "do not fragment" set and no options; IPv6
/// headers to have no extension headers. If only one address is IPv4, both are taken as IPv6, as a
/// dual-stack socket reports them. Lengths beyond 16 bits, which no packet has, count as 65535.
pub fn icrc_over_socket(path: Path, ib_bytes: &[u8]) -> [u8; ICRC_LEN] {
    let udp_len = UDP_LEN + ib_bytes.len().saturating_add(ICRC_LEN);
    let mut headers = Vec::with_capacity(IPV6_LEN + UDP_LEN);
    match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let [len_high, len_low] = wire_len(udp_len.saturating_add(IPV4_LEN));
            headers.extend_from_slice(&[0x45, 0, len_high, len_low]);
            headers.extend_from_slice(&[0, 0, 0x40, 0, 0, PROTOCOL_UDP, 0, 0]);
            headers.extend_from_slice(&src.octets());
            headers.extend_from_slice(&dst.octets());
        }
        (src, dst) => {
            let [len_high, len_low] = wire_len(udp_len);
            headers.extend_from_slice(&[0x60, 0, 0, 0, len_high, len_low, PROTOCOL_UDP, 0]);
            headers.extend_from_slice(&octets(src));
            headers.extend_from_slice(&octets(dst));
        }
    }
    headers.extend_from_slice(&path.src_port.to_be_bytes());
    headers.extend_from_slice(&path.dst_port.to_be_bytes());
    headers.extend_from_slice(&wire_len(udp_len));
    headers.extend_from_slice(&[0, 0]);
    icrc(&headers, ib_bytes)
}

fn wire_len(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
