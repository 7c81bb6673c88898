//! A router: longest prefix match with several equal next hops, TTL, ICMP errors and echo, ARP and neighbour discovery (RFC 1812, RFC 4861).
//! It does not fragment. Caches, waiting packets and ICMP errors are limited, and a packet that is refused changes no state.

mod icmp;
mod neighbours;

use core::net::IpAddr;
use core::time::Duration;

use etherparse::{
    ArpEthIpv4Packet, ArpHardwareId, ArpOperation, ArpPacket, EtherType, Ipv4HeaderSlice,
    Ipv6HeaderSlice,
};
use verbena_lan::Mac;

use crate::frame::{ETH_LEN, Frame};
use crate::prefix::Prefix;
use crate::rng::mix;

use icmp::{Problem, Received};
use neighbours::{Neighbours, Resolved};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// ICMP errors per second, and at once.
const ICMP_ERRORS: u32 = 100;

/// A next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The interface: the number of the router's port.
    pub interface: usize,
    /// The next router; `None`: the destination itself.
    pub via: Option<IpAddr>,
}

/// A route. Of several hops, a packet takes the one that the hash of its tuple selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The destinations.
    pub network: Prefix,
    /// Equal next hops.
    pub hops: Vec<Hop>,
}

/// What a router did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouterCounters {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets for the router itself.
    pub local: u64,
    /// Malformed, with a wrong checksum, or to or from an address that is not forwarded.
    pub malformed: u64,
    /// The time to live ended.
    pub expired: u64,
    /// No route or no neighbour.
    pub unreachable: u64,
    /// Longer than the MTU of the next link.
    pub too_long: u64,
    /// ICMP errors sent.
    pub errors_sent: u64,
    /// ICMP errors of the rate limit.
    pub errors_limited: u64,
    /// Claims about neighbours that were not believed.
    pub lies: u64,
}

#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) mac: Mac,
    pub(crate) addresses: Vec<Prefix>,
    pub(crate) mtu: usize,
    pub(crate) up: bool,
}

impl Interface {
    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address() == address)
    }

    fn network_of(&self, address: IpAddr) -> Option<&Prefix> {
        self.addresses.iter().find(|own| own.contains(address))
    }

    /// The address with which the router speaks to another one.
    fn own(&self, other: IpAddr) -> Option<IpAddr> {
        let first = self
            .addresses
            .iter()
            .find(|own| own.address().is_ipv4() == other.is_ipv4());
        self.network_of(other).or(first).map(Prefix::address)
    }
}

#[derive(Debug)]
pub(crate) struct Router {
    interfaces: Vec<Interface>,
    routes: Vec<Route>,
    neighbours: Neighbours,
    hash_seed: u64,
    error_tokens: u32,
    refilled: Duration,
    pub(crate) counters: RouterCounters,
}

/// What leaves: the port and the frame.
pub(crate) type Out = Vec<(usize, Frame)>;

/// The part of a packet that forwarding needs.
struct Packet {
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    hops_left: u8,
    /// Of the IP header, without extension headers of IPv6.
    header_len: usize,
    len: usize,
    /// Not the first fragment: there is no transport header.
    is_later_fragment: bool,
}

impl Router {
    pub(crate) fn new(hash_seed: u64) -> Router {
        Router {
            interfaces: Vec::new(),
            routes: Vec::new(),
            neighbours: Neighbours::default(),
            hash_seed,
            error_tokens: ICMP_ERRORS,
            refilled: Duration::ZERO,
            counters: RouterCounters::default(),
        }
    }

