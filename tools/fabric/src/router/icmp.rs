//! ICMP and ICMPv6 of a router: echo, errors that quote the packet, and neighbour discovery. What arrives is believed only with a right
//! checksum, and neighbour discovery only with a hop limit of 255 (RFC 4861, 7.1).

use core::net::{IpAddr, Ipv6Addr};

use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv6Header,
};
use verbena_lan::Mac;

use super::{IPV6, Packet, ethernet};
use crate::frame::{ETH_LEN, Frame};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
/// Lifetime of packets that the router sends; also what neighbour discovery requires.
const HOPS: u8 = 255;
/// Longest packet with an error: 576 bytes for IPv4 (RFC 1812, 4.3.2.3), 1280 for IPv6 (RFC 4443, 2.4).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;

/// What an error reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    Expired,
    NoRoute,
    NoHost,
    NoPort,
    NoProtocol,
    TooLong(usize),
}

/// What a packet to the router is.
pub(super) enum Received {
    /// An echo request, and the packet that answers it.
    Echo(Vec<u8>),
    Solicitation {
        asked: Ipv6Addr,
        source_mac: Option<Mac>,
    },
    Advertisement {
        of: Ipv6Addr,
        mac: Mac,
    },
    /// For a service that the router does not have.
    Unserved,
    Ignored,
}

fn payload<'a>(frame: &'a Frame, packet: &Packet) -> &'a [u8] {
    frame
        .bytes
        .get(ETH_LEN + packet.header_len..)
        .unwrap_or_default()
}

pub(super) fn is_error(frame: &Frame, packet: &Packet) -> bool {
    let kind = payload(frame, packet).first().copied();
    match packet.protocol {
        // Everything but requests and replies.
        ICMP => !matches!(kind, Some(0 | 8 | 13 | 14)),
        ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}

pub(super) fn receive(frame: &Frame, packet: &Packet) -> Received {
    let bytes = payload(frame, packet);
    match (packet.protocol, packet.source, packet.target) {
        (ICMP, IpAddr::V4(source), IpAddr::V4(target)) => {
            let echo = |(header, data): (Icmpv4Header, &[u8])| match header.icmp_type {
                Icmpv4Type::EchoRequest(echo) => {
                    let right = Icmpv4Header::with_checksum(header.icmp_type.clone(), data);
                    let reply = Icmpv4Header::with_checksum(Icmpv4Type::EchoReply(echo), data);
                    let packet = [&reply.to_bytes()[..], data].concat();
                    (right.checksum == header.checksum)
                        .then(|| v4(target.octets(), source.octets(), &packet))
                }
                _ => None,
            };
            let header = Icmpv4Header::from_slice(bytes).ok();
            let is_fragment = packet.is_later_fragment || frame.bytes[ETH_LEN + 6] & 0x20 != 0;
            let header = header.filter(|_| !is_fragment);
            let reply = header.and_then(echo).flatten();
            reply.map_or(Received::Ignored, Received::Echo)
        }
        (ICMPV6, IpAddr::V6(source), IpAddr::V6(target)) => {
            receive_v6(bytes, source, target, packet.hops_left)
        }
        (0..=1 | 43 | 44 | 51 | 58 | 60, _, _) => Received::Ignored,
        _ => Received::Unserved,
    }
}

fn receive_v6(bytes: &[u8], source: Ipv6Addr, target: Ipv6Addr, hops: u8) -> Received {
    let Ok((header, data)) = Icmpv6Header::from_slice(bytes) else {
        return Received::Ignored;
    };
    let (from, to) = (source.octets(), target.octets());
    let right = Icmpv6Header::with_checksum(header.icmp_type, from, to, data);
    if !right.is_ok_and(|right| right.checksum == header.checksum) {
        return Received::Ignored;
    }
    let kind = bytes.first().copied();
    if let Icmpv6Type::EchoRequest(echo) = header.icmp_type {
        let reply = Icmpv6Type::EchoReply(echo);
        let packet = Icmpv6Header::with_checksum(reply, to, from, data).ok();
        let packet = packet.and_then(|reply| v6(to, from, &[&reply.to_bytes()[..], data].concat()));
        return packet.map_or(Received::Ignored, Received::Echo);
    }
    let asked = bytes.get(8..).and_then(|rest| rest.first_chunk::<16>());
    let (Some(asked), HOPS) = (asked, hops) else {
        return Received::Ignored;
    };
    let asked = Ipv6Addr::from(*asked);
    let options = bytes.get(24..).unwrap_or_default();
    match kind {
        Some(SOLICITATION) => Received::Solicitation {
            asked,
            source_mac: option(options, SOURCE_MAC),
        },
        Some(ADVERTISEMENT) => match option(options, TARGET_MAC) {
            Some(mac) => Received::Advertisement { of: asked, mac },
            None => Received::Ignored,
        },
        _ => Received::Ignored,
    }
}

/// The link address in the options of neighbour discovery (RFC 4861, 4.6); a length of zero ends them.
fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let [kind, units, ..] = options {
        let len = usize::from(*units) * 8;
        if len == 0 {
            return None;
        }
        let option = options.get(..len)?;
        if *kind == wanted {
            return option
                .get(2..)?
                .first_chunk::<6>()
                .map(|mac| Mac::new(*mac));
        }
        options = &options[len..];
    }
    None
}

