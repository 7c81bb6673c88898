//! Demultiplexes received datagrams: datagram queue pairs by number, and those attached to multicast groups.
//! A number is looked up in constant time; a datagram without a queue pair is counted by cause.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use verbena_nic::ud::{Arrival, Destination, Dropped, MULTICAST, Post, Posted, UdSending};
use verbena_nic::{Function, Outbox, UdQp};
use verbena_wire::number::Qpn;

use crate::core::Core;
use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::numbers::parts;
use crate::sys::Datagrams;

/// A datagram queue pair and the sockets it sends through.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) qp: Arc<UdQp>,
    /// The sockets of its port, one for each local address.
    pub(crate) boxes: Arc<[Arc<Mailbox>]>,
    /// The destination port of multicast.
    pub(crate) multicast_port: u16,
}

impl Resident {
    /// Transmits what can be sent; true if anything left. If the socket is full, transmission resumes when there is room.
    pub(crate) fn send(self: &Arc<Self>, out: &mut Outbox) -> bool {
        let mut sender = Sender {
            resident: self,
            moved: false,
        };
        let sending = self.qp.transmit(&mut sender, out);
        let moved = sender.moved;
        if let UdSending::Blocked(source) = sending
            && let Some(mailbox) = self.mailbox(source)
        {
            mailbox.want_room(self);
        }
        moved
    }

    fn mailbox(&self, source: IpAddr) -> Option<&Arc<Mailbox>> {
        self.boxes.iter().find(|mailbox| mailbox.ip() == source)
    }
}

/// Sends packets of one queue pair.
struct Sender<'a> {
    resident: &'a Resident,
    moved: bool,
}

impl Post for Sender<'_> {
    fn post(&mut self, to: &Destination, packet: &mut Vec<u8>) -> Posted {
        let mailbox = self.resident.mailbox(to.source);
        let same_family = to.source.is_ipv4() == to.address.is_ipv4();
        let Some(mailbox) = mailbox.filter(|_| same_family) else {
            return Posted::NotOurs;
        };
        let port = if to.address.is_multicast() {
            self.resident.multicast_port
        } else {
            parts(to.number).0
        };
        let posted = mailbox.send(SocketAddr::new(to.address, port), packet);
        self.moved |= posted != Posted::Full;
        posted
    }
}

/// Datagrams that reached no queue pair, by cause; a queue pair counts its own drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramDrops {
    /// No valid UD packet: too short, another opcode, an impossible pad count.
    pub malformed: u64,
    /// Longer than the longest message.
    pub giant: u64,
    /// With a wrong ICRC.
    pub checksum: u64,
    /// With another partition key.
    pub partition: u64,
    /// With a number that no queue pair has, or for a multicast group without members.
    pub nobody: u64,
}

#[derive(Debug, Default)]
struct Drops {
    malformed: AtomicU64,
    giant: AtomicU64,
    checksum: AtomicU64,
    partition: AtomicU64,
    nobody: AtomicU64,
}

/// The queue pairs attached to a multicast group.
#[derive(Debug)]
struct Audience {
    mailbox: Arc<Mailbox>,
    /// Replaced as a whole, so that delivery iterates over them without the lock.
    members: Arc<[Arc<Resident>]>,
}

/// All datagram queue pairs of an engine.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    by_number: RwLock<HashMap<Qpn, Arc<Resident>>>,
    groups: RwLock<HashMap<IpAddr, Audience>>,
    /// Serializes attach and detach, so that a socket is opened without the lock that delivery needs.
    changing: Mutex<()>,
    drops: Drops,
}

impl Residents {
    pub(crate) fn add(&self, resident: &Arc<Resident>) {
        let number = resident.qp.qpn();
        self.by_number.write().insert(number, resident.clone());
    }

    pub(crate) fn remove(&self, number: Qpn) {
        let gone = self.by_number.write().remove(&number);
        drop(gone);
    }

    fn find(&self, number: Qpn) -> Option<Arc<Resident>> {
        self.by_number.read().get(&number).cloned()
    }

    /// Delivers a datagram to the queue pair it names; false if there is none.
    pub(crate) fn deliver(&self, arrival: &Arrival<'_>, out: &mut Outbox) -> bool {
        let Some(resident) = self.find(arrival.to()) else {
            return false;
        };
        // The queue pair counts its drops.
        let _ = resident.qp.deliver(arrival, out);
        true
    }

