//! ICMP and ICMPv6: echo, neighbour discovery, and reports about packets that were sent (RFC 792, RFC 4443, RFC 4861).
//! A message is parsed into what it asks or tells; messages that are not understood are ignored.

use core::net::{IpAddr, Ipv6Addr};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::{
    DestUnreachableCode, TYPE_NEIGHBOR_ADVERTISEMENT, TYPE_NEIGHBOR_SOLICITATION,
};
use etherparse::{
    Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice,
};

use crate::checksum::Checksum;
use crate::frame::{LINK_HOP_LIMIT, Mac};
use crate::tcp::PathReport;

/// The protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;
/// The protocol number of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;
/// Bytes of a quoted packet in a report that is sent (RFC 4443, 2.4 allows more).
const QUOTED: usize = 128;

/// A packet that a report quotes: at least its addresses, ports and, for TCP, its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quoted {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) seq: u32,
}

/// What a message asks or tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// An echo is requested: the answer, complete but for its checksum.
    Echo(Vec<u8>),
    /// A packet could not be delivered.
    Report(PathReport, Quoted),
    /// Which station has this address?
    Solicitation {
        target: Ipv6Addr,
        source: Option<Mac>,
    },
    /// This station has the address.
    Advertisement { target: Ipv6Addr, mac: Mac },
    /// Something else.
    Other,
}

/// Parses a message whose checksum is valid.
pub(crate) fn parse_v4(bytes: &[u8]) -> Option<Message> {
    let message = Icmpv4Slice::from_slice(bytes).ok()?;
    Some(match message.icmp_type() {
        Icmpv4Type::EchoRequest(_) => Message::Echo(reply(bytes, 0)),
        Icmpv4Type::DestinationUnreachable(reason) => {
            let report = match reason {
                // Routers that are older than RFC 1191 name no MTU, and are not believed.
                DestUnreachableHeader::FragmentationNeeded { next_hop_mtu } => PathReport::TooBig {
                    mtu: usize::from(next_hop_mtu),
                },
                _ => PathReport::Unreachable,
            };
            Message::Report(report, quoted_v4(message.payload())?)
        }
        _ => Message::Other,
    })
}

/// The same for ICMPv6.
pub(crate) fn parse_v6(bytes: &[u8], hop_limit: u8) -> Option<Message> {
    let message = Icmpv6Slice::from_slice(bytes).ok()?;
    let payload = message.payload();
    let is_local = hop_limit == LINK_HOP_LIMIT && message.code_u8() == 0;
    Some(match message.icmp_type() {
        Icmpv6Type::EchoRequest(_) => Message::Echo(reply(bytes, 129)),
        Icmpv6Type::PacketTooBig { mtu } => {
            let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
            Message::Report(PathReport::TooBig { mtu }, quoted_v6(payload)?)
        }
        Icmpv6Type::DestinationUnreachable(_) => {
            Message::Report(PathReport::Unreachable, quoted_v6(payload)?)
        }
        Icmpv6Type::NeighborSolicitation if is_local => Message::Solicitation {
            target: target(payload)?,
            source: option(payload, 1),
        },
        Icmpv6Type::NeighborAdvertisement(_) if is_local => Message::Advertisement {
            target: target(payload)?,
            mac: option(payload, 2)?,
        },
        _ => Message::Other,
    })
}

fn reply(request: &[u8], kind: u8) -> Vec<u8> {
    let mut reply = request.to_vec();
    if let Some(head) = reply.first_chunk_mut::<4>() {
        *head = [kind, 0, 0, 0];
    }
    reply
}

fn target(payload: &[u8]) -> Option<Ipv6Addr> {
    let target = Ipv6Addr::from(*payload.first_chunk::<16>()?);
    (!target.is_multicast()).then_some(target)
}

/// The Ethernet address in the options of neighbour discovery (RFC 4861, 4.6.1).
fn option(payload: &[u8], kind: u8) -> Option<Mac> {
    let mut rest = payload.get(16..)?;
    while let [this, units, ..] = *rest {
        let len = usize::from(units) * 8;
        let option = rest.get(..len).filter(|_| len > 0)?;
        if this == kind {
            return option.get(2..8)?.first_chunk().map(|mac| Mac(*mac));
        }
        rest = rest.get(len..)?;
    }
    None
}

