//! The UDP sockets at port 4791, one for each local address, opened when the first queue pair needs them and closed with the engine.
//! Processes of one user share the port: each has a member of a group of sockets, and the kernel steers packets by bits of the queue pair
//! number. A packet that reaches another member than that of its queue pair is handed over ([`PacketHandover`]), so a wrong choice costs
//! time and nothing else.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use verbena_sync::locks::{Mutex, RwLock};
use verbena_wire::roce::PORT;

use crate::core::Core;
use crate::datagram::packet_handover::{Claim, PacketHandover};
use crate::datagram::udp_port::{PortKind, UdpPort};
use crate::error::Error;
use crate::guard::catch_panic;
use crate::roce::cm::RoceCm;
use crate::sys::segments::MAX_STEERED;
use crate::sys::{self, DatagramSocket};

/// Sentences that are remembered as reported.
const MAX_REPORTED: usize = 64;

/// The sockets of an engine.
#[derive(Debug, Default)]
pub(crate) struct RocePorts {
    ports: Mutex<Ports>,
    unavailable: Unavailable,
    /// Packets that arrive for other processes, and from them.
    pub(crate) handover: PacketHandover,
}

#[derive(Debug, Default)]
struct Ports {
    open: Vec<Arc<UdpPort>>,
    /// The number of the first socket in its group.
    member: Option<u16>,
    closed: bool,
}

/// Reports why RoCEv2 cannot be used, each sentence once: the program may only have an error number, or go on with TCP.
#[derive(Default)]
struct Unavailable {
    observer: RwLock<Option<Observer>>,
    reported: Mutex<Vec<String>>,
}

type Observer = Arc<dyn Fn(&str) + Send + Sync>;

impl Unavailable {
    fn report(&self, error: &Error) {
        let Some(observer) = self.observer.read().clone() else {
            return;
        };
        let sentence = error.to_string();
        let mut reported = self.reported.lock();
        if reported.len() >= MAX_REPORTED || reported.contains(&sentence) {
            return;
        }
        reported.push(sentence.clone());
        drop(reported);
        catch_panic(|| observer(&sentence));
    }
}

impl core::fmt::Debug for Unavailable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Unavailable").finish_non_exhaustive()
    }
}

impl RocePorts {
    /// The port at this local address, opened at the first call; afterwards packets for every number that was allocated so far arrive at it.
    /// The error says in one sentence that another user or the kernel's rxe has the port; that is reported, too.
    pub(crate) fn at(&self, core: &Arc<Core>, local: IpAddr) -> Result<Arc<UdpPort>, Error> {
        let opened = self.open(core, local);
        if let Err(error @ Error::RocePortInUse { .. }) = &opened {
            self.report(error);
        }
        let port = opened?;
        // Messages for queue pair 1 reach any process that has the port: each can hand them to the one they are for.
        RoceCm::of(core)?;
        for number in core.oob.qpn_allocator.ports() {
            match self.handover.claim(core, &port, Claim::Port(number)) {
                // Any user can take a name. Packets that reach other processes are lost then, and the others still arrive.
                Err(Error::System(error)) if error.is_in_use() => {}
                claimed => claimed?,
            }
        }
        Ok(port)
    }

    /// RoCEv2 cannot be used: reports the reason, unless it was reported before.
    pub(crate) fn report(&self, error: &Error) {
        self.unavailable.report(error);
    }

    /// Calls `observer` with each reason why RoCEv2 cannot be used.
    pub(crate) fn on_unavailable(&self, observer: impl Fn(&str) + Send + Sync + 'static) {
        *self.unavailable.observer.write() = Some(Arc::new(observer));
    }

    /// The port is open at this address.
    pub(crate) fn has(&self, local: IpAddr) -> bool {
        let ports = self.ports.lock();
        ports.open.iter().any(|port| port.ip() == local)
    }

    /// The ports at all local addresses, without those that a rule gives to another device (V2).
    pub(crate) fn at_all(&self, core: &Arc<Core>) -> Result<Arc<[Arc<UdpPort>]>, Error> {
        let own = Self::owned(core, core.local_addresses.all()?)?;
        own.iter().map(|local| self.at(core, *local)).collect()
    }

    /// Those of the addresses at which no rule gives packets of RoCEv2 to another device (V2).
    pub(crate) fn owned(core: &Core, all: &[IpAddr]) -> Result<Vec<IpAddr>, Error> {
        core.retain_owned(all, |local| SocketAddr::new(*local, PORT))
    }

    /// The residue, modulo [`MAX_STEERED`], of port numbers in the numbers of queue pairs whose packets the kernel steers to this engine; none
    /// if it does not use RoCEv2, or shares the port with too many others.
    pub(crate) fn steered_residue(&self, core: &Arc<Core>) -> Option<u16> {
        if core.config.uses_roce() {
            let local = *Self::owned(core, core.local_addresses.all().ok()?)
                .ok()?
                .first()?;
            // The caller of `at` gets the error.
            let _ = self.open(core, local);
        }
        self.ports.lock().member.filter(|n| *n < MAX_STEERED)
    }

    /// Opens the port at this address, if it is not open.
    fn open(&self, core: &Arc<Core>, local: IpAddr) -> Result<Arc<UdpPort>, Error> {
        let local = local.to_canonical();
        let mut ports = self.ports.lock();
        if let Some(port) = ports.open.iter().find(|port| port.ip() == local) {
            return Ok(port.clone());
        }
        if ports.closed {
            return Err(Error::Closed);
        }
        if core.security.tls.is_some() {
            return Err(Error::NoDatagrams);
        }
        let addresses = &core.local_addresses;
        if !addresses.all()?.contains(&local) && !addresses.loopback()?.contains(&local) {
            return Err(Error::NotLocalAddress { address: local });
        }
        let at = SocketAddr::new(local, PORT);
        core.check_owner(at, None)?;
        let socket = DatagramSocket::bind_roce(at).map_err(|error| {
            if error.is_in_use() {
                Error::RocePortInUse { address: local }
            } else {
                error.into()
            }
        })?;
        // A kernel that cannot steer spreads packets by their addresses, and they are handed over.
        let _ = socket.steer_by_qpn();
        let members = sys::sharing_sockets(at);
        let port = UdpPort::new(core, socket, PortKind::Roce)?;
        port.serve()?;
        let member = u16::try_from(members.saturating_sub(1)).ok();
        ports.member = ports.member.or(member);
        ports.open.push(port.clone());
        Ok(port)
    }

    /// Closes all sockets; none is opened any more.
    pub(crate) fn close(&self) {
        let open = {
            let mut ports = self.ports.lock();
            ports.closed = true;
            core::mem::take(&mut ports.open)
        };
        self.handover.close();
        open.iter().for_each(|port| port.close());
    }
}

#[cfg(test)]
mod tests;
