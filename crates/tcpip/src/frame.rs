//! Frames: Ethernet II with a VLAN tag, and ARP, IPv4 or IPv6 in it, parsed and emitted by `etherparse` without allocation.
//! A packet's header checksum and lengths are verified here. Fragments, IPv4 options and extension headers of IPv6 are named as such and
//! left to the host: nothing of this stack uses them.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use arrayvec::ArrayVec;
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header,
    Ethernet2HeaderSlice, IpDscp, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header,
    Ipv6HeaderSlice, SingleVlanHeader, SingleVlanSlice, VlanId, VlanPcp,
};

use crate::checksum::Checksum;
use crate::tcp::segment::MAX_TCP_HEADER;

/// Bytes of the longest headers that are sent: Ethernet, VLAN, IPv6, TCP.
pub const MAX_HEADERS: usize = 14 + 4 + 40 + MAX_TCP_HEADER;
/// The hop limit of packets that are sent.
const HOP_LIMIT: u8 = 64;
/// The hop limit of neighbour discovery, which no router passes on (RFC 4861, 7.1).
pub(crate) const LINK_HOP_LIMIT: u8 = 255;

/// Headers under construction.
pub(crate) type Headers = ArrayVec<u8, MAX_HEADERS>;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every station.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// A group of stations.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The group of an IPv6 group address (RFC 2464, 7).
    pub const fn of_group(address: Ipv6Addr) -> Mac {
        let [.., a, b, c, d] = address.octets();
        Mac([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A VLAN tag (IEEE 802.1Q).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vlan {
    /// The VLAN; 0 if the tag has only a priority.
    pub id: u16,
    /// The priority, 0 to 7.
    pub priority: u8,
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ether {
    /// The station or group that it is for.
    pub destination: Mac,
    /// The station that has sent it.
    pub source: Mac,
    /// Its tag.
    pub vlan: Option<Vlan>,
}

/// A packet's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpPacket {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The protocol of the payload.
    pub protocol: u8,
    /// Routers that may still pass it on.
    pub hop_limit: u8,
    /// The class of the traffic (RFC 2474).
    pub dscp: u8,
    /// Where the payload is in the frame, without padding.
    pub payload: Range<usize>,
}

/// What a frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// A question or answer of address resolution.
    Arp(ArpEthIpv4Packet),
    /// A packet.
    Ip(IpPacket),
    /// Something else of this type.
    Other(u16),
}

/// Why a frame is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum FrameError {
    /// It is shorter than its headers say, or a header contradicts itself.
    #[error("a frame whose headers are cut off or contradict themselves")]
    Malformed,
    /// A checksum does not match.
    #[error("a frame whose checksum does not match")]
    Checksum,
    /// A part of a packet: packets are not reassembled.
    #[error("a fragment of a packet, and packets are not reassembled")]
    Fragment,
    /// IPv4 options or IPv6 extension headers.
    #[error("a packet with options or extension headers, which are not supported")]
    Extended,
    /// An address that cannot be a sender's.
    #[error("a packet from an address that no host has")]
    Source,
}

/// Parses a frame. `is_verified` tells that checksums were verified before.
///
/// # Errors
/// If nothing in it can be used.
pub fn parse(frame: &[u8], is_verified: bool) -> Result<(Ether, Carried), FrameError> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).map_err(|_| FrameError::Malformed)?;
    let mut kind = ethernet.ether_type();
    let mut at = Ethernet2Header::LEN;
    let mut vlan = None;
    if kind == EtherType::VLAN_TAGGED_FRAME {
        let rest = frame.get(at..).unwrap_or_default();
        let tag = SingleVlanSlice::from_slice(rest).map_err(|_| FrameError::Malformed)?;
        vlan = Some(Vlan {
            id: tag.vlan_identifier().value(),
            priority: tag.priority_code_point().value(),
        });
        kind = tag.ether_type();
        at += SingleVlanHeader::LEN;
    }
    let ether = Ether {
        destination: Mac(ethernet.destination()),
        source: Mac(ethernet.source()),
        vlan,
    };
    if ether.source.is_group() {
        return Err(FrameError::Source);
    }
    let rest = frame.get(at..).unwrap_or_default();
    let carried = match kind {
        EtherType::ARP => {
            let arp = ArpPacketSlice::from_slice(rest).map_err(|_| FrameError::Malformed)?;
            let packet = arp.to_packet().try_eth_ipv4();
            Carried::Arp(packet.map_err(|_| FrameError::Malformed)?)
        }
        EtherType::IPV4 => Carried::Ip(parse_v4(rest, at, is_verified)?),
        EtherType::IPV6 => Carried::Ip(parse_v6(rest, at)?),
        other => Carried::Other(other.0),
    };
    Ok((ether, carried))
}