fn quoted_v4(bytes: &[u8]) -> Option<Quoted> {
    let header = Ipv4HeaderSlice::from_slice(bytes).ok()?;
    if header.fragments_offset().value() != 0 {
        return None;
    }
    let (source, destination) = (header.source_addr(), header.destination_addr());
    quoted(
        (IpAddr::V4(source), IpAddr::V4(destination)),
        header.protocol().0,
        bytes.get(header.slice().len()..)?,
    )
}

fn quoted_v6(bytes: &[u8]) -> Option<Quoted> {
    let header = Ipv6HeaderSlice::from_slice(bytes).ok()?;
    let (source, destination) = (header.source_addr(), header.destination_addr());
    quoted(
        (IpAddr::V6(source), IpAddr::V6(destination)),
        header.next_header().0,
        bytes.get(Ipv6Header::LEN..)?,
    )
}

fn quoted((source, destination): (IpAddr, IpAddr), protocol: u8, bytes: &[u8]) -> Option<Quoted> {
    let &[a, b, c, d, e, f, g, h] = bytes.first_chunk()?;
    Some(Quoted {
        source,
        destination,
        protocol,
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        seq: u32::from_be_bytes([e, f, g, h]),
    })
}

/// A question for a station, or the answer.
pub(crate) fn neighbor(target: Ipv6Addr, mac: Mac, is_answer: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    if is_answer {
        // Solicited, and to override.
        out.extend_from_slice(&[TYPE_NEIGHBOR_ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0]);
    } else {
        out.extend_from_slice(&[TYPE_NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    }
    out.extend_from_slice(&target.octets());
    out.extend_from_slice(&[if is_answer { 2 } else { 1 }, 1]);
    out.extend_from_slice(&mac.0);
    out
}

/// The report that no program has the port of a datagram; `packet` is the datagram with its IP header.
pub(crate) fn port_unreachable(packet: &[u8], is_v6: bool) -> Vec<u8> {
    let (kind, code) = if is_v6 {
        (1, DestUnreachableCode::Port.code_u8())
    } else {
        (3, 3)
    };
    let mut out = vec![kind, code, 0, 0, 0, 0, 0, 0];
    out.extend_from_slice(packet.get(..QUOTED).unwrap_or(packet));
    out
}

/// Writes the checksum of a message between these addresses.
pub(crate) fn seal(message: &mut [u8], source: IpAddr, destination: IpAddr) {
    let mut sum = if source.is_ipv6() {
        Checksum::pseudo(source, destination, ICMPV6, message.len())
    } else {
        Checksum::default()
    };
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
    }
    sum.add(message);
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbor_messages_parse_as_the_same() {
        let target: Ipv6Addr = "fe80::1".parse().unwrap();
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let question = neighbor(target, mac, false);
        let parsed = parse_v6(&question, LINK_HOP_LIMIT);
        let source = Some(mac);
        assert_eq!(parsed, Some(Message::Solicitation { target, source }));
        let answer = neighbor(target, mac, true);
        let parsed = parse_v6(&answer, LINK_HOP_LIMIT);
        assert_eq!(parsed, Some(Message::Advertisement { target, mac }));
        // From beyond a router.
        assert_eq!(parse_v6(&answer, 254), Some(Message::Other));
    }

    #[test]
    fn option_of_length_zero_ends_the_list() {
        let target = Ipv6Addr::LOCALHOST;
        let mut question = neighbor(target, Mac::default(), false);
        question[25] = 0;
        let source = None;
        let parsed = parse_v6(&question, LINK_HOP_LIMIT);
        assert_eq!(parsed, Some(Message::Solicitation { target, source }));
    }

    #[test]
    fn prefixes_break_nothing() {
        let packet = port_unreachable(&[0x45; 60], false);
        for len in 0..packet.len() {
            let _ = parse_v4(&packet[..len]);
            let _ = parse_v6(&packet[..len], LINK_HOP_LIMIT);
        }
    }
}
