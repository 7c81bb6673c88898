//! The I/O unit's switch (P9): selects the ports that a frame goes to, by its Ethernet addresses. A frame never returns to its source
//! port; a port learns at most its share of addresses and none that another port owns; a host does not learn an address that another
//! port was heard with until that entry has aged; a removed port leaves no entry. It performs no I/O and takes the time as an argument.

use core::time::Duration;
use std::collections::BTreeMap;

mod statistics;
mod table;

pub use statistics::{Dropped, Statistics, Traffic};

use crate::headers::ETH_HLEN;
use crate::mac::Mac;
use table::{Learnt, Table};

/// Limits of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ports at the same time.
    pub ports: usize,
    /// Addresses learnt from one host.
    pub per_host: usize,
    /// Addresses learnt from one LAN port.
    pub per_lan: usize,
    /// Groups in one port's filter.
    pub groups: usize,
    /// A learnt address expires after this time without a frame from it.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            ports: 256,
            per_host: 64,
            per_lan: 4096,
            groups: 64,
            // IEEE 802.1Q, table 8-6.
            age: Duration::from_secs(300),
        }
    }
}

/// A port's number, which a switch never gives twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(u64);

/// What is behind a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The network that the unit's card is in.
    Lan,
    /// One host.
    Host {
        /// Its address, which no other port can then use, and its only one unless the port is promiscuous; `None`: the host may use any
        /// address that is not another port's.
        own: Option<Mac>,
    },
}

/// The multicast groups that a port receives; broadcasts go to all ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Multicast {
    /// All of them.
    All,
    /// These only.
    Groups(Vec<Mac>),
}

/// The caller passed an invalid argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// There is no such port, or no longer.
    #[error("there is no port {port:?}")]
    NoPort {
        /// The port.
        port: PortId,
    },
    /// All ports are in use.
    #[error("all {most} ports are in use")]
    Ports {
        /// The limit.
        most: usize,
    },
    /// Another port owns the address.
    #[error("{mac} is owned by port {port:?}")]
    Owned {
        /// The address.
        mac: Mac,
        /// The owner.
        port: PortId,
    },
    /// The address is not a unicast address.
    #[error("{mac} cannot be a station's address: it is a group address, or zero")]
    NotUnicast {
        /// The address.
        mac: Mac,
    },
    /// The address is not a group address.
    #[error("{mac} is not a group address")]
    NotGroup {
        /// The address.
        mac: Mac,
    },
    /// Too many groups.
    #[error("{got} groups are more than {most}: subscribe to all groups instead")]
    Groups {
        /// The number passed.
        got: usize,
        /// The limit.
        most: usize,
    },
    /// A LAN port owns no address.
    #[error("port {port:?} is a LAN port and owns no address")]
    Lan {
        /// The port.
        port: PortId,
    },
}

/// How a frame was forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To the port behind which its destination is, and to promiscuous ports.
    Known,
    /// To all ports behind which the destination may be.
    Unknown,
    /// To all ports that receive the group; a broadcast, to all.
    Group,
    /// To no port.
    Dropped(Dropped),
}

#[derive(Debug)]
struct Port {
    role: Role,
    multicast: Multicast,
    promiscuous: bool,
    statistics: Statistics,
}

impl Port {
    /// A frame for an unknown address goes to this port.
    fn receives_unknown(&self) -> bool {
        !matches!(self.role, Role::Host { own: Some(_) })
    }

    fn receives_group(&self, group: Mac) -> bool {
        match &self.multicast {
            _ if self.promiscuous || group == Mac::BROADCAST => true,
            Multicast::All => true,
            Multicast::Groups(groups) => groups.contains(&group),
        }
    }
}

/// A switch between hosts and a LAN.
#[derive(Debug)]
pub struct Switch {
    limits: Limits,
    ports: BTreeMap<PortId, Port>,
    table: Table,
    next: u64,
}