fn parse_v4(bytes: &[u8], at: usize, is_verified: bool) -> Result<IpPacket, FrameError> {
    let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| FrameError::Malformed)?;
    let len = header.slice().len();
    let total = usize::from(header.total_len());
    if total < len || total > bytes.len() {
        return Err(FrameError::Malformed);
    }
    if !is_verified {
        let mut sum = Checksum::default();
        sum.add(header.slice());
        if !sum.is_valid() {
            return Err(FrameError::Checksum);
        }
    }
    if header.is_fragmenting_payload() {
        return Err(FrameError::Fragment);
    }
    if !header.options().is_empty() {
        return Err(FrameError::Extended);
    }
    let source = header.source_addr();
    if source.is_multicast() || source.is_broadcast() || source.is_unspecified() {
        return Err(FrameError::Source);
    }
    Ok(IpPacket {
        source: IpAddr::V4(source),
        destination: IpAddr::V4(header.destination_addr()),
        protocol: header.protocol().0,
        hop_limit: header.ttl(),
        dscp: header.dcp().value(),
        payload: at + len..at + total,
    })
}

fn parse_v6(bytes: &[u8], at: usize) -> Result<IpPacket, FrameError> {
    let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| FrameError::Malformed)?;
    let total = Ipv6Header::LEN + usize::from(header.payload_length());
    if total > bytes.len() {
        return Err(FrameError::Malformed);
    }
    match header.next_header() {
        IpNumber::IPV6_FRAGMENTATION_HEADER => return Err(FrameError::Fragment),
        next if Ipv6Header::is_skippable_header_extension(next) => {
            return Err(FrameError::Extended);
        }
        _ => {}
    }
    let source = header.source_addr();
    if source.is_multicast() {
        return Err(FrameError::Source);
    }
    Ok(IpPacket {
        source: IpAddr::V6(source),
        destination: IpAddr::V6(header.destination_addr()),
        protocol: header.next_header().0,
        hop_limit: header.hop_limit(),
        dscp: header.dscp().value(),
        payload: at + Ipv6Header::LEN..at + total,
    })
}

/// Whether the checksum over the pseudo-header and the payload is valid.
pub(crate) fn is_payload_valid(frame: &[u8], packet: &IpPacket) -> bool {
    let Some(payload) = frame.get(packet.payload.clone()) else {
        return false;
    };
    let mut sum = Checksum::pseudo(
        packet.source,
        packet.destination,
        packet.protocol,
        payload.len(),
    );
    sum.add(payload);
    sum.is_valid()
}

/// Begins a frame.
pub(crate) fn emit_ether(ether: &Ether, kind: EtherType) -> Headers {
    let mut out = Headers::new();
    let outer = if ether.vlan.is_some() {
        EtherType::VLAN_TAGGED_FRAME
    } else {
        kind
    };
    let header = Ethernet2Header {
        source: ether.source.0,
        destination: ether.destination.0,
        ether_type: outer,
    };
    out.extend(header.to_bytes());
    if let Some(vlan) = ether.vlan {
        let header = SingleVlanHeader {
            pcp: VlanPcp::try_new(vlan.priority & 7).unwrap_or_default(),
            drop_eligible_indicator: false,
            vlan_id: VlanId::try_new(vlan.id & 0xfff).unwrap_or_default(),
            ether_type: kind,
        };
        out.extend(header.to_bytes());
    }
    out
}

/// Addresses and class of a packet that is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) ether: Ether,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) dscp: u8,
    pub(crate) is_link_only: bool,
}

