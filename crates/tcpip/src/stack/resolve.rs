//! Addresses: which of ours to use, which station is the next, and questions and answers of ARP and neighbour discovery.
//! Answers go to the station that has asked; nothing is learned from an answer that was not asked for.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::ArpEthIpv4Packet;
use verbena_stream::Time;

use super::{Arrival, Stack};
use crate::frame::{self, ARP_REPLY, ARP_REQUEST, Envelope, Ether, Mac};
use crate::icmp;
use crate::neighbor::Question;

impl Stack {
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.config
            .addresses
            .iter()
            .any(|own| own.address == address)
    }

    /// The address of ours from which a destination is reached.
    pub(super) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let is_group = match destination {
            IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_multicast(),
        };
        if is_group || destination.is_unspecified() || self.has_address(destination) {
            return None;
        }
        let own = self.config.addresses.iter();
        let mut of_link = own.filter(|own| is_in(own.address, own.prefix, destination));
        if let Some(own) = of_link.next() {
            return Some(own.address);
        }
        let gateway = self.gateway_for(destination)?;
        let mut own = self.config.addresses.iter();
        let via = own.find(|own| is_in(own.address, own.prefix, gateway))?;
        Some(via.address)
    }

    fn gateway_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut gateways = self.config.gateways.iter();
        gateways
            .find(|gateway| gateway.is_ipv4() == destination.is_ipv4())
            .copied()
    }

    /// The station that frames for a destination go to.
    pub(super) fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        let mut own = self.config.addresses.iter();
        if own.any(|own| is_in(own.address, own.prefix, destination)) {
            return Some(destination);
        }
        self.gateway_for(destination)
    }

    pub(super) fn ether(&self, destination: Mac) -> Ether {
        Ether {
            destination,
            source: self.config.mac,
            vlan: self.config.vlan,
        }
    }

    pub(super) fn handle_arp(&mut self, packet: &ArpEthIpv4Packet, now: Time) -> Arrival {
        let sender = packet.sender_ipv4_addr();
        let mac = Mac(packet.sender_mac);
        let target = IpAddr::V4(packet.target_ipv4_addr());
        let is_valid = !sender.is_multicast() && !sender.is_broadcast();
        // An address of ours that another station claims is not learned.
        if !is_valid || self.has_address(IpAddr::V4(sender)) {
            return Arrival::Handled;
        }
        if packet.operation == ARP_REPLY {
            self.neighbor_answered(IpAddr::V4(sender), mac, now);
            return Arrival::Handled;
        }
        if packet.operation != ARP_REQUEST || !self.has_address(target) {
            return Arrival::Foreign;
        }
        if !sender.is_unspecified() {
            self.neighbor_seen(IpAddr::V4(sender), mac, now);
        }
        let answer = ArpEthIpv4Packet {
            operation: ARP_REPLY,
            sender_mac: self.config.mac.0,
            sender_ipv4: packet.target_ipv4,
            target_mac: packet.sender_mac,
            target_ipv4: packet.sender_ipv4,
        };
        let frame = frame::emit_arp(&self.ether(mac), &answer).to_vec();
        self.answer(frame);
        Arrival::Handled
    }

    pub(super) fn handle_solicitation(
        &mut self,
        target: Ipv6Addr,
        source: Option<Mac>,
        station: Mac,
        asker: IpAddr,
        now: Time,
    ) -> Arrival {
        if !self.has_address(IpAddr::V6(target)) || self.has_address(asker) {
            return Arrival::Foreign;
        }
        let answer = icmp::neighbor(target, self.config.mac, true);
        let here = IpAddr::V6(target);
        if asker.is_unspecified() {
            // Another station tries to take the address (RFC 4862, 5.4.3).
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            self.answer_icmp(here, IpAddr::V6(all), Mac::of_group(all), answer, true);
            return Arrival::Handled;
        }
        if let Some(mac) = source {
            self.neighbor_seen(asker, mac, now);
        }
        let mac = source.filter(|mac| !mac.is_group()).unwrap_or(station);
        self.answer_icmp(here, asker, mac, answer, true);
        Arrival::Handled
    }

    /// A neighbour has asked us or opened a connection.
    pub(super) fn neighbor_seen(&mut self, address: IpAddr, mac: Mac, now: Time) {
        let mut own = self.config.addresses.iter();
        let is_of_link = own.any(|own| is_in(own.address, own.prefix, address));
        if is_of_link && self.neighbors.asked_us(address, mac, now) {
            self.wake_waiting();
        }
    }

    pub(super) fn neighbor_answered(&mut self, address: IpAddr, mac: Mac, now: Time) {
        if self.neighbors.answered(address, mac, now) {
            self.wake_waiting();
        }
    }

    /// Connections that waited for an Ethernet address look again.
    pub(super) fn wake_waiting(&mut self) {
        for id in core::mem::take(&mut self.waiting) {
            if let Some(entry) = self.connections.get_mut(&id) {
                entry.is_waiting = false;
                self.touch(id);
            }
        }
    }

    /// The frame of a question.
    pub(super) fn ask(&self, question: Question) -> Option<Vec<u8>> {
        let source = self.source_for(question.address)?;
        match (question.address, source) {
            (IpAddr::V4(target), IpAddr::V4(source)) => {
                let packet = ArpEthIpv4Packet {
                    operation: ARP_REQUEST,
                    sender_mac: self.config.mac.0,
                    sender_ipv4: source.octets(),
                    target_mac: [0; 6],
                    target_ipv4: target.octets(),
                };
                let to = question.mac.unwrap_or(Mac::BROADCAST);
                Some(frame::emit_arp(&self.ether(to), &packet).to_vec())
            }
            (IpAddr::V6(target), IpAddr::V6(_)) => {
                let group = solicited_node(target);
                let (to, mac) = match question.mac {
                    Some(mac) => (target, mac),
                    None => (group, Mac::of_group(group)),
                };
                let message = icmp::neighbor(target, self.config.mac, false);
                Some(self.icmp_frame(source, IpAddr::V6(to), mac, message, true))
            }
            _ => None,
        }
    }

    pub(super) fn answer_icmp(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        mac: Mac,
        message: Vec<u8>,
        is_link_only: bool,
    ) {
        let frame = self.icmp_frame(source, destination, mac, message, is_link_only);
        self.answer(frame);
    }

    fn icmp_frame(
        &self,
        source: IpAddr,
        destination: IpAddr,
        mac: Mac,
        mut message: Vec<u8>,
        is_link_only: bool,
    ) -> Vec<u8> {
        icmp::seal(&mut message, source, destination);
        let protocol = if source.is_ipv6() {
            icmp::ICMPV6
        } else {
            icmp::ICMP
        };
        let envelope = Envelope {
            ether: self.ether(mac),
            source,
            destination,
            protocol,
            dscp: 0,
            is_link_only,
        };
        let mut frame = frame::emit_ip(&envelope, message.len()).to_vec();
        frame.append(&mut message);
        frame
    }
}

/// The group in which the owner of an address is asked for it (RFC 4291, 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let [low, high] = [u16::from_be_bytes([0xff, a]), u16::from_be_bytes([b, c])];
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, low, high)
}

/// Whether two addresses have the same prefix.
fn is_in(own: IpAddr, prefix: u8, other: IpAddr) -> bool {
    match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            let differs = u32::from(own) ^ u32::from(other);
            let beyond = 32u32.saturating_sub(u32::from(prefix));
            differs.checked_shr(beyond).unwrap_or(0) == 0 && other != Ipv4Addr::UNSPECIFIED
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            let differs = u128::from(own) ^ u128::from(other);
            let beyond = 128u32.saturating_sub(u32::from(prefix));
            differs.checked_shr(beyond).unwrap_or(0) == 0
        }
        _ => false,
    }
}