impl Switch {
    /// A switch without ports.
    pub fn new(limits: Limits) -> Switch {
        Switch {
            limits,
            ports: BTreeMap::new(),
            table: Table::new(limits.age),
            next: 0,
        }
    }

    /// Adds a port, which receives all groups and is not promiscuous.
    pub fn add(&mut self, role: Role) -> Result<PortId, Misuse> {
        let most = self.limits.ports;
        if self.ports.len() >= most {
            return Err(Misuse::Ports { most });
        }
        let id = PortId(self.next);
        if let Role::Host { own: Some(mac) } = role {
            self.claim(id, mac)?;
        }
        let port = Port {
            role,
            multicast: Multicast::All,
            promiscuous: false,
            statistics: Statistics::default(),
        };
        self.ports.insert(id, port);
        self.next += 1;
        Ok(id)
    }

    fn claim(&mut self, id: PortId, mac: Mac) -> Result<(), Misuse> {
        if !mac.is_station() {
            return Err(Misuse::NotUnicast { mac });
        }
        let claimed = self.table.claim(id, mac);
        claimed.map_err(|port| Misuse::Owned { mac, port })
    }

    /// Removes a port and every address behind it; returns its counters.
    pub fn remove(&mut self, id: PortId) -> Result<Statistics, Misuse> {
        let port = self.ports.remove(&id).ok_or(Misuse::NoPort { port: id })?;
        self.table.remove_port(id);
        Ok(port.statistics)
    }

    fn port(&mut self, id: PortId) -> Result<&mut Port, Misuse> {
        self.ports.get_mut(&id).ok_or(Misuse::NoPort { port: id })
    }

    /// Restricts a host to one address, which it then owns, or lifts the restriction.
    pub fn set_own_mac(&mut self, id: PortId, own: Option<Mac>) -> Result<(), Misuse> {
        let Role::Host { own: before } = self.port(id)?.role else {
            return Err(Misuse::Lan { port: id });
        };
        if before == own {
            return Ok(());
        }
        if let Some(mac) = own {
            self.claim(id, mac)?;
            // Drops the addresses learnt from it and the one that it owned before.
            self.table.remove_all_but(id, mac);
        } else {
            self.table.remove_port(id);
        }
        self.port(id)?.role = Role::Host { own };
        Ok(())
    }

    /// Sets the groups that a port receives.
    pub fn set_multicast(&mut self, id: PortId, multicast: Multicast) -> Result<(), Misuse> {
        let most = self.limits.groups;
        if let Multicast::Groups(groups) = &multicast {
            let got = groups.len();
            if got > most {
                return Err(Misuse::Groups { got, most });
            }
            if let Some(mac) = groups.iter().copied().find(|mac| !mac.is_group()) {
                return Err(Misuse::NotGroup { mac });
            }
        }
        self.port(id)?.multicast = multicast;
        Ok(())
    }

    /// Whether a port receives everything, frames to other stations included; a host that owns an address may then also send from
    /// others, as a bridge does. Permission is checked by the caller.
    pub fn set_promiscuous(&mut self, id: PortId, on: bool) -> Result<(), Misuse> {
        let port = self.port(id)?;
        port.promiscuous = on;
        if let (Role::Host { own: Some(own) }, false) = (port.role, on) {
            self.table.remove_all_but(id, own);
        }
        Ok(())
    }

    /// A port's counters.
    pub fn statistics(&self, id: PortId) -> Result<Statistics, Misuse> {
        let port = self.ports.get(&id).ok_or(Misuse::NoPort { port: id })?;
        Ok(port.statistics)
    }

    /// The port behind which an address is at this time.
    pub fn port_of(&self, mac: Mac, now: Duration) -> Option<PortId> {
        self.table.find(mac, now)
    }

    /// Addresses in the table, owned and expired ones included.
    pub fn addresses(&self) -> usize {
        self.table.len()
    }

