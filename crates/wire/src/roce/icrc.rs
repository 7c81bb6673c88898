//! The invariant CRC at the end of every RoCEv2 packet: a CRC-32 over everything from the IP
//! header on, with the fields that routers change set to ones. [`icrc`] takes the headers as sent;
//! [`icrc_over_socket`] and [`icrc_of_segment`] reconstruct the headers that the kernel will put in
//! front of a payload sent through a UDP socket, and [`is_icrc_valid`] checks a payload received
//! through one, whose IPv4 identification and flags are not visible.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use crc_fast::{CrcAlgorithm, Digest, crc32_iso_hdlc};

#[cfg(test)]
mod tests;

/// Bytes of the checksum.
pub const ICRC_LEN: usize = 4;

/// In place of InfiniBand's local route header, which Ethernet packets lack: ones.
const LRH_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// IPv4 with the most options, and UDP.
const MAX_HEADERS: usize = 60 + UDP_LEN;
const PROTOCOL_UDP: u8 = 17;
/// The flags of an IPv4 header of a socket with this setting.
const DO_NOT_FRAGMENT: u8 = 0x40;
/// A masked byte.
const X: u8 = 0xff;
/// Byte of the BTH with the FECN and BECN bits, which routers may set.
const BTH_CONGESTION: usize = 4;
/// Everything up to that byte.
const MAX_FRONT: usize = LRH_LEN + MAX_HEADERS + BTH_CONGESTION + 1;
/// Bytes of an IPv4 header before the word with its identification and flags, and in that word.
const BEFORE_IDENTIFICATION: usize = 4;
const IDENTIFICATION_LEN: usize = 4;
/// The bits of that word that differ between senders, as a little-endian number: the identification and "do not fragment".
const SENDER_BITS: u32 = 0x0040_ffff;

/// CRC-32 as Ethernet uses it.
pub fn crc32_ieee(bytes: &[u8]) -> u32 {
    crc32_iso_hdlc(bytes)
}

/// The ICRC of a packet whose IP and UDP headers are `headers`, as sent, and whose UDP payload
/// without the ICRC is `rest`.
///
/// Headers that are neither IPv4 nor IPv6 are taken as they are, so the result will not match.
pub fn icrc(headers: &[u8], rest: &[u8]) -> [u8; ICRC_LEN] {
    let (known, beyond) = headers
        .split_at_checked(MAX_HEADERS)
        .unwrap_or((headers, &[]));
    let mut masked = [0; MAX_HEADERS];
    copy(&mut masked, known);
    mask_headers(&mut masked);
    let masked = masked.get(..known.len()).unwrap_or_default();
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    // For every packet `beyond` is empty: everything up to the masked byte of the BTH is one update, and what follows another.
    let mut front = [0xff; MAX_FRONT];
    let bth = LRH_LEN + known.len();
    copy(front.get_mut(LRH_LEN..).unwrap_or_default(), masked);
    let (before, after) = rest.split_at_checked(BTH_CONGESTION).unwrap_or((rest, &[]));
    match after {
        [_, after @ ..] if beyond.is_empty() => {
            copy(front.get_mut(bth..).unwrap_or_default(), before);
            let end = bth + BTH_CONGESTION + 1;
            digest.update(front.get(..end).unwrap_or_default());
            digest.update(after);
        }
        _ => {
            digest.update(front.get(..bth).unwrap_or_default());
            digest.update(beyond);
            digest.update(before);
            if let [_, after @ ..] = after {
                digest.update(&[0xff]);
                digest.update(after);
            }
        }
    }
    // `Digest` returns 64 bits for every algorithm; a 32-bit checksum is the lower half.
    (digest.finalize() as u32).to_le_bytes()
}

fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
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
    icrc_of_segment(path, 0, ib_bytes)
}

