//! Services of listeners: the ports at which they are reached, and the claims that have their requests handed over by other processes of the device.
//! A service is claimed before its listener is there, and until a moment after it was closed: a request in between is neither accepted nor
//! rejected, and its sender repeats it.

use core::cell::RefCell;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_wire::roce::cm::CmaHeader;

use super::RoceCm;
use super::sidr::SidrService;
use crate::accept::acceptor::Acceptor;
use crate::config::Wire;
use crate::core::Core;
use crate::datagram::packet_handover::Claim;
use crate::datagram::roce_ports::RocePorts;
use crate::datagram::udp_port::UdpPort;
use crate::error::Error;
use crate::poll::shard::next_token;
use crate::sys;

/// How long requests for a service whose listener was closed are neither accepted nor rejected: a program may close a listener and open
/// the next one, and with the times of adapters its peer would ask for it later.
const REPLACE_TIME: Duration = Duration::from_millis(500);
/// The same while a listener is opened.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// How long the name of a service may be in use by a claim that was given up.
const CLAIM_WAIT: Duration = Duration::from_millis(700);
/// Services whose listener was closed; beyond that, the oldest one is forgotten.
const MAX_ENDED_SERVICES: usize = 64;

/// A service whose listener was closed, or is being opened.
pub(super) struct EndedService {
    service: u64,
    /// Where requests for it are claimed still.
    addresses: Vec<IpAddr>,
    /// When it is forgotten.
    until: Time,
}

/// A listener receives requests over RoCEv2 while this exists.
pub(crate) struct ServiceGuard {
    cm: Arc<RoceCm>,
    port: u16,
    token: u64,
    service: u64,
    /// Where requests for the service are claimed.
    addresses: Vec<IpAddr>,
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        let Some(core) = self.cm.core.upgrade().filter(|core| core.is_alive()) else {
            return;
        };
        self.end(&core);
    }
}

impl ServiceGuard {
    /// Requests for the service at this address go to the listener from now on.
    pub(crate) fn listen(&self, at: SocketAddr, acceptor: &Arc<Acceptor>) {
        let acceptor = Arc::downgrade(acceptor);
        self.cm.listeners.add(at, self.token, acceptor);
        // When it is closed, the time to replace it counts from then.
        self.cm.resume_service(self.service, &self.addresses);
    }

    /// The same for datagram queue pairs, whose service has a number of its own.
    pub(super) fn listen_sidr(&self, at: SocketAddr, listener: &Arc<dyn SidrService>) {
        let listener = Arc::downgrade(listener);
        self.cm.sidr_listeners.add(at, self.token, listener);
        self.cm.resume_service(self.service, &self.addresses);
    }

    /// Another process listens from now on, and claims the service at once. Requests that arrive here before that are repeated by their senders.
    pub(crate) fn hand_over(mut self) {
        let Some(core) = self.cm.core.upgrade().filter(|core| core.is_alive()) else {
            return;
        };
        let addresses = self.addresses.clone();
        self.end(&core);
        for address in addresses {
            let claim = Claim::Service(self.service);
            core.roce_ports.handover.release(address, claim);
        }
    }

    fn end(&mut self, core: &Arc<Core>) {
        self.cm.listeners.remove(self.port, self.token);
        self.cm.sidr_listeners.remove(self.port, self.token);
        let addresses = core::mem::take(&mut self.addresses);
        if !addresses.is_empty() {
            self.cm
                .end_service(core, self.service, addresses, REPLACE_TIME);
        }
    }
}