    /// Removes expired addresses. The table is bounded without it.
    pub fn expire(&mut self, now: Duration) {
        self.table.expire(now);
    }

    /// Forwards a frame that came from port `from`: fills `to` with the ports that it goes to, and counts it there.
    ///
    /// A super-frame counts as one frame. `now` must not go backwards; its origin is arbitrary.
    pub fn forward(
        &mut self,
        from: PortId,
        frame: &[u8],
        now: Duration,
        to: &mut Vec<PortId>,
    ) -> Result<Verdict, Misuse> {
        self.forward_head(from, frame, frame.len(), now, to)
    }

    /// The same for a frame of which only the first bytes (addresses and type) and the length are at hand.
    pub fn forward_head(
        &mut self,
        from: PortId,
        head: &[u8],
        len: usize,
        now: Duration,
        to: &mut Vec<PortId>,
    ) -> Result<Verdict, Misuse> {
        to.clear();
        self.port(from)?.statistics.received.add(len);
        let verdict = match self.check_and_learn(from, head, now) {
            Ok(target) => self.select(from, target, now, to),
            Err(dropped) => Verdict::Dropped(dropped),
        };
        if let Verdict::Dropped(dropped) = verdict {
            self.port(from)?.statistics.drop(dropped);
        }
        for id in to.iter() {
            self.port(*id)?.statistics.sent.add(len);
        }
        Ok(verdict)
    }

    /// Checks a frame's addresses and learns its source; returns its destination.
    fn check_and_learn(
        &mut self,
        from: PortId,
        frame: &[u8],
        now: Duration,
    ) -> Result<Mac, Dropped> {
        if frame.len() < ETH_HLEN {
            return Err(Dropped::Malformed);
        }
        let target = Mac::read_at(frame, 0).ok_or(Dropped::Malformed)?;
        let source = Mac::read_at(frame, 6).ok_or(Dropped::Malformed)?;
        if !source.is_station() {
            return Err(Dropped::Malformed);
        }
        let port = self
            .ports
            .get(&from)
            .map(|port| (port.role, port.promiscuous));
        // A station may move to the LAN at any time; a host cannot take over another port's address by sending from it.
        let may = match port {
            Some((Role::Host { own: Some(own) }, false)) if own != source => {
                return Err(Dropped::Spoofed);
            }
            Some((Role::Host { .. }, _)) => (self.limits.per_host, false),
            _ => (self.limits.per_lan, true),
        };
        match self.table.learn(from, source, may, now) {
            Learnt::Owned => return Err(Dropped::Spoofed),
            // The frame is still forwarded, and frames to its source are flooded: only that port's own traffic suffers.
            Learnt::Full => {
                if let Ok(port) = self.port(from) {
                    port.statistics.unlearnt += 1;
                }
            }
            Learnt::Known => {}
        }
        // IEEE 802.1Q, 8.6.3: a bridge does not forward these.
        if target.is_reserved() {
            return Err(Dropped::Reserved);
        }
        Ok(target)
    }

    fn select(&self, from: PortId, target: Mac, now: Duration, to: &mut Vec<PortId>) -> Verdict {
        let others = self.ports.iter().filter(|(id, _)| **id != from);
        if target.is_group() {
            let wanted = others.filter(|(_, port)| port.receives_group(target));
            to.extend(wanted.map(|(id, _)| *id));
            return Verdict::Group;
        }
        let place = self.table.find(target, now);
        let takes = |id: PortId, port: &Port| match place {
            Some(place) => place == id || port.promiscuous,
            None => port.receives_unknown() || port.promiscuous,
        };
        to.extend(others.filter(|(id, p)| takes(**id, p)).map(|(id, _)| *id));
        match place {
            // Source and destination are behind the same port and reach each other without the switch.
            Some(place) if place == from && to.is_empty() => Verdict::Dropped(Dropped::Local),
            Some(_) => Verdict::Known,
            None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