/// The same for a packet that the kernel cuts from a longer buffer (UDP_SEGMENT): the first has
/// number 0, and the IPv4 identification is that number.
pub fn icrc_of_segment(path: Path, number: u16, ib_bytes: &[u8]) -> [u8; ICRC_LEN] {
    let udp_len = UDP_LEN + ib_bytes.len().saturating_add(ICRC_LEN);
    // Less than a BTH is no packet; what is missing counts as zeros.
    let mut bth = [0; BTH_CONGESTION];
    copy(&mut bth, ib_bytes);
    let behind = ib_bytes.get(BTH_CONGESTION + 1..).unwrap_or_default();
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            digest.update(&front_v4(path, (src, dst), number, udp_len, bth));
        }
        (src, dst) => digest.update(&front_v6(path, [octets(src), octets(dst)], udp_len, bth)),
    }
    digest.update(behind);
    (digest.finalize() as u32).to_le_bytes()
}

/// Everything in front of the masked byte of the BTH, and that byte, over IPv4; masked.
fn front_v4(
    path: Path,
    (src, dst): (Ipv4Addr, Ipv4Addr),
    number: u16,
    udp_len: usize,
    [b0, b1, b2, b3]: [u8; BTH_CONGESTION],
) -> [u8; LRH_LEN + IPV4_LEN + UDP_LEN + BTH_CONGESTION + 1] {
    let [len_high, len_low] = wire_len(udp_len.saturating_add(IPV4_LEN));
    let [id_high, id_low] = number.to_be_bytes();
    let [s0, s1, s2, s3] = src.octets();
    let [d0, d1, d2, d3] = dst.octets();
    let [u0, u1, u2, u3, u4, u5, u6, u7] = udp_header(path, udp_len);
    // LRH, IPv4, UDP, BTH.
    #[rustfmt::skip]
    let front = [
        X, X, X, X, X, X, X, X,
        0x45, X, len_high, len_low, id_high, id_low, DO_NOT_FRAGMENT, 0, X, PROTOCOL_UDP, X, X,
        s0, s1, s2, s3, d0, d1, d2, d3,
        u0, u1, u2, u3, u4, u5, u6, u7,
        b0, b1, b2, b3, X,
    ];
    front
}

/// The same over IPv6.
fn front_v6(
    path: Path,
    [src, dst]: [[u8; 16]; 2],
    udp_len: usize,
    bth: [u8; BTH_CONGESTION],
) -> [u8; LRH_LEN + IPV6_LEN + UDP_LEN + BTH_CONGESTION + 1] {
    let [len_high, len_low] = wire_len(udp_len);
    let ip = [0x6f, X, X, X, len_high, len_low, PROTOCOL_UDP, X];
    let mut front = [X; LRH_LEN + IPV6_LEN + UDP_LEN + BTH_CONGESTION + 1];
    let mut rest = front.get_mut(LRH_LEN..).unwrap_or_default();
    for part in [&ip[..], &src, &dst, &udp_header(path, udp_len), &bth] {
        let (here, behind) = rest.split_at_mut(part.len().min(rest.len()));
        copy(here, part);
        rest = behind;
    }
    front
}

/// The UDP header, its checksum masked.
fn udp_header(path: Path, udp_len: usize) -> [u8; UDP_LEN] {
    let [src_high, src_low] = path.src_port.to_be_bytes();
    let [dst_high, dst_low] = path.dst_port.to_be_bytes();
    let [len_high, len_low] = wire_len(udp_len);
    [
        src_high, src_low, dst_high, dst_low, len_high, len_low, X, X,
    ]
}

/// Whether `icrc` is the ICRC of `ib_bytes` (BTH to pad) received through a UDP socket.
///
/// Over IPv6 it is compared exactly. The IPv4 identification and the flag "do not fragment" are
/// covered by the ICRC, differ between senders, and are not visible to the program: an ICRC that is
/// right for some value of these 17 bits is valid. Of random damage one packet in 2^15 is accepted,
/// instead of one in 2^32; the UDP checksum, where the sender sets it, detects damage in addition.
pub fn is_icrc_valid(path: Path, ib_bytes: &[u8], icrc: [u8; ICRC_LEN]) -> bool {
    IcrcChecker::default().check(path, 0, ib_bytes, icrc)
}