impl core::fmt::Debug for ServiceGuard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServiceGuard")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl RoceCm {
    /// Opens the ports of RoCEv2 at which a listener at this address is reached, and claims requests for its service there.
    pub(super) fn open_service(
        core: &Arc<Core>,
        at: SocketAddr,
        service: u64,
    ) -> Result<Option<ServiceGuard>, Error> {
        match core.config.wire_of_listeners() {
            Wire::Tcp => Ok(None),
            // The port is opened for peers that are known to use it only.
            Wire::Auto if !core.config.uses_roce() => Ok(None),
            wire => match RoceCm::claim_service(core, at, service) {
                // A device with one loopback address is not reached by another one. A listener at all addresses is there for TCP nevertheless.
                Err(Error::NotLocalAddress { address }) if address.is_loopback() => Ok(None),
                // The listener goes on with TCP alone, and the program gets no error.
                Err(error) if wire == Wire::Auto => {
                    core.roce_ports.report(&error);
                    Ok(None)
                }
                claimed => claimed.map(Some),
            },
        }
    }

    fn claim_service(
        core: &Arc<Core>,
        at: SocketAddr,
        service: u64,
    ) -> Result<ServiceGuard, Error> {
        core.security.check_roce_encryption()?;
        let (mut addresses, loopback) = match at.ip().is_unspecified() {
            false => (vec![at.ip()], &[][..]),
            true => {
                let own = RocePorts::owned(core, core.local_addresses.all()?)?;
                (own, core.local_addresses.loopback()?)
            }
        };
        addresses.extend(loopback);
        addresses.retain(|ip| ip.is_ipv4() == at.is_ipv4());
        let mut guard = ServiceGuard {
            cm: RoceCm::of(core)?,
            port: at.port(),
            token: next_token(),
            service,
            addresses: Vec::new(),
        };
        guard.cm.resume_service(service, &addresses);
        // Until the listener is there, a request is neither accepted nor rejected.
        guard
            .cm
            .end_service(core, service, addresses.clone(), OPEN_TIME);
        // Another user may have the port at the loopback address, or the host no IPv6: the device is reached by its own addresses then.
        let ports = addresses.iter().filter_map(|ip| {
            let opened = core.roce_ports.at(core, *ip);
            (opened.is_ok() || !loopback.contains(ip)).then_some(opened)
        });
        let ports = ports.collect::<Result<Vec<_>, Error>>()?;
        for port in &ports {
            RoceCm::claim(core, port, service)?;
            guard.addresses.push(port.ip());
        }
        Ok(guard)
    }

    /// A service has no listener now: unless it gets one, its claims are given up when this time has passed.
    fn end_service(&self, core: &Arc<Core>, service: u64, addresses: Vec<IpAddr>, time: Duration) {
        let until = sys::now() + time;
        let mut ended = self.ended.lock();
        ended.push_back(EndedService {
            service,
            addresses,
            until,
        });
        while ended.len() > MAX_ENDED_SERVICES {
            let oldest = ended.pop_front();
            oldest.iter().for_each(|oldest| self.release(core, oldest));
        }
        drop(ended);
        self.shard.set_timer(until, self.token);
    }

    /// A listener is opened: the claims of an earlier one at these addresses are its own.
    fn resume_service(&self, service: u64, at: &[IpAddr]) {
        let mut ended = self.ended.lock();
        let same = ended.iter_mut().filter(|other| other.service == service);
        same.for_each(|other| other.addresses.retain(|address| !at.contains(address)));
    }

    /// Gives up the claims of services that have had no listener for long enough.
    pub(super) fn release_ended(&self, core: &Arc<Core>, now: Time) {
        let mut ended = self.ended.lock();
        ended.retain(|one| {
            let is_over = one.until <= now;
            if is_over {
                self.release(core, one);
            }
            !is_over
        });
    }

    fn release(&self, core: &Core, ended: &EndedService) {
        for address in &ended.addresses {
            if !self.serves(*address, ended.service) {
                let claim = Claim::Service(ended.service);
                core.roce_ports.handover.release(*address, claim);
            }
        }
    }

    /// A listener of this process has the service at this address.
    pub(super) fn serves(&self, local: IpAddr, service: u64) -> bool {
        let port = |space| CmaHeader::port_of(space, service);
        let connections = port(CmaHeader::PS_TCP).and_then(|port| self.listeners.find(local, port));
        let datagrams =
            port(CmaHeader::PS_UDP).and_then(|port| self.sidr_listeners.find(local, port));
        connections.is_some() || datagrams.is_some()
    }

    /// The listener of this service was closed a moment ago, or is being opened.
    pub(super) fn has_just_ended(&self, local: IpAddr, service: u64) -> bool {
        let ended = self.ended.lock();
        let mut same = ended.iter().filter(|other| other.service == service);
        same.any(|other| other.addresses.contains(&local))
    }

    /// Claims requests that reach other processes at this port. A child that the program has forked may hold the name of an earlier claim until
    /// it executes another program, so that one that is in use is tried again; requests that reach this process need no claim.
    fn claim(core: &Arc<Core>, port: &Arc<UdpPort>, service: u64) -> Result<(), Error> {
        let (handover, claim) = (&core.roce_ports.handover, Claim::Service(service));
        let failed = RefCell::new(None);
        sys::wait(sys::now() + CLAIM_WAIT, || {
            match handover.claim(core, port, claim) {
                Ok(()) => true,
                Err(Error::System(cause)) if cause.is_in_use() => false,
                Err(error) => {
                    *failed.borrow_mut() = Some(error);
                    true
                }
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}