/// The headers of a packet with `len` bytes of payload.
pub(crate) fn emit_ip(envelope: &Envelope, len: usize) -> Headers {
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    let hop_limit = if envelope.is_link_only {
        LINK_HOP_LIMIT
    } else {
        HOP_LIMIT
    };
    let dscp = IpDscp::try_new(envelope.dscp & 0x3f).unwrap_or_default();
    match (envelope.source, envelope.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut out = emit_ether(&envelope.ether, EtherType::IPV6);
            let mut header = Ipv6Header {
                payload_length: len,
                next_header: IpNumber(envelope.protocol),
                hop_limit,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            header.set_dscp(dscp);
            out.extend(header.to_bytes());
            out
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            let mut out = emit_ether(&envelope.ether, EtherType::IPV4);
            let mut header = Ipv4Header {
                dscp,
                total_len: len.saturating_add(20),
                dont_fragment: true,
                time_to_live: hop_limit,
                protocol: IpNumber(envelope.protocol),
                source: octets(source).octets(),
                destination: octets(destination).octets(),
                ..Ipv4Header::default()
            };
            header.header_checksum = header.calc_header_checksum();
            out.extend(header.to_bytes());
            out
        }
    }
}

/// A frame with a question or answer of address resolution.
pub(crate) fn emit_arp(ether: &Ether, packet: &ArpEthIpv4Packet) -> Headers {
    let mut out = emit_ether(ether, EtherType::ARP);
    out.extend(packet.to_bytes());
    out
}

pub(crate) const ARP_REQUEST: ArpOperation = ArpOperation::REQUEST;
pub(crate) const ARP_REPLY: ArpOperation = ArpOperation::REPLY;

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(is_v6: bool, vlan: Option<Vlan>) -> Envelope {
        let addresses: [IpAddr; 2] = if is_v6 {
            ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()]
        } else {
            ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]
        };
        Envelope {
            ether: Ether {
                destination: Mac([2, 0, 0, 0, 0, 2]),
                source: Mac([2, 0, 0, 0, 0, 1]),
                vlan,
            },
            source: addresses[0],
            destination: addresses[1],
            protocol: 17,
            dscp: 46,
            is_link_only: false,
        }
    }

    fn frame(is_v6: bool, vlan: Option<Vlan>) -> Vec<u8> {
        let mut frame = emit_ip(&envelope(is_v6, vlan), 5).to_vec();
        // Padding behind the packet.
        frame.extend_from_slice(b"hello-----");
        frame
    }

    #[test]
    fn emitted_packets_parse_as_the_same() {
        let tag = Vlan { id: 7, priority: 5 };
        for is_v6 in [false, true] {
            for vlan in [None, Some(tag)] {
                let frame = frame(is_v6, vlan);
                let expected = envelope(is_v6, vlan);
                let (ether, carried) = parse(&frame, false).unwrap();
                assert_eq!(ether, expected.ether);
                let Carried::Ip(packet) = carried else {
                    panic!("{carried:?}")
                };
                assert_eq!(packet.source, expected.source);
                assert_eq!(packet.destination, expected.destination);
                assert_eq!((packet.protocol, packet.dscp), (17, 46));
                assert_eq!(&frame[packet.payload], b"hello");
            }
        }
    }

    #[test]
    fn every_prefix_of_a_packet_is_refused() {
        for is_v6 in [false, true] {
            let whole = frame(is_v6, None);
            for len in 0..whole.len() - 5 {
                assert_eq!(parse(&whole[..len], false), Err(FrameError::Malformed));
            }
        }
    }

    #[test]
    fn changed_header_of_ipv4_is_refused() {
        let whole = frame(false, None);
        for bit in 14 * 8..34 * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&changed, false).is_err(), "{bit}");
        }
    }

    #[test]
    fn fragments_are_refused_by_name() {
        let mut v4 = frame(false, None);
        v4[20] = 0x20;
        assert_eq!(parse(&v4, true), Err(FrameError::Fragment));
        let mut v6 = frame(true, None);
        v6[20] = 44;
        assert_eq!(parse(&v6, true), Err(FrameError::Fragment));
        v6[20] = 0;
        assert_eq!(parse(&v6, true), Err(FrameError::Extended));
    }

    #[test]
    fn groups_are_no_senders() {
        let mut ethernet = frame(false, None);
        ethernet[6] |= 1;
        assert_eq!(parse(&ethernet, true), Err(FrameError::Source));
        let mut packet = frame(false, None);
        packet[26] = 224;
        assert_eq!(parse(&packet, true), Err(FrameError::Source));
    }
}