fn v4(source: [u8; 4], target: [u8; 4], payload: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(payload.len()).ok()?;
    let header = Ipv4Header::new(len, HOPS, IpNumber::ICMP, source, target).ok()?;
    let mut header = header;
    header.header_checksum = header.calc_header_checksum();
    Some([&header.to_bytes()[..], payload].concat())
}

fn v6(source: [u8; 16], target: [u8; 16], payload: &[u8]) -> Option<Vec<u8>> {
    let header = Ipv6Header {
        payload_length: u16::try_from(payload.len()).ok()?,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit: HOPS,
        source,
        destination: target,
        ..Ipv6Header::default()
    };
    Some([&header.to_bytes()[..], payload].concat())
}

/// The packet with an error about `packet`.
pub(super) fn error(
    own: IpAddr,
    target: IpAddr,
    problem: Problem,
    packet: &[u8],
) -> Option<Vec<u8>> {
    match (own, target) {
        (IpAddr::V4(own), IpAddr::V4(target)) => {
            let (kind, code, mtu) = match problem {
                Problem::Expired => (11, 0, 0),
                Problem::NoRoute => (3, 0, 0),
                Problem::NoHost => (3, 1, 0),
                Problem::NoProtocol => (3, 2, 0),
                Problem::NoPort => (3, 3, 0),
                Problem::TooLong(mtu) => (3, 4, u16::try_from(mtu).unwrap_or(u16::MAX)),
            };
            let [a, b] = mtu.to_be_bytes();
            let kind = Icmpv4Type::Unknown {
                type_u8: kind,
                code_u8: code,
                bytes5to8: [0, 0, a, b],
            };
            let quoted = &packet[..packet.len().min(LONGEST_V4 - 28)];
            let header = Icmpv4Header::with_checksum(kind, quoted);
            let message = [&header.to_bytes()[..], quoted].concat();
            v4(own.octets(), target.octets(), &message)
        }
        (IpAddr::V6(own), IpAddr::V6(target)) => {
            let (kind, code, mtu) = match problem {
                Problem::Expired => (3, 0, 0),
                Problem::NoRoute => (1, 0, 0),
                Problem::NoHost => (1, 3, 0),
                Problem::NoPort => (1, 4, 0),
                // An unrecognized next header, at its offset in the IPv6 header.
                Problem::NoProtocol => (4, 1, 6),
                Problem::TooLong(mtu) => (2, 0, u32::try_from(mtu).unwrap_or(u32::MAX)),
            };
            let kind = Icmpv6Type::Unknown {
                type_u8: kind,
                code_u8: code,
                bytes5to8: mtu.to_be_bytes(),
            };
            let quoted = &packet[..packet.len().min(LONGEST_V6 - 48)];
            let (own, target) = (own.octets(), target.octets());
            let header = Icmpv6Header::with_checksum(kind, own, target, quoted).ok()?;
            v6(own, target, &[&header.to_bytes()[..], quoted].concat())
        }
        _ => None,
    }
}

/// A neighbour solicitation, to the solicited-node group of the address.
pub(super) fn solicitation(own_mac: Mac, own: Ipv6Addr, asked: Ipv6Addr) -> Frame {
    let [.., a, b, c] = asked.octets();
    let group = Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | u16::from(a),
        u16::from_be_bytes([b, c]),
    );
    let to = Mac::new([0x33, 0x33, 0xff, a, b, c]);
    discovery(SOLICITATION, [0; 4], (own_mac, own), (to, group), asked)
}

/// The answer to a solicitation; to all nodes if the asking node has no address yet.
pub(super) fn advertisement(own_mac: Mac, own: Ipv6Addr, to: Mac, target: Ipv6Addr) -> Frame {
    // Router, solicited, override.
    let (flags, to, target) = if target.is_unspecified() {
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        (0xa0, Mac::new([0x33, 0x33, 0, 0, 0, 1]), group)
    } else {
        (0xe0, to, target)
    };
    let flags = [flags, 0, 0, 0];
    discovery(ADVERTISEMENT, flags, (own_mac, own), (to, target), own)
}

fn discovery(
    kind: u8,
    flags: [u8; 4],
    (own_mac, own): (Mac, Ipv6Addr),
    (to, target): (Mac, Ipv6Addr),
    subject: Ipv6Addr,
) -> Frame {
    let option = if kind == SOLICITATION {
        SOURCE_MAC
    } else {
        TARGET_MAC
    };
    let body = [&subject.octets()[..], &[option, 1], &own_mac.octets()].concat();
    let kind = Icmpv6Type::Unknown {
        type_u8: kind,
        code_u8: 0,
        bytes5to8: flags,
    };
    let (from, target) = (own.octets(), target.octets());
    let header = Icmpv6Header::with_checksum(kind, from, target, &body);
    let message = header.map(|header| [&header.to_bytes()[..], &body].concat());
    let packet = message.ok().and_then(|message| v6(from, target, &message));
    ethernet(own_mac, to, IPV6, &packet.unwrap_or_default())
}