/// [`is_icrc_valid`] for packets that arrive behind each other, most of which have the identification behind that of the one before, or the
/// length of the one before: finding an identification that was not expected takes a division, and a second one of the same length half of it.
#[derive(Debug, Clone, Copy)]
pub struct IcrcChecker {
    /// Identification of the next packet.
    next: u16,
    /// A number of bytes, and x^(-8 * bytes).
    bytes: usize,
    power: u32,
}

impl Default for IcrcChecker {
    fn default() -> IcrcChecker {
        IcrcChecker {
            next: 0,
            bytes: 0,
            power: ONE,
        }
    }
}

impl IcrcChecker {
    /// Checks packet `number` of a message that the kernel joined (UDP_GRO), or of a single one.
    pub fn check(
        &mut self,
        path: Path,
        number: u16,
        ib_bytes: &[u8],
        icrc: [u8; ICRC_LEN],
    ) -> bool {
        // Ours count from 0 in each message.
        let likely = if number == 0 { 0 } else { self.next };
        let expected = icrc_of_segment(path, likely, ib_bytes);
        let found = if expected == icrc {
            Some(likely)
        } else if matches!((path.src, path.dst), (IpAddr::V4(_), IpAddr::V4(_))) {
            let found = self.identification(expected, icrc, ib_bytes.len());
            found.map(|(difference, _)| difference ^ likely)
        } else {
            None
        };
        self.next = found.map_or(0, |id| id.wrapping_add(1));
        found.is_some()
    }

    /// The IPv4 identification, and whether "do not fragment" was set, that make `icrc` right for a
    /// packet of `len` bytes (BTH to pad) whose ICRC would be `expected` with 0 and "do not fragment"; with another identification, the
    /// bits in which it differs.
    ///
    /// CRC-32 is linear: if two packets differ in one word only, their checksums differ by that
    /// difference times a power of x that depends on the bytes behind it. Dividing by that power gives
    /// the word.
    fn identification(
        &mut self,
        expected: [u8; ICRC_LEN],
        icrc: [u8; ICRC_LEN],
        len: usize,
    ) -> Option<(u16, bool)> {
        let behind = IPV4_LEN - BEFORE_IDENTIFICATION - IDENTIFICATION_LEN + UDP_LEN;
        let bytes = behind
            .saturating_add(len)
            .saturating_add(IDENTIFICATION_LEN);
        if self.bytes != bytes {
            (self.bytes, self.power) = (bytes, divide_by_bytes(ONE, bytes));
        }
        let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(icrc);
        let word = multiply(self.power, difference);
        let [high, low, flags, _] = word.to_le_bytes();
        (word & !SENDER_BITS == 0).then(|| (u16::from_be_bytes([high, low]), flags == 0))
    }
}

/// The generator of CRC-32 without x^32. Bit 31 of a polynomial is the coefficient of x^0.
const GENERATOR: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 0x8000_0000;
/// Lengths of packets have fewer bits.
const LENGTH_BITS: usize = 17;
/// x^(-8 * 2^n) for each bit n of a length.
const BACK: [u32; LENGTH_BITS] = {
    // The inverse of x: shifting it once gives 1.
    let mut power = GENERATOR << 1 | 1;
    let mut squarings = 0;
    while squarings < 3 {
        power = multiply(power, power);
        squarings += 1;
    }
    let mut powers = [power; LENGTH_BITS];
    let mut rest: &mut [u32] = &mut powers;
    while let [first, behind @ ..] = rest {
        *first = power;
        power = multiply(power, power);
        rest = behind;
    }
    powers
};

/// The product of two polynomials modulo the generator.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut degree) = (0, 0);
    while degree < u32::BITS {
        if a & (0x8000_0000 >> degree) != 0 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 == 0 { 0 } else { GENERATOR };
        degree += 1;
    }
    product
}

/// A polynomial divided by x^(8 * bytes).
fn divide_by_bytes(polynomial: u32, bytes: usize) -> u32 {
    let set = |n: &usize| bytes >> n & 1 == 1;
    let powers = BACK.iter().enumerate().filter(|(n, _)| set(n));
    powers.fold(polynomial, |quotient, (_, power)| {
        multiply(*power, quotient)
    })
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
