//! Queue pair numbers that peers can connect or send to: a port (16 bits) with sockets at it, and an index there (8 bits).
//! A number that is returned rests for `reuse_delay` before it names another queue pair, and the number of a queue pair that was migrated
//! here is not allocated. Ports are opened as they are needed.

use std::collections::HashSet;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;

use crate::accept::acceptor::Acceptor;
use crate::core::Core;
use crate::datagram::udp_port::{PortKind, UdpPort};
use crate::error::Error;
use crate::sys::segments::MAX_STEERED;
use crate::sys::{self, BoundPort, DatagramSocket, PortPair};

/// Queue pairs of one port.
const QPS_PER_PORT: usize = 256;

/// All numbers of an engine.
#[derive(Debug, Default)]
pub(crate) struct QpnAllocator(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    ports: Vec<QpnPort>,
    /// Numbers of queue pairs that were migrated here; their ports are elsewhere, or were (V1).
    adopted: HashSet<u32>,
}

#[derive(Debug)]
struct QpnPort {
    number: u16,
    indexes: Box<[Index; QPS_PER_PORT]>,
    /// Where the next search begins; it goes round, so that a number is reused late.
    next: u8,
    acceptors: Vec<Arc<Acceptor>>,
    /// The UDP sockets of the port, at each address; not served before a datagram queue pair needs them.
    udp_ports: Arc<[Arc<UdpPort>]>,
    _reserved: Vec<DatagramSocket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    Free,
    Used,
    Quarantined(Time),
}

impl QpnAllocator {
    /// Allocates a number.
    pub(crate) fn allocate(&self, core: &Arc<Core>) -> Result<Qpn, Error> {
        let mut numbers = self.0.lock();
        let Numbers { ports, adopted } = &mut *numbers;
        let now = sys::now();
        let free = ports
            .iter_mut()
            .find_map(|port| port.allocate(now, adopted));
        if let Some(number) = free {
            return Ok(number);
        }
        let mut port = QpnPort::open(core)?;
        let number = port.allocate(now, adopted).ok_or(Error::Closed)?;
        ports.push(port);
        Ok(number)
    }

    /// Takes the number of a queue pair that is migrated here; false if another queue pair has it (V1).
    pub(crate) fn adopt(&self, number: Qpn) -> bool {
        let mut numbers = self.0.lock();
        let (at, index) = port_and_index(number);
        let mut ports = numbers.ports.iter().filter(|port| port.number == at);
        let used = ports.any(|port| port.indexes[usize::from(index)] == Index::Used);
        !used && numbers.adopted.insert(number.get())
    }

    /// Returns a number, which can be allocated again after `rests`.
    pub(crate) fn release(&self, number: Qpn, rests: core::time::Duration) {
        let mut numbers = self.0.lock();
        numbers.adopted.remove(&number.get());
        let (port, index) = port_and_index(number);
        if let Some(port) = numbers.ports.iter_mut().find(|p| p.number == port) {
            port.indexes[usize::from(index)] = Index::Quarantined(sys::now() + rests);
        }
    }

    /// The UDP sockets of this number's port, at each address.
    pub(crate) fn udp_ports(&self, number: Qpn) -> Option<Arc<[Arc<UdpPort>]>> {
        let (port, _) = port_and_index(number);
        let numbers = self.0.lock();
        let port = numbers.ports.iter().find(|p| p.number == port)?;
        Some(port.udp_ports.clone())
    }

    /// The ports of all numbers.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.0.lock().ports.iter().map(|port| port.number).collect()
    }

    pub(crate) fn close(&self) {
        let ports = core::mem::take(&mut self.0.lock().ports);
        for port in &ports {
            port.acceptors.iter().for_each(|listener| listener.close());
            port.udp_ports.iter().for_each(|port| port.close());
        }
    }
}

impl QpnPort {
    fn open(core: &Arc<Core>) -> Result<QpnPort, Error> {
        let config = &core.config;
        let random = sys::random_u64()?;
        // Packets of RoCEv2 for such numbers are steered to this engine.
        let residue = core.roce_ports.steered_residue(core);
        let preferred = |port: u16| residue.is_none_or(|residue| port % MAX_STEERED == residue);
        let addresses = core.local_addresses.all()?;
        // By a loopback address all processes of the host are reached: a claim there names one of them (`Claim::Port`).
        let shared = match config.uses_roce() {
            true => core.local_addresses.loopback()?,
            false => &[],
        };
        let BoundPort {
            number,
            pairs,
            reserved,
        } = PortPair::bind_range(addresses, shared, config.ports.clone(), random, preferred)?;
        let (mut acceptors, mut udp_ports) = (Vec::new(), Vec::new());
        let opened = pairs.into_iter().try_for_each(|PortPair { tcp, udp }| {
            acceptors.push(Acceptor::for_oob(core, tcp)?);
            udp_ports.push(UdpPort::new(core, udp, PortKind::Private)?);
            Ok(())
        });
        if let Err(error) = opened {
            // Their shards hold them until they are closed.
            acceptors.iter().for_each(|acceptor| acceptor.close());
            udp_ports.iter().for_each(|port| port.close());
            return Err(error);
        }
        Ok(QpnPort {
            number,
            indexes: Box::new([Index::Free; QPS_PER_PORT]),
            next: (random >> 32) as u8,
            acceptors,
            udp_ports: udp_ports.into(),
            _reserved: reserved,
        })
    }

    fn allocate(&mut self, now: Time, adopted: &HashSet<u32>) -> Option<Qpn> {
        for step in 0..=u8::MAX {
            let index = self.next.wrapping_add(step);
            let slot = &mut self.indexes[usize::from(index)];
            let free = match *slot {
                Index::Free => true,
                Index::Used => false,
                Index::Quarantined(until) => until <= now,
            };
            let number = u32::from(self.number) << 8 | u32::from(index);
            if free && !adopted.contains(&number) {
                *slot = Index::Used;
                self.next = index.wrapping_add(1);
                return Qpn::new(number);
            }
        }
        None
    }
}

/// The first port that is used for callable queue pairs (docs/connections.md, "Connected by hand"): lower numbers belong to
/// connections made by a connection manager, and a listener at such a port is another program's.
const FIRST_CALLABLE_PORT: u16 = 1024;

/// Whether a listener of an adapter may stand for this number.
pub(crate) fn is_callable(number: Qpn) -> bool {
    port_and_index(number).0 >= FIRST_CALLABLE_PORT
}

/// The port and the index of a number.
pub(crate) fn port_and_index(number: Qpn) -> (u16, u8) {
    ((number.get() >> 8) as u16, number.get() as u8)
}
