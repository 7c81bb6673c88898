//! A carrier of cells (P1–P3): the channel adapter over UDP datagrams or Ethernet frames. The route to a connected peer cannot be taken
//! over by another sender, and the completion queue has room for everything posted, so no completion is lost. It starts no threads, and
//! takes no packets from a peer that is not connected.
//!
//! Reading order: [`CellOptions`] → `datagram` → `socket` (`udp` with its `routes`, `ethernet`) → `cookie_filter` → `outgoing` → `turn` → `pairs`.

mod cookie_filter;
mod datagram;
mod ethernet;
mod memory;
mod options;
mod outgoing;
mod pairs;
mod routes;
mod socket;
mod turn;
mod udp;

pub use ethernet::ETHERTYPE;
pub use options::{CellCounters, CellOptions};

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustix::rand::{GetRandomFlags, getrandom};
use verbena::Device;
use verbena::unstable::access::AccessList;
use verbena_cells::config::MAX_CELL;
use verbena_cells::{Peer, Port, View};
use verbena_lan::Mac;
use verbena_mem::{Pd, Policy, Tpt};
use verbena_nic::{Cq, Outbox, Wc};
use verbena_split_wire::cell::{MAX_OVERHEAD, PortAddress};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::{CarrierError, CarrierEvent, Pair, Result, Ticket};
use cookie_filter::CookieFilter;
use ethernet::Ethernet;
use outgoing::Outgoing;
use socket::CellSocket;
use udp::Udp;

/// Listens for requests of acknowledged channels. Numbers 1 and 2 were those of units without cookies.
const ACKNOWLEDGED: Qpn = Qpn::wrapping(3);
/// Listens for requests of unacknowledged channels.
const UNACKNOWLEDGED: Qpn = Qpn::wrapping(4);
/// Lower numbers are not given to pairs.
const FIRST_PAIR: u32 = 16;
/// Upper limit of STag indices.
const REGISTRATIONS: u32 = 1 << 16;
/// Completions polled at once.
const POLL_BATCH: usize = 64;

/// A carrier of cells.
#[derive(Debug)]
pub struct CellCarrier {
    socket: CellSocket,
    /// `Some` if it listens.
    cookie_check: Option<CookieFilter>,
    port: Port,
    tpt: Arc<Tpt>,
    /// The protection domain of memory and pairs that are created now.
    domain: Pd,
    /// Of all pairs, with room for everything that can complete between two polls.
    cq: Arc<Cq>,
    /// The origin of the adapter's times.
    epoch: Instant,
    /// The adapter's deadline, as of the last turn.
    due: Option<Time>,
    pairs: BTreeMap<u32, pairs::PairEntry>,
    next_pair: u32,
    /// The destinations of connectionless pairs.
    destinations: BTreeMap<u32, Peer>,
    /// Ports whose requests are not answered yet.
    requests: BTreeMap<Ticket, PortAddress>,
    events: VecDeque<CarrierEvent>,
    /// Completions not yet returned to the driver.
    done: Vec<Wc>,
    scratch: Vec<Wc>,
    outgoing: Outgoing,
    /// There was a call since the last turn, or the last turn stopped at a bound.
    busy: bool,
    /// The socket's send buffer was full.
    full: bool,
    outbox: Outbox,
    counters: CellCounters,
    /// Has the event queues for what happens on channels.
    event_device: Option<Device>,
}

impl CellCarrier {
    /// Listens on this address. On a machine with several addresses, give one: the system chooses the source address of an answer, and a
    /// connected socket receives only from the address that it dialled.
    pub fn udp_listen(local: SocketAddr, options: CellOptions) -> Result<CellCarrier> {
        let udp = Udp::listen(local, &options)?;
        // The dialler knows the path, and the smaller size of both applies.
        let cell = options.cell.unwrap_or(MAX_CELL);
        let address = PortAddress(Mac::local(random()?).octets());
        CellCarrier::new(CellSocket::Udp(Box::new(udp)), address, cell, &options)
    }

    /// Drops datagrams from sources that these lists refuse. It has no effect over Ethernet, which has no IP addresses.
    pub fn set_access(&mut self, access: AccessList) {
        if let CellSocket::Udp(udp) = &mut self.socket {
            udp.set_access(access);
        }
    }

