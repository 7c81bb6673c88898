//! Demultiplexes received datagrams: datagram queue pairs by number, and those attached to multicast groups.
//! A number is looked up in constant time; a datagram without a queue pair is counted by cause.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::Arc;

use verbena_nic::ud::{
    DatagramSender, Destination, DropReason, MULTICAST, ReceivedDatagram, SendOutcome, UdSending,
};
use verbena_nic::{Function, Outbox, UdQp};
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::{Mutex, RwLock};
use verbena_wire::number::Qpn;
use verbena_wire::roce::PORT;

use crate::config::{Config, Wire};
use crate::core::Core;
use crate::datagram::udp_port::{PortKind, UdpPort};
use crate::error::Error;
use crate::oob::qpn::port_and_index;
use crate::sys::DatagramSocket;

/// A datagram queue pair and the sockets it sends through.
#[derive(Debug)]
pub(crate) struct UdMember {
    pub(crate) qp: Arc<UdQp>,
    /// The sockets of its port, one for each local address.
    pub(crate) udp_ports: Arc<[Arc<UdpPort>]>,
    /// The sockets of RoCEv2, one for each local address; none if no peer uses it.
    pub(crate) roce_ports: Arc<[Arc<UdpPort>]>,
    /// The settings that say which peers use RoCEv2.
    pub(crate) config: Arc<Config>,
}

impl UdMember {
    /// Transmits what can be sent; true if anything left. If the socket is full, transmission resumes when there is room.
    pub(crate) fn send(self: &Arc<Self>, out: &mut Outbox) -> bool {
        let mut sender = Sender {
            member: self,
            sent_any: false,
            full: None,
        };
        let sending = self.qp.transmit(&mut sender, out);
        let moved = sender.sent_any;
        if let (UdSending::Blocked(_), Some(port)) = (sending, sender.full) {
            port.resume_when_writable(self);
        }
        moved
    }

    /// The socket for datagrams from one address to another, and the port that they go to.
    fn route(&self, to: &Destination) -> Option<(&Arc<UdpPort>, u16)> {
        let uses_roce = !self.roce_ports.is_empty();
        let (ports, port) = if uses_roce && self.config.wire_to(to.address) == Wire::Roce {
            (&self.roce_ports, PORT)
        } else if to.address.is_multicast() {
            (&self.udp_ports, self.config.multicast_port)
        } else {
            (&self.udp_ports, port_and_index(to.number).0)
        };
        let same_family = to.source.is_ipv4() == to.address.is_ipv4();
        let from = ports.iter().find(|port| port.ip() == to.source);
        from.filter(|_| same_family).map(|from| (from, port))
    }
}

/// Sends packets of one queue pair.
struct Sender<'a> {
    member: &'a UdMember,
    sent_any: bool,
    /// The socket that had no room.
    full: Option<&'a Arc<UdpPort>>,
}

impl DatagramSender for Sender<'_> {
    fn send_packet(&mut self, to: &Destination, packet: &mut Vec<u8>) -> SendOutcome {
        let Some((from, port)) = self.member.route(to) else {
            return SendOutcome::UnknownSource;
        };
        let posted = from.send(SocketAddr::new(to.address, port), packet);
        if posted == SendOutcome::Full {
            self.full = Some(from);
        } else {
            self.sent_any = true;
        }
        posted
    }
}

/// Datagrams and packets of RoCEv2 that reached no queue pair, by cause; a datagram queue pair counts its own drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramDrops {
    /// No valid packet: too short, an opcode that the port does not take, an impossible pad count.
    pub malformed: u64,
    /// Longer than the longest packet.
    pub oversized: u64,
    /// With a wrong ICRC.
    pub checksum: u64,
    /// With another partition key.
    pub partition: u64,
    /// With a number that no queue pair has, or for a multicast group without members.
    pub no_receiver: u64,
    /// For a connected queue pair, from another address than its peer's.
    pub wrong_source: u64,
}

#[derive(Debug, Default)]
struct Drops {
    malformed: AtomicU64,
    oversized: AtomicU64,
    checksum: AtomicU64,
    partition: AtomicU64,
    no_receiver: AtomicU64,
    wrong_source: AtomicU64,
}

/// The queue pairs attached to a multicast group.
#[derive(Debug)]
struct MulticastGroup {
    udp_port: Arc<UdpPort>,
    /// Replaced as a whole, so that delivery iterates over them without the lock.
    members: Arc<[Arc<UdMember>]>,
}

/// All datagram queue pairs of an engine.
#[derive(Debug, Default)]
pub(crate) struct UdDemux {
    by_number: RwLock<HashMap<Qpn, Arc<UdMember>>>,
    groups: RwLock<HashMap<IpAddr, MulticastGroup>>,
    /// Serializes attach and detach, so that a socket is opened without the lock that delivery needs.
    attach_lock: Mutex<()>,
    drops: Drops,
}

impl UdDemux {
    pub(crate) fn add(&self, pair: &Arc<UdMember>) {
        let number = pair.qp.qpn();
        self.by_number.write().insert(number, pair.clone());
    }

    pub(crate) fn remove(&self, number: Qpn) {
        let gone = self.by_number.write().remove(&number);
        drop(gone);
    }

