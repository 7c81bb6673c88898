//! The configuration service of a unit (P8): requests of hosts, and their answers. Every request is answered; an address that another
//! host or a station of the LAN has is not given to a host, nor an MTU that the LAN interface cannot carry.

use std::time::Instant;

use verbena_lan::{Mac, Multicast, Offloads, PortId, Role};
use verbena_split_wire::push::{Operation, Status};

use super::connected_host::HostState;
use super::{HostId, Unit, UnitError, random_mac};
use crate::host::packet_mtu;
use crate::link::LinkEvent;
use crate::service::{ConfigRequest, Terms};

/// The smallest MTU of IPv4 (RFC 791, 3.2).
const LEAST_MTU: u32 = 68;

/// The answer to a request.
pub(super) type Reply = Result<Vec<u8>, Refusal>;

/// The status of a rejected request, and a message for the host's operator, or an empty one.
pub(super) struct Refusal(pub(super) Status, pub(super) String);

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal(status, String::new())
    }
}

impl Unit {
    /// Answers the requests of a host; true if there were events.
    pub(super) fn serve_events(&mut self, id: HostId) -> bool {
        let mut any = false;
        while let Some(event) = self.hosts.get_mut(&id).and_then(|g| g.link.next_event()) {
            any = true;
            // Answers to the unit's requests change nothing.
            if let LinkEvent::Request {
                context,
                operation,
                data,
            } = event
            {
                let (status, data) = match self.answer(id, operation, &data) {
                    Ok(data) => (Status::Ok, data),
                    Err(Refusal(status, why)) => (status, why.into_bytes()),
                };
                self.with_host(id, |connected, _| {
                    Ok(connected.link.reply(context, status, &data)?)
                });
            }
        }
        any
    }

    fn answer(&mut self, id: HostId, operation: Operation, data: &[u8]) -> Reply {
        let ask = ConfigRequest::parse(operation, data)?;
        let begun = self
            .hosts
            .get(&id)
            .is_some_and(|connected| connected.port.is_some() || connected.disk.is_some());
        let begins = matches!(
            ask,
            ConfigRequest::Initialise(_) | ConfigRequest::OpenDisk(_) | ConfigRequest::Shutdown
        );
        if !begun && !begins {
            return Err(Status::NotAllowed.into());
        }
        match ask {
            ConfigRequest::Initialise(terms) => self.initialise(id, terms),
            ConfigRequest::GetMac => Ok(random_mac().octets().to_vec()),
            ConfigRequest::SetMac(mac) => self.set_mac(id, mac),
            ConfigRequest::GetLink => Ok(vec![u8::from(self.lan_up)]),
            // Hosts do not set the LAN interface up or down.
            ConfigRequest::SetLink(_) => Err(Status::NotAllowed.into()),
            ConfigRequest::Statistics => self.statistics(id),
            // The switch counts a port from its creation; a reset subtracts.
            ConfigRequest::ResetStatistics => self.reset_statistics(id),
            ConfigRequest::SetMtu(mtu) => self.set_mtu(id, mtu),
            ConfigRequest::Promiscuous(on) => self.set_promiscuous(id, on),
            ConfigRequest::MulticastFilter(groups) => self.set_groups(id, groups),
            ConfigRequest::Shutdown => {
                self.dismiss(id);
                Ok(Vec::new())
            }
            ConfigRequest::OpenDisk(name) => self.open_disk(id, &name),
        }
    }

    fn initialise(&mut self, id: HostId, terms: Terms) -> Reply {
        let mtu = self.most_mtu(id)?;
        let connected = self.hosts.get_mut(&id).ok_or(Status::NotAllowed)?;
        if connected.disk.is_some() {
            let why = "this connection has a disk: the LAN needs another one";
            return Err(Refusal(Status::NotAllowed, why.to_owned()));
        }
        let port = match connected.port {
            // A repeated request: on channels that lose messages, the answer may have been lost.
            Some(port) if connected.state == HostState::Starting => port,
            Some(_) => return Err(Status::NotAllowed.into()),
            None => {
                let added = self.switch.add(Role::Host { own: None });
                added.map_err(|_| Status::NotAllowed)?
            }
        };
        connected.port = Some(port);
        connected.state = HostState::Starting;
        // Offloads that the unit does not accept are not offered either: the packets of such a unit are too short for super-frames.
        let connectionless = connected.link.options().kinds.connectionless;
        let takes = match self.options.offloads && !connectionless {
            true => Offloads::ALL,
            false => Offloads::NONE,
        };
        connected.accepts = terms.accepts.intersection(takes);
        self.ports.insert(port, id);
        Ok(Terms {
            accepts: takes,
            mtu,
        }
        .to_bytes()
        .to_vec())
    }