    pub(crate) fn add_interface(&mut self, interface: Interface) {
        self.interfaces.push(interface);
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The link of an interface is cut or mended: what was learnt there is forgotten.
    pub(crate) fn set_up(&mut self, interface: usize, up: bool) {
        if let Some(found) = self.interfaces.get_mut(interface) {
            found.up = up;
        }
        if !up {
            self.neighbours.forget(interface);
        }
    }

    /// Sets the routes besides those to the networks of the interfaces.
    pub(crate) fn set_routes(&mut self, routes: impl IntoIterator<Item = Route>) {
        let mut all: Vec<Route> = routes.into_iter().collect();
        for (index, interface) in self.interfaces.iter().enumerate() {
            let hop = Hop {
                interface: index,
                via: None,
            };
            all.extend(interface.addresses.iter().map(|own| Route {
                network: own.network(),
                hops: vec![hop],
            }));
        }
        // Of two routes to one network the first is taken: connected before others.
        all.reverse();
        all.sort_by_key(|route| core::cmp::Reverse(route.network.len()));
        self.routes = all;
    }

    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// A frame arrived at a port.
    pub(crate) fn receive(&mut self, at: usize, frame: Frame, now: Duration, out: &mut Out) {
        let Some(interface) = self.interfaces.get(at).filter(|interface| interface.up) else {
            return;
        };
        let (Some(target), Some(source)) = (frame.target(), frame.source()) else {
            self.counters.malformed += 1;
            return;
        };
        if target != interface.mac && !target.is_group() {
            return;
        }
        let kind = frame.ether_type();
        if !source.is_station() {
            self.counters.malformed += 1;
        } else if kind == Some(ARP) {
            self.receive_arp(at, &frame, now, out);
        } else if kind == Some(IPV4) || kind == Some(IPV6) {
            self.receive_ip(at, frame, now, out);
        }
    }

    fn receive_arp(&mut self, at: usize, frame: &Frame, now: Duration, out: &mut Out) {
        let arp = ArpPacket::from_slice(&frame.bytes[ETH_LEN..]).ok();
        let Some(arp) = arp.and_then(|arp| arp.try_eth_ipv4().ok()) else {
            self.counters.malformed += 1;
            return;
        };
        let interface = &self.interfaces[at];
        let sender = IpAddr::from(arp.sender_ipv4);
        let mac = Mac::new(arp.sender_mac);
        let asked = IpAddr::from(arp.target_ipv4);
        let probe = sender.is_unspecified();
        let credible =
            mac.is_station() && (probe || self.is_neighbour(at, sender)) && interface.has(asked);
        if !credible {
            // Requests for other stations arrive all the time and claim nothing false.
            if interface.has(asked) || interface.has(sender) {
                self.counters.lies += 1;
            }
            return;
        }
        let asks = arp.operation == ArpOperation::REQUEST;
        if asks {
            let reply = arp_frame(
                interface.mac,
                mac,
                &ArpEthIpv4Packet {
                    operation: ArpOperation::REPLY,
                    sender_mac: interface.mac.octets(),
                    sender_ipv4: arp.target_ipv4,
                    target_mac: arp.sender_mac,
                    target_ipv4: arp.sender_ipv4,
                },
            );
            out.push((at, reply));
        }
        if !probe {
            self.learn(at, sender, mac, asks, now, out);
        }
    }

    /// Whether the address can be that of another station on the interface.
    fn is_neighbour(&self, at: usize, address: IpAddr) -> bool {
        let interface = &self.interfaces[at];
        let network = interface.network_of(address);
        !interface.has(address) && network.is_some_and(|network| !network.is_broadcast(address))
    }

    /// A neighbour's address is claimed, in a request (which may be new) or in an answer (which was asked for, or is ignored).
    fn learn(
        &mut self,
        at: usize,
        address: IpAddr,
        mac: Mac,
        is_request: bool,
        now: Duration,
        out: &mut Out,
    ) {
        match self.neighbours.learn((at, address), mac, is_request, now) {
            None => self.counters.lies += 1,
            Some(waiting) => {
                for waiting in waiting {
                    self.send(at, mac, waiting.frame, out);
                }
            }
        }
    }

    fn send(&mut self, at: usize, to: Mac, mut frame: Frame, out: &mut Out) {
        let own = self.interfaces[at].mac.octets();
        frame.bytes[..6].copy_from_slice(&to.octets());
        frame.bytes[6..12].copy_from_slice(&own);
        out.push((at, frame));
    }

    fn receive_ip(&mut self, at: usize, mut frame: Frame, now: Duration, out: &mut Out) {
        let Some(packet) = parse(&frame.bytes[ETH_LEN..]) else {
            self.counters.malformed += 1;
            return;
        };
        // Padding of short frames is not forwarded.
        frame.bytes.truncate(ETH_LEN + packet.len);
        if is_never_a_source(packet.source) && !packet.source.is_unspecified() {
            self.counters.malformed += 1;
            return;
        }
        let is_own = self.interfaces.iter().any(|i| i.has(packet.target));
        if is_own || (packet.target.is_multicast() && !packet.target.is_ipv4()) {
            self.receive_local(at, &frame, &packet, now, out);
            return;
        }
        let is_link_local = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let group_frame = frame.target().is_none_or(Mac::is_group);
        if group_frame
            || is_never_a_source(packet.target)
            || packet.source.is_unspecified()
            || is_link_local(packet.source)
            || is_link_local(packet.target)
        {
            self.counters.malformed += 1;
            return;
        }
        if packet.hops_left <= 1 {
            self.counters.expired += 1;
            self.send_error(at, &frame, &packet, Problem::Expired, now, out);
            return;
        }
        let Some(hop) = self.select(&packet, &frame) else {
            self.counters.unreachable += 1;
            self.send_error(at, &frame, &packet, Problem::NoRoute, now, out);
            return;
        };
        let mtu = self.interfaces[hop.interface].mtu;
        let len = match frame.vnet.gso {
            Some(gso) => usize::from(gso.size) + usize::from(gso.headers).saturating_sub(ETH_LEN),
            None => packet.len,
        };
        if len > mtu {
            self.counters.too_long += 1;
            self.send_error(at, &frame, &packet, Problem::TooLong(mtu), now, out);
            return;
        }
        decrement(&mut frame.bytes[ETH_LEN..], packet.target.is_ipv4());
        let next = hop.via.unwrap_or(packet.target);
        let to_broadcast = self.interfaces[hop.interface]
            .network_of(next)
            .is_some_and(|network| network.is_broadcast(next));
        if to_broadcast {
            self.counters.malformed += 1;
            return;
        }
        self.counters.forwarded += 1;
        let waiting = neighbours::Waiting { frame, from: at };
        match self.neighbours.resolve((hop.interface, next), waiting, now) {
            Resolved::Known(mac, frame) => self.send(hop.interface, mac, frame, out),
            Resolved::Ask => self.ask(hop.interface, next, out),
            Resolved::Wait => {}
            Resolved::Full => self.counters.unreachable += 1,
        }
    }

    /// The next hop of a packet: the longest prefix whose interfaces are up, and of several hops the one that the tuple's hash selects.
    fn select(&self, packet: &Packet, frame: &Frame) -> Option<Hop> {
        let up = |hop: &&Hop| self.interfaces.get(hop.interface).is_some_and(|i| i.up);
        let fitting = self
            .routes
            .iter()
            .filter(|route| route.network.contains(packet.target));
        for route in fitting {
            let hops: Vec<&Hop> = route.hops.iter().filter(up).collect();
            if hops.len() > 1 {
                let hash = self.hash(packet, frame);
                return Some(*hops[(hash % hops.len() as u64) as usize]);
            }
            if let [only] = hops[..] {
                return Some(*only);
            }
        }
        None
    }

    /// Equal for all packets of a flow; later fragments have no ports, and then the first one's are not regarded either.
    fn hash(&self, packet: &Packet, frame: &Frame) -> u64 {
        let number = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let is_fragment = match packet.target {
            IpAddr::V4(_) => frame.bytes[ETH_LEN + 6] & 0x3f != 0 || frame.bytes[ETH_LEN + 7] != 0,
            IpAddr::V6(_) => false,
        };
        let ports = match packet.protocol {
            TCP | UDP if !is_fragment => frame
                .bytes
                .get(ETH_LEN + packet.header_len..)
                .and_then(|rest| rest.first_chunk::<4>())
                .map_or(0, |ports| u32::from_be_bytes(*ports)),
            _ => 0,
        };
        let words = [number(packet.source), number(packet.target)];
        let mut hash = mix(self.hash_seed ^ u64::from(packet.protocol));
        for word in words {
            hash = mix(hash ^ (word >> 64) as u64);
            hash = mix(hash ^ word as u64);
        }
        mix(hash ^ u64::from(ports))
    }

    /// Asks for a neighbour's address.
    fn ask(&mut self, at: usize, address: IpAddr, out: &mut Out) {
        let interface = &self.interfaces[at];
        match (address, interface.own(address)) {
            (IpAddr::V4(asked), Some(IpAddr::V4(own))) => {
                let packet = ArpEthIpv4Packet {
                    operation: ArpOperation::REQUEST,
                    sender_mac: interface.mac.octets(),
                    sender_ipv4: own.octets(),
                    target_mac: [0; 6],
                    target_ipv4: asked.octets(),
                };
                out.push((at, arp_frame(interface.mac, Mac::BROADCAST, &packet)));
            }
            (IpAddr::V6(asked), Some(IpAddr::V6(own))) => {
                out.push((at, icmp::solicitation(interface.mac, own, asked)));
            }
            _ => {}
        }
    }

    fn receive_local(
        &mut self,
        at: usize,
        frame: &Frame,
        packet: &Packet,
        now: Duration,
        out: &mut Out,
    ) {
        self.counters.local += 1;
        let own_mac = self.interfaces[at].mac;
        match icmp::receive(frame, packet) {
            Received::Echo(reply) if !packet.target.is_multicast() => {
                self.reply(at, frame, &reply, out);
            }
            Received::Solicitation { asked, source_mac } => {
                let asked = IpAddr::V6(asked);
                if !self.interfaces[at].has(asked) {
                    return;
                }
                let Some(to) = frame.source() else { return };
                if let (IpAddr::V6(asked), IpAddr::V6(source)) = (asked, packet.source) {
                    out.push((at, icmp::advertisement(own_mac, asked, to, source)));
                }
                match source_mac {
                    Some(mac) if self.is_neighbour(at, packet.source) && mac.is_station() => {
                        self.learn(at, packet.source, mac, true, now, out);
                    }
                    _ => {}
                }
            }
            Received::Advertisement { of, mac } => {
                let of = IpAddr::V6(of);
                if self.is_neighbour(at, of) && mac.is_station() {
                    self.learn(at, of, mac, false, now, out);
                } else {
                    self.counters.lies += 1;
                }
            }
            Received::Unserved if !packet.target.is_multicast() => {
                let problem = match packet.protocol {
                    UDP => Problem::NoPort,
                    _ => Problem::NoProtocol,
                };
                self.send_error(at, frame, packet, problem, now, out);
            }
            _ => {}
        }
    }

    /// Sends a packet back to where a frame came from.
    fn reply(&mut self, at: usize, to: &Frame, packet: &[u8], out: &mut Out) {
        let Some(target) = to.source() else { return };
        let kind = to.ether_type().unwrap_or(0);
        let frame = ethernet(self.interfaces[at].mac, target, kind, packet);
        out.push((at, frame));
    }

    /// Sends an ICMP error, unless the packet must not have one (RFC 1122, 3.2.2; RFC 4443, 2.4) or too many were sent.
    fn send_error(
        &mut self,
        at: usize,
        frame: &Frame,
        packet: &Packet,
        problem: Problem,
        now: Duration,
        out: &mut Out,
    ) {
        if packet.is_later_fragment
            || packet.source.is_unspecified()
            || frame.target().is_none_or(Mac::is_group)
            || icmp::is_error(frame, packet)
        {
            return;
        }
        let Some(own) = self.interfaces[at].own(packet.source) else {
            return;
        };
        if !self.take_error_token(now) {
            self.counters.errors_limited += 1;
            return;
        }
        if let Some(error) = icmp::error(own, packet.source, problem, &frame.bytes[ETH_LEN..]) {
            self.counters.errors_sent += 1;
            self.reply(at, frame, &error, out);
        }
    }

    fn take_error_token(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.refilled).as_nanos();
        let new = passed * u128::from(ICMP_ERRORS) / 1_000_000_000;
        if new > 0 {
            let all = u128::from(self.error_tokens) + new;
            self.error_tokens = u32::try_from(all).unwrap_or(u32::MAX).min(ICMP_ERRORS);
            self.refilled = now;
        }
        let taken = self.error_tokens.checked_sub(1);
        self.error_tokens = taken.unwrap_or(0);
        taken.is_some()
    }