    /// Delivers a datagram to every queue pair of a group except its sender; false if the group has no members or the datagram is not
    /// addressed to the multicast number.
    pub(crate) fn deliver_all(
        &self,
        group: IpAddr,
        own: &[IpAddr],
        arrival: &Arrival<'_>,
        out: &mut Outbox,
    ) -> bool {
        if arrival.to().get() != MULTICAST {
            return false;
        }
        let members = self.groups.read().get(&group).map(|a| a.members.clone());
        let from_here = own.contains(&arrival.source());
        for member in members.iter().flat_map(|members| members.iter()) {
            // InfiniBand: a sender attached to the group does not receive its own datagrams.
            if !(from_here && member.qp.qpn() == arrival.from()) {
                let _ = member.qp.deliver(arrival, out);
            }
        }
        members.is_some()
    }

    /// Attaches a queue pair to a group; returns the group's socket if it was not attached before.
    pub(crate) fn attach(
        &self,
        core: &Arc<Core>,
        resident: &Arc<Resident>,
        group: IpAddr,
    ) -> Result<Option<Arc<Mailbox>>, Error> {
        let _changing = self.changing.lock();
        if let Some(audience) = self.groups.write().get_mut(&group) {
            if audience.members.iter().any(|m| Arc::ptr_eq(m, resident)) {
                return Ok(None);
            }
            let more = audience.members.iter().chain([resident]);
            audience.members = more.cloned().collect();
            return Ok(Some(audience.mailbox.clone()));
        }
        let port = core.config.multicast_port;
        let socket = Datagrams::bind_group(group, port, core.addresses()?)?;
        let mailbox = Mailbox::new(core, socket, Some(group))?;
        mailbox.serve()?;
        let members = Arc::new([resident.clone()]);
        let audience = Audience {
            mailbox: mailbox.clone(),
            members,
        };
        self.groups.write().insert(group, audience);
        Ok(Some(mailbox))
    }

    /// Detaches a queue pair from a group; returns the group's socket if it was attached.
    pub(crate) fn detach(&self, resident: &Arc<Resident>, group: IpAddr) -> Option<Arc<Mailbox>> {
        let _changing = self.changing.lock();
        let mut groups = self.groups.write();
        let audience = groups.get_mut(&group)?;
        let stays = |m: &&Arc<Resident>| !Arc::ptr_eq(m, resident);
        let members: Arc<[_]> = audience.members.iter().filter(stays).cloned().collect();
        if members.len() == audience.members.len() {
            return None;
        }
        audience.members = members;
        let mailbox = audience.mailbox.clone();
        if audience.members.is_empty() {
            groups.remove(&group);
            drop(groups);
            mailbox.close();
        }
        Some(mailbox)
    }

    /// Closes the sockets of all groups.
    pub(crate) fn close(&self) {
        let groups = self.groups.read();
        groups
            .values()
            .for_each(|audience| audience.mailbox.close());
    }

    /// Resumes the queue pair of this number of the function, which waited for memory to be resident (V5).
    pub(crate) fn resume(&self, function: &Function, number: u32, out: &mut Outbox) {
        let resident = function.ud(number).ok().and_then(|qp| self.find(qp.qpn()));
        if let Some(resident) = resident {
            resident.send(out);
        }
    }

    /// Counts a dropped datagram; `None`: no queue pair was found.
    pub(crate) fn count(&self, dropped: Option<Dropped>) {
        let counter = match dropped {
            Some(Dropped::Malformed) => &self.drops.malformed,
            Some(Dropped::Giant) => &self.drops.giant,
            Some(Dropped::Checksum) => &self.drops.checksum,
            Some(Dropped::Partition) => &self.drops.partition,
            None => &self.drops.nobody,
            // Queue pairs count these.
            Some(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drops(&self) -> DatagramDrops {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DatagramDrops {
            malformed: read(&self.drops.malformed),
            giant: read(&self.drops.giant),
            checksum: read(&self.drops.checksum),
            partition: read(&self.drops.partition),
            nobody: read(&self.drops.nobody),
        }
    }
}
