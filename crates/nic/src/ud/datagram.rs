//! A received datagram, checked as far as that needs no queue pair: format, length, checksum, partition.
//! An invalid one is dropped with its cause. The IP header that the program finds in its receive is built from the addresses that the
//! system reported, not from the packet.

use core::net::IpAddr;

use verbena_wire::number::Qpn;
use verbena_wire::roce::{Bth, Deth, ICRC_LEN, Path, UdPacket, is_icrc_valid};

use crate::wc::Header;

use super::MAX_DATAGRAM;

/// Bytes before every datagram in its receive: InfiniBand's global route header, or what RoCEv2 puts there.
pub const GRH_LEN: usize = 40;
/// The default partition, the only one.
pub const PKEY: u16 = 0xffff;

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
const HOPS: u8 = 64;
const IMMEDIATE_LEN: usize = 4;

/// Bytes of the longest packet that is accepted: the receive buffer needs this much room.
pub const fn largest_packet() -> usize {
    Bth::LEN + Deth::LEN + IMMEDIATE_LEN + MAX_DATAGRAM + ICRC_LEN
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It is not a datagram of this service: too short, another opcode, an impossible pad.
    Malformed,
    /// It is longer than any message may be.
    Oversized,
    /// Its checksum is wrong.
    Checksum,
    /// It is for another partition.
    Partition,
    /// The state does not receive.
    State,
    /// It carried another Q_Key.
    Key,
    /// No receive was posted.
    NoReceive,
    /// The next receive is too small.
    TooLong,
    /// The memory of the next receive is not registered yet (V5).
    Pending,
    /// The memory of the receive may not be accessed; the queue pair has failed.
    Memory,
}

/// A received datagram.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedDatagram<'a> {
    pub(super) packet: UdPacket<'a>,
    path: Path,
    /// Bytes of the UDP payload.
    bytes: usize,
}

impl<'a> ReceivedDatagram<'a> {
    /// Checks the payload of a UDP packet that was received on this path.
    pub fn parse(bytes: &'a [u8], path: Path) -> Result<ReceivedDatagram<'a>, DropReason> {
        if bytes.len() > largest_packet() {
            return Err(DropReason::Oversized);
        }
        let (packet, icrc) = UdPacket::parse(bytes).map_err(|_| DropReason::Malformed)?;
        if packet.payload.len() > MAX_DATAGRAM {
            return Err(DropReason::Oversized);
        }
        let summed = bytes.len().saturating_sub(ICRC_LEN);
        let summed = bytes.get(..summed).unwrap_or_default();
        if !is_icrc_valid(path, summed, icrc) {
            return Err(DropReason::Checksum);
        }
        if packet.pkey != PKEY {
            return Err(DropReason::Partition);
        }
        Ok(ReceivedDatagram {
            packet,
            path,
            bytes: bytes.len(),
        })
    }

    /// The queue pair it is for.
    pub fn dest_qpn(&self) -> Qpn {
        self.packet.dest_qpn
    }

    /// The queue pair that sent it.
    pub fn src_qpn(&self) -> Qpn {
        self.packet.src_qpn
    }

    /// The address it came from.
    pub fn src_addr(&self) -> IpAddr {
        self.path.src
    }

    /// The IP version of its header.
    pub(super) fn header(&self) -> Header {
        match (self.path.src, self.path.dst) {
            (IpAddr::V4(_), IpAddr::V4(_)) => Header::V4,
            _ => Header::V6,
        }
    }

    /// The header before the message in its receive. RoCEv2: an IPv4 header takes the last 20 bytes, and those before it are
    /// undefined; an IPv6 header takes all 40.
    pub(super) fn grh(&self) -> [u8; GRH_LEN] {
        let mut grh = [0; GRH_LEN];
        let udp_len = self.bytes + UDP_LEN;
        match (self.path.src, self.path.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let [high, low] = ((udp_len + IPV4_LEN) as u16).to_be_bytes();
                let mut header = [0; IPV4_LEN];
                header[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
                header[12..16].copy_from_slice(&src.octets());
                header[16..].copy_from_slice(&dst.octets());
                // Programs tell the two versions apart by this checksum.
                let sum = checksum(&header).to_be_bytes();
                header[10..12].copy_from_slice(&sum);
                grh[GRH_LEN - IPV4_LEN..].copy_from_slice(&header);
            }
            (src, dst) => {
                let [high, low] = (udp_len as u16).to_be_bytes();
                grh[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, UDP, HOPS]);
                grh[8..24].copy_from_slice(&octets(src));
                grh[24..].copy_from_slice(&octets(dst));
            }
        }
        grh
    }
}

/// RFC 1071, over a header whose checksum field is zero.
fn checksum(header: &[u8; IPV4_LEN]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