    /// Dials a unit that listens on UDP.
    pub fn udp_dial(unit: SocketAddr, options: CellOptions) -> Result<CellCarrier> {
        let udp = Udp::dial(unit, &options)?;
        let cell = cell_size(options.cell, udp.max_datagram(PortAddress::ANY), &unit)?;
        let address = PortAddress(Mac::local(random()?).octets());
        CellCarrier::new(CellSocket::Udp(Box::new(udp)), address, cell, &options)
    }

    /// Listens on an Ethernet interface, in the thread's network namespace.
    pub fn ethernet_listen(interface: &str, options: CellOptions) -> Result<CellCarrier> {
        CellCarrier::ethernet(interface, None, &options)
    }

    /// Dials a unit on the network of an Ethernet interface.
    pub fn ethernet_dial(interface: &str, unit: Mac, options: CellOptions) -> Result<CellCarrier> {
        if !unit.is_station() {
            return Err(CarrierError::Address {
                address: unit.to_string(),
                why: "a group address, or zero".to_owned(),
            });
        }
        CellCarrier::ethernet(interface, Some(unit), &options)
    }

    fn ethernet(interface: &str, unit: Option<Mac>, options: &CellOptions) -> Result<CellCarrier> {
        let line = Ethernet::open(interface, unit, options)?;
        let cell = cell_size(options.cell, line.max_datagram(), &interface)?;
        let address = PortAddress(line.mac().octets());
        CellCarrier::new(CellSocket::Ethernet(Box::new(line)), address, cell, options)
    }

    fn new(
        line: CellSocket,
        address: PortAddress,
        cell: u16,
        options: &CellOptions,
    ) -> Result<CellCarrier> {
        let mut port = Port::new(address, options.config(cell))?;
        let mut gate = None;
        if line.unit().is_none() {
            gate = Some(CookieFilter::new(address)?);
            port.listen(ACKNOWLEDGED, true)?;
            port.listen(UNACKNOWLEDGED, false)?;
        }
        let cq = Cq::new(0, 1).map_err(|error| memory_error(0, &error))?;
        Ok(CellCarrier {
            socket: line,
            cookie_check: gate,
            port,
            tpt: Arc::new(Tpt::new(1..REGISTRATIONS, Policy::Verbs, random()?)),
            domain: Pd(1),
            cq: Arc::new(cq),
            epoch: Instant::now(),
            due: None,
            pairs: BTreeMap::new(),
            next_pair: random()? as u32,
            destinations: BTreeMap::new(),
            requests: BTreeMap::new(),
            events: VecDeque::new(),
            done: Vec::new(),
            scratch: vec![Wc::default(); POLL_BATCH],
            outgoing: Outgoing::default(),
            busy: false,
            full: false,
            outbox: Outbox::new(),
            counters: CellCounters::default(),
            event_device: None,
        })
    }

    /// The address of its port.
    #[cfg(test)]
    pub(crate) fn port_address(&self) -> PortAddress {
        self.port.address()
    }

    /// The largest payload of a cell.
    pub fn cell(&self) -> u16 {
        self.port.config().cell
    }

    /// Its counters.
    pub fn counters(&self) -> CellCounters {
        CellCounters {
            port: self.port.counters(),
            ..self.counters
        }
    }

    /// The state and counters of a pair.
    pub fn view(&self, pair: Pair) -> Option<View> {
        self.port.view(Qpn::new(pair.0)?)
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.epoch)
    }
}

/// The size requested, or what fits one datagram of `room` bytes with all overhead.
fn cell_size(asked: Option<u16>, room: usize, to: &dyn core::fmt::Display) -> Result<u16> {
    let fits = room.saturating_sub(MAX_OVERHEAD).min(usize::from(MAX_CELL));
    match asked {
        Some(cell) => Ok(cell),
        None if fits > 0 => Ok(fits as u16),
        None => Err(CarrierError::Address {
            address: to.to_string(),
            why: format!(
                "a datagram of {room} bytes cannot hold a cell, which needs more than {MAX_OVERHEAD}"
            ),
        }),
    }
}

fn memory_error(len: usize, why: &dyn core::fmt::Display) -> CarrierError {
    let why = why.to_string();
    CarrierError::Memory { len, why }
}

/// 64 random bits.
fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let got = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()));
    let refused = |error| CarrierError::System {
        call: "getrandom",
        error,
    };
    // Up to 256 bytes come at once or not at all (getrandom(2)).
    match got {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(refused(std::io::ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(refused(errno.into())),
    }
}

#[cfg(test)]
mod tests;