    /// When [`Router::tick`] has something to do.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.neighbours.next_timer()
    }

    /// Asks again for neighbours that did not answer, and gives up on some.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Out) {
        let due = self.neighbours.due(now);
        for (interface, address) in due.ask {
            self.ask(interface, address, out);
        }
        for waiting in due.failed {
            self.counters.unreachable += 1;
            if let Some(packet) = parse(&waiting.frame.bytes[ETH_LEN..]) {
                let problem = Problem::NoHost;
                self.send_error(waiting.from, &waiting.frame, &packet, problem, now, out);
            }
        }
    }

    /// Entries of the neighbour cache.
    #[cfg(test)]
    fn neighbour_count(&self) -> usize {
        self.neighbours.len()
    }
}

/// Addresses that no station has, broadcast and loopback ones among them.
fn is_never_a_source(address: IpAddr) -> bool {
    let broadcast = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0 || v4.octets()[0] >= 240,
        IpAddr::V6(_) => false,
    };
    address.is_multicast() || address.is_loopback() || address.is_unspecified() || broadcast
}

/// Parses and checks the IP header; the packet is as long as the header says.
fn parse(bytes: &[u8]) -> Option<Packet> {
    match bytes.first()? >> 4 {
        4 => {
            let slice = Ipv4HeaderSlice::from_slice(bytes).ok()?;
            let header = slice.to_header();
            let len = usize::from(header.total_len);
            let fits = (header.header_len()..=bytes.len()).contains(&len);
            let valid = header.calc_header_checksum() == header.header_checksum;
            (fits && valid).then_some(Packet {
                source: header.source.into(),
                target: header.destination.into(),
                protocol: header.protocol.0,
                hops_left: header.time_to_live,
                header_len: header.header_len(),
                len,
                is_later_fragment: header.fragment_offset.value() != 0,
            })
        }
        6 => {
            let header = Ipv6HeaderSlice::from_slice(bytes).ok()?.to_header();
            let len = 40 + usize::from(header.payload_length);
            (len <= bytes.len()).then_some(Packet {
                source: header.source.into(),
                target: header.destination.into(),
                protocol: header.next_header.0,
                hops_left: header.hop_limit,
                header_len: 40,
                len,
                is_later_fragment: false,
            })
        }
        _ => None,
    }
}

/// One hop less; the checksum of IPv4 changes by the same (RFC 1624).
fn decrement(packet: &mut [u8], is_v4: bool) {
    if !is_v4 {
        packet[7] -= 1;
        return;
    }
    packet[8] -= 1;
    let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x0100;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = if sum == 0xffff { 0 } else { sum };
    packet[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
}

fn ethernet(from: Mac, to: Mac, kind: u16, payload: &[u8]) -> Frame {
    let mut bytes = Vec::with_capacity(ETH_LEN + payload.len());
    bytes.extend_from_slice(&to.octets());
    bytes.extend_from_slice(&from.octets());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(payload);
    Frame::plain(bytes)
}

fn arp_frame(from: Mac, to: Mac, arp: &ArpEthIpv4Packet) -> Frame {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        arp.operation,
        &arp.sender_mac,
        &arp.sender_ipv4,
        &arp.target_mac,
        &arp.target_ipv4,
    );
    let bytes = packet.map(|packet| packet.to_bytes()).unwrap_or_default();
    ethernet(from, to, ARP, &bytes)
}

#[cfg(test)]
mod tests;