    fn find(&self, number: Qpn) -> Option<Arc<UdMember>> {
        self.by_number.read().get(&number).cloned()
    }

    /// Delivers a datagram to the queue pair it names; false if there is none.
    pub(crate) fn deliver(&self, arrival: &ReceivedDatagram<'_>, out: &mut Outbox) -> bool {
        let Some(pair) = self.find(arrival.dest_qpn()) else {
            return false;
        };
        // The queue pair counts its drops.
        let _ = pair.qp.deliver(arrival, out);
        true
    }

    /// Delivers a datagram to every queue pair of a group except its sender; false if the group has no members or the datagram is not
    /// addressed to the multicast number.
    pub(crate) fn deliver_all(
        &self,
        group: IpAddr,
        own: &[IpAddr],
        arrival: &ReceivedDatagram<'_>,
        out: &mut Outbox,
    ) -> bool {
        if arrival.dest_qpn().get() != MULTICAST {
            return false;
        }
        let members = self.groups.read().get(&group).map(|a| a.members.clone());
        let from_here = own.contains(&arrival.src_addr());
        for member in members.iter().flat_map(|members| members.iter()) {
            // InfiniBand: a sender attached to the group does not receive its own datagrams.
            if !(from_here && member.qp.qpn() == arrival.src_qpn()) {
                let _ = member.qp.deliver(arrival, out);
            }
        }
        members.is_some()
    }

    /// Attaches a queue pair to a group; returns the group's socket if it was not attached before.
    pub(crate) fn attach(
        &self,
        core: &Arc<Core>,
        pair: &Arc<UdMember>,
        group: IpAddr,
    ) -> Result<Option<Arc<UdpPort>>, Error> {
        let _changing = self.attach_lock.lock();
        if let Some(audience) = self.groups.write().get_mut(&group) {
            if audience.members.iter().any(|m| Arc::ptr_eq(m, pair)) {
                return Ok(None);
            }
            let more = audience.members.iter().chain([pair]);
            audience.members = more.cloned().collect();
            return Ok(Some(audience.udp_port.clone()));
        }
        let port = match core.config.wire_to(group) {
            Wire::Roce => PORT,
            Wire::Auto | Wire::Tcp => core.config.multicast_port,
        };
        core.check_owner(SocketAddr::new(group, port), None)?;
        let socket = DatagramSocket::bind_group(group, port, core.local_addresses.all()?)?;
        let opened = UdpPort::new(core, socket, PortKind::Group(group))?;
        opened.serve()?;
        let members = Arc::new([pair.clone()]);
        let audience = MulticastGroup {
            udp_port: opened.clone(),
            members,
        };
        self.groups.write().insert(group, audience);
        Ok(Some(opened))
    }

    /// Detaches a queue pair from a group; returns the group's socket if it was attached.
    pub(crate) fn detach(&self, pair: &Arc<UdMember>, group: IpAddr) -> Option<Arc<UdpPort>> {
        let _changing = self.attach_lock.lock();
        let mut groups = self.groups.write();
        let audience = groups.get_mut(&group)?;
        let stays = |m: &&Arc<UdMember>| !Arc::ptr_eq(m, pair);
        let members: Arc<[_]> = audience.members.iter().filter(stays).cloned().collect();
        if members.len() == audience.members.len() {
            return None;
        }
        audience.members = members;
        let opened = audience.udp_port.clone();
        if audience.members.is_empty() {
            groups.remove(&group);
            drop(groups);
            opened.close();
        }
        Some(opened)
    }

    /// Closes the sockets of all groups.
    pub(crate) fn close(&self) {
        let groups = self.groups.read();
        groups
            .values()
            .for_each(|audience| audience.udp_port.close());
    }

    /// Resumes the queue pair of this number of the function, which waited for memory to be resident (V5).
    pub(crate) fn resume(&self, function: &Function, number: u32, out: &mut Outbox) {
        let pair = function.ud(number).ok().and_then(|qp| self.find(qp.qpn()));
        if let Some(pair) = pair {
            pair.send(out);
        }
    }

    /// Counts a dropped datagram; `None`: no queue pair was found.
    pub(crate) fn count(&self, dropped: Option<DropReason>) {
        let counter = match dropped {
            Some(DropReason::Malformed) => &self.drops.malformed,
            Some(DropReason::Oversized) => &self.drops.oversized,
            Some(DropReason::Checksum) => &self.drops.checksum,
            Some(DropReason::Partition) => &self.drops.partition,
            None => &self.drops.no_receiver,
            // Queue pairs count these.
            Some(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts packets for a connected queue pair that are not from its peer.
    pub(crate) fn count_wrong_source(&self, packets: usize) {
        let counter = &self.drops.wrong_source;
        counter.fetch_add(packets as u64, Ordering::Relaxed);
    }

    pub(crate) fn drops(&self) -> DatagramDrops {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DatagramDrops {
            malformed: read(&self.drops.malformed),
            oversized: read(&self.drops.oversized),
            checksum: read(&self.drops.checksum),
            partition: read(&self.drops.partition),
            no_receiver: read(&self.drops.no_receiver),
            wrong_source: read(&self.drops.wrong_source),
        }
    }
}