    fn set_mac(&mut self, id: HostId, mac: Mac) -> Reply {
        let connected = self.hosts.get(&id).ok_or(Status::NotAllowed)?;
        let port = connected.port.ok_or(Status::NotAllowed)?;
        if let Some(holder) = self.address_conflict(port, mac) {
            let why = format!("{mac} is in use: {holder}");
            let sentence = format!("{connected} was refused an address: {why}");
            self.log_rejected(sentence, Instant::now());
            return Err(Refusal(Status::NotAllowed, why));
        }
        let set = self.switch.set_own_mac(port, Some(mac));
        set.map_err(|_| Status::BadData)?;
        let connected = self.hosts.get_mut(&id).ok_or(Status::NotAllowed)?;
        let first = connected.state == HostState::Starting;
        connected.mac = Some(mac);
        if first {
            connected.state = HostState::Up;
            self.journal
                .note(&format!("{connected} is connected with {mac}"));
        }
        Ok(Vec::new())
    }

    /// Why an address is not free for the host at this port; `None` if it is.
    fn address_conflict(&self, port: PortId, mac: Mac) -> Option<String> {
        if self.lan.interface().mac() == Ok(mac) {
            return Some("it is the address of the unit's own interface".to_owned());
        }
        let age = Instant::now().saturating_duration_since(self.start);
        let behind = self.switch.port_of(mac, age).filter(|at| *at != port)?;
        if behind == self.lan_id {
            return Some(format!(
                "a station of the LAN used it in the last {:?}",
                self.options.mac_age
            ));
        }
        let other = self.ports.get(&behind);
        let other = other.and_then(|id| self.hosts.get(id));
        Some(match other {
            Some(other) if other.mac == Some(mac) => {
                "another host has it; a lost host is removed after --patience of the unit"
                    .to_owned()
            }
            _ => "a station behind another host used it".to_owned(),
        })
    }

    fn statistics(&self, id: HostId) -> Reply {
        let connected = self.hosts.get(&id).ok_or(Status::NotAllowed)?;
        let mut counts = self.counts(connected);
        counts.subtract(&connected.since_counts);
        Ok(counts.to_bytes())
    }

    fn reset_statistics(&mut self, id: HostId) -> Reply {
        let counts = self.hosts.get(&id).map(|connected| self.counts(connected));
        let connected = self.hosts.get_mut(&id).ok_or(Status::NotAllowed)?;
        connected.since_counts = counts.unwrap_or_default();
        Ok(Vec::new())
    }

    /// Longer packets would be dropped on the LAN, or would not fit into the elements of the pools.
    fn most_mtu(&self, id: HostId) -> Result<u32, Status> {
        let mtu = self.lan.interface().mtu().map_err(|_| Status::NotAllowed)?;
        let connected = self.hosts.get(&id).ok_or(Status::NotAllowed)?;
        Ok(mtu.min(packet_mtu(connected.link.options().size)))
    }

    fn set_mtu(&mut self, id: HostId, mtu: u32) -> Reply {
        let most = self.most_mtu(id)?;
        match (LEAST_MTU..=most).contains(&mtu) {
            true => Ok(Vec::new()),
            false => Err(Status::BadData.into()),
        }
    }

    fn set_promiscuous(&mut self, id: HostId, on: bool) -> Reply {
        if on && !self.options.promiscuous {
            let why = "the unit must be started with --allow-promiscuous";
            return Err(Refusal(Status::NotAllowed, why.to_owned()));
        }
        let connected = self.hosts.get_mut(&id).ok_or(Status::NotAllowed)?;
        let port = connected.port.ok_or(Status::NotAllowed)?;
        // A host that receives everything may also send from other addresses, as a bridge does.
        let set = self.switch.set_promiscuous(port, on);
        set.map_err(|_| Status::NotAllowed)?;
        connected.promiscuous = on;
        Ok(Vec::new())
    }

    fn set_groups(&mut self, id: HostId, groups: Option<Vec<Mac>>) -> Reply {
        let connected = self.hosts.get(&id).ok_or(Status::NotAllowed)?;
        let port = connected.port.ok_or(Status::NotAllowed)?;
        let multicast = groups.map_or(Multicast::All, Multicast::Groups);
        let set = self.switch.set_multicast(port, multicast);
        set.map_err(|_| Status::BadData)?;
        Ok(Vec::new())
    }

    /// A host leaves or is dismissed: its pools are recalled before its memory is freed (P6).
    pub(super) fn dismiss(&mut self, id: HostId) {
        let Some(connected) = self.hosts.get_mut(&id) else {
            return;
        };
        if connected.state == HostState::Leaving {
            return;
        }
        connected.state = HostState::Leaving;
        self.with_host(id, |connected, _| Ok(connected.link.recall()?));
    }

    /// Checks the LAN's link; hosts are told of a change.
    pub(super) fn check_lan(&mut self) -> Result<(), UnitError> {
        let up = self.lan.is_up()?;
        if up == self.lan_up {
            return Ok(());
        }
        self.lan_up = up;
        let what = if up { "up" } else { "down" };
        self.journal.note(&format!("the LAN's link is {what}"));
        let (operation, data) = ConfigRequest::SetLink(up).encode();
        let ids: Vec<HostId> = self.hosts.keys().copied().collect();
        for id in ids {
            self.with_host(id, |connected, carrier| {
                if connected.state == HostState::Up {
                    connected.link.request(operation, &data)?;
                }
                connected.link.drive(carrier)
            });
        }
        Ok(())
    }
}
