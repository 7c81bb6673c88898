//! One interface of a host: Ethernet, address resolution, IP, ICMP, UDP and TCP joined, without input and output.
//! The caller gives each arrived frame to [`Stack::handle_frame`] and each deadline to [`Stack::handle_timeout`], then sends what
//! [`Stack::poll_transmit`] returns until it returns nothing, and takes events. Payload of TCP is not held: it is in the arrived frame,
//! or in the consumer's memory. Everything that other hosts can make grow has a limit.

mod demux;
mod resolve;
mod transmit;

#[cfg(test)]
mod tests;

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use verbena_stream::Time;

use crate::frame::{FrameError, Mac, Vlan};
use crate::neighbor::Neighbors;
use crate::secret::{Key, Tuple};
use crate::tcp::{CloseReason, Connection, KeepAlive, QueueError, Received, State, TcpConfig};

pub use transmit::{Outgoing, SegmentFrame};

/// Frames of the stack itself that wait to be sent: answers beyond are dropped.
pub const MAX_WAITING_FRAMES: usize = 256;
/// Resets and reports for packets that belong to nothing, in a second.
pub const MAX_REFUSALS_PER_SECOND: u32 = 200;
/// Connections in `TimeWait`; the oldest is closed for a new one.
pub const MAX_TIME_WAIT: usize = 4096;
/// The first port that is given to connections which name none.
const FIRST_EPHEMERAL: u16 = 49_152;

/// An address of the interface, and how many of its bits are those of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// The length of the prefix.
    pub prefix: u8,
}

/// Settings of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackConfig {
    /// The Ethernet address.
    pub mac: Mac,
    /// The addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Routers for other networks.
    pub gateways: Vec<IpAddr>,
    /// The VLAN of all frames, with the priority of those that name none.
    pub vlan: Option<Vlan>,
    /// Bytes of an IP packet on the link.
    pub mtu: usize,
    /// Connections of all kinds.
    pub max_connections: usize,
    /// A host has the same addresses: what belongs to no connection, listener or port of the stack is left to it unanswered, and what
    /// both need is [`Arrival::Foreign`] although the stack has used it.
    pub is_shared: bool,
}

impl Default for StackConfig {
    fn default() -> StackConfig {
        StackConfig {
            mac: Mac::default(),
            addresses: Vec::new(),
            gateways: Vec::new(),
            vlan: None,
            mtu: 1500,
            max_connections: 65_536,
            is_shared: false,
        }
    }
}

/// The class of a connection's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficClass {
    /// In the IP header (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// In the VLAN tag, 0 to 7; `None` for that of the interface.
    pub priority: Option<u8>,
}

/// A connection of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u32);

/// What a listener accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// Settings of its connections.
    pub tcp: TcpConfig,
    /// The class of their packets.
    pub class: TrafficClass,
    /// Connections that are not established; beyond, SYNs are answered with cookies.
    pub backlog: usize,
}

impl Default for ListenConfig {
    fn default() -> ListenConfig {
        ListenConfig {
            tcp: TcpConfig::default(),
            class: TrafficClass::default(),
            backlog: 128,
        }
    }
}

/// What has become of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// A segment of a connection, which may have brought data.
    Segment {
        /// The connection.
        connection: ConnectionId,
        /// What is new; places in the payload are relative to `payload`.
        received: Received,
        /// Where the payload is in the frame.
        payload: Range<usize>,
    },
    /// A datagram for a port that is bound.
    Datagram {
        /// The port.
        port: u16,
        /// The sender.
        source: SocketAddr,
        /// Where the payload is in the frame.
        payload: Range<usize>,
    },
    /// The stack has used it.
    Handled,
    /// It is for another station, or of a protocol or port that is not this stack's: a host may want it.
    Foreign,
    /// It cannot be used.
    Dropped(FrameError),
}

/// What happened to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackEvent {
    /// A connection that was opened here is established.
    Connected(ConnectionId),
    /// A connection that was opened there is established.
    Accepted {
        /// The port that listens.
        port: u16,
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer sends no more; everything before has arrived.
    PeerFinished(ConnectionId),
    /// The connection is closed, and forgotten.
    Closed(ConnectionId, CloseReason),
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// No address of the interface can reach the destination.
    #[error("no address of the interface reaches {0}")]
    NoRoute(IpAddr),
    /// The port or the pair of addresses is in use.
    #[error("port {0} is in use")]
    InUse(u16),
    /// There are as many connections as the settings allow.
    #[error("there are {0} connections, and no more are allowed")]
    Full(usize),
    /// There is no such connection any more.
    #[error("the connection is closed")]
    Closed,
    /// The data was not queued.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The destination's Ethernet address is being asked for.
    #[error("the Ethernet address of {0} is not known yet: send again later")]
    Resolving(IpAddr),
    /// The datagram does not fit into a packet.
    #[error("a datagram of {len} bytes, and a packet carries {most}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The longest datagram.
        most: usize,
    },
}

/// Counters of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackCounters {
    /// Frames that arrived.
    pub frames_in: u64,
    /// Frames that were sent.
    pub frames_out: u64,
    /// Frames that could not be used.
    pub dropped: u64,
    /// Of those, fragments.
    pub fragments: u64,
    /// Of those, with a wrong checksum.
    pub checksums: u64,
    /// SYNs that were answered with cookies.
    pub cookies_out: u64,
    /// Connections from cookies.
    pub cookies_in: u64,
    /// Answers of the stack that were dropped because too many wait, or are sent in a second.
    pub refused: u64,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    tuple: Tuple,
    class: TrafficClass,
    /// The port of the listener, until the connection is established.
    listener: Option<u16>,
    is_ready: bool,
    /// Its frames wait for an Ethernet address.
    is_waiting: bool,
    is_announced: bool,
    is_finish_announced: bool,
    is_time_wait: bool,
    deadline: Option<Time>,
}

#[derive(Debug)]
struct Listener {
    config: ListenConfig,
    half_open: usize,
    /// Cookies may come back until then.
    cookies_until: Option<Time>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Refusals {
    since: Time,
    count: u32,
}

/// One interface of a host.
#[derive(Debug)]
pub struct Stack {
    config: StackConfig,
    key: Key,
    neighbors: Neighbors,
    connections: BTreeMap<ConnectionId, Entry>,
    tuples: BTreeMap<Tuple, ConnectionId>,
    listeners: BTreeMap<u16, Listener>,
    datagram_ports: BTreeSet<u16>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<ConnectionId>,
    /// Connections that wait for an Ethernet address.
    waiting: Vec<ConnectionId>,
    time_wait: VecDeque<ConnectionId>,
    deadlines: BTreeSet<(Time, ConnectionId)>,
    frames: VecDeque<Vec<u8>>,
    events: VecDeque<StackEvent>,
    refusals: Refusals,
    next_id: u32,
    next_port: u16,
    counters: StackCounters,
}

impl Stack {
    /// An interface without connections; `random` must not be known to others.
    pub fn new(config: StackConfig, random: [u8; 32]) -> Stack {
        Stack {
            config,
            key: Key::new(random),
            neighbors: Neighbors::default(),
            connections: BTreeMap::new(),
            tuples: BTreeMap::new(),
            listeners: BTreeMap::new(),
            datagram_ports: BTreeSet::new(),
            ready: VecDeque::new(),
            waiting: Vec::new(),
            time_wait: VecDeque::new(),
            deadlines: BTreeSet::new(),
            frames: VecDeque::new(),
            events: VecDeque::new(),
            refusals: Refusals::default(),
            next_id: 0,
            next_port: FIRST_EPHEMERAL,
            counters: StackCounters::default(),
        }
    }

    /// Counters.
    pub const fn counters(&self) -> StackCounters {
        self.counters
    }

    /// A connection that is not forgotten.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(&id).map(|entry| &entry.connection)
    }

    /// Both ends of a connection: here, and there.
    pub fn addresses(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.connections.get(&id).map(|entry| entry.tuple)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<StackEvent> {
        self.events.pop_front()
    }

    /// Accepts connections to a port.
    ///
    /// # Errors
    /// If the port has a listener.
    pub fn listen(&mut self, port: u16, config: ListenConfig) -> Result<(), StackError> {
        if port == 0 || self.listeners.contains_key(&port) {
            return Err(StackError::InUse(port));
        }
        let listener = Listener {
            config,
            half_open: 0,
            cookies_until: None,
        };
        self.listeners.insert(port, listener);
        Ok(())
    }

    /// Accepts no more connections to a port.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Takes datagrams for a port; false if it is taken.
    pub fn bind_datagrams(&mut self, port: u16) -> bool {
        port != 0 && self.datagram_ports.insert(port)
    }

    /// Takes no more datagrams for a port.
    pub fn unbind_datagrams(&mut self, port: u16) {
        self.datagram_ports.remove(&port);
    }

    /// Opens a connection, from any port if none is given.
    ///
    /// # Errors
    /// If there is no route, the addresses are in use, or there are too many connections.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        port: Option<u16>,
        config: TcpConfig,
        class: TrafficClass,
        now: Time,
    ) -> Result<ConnectionId, StackError> {
        let source = self
            .source_for(peer.ip())
            .ok_or(StackError::NoRoute(peer.ip()))?;
        if self.connections.len() >= self.config.max_connections {
            return Err(StackError::Full(self.connections.len()));
        }
        let port = match port {
            Some(port) => port,
            None => self.free_port(source, peer)?,
        };
        let tuple = (SocketAddr::new(source, port), peer);
        if port == 0 || self.tuples.contains_key(&tuple) {
            return Err(StackError::InUse(port));
        }
        let secrets = self.key.secrets(&tuple, now);
        let config = self.adapt(config, source);
        let connection = Connection::connect(config, (port, peer.port()), secrets, now);
        Ok(self.insert(connection, tuple, class, None))
    }

    fn free_port(&mut self, source: IpAddr, peer: SocketAddr) -> Result<u16, StackError> {
        for _ in FIRST_EPHEMERAL..=u16::MAX {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL);
            let tuple = (SocketAddr::new(source, port), peer);
            if !self.tuples.contains_key(&tuple) && !self.listeners.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(StackError::InUse(self.next_port))
    }

    /// The settings of a connection from one of the addresses.
    fn adapt(&self, mut config: TcpConfig, source: IpAddr) -> TcpConfig {
        config.is_v6 = source.is_ipv6();
        config.mtu = config.mtu.min(self.config.mtu);
        config
    }

    fn insert(
        &mut self,
        connection: Connection,
        tuple: Tuple,
        class: TrafficClass,
        listener: Option<u16>,
    ) -> ConnectionId {
        while self.connections.contains_key(&ConnectionId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = ConnectionId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let entry = Entry {
            connection,
            tuple,
            class,
            listener,
            is_ready: false,
            is_waiting: false,
            is_announced: false,
            is_finish_announced: false,
            is_time_wait: false,
            deadline: None,
        };
        self.connections.insert(id, entry);
        self.tuples.insert(tuple, id);
        self.touch(id);
        id
    }

    fn with<R>(
        &mut self,
        id: ConnectionId,
        call: impl FnOnce(&mut Connection) -> R,
    ) -> Result<R, StackError> {
        let entry = self.connections.get_mut(&id).ok_or(StackError::Closed)?;
        let result = call(&mut entry.connection);
        self.touch(id);
        Ok(result)
    }

    /// Queues the next `len` bytes of a connection's stream ([`Connection::queue`]).
    ///
    /// # Errors
    /// If the connection is closed or the data was not queued.
    pub fn queue(&mut self, id: ConnectionId, len: u64) -> Result<(), StackError> {
        self.with(id, |connection| connection.queue(len))?
            .map_err(StackError::Queue)
    }

    /// The consumer has taken `len` bytes ([`Connection::consume`]).
    pub fn consume(&mut self, id: ConnectionId, len: u64) {
        let _ = self.with(id, |connection| connection.consume(len));
    }

    /// The consumer sends no more ([`Connection::close`]).
    pub fn close(&mut self, id: ConnectionId, now: Time) {
        let _ = self.with(id, |connection| connection.close(now));
    }

    /// The consumer is gone ([`Connection::release`]).
    pub fn release(&mut self, id: ConnectionId, now: Time) {
        let _ = self.with(id, |connection| connection.release(now));
    }

    /// Changes when an idle connection is probed ([`Connection::set_keep_alive`]).
    pub fn set_keep_alive(&mut self, id: ConnectionId, keep_alive: Option<KeepAlive>) {
        let _ = self.with(id, |connection| connection.set_keep_alive(keep_alive));
    }

    /// Changes the class of a connection's packets, from the next one on.
    pub fn set_class(&mut self, id: ConnectionId, class: TrafficClass) {
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.class = class;
        }
    }

    /// The address of the interface from which a destination is reached, if there is one.
    pub fn route(&self, destination: IpAddr) -> Option<IpAddr> {
        self.source_for(destination)
    }

    /// Resets a connection ([`Connection::abort`]).
    pub fn abort(&mut self, id: ConnectionId) {
        let _ = self.with(id, Connection::abort);
    }

    /// A connection may have changed: announces what has, and lets it send.
    fn touch(&mut self, id: ConnectionId) {
        let Some(entry) = self.connections.get_mut(&id) else {
            return;
        };
        let state = entry.connection.state();
        if state.is_synchronized() && !entry.is_announced {
            entry.is_announced = true;
            let event = match entry.listener.take() {
                Some(port) => {
                    if let Some(listener) = self.listeners.get_mut(&port) {
                        listener.half_open = listener.half_open.saturating_sub(1);
                    }
                    StackEvent::Accepted {
                        port,
                        connection: id,
                        peer: entry.tuple.1,
                    }
                }
                None => StackEvent::Connected(id),
            };
            self.events.push_back(event);
        }
        if entry.is_announced && entry.connection.is_peer_finished() && !entry.is_finish_announced {
            entry.is_finish_announced = true;
            self.events.push_back(StackEvent::PeerFinished(id));
        }
        if state == State::TimeWait && !entry.is_time_wait {
            entry.is_time_wait = true;
            self.time_wait.push_back(id);
        }
        if !entry.is_ready && !entry.is_waiting {
            entry.is_ready = true;
            self.ready.push_back(id);
        }
        self.limit_time_wait();
    }

    fn limit_time_wait(&mut self) {
        while self.time_wait.len() > MAX_TIME_WAIT {
            let Some(id) = self.time_wait.pop_front() else {
                break;
            };
            self.forget(id, CloseReason::Finished);
        }
    }

    /// Removes a connection, and announces its end if the consumer knows of it.
    fn forget(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(entry) = self.connections.remove(&id) else {
            return;
        };
        self.tuples.remove(&entry.tuple);
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if entry.is_time_wait {
            self.time_wait.retain(|other| *other != id);
        }
        match entry.listener {
            Some(port) => {
                if let Some(listener) = self.listeners.get_mut(&port) {
                    listener.half_open = listener.half_open.saturating_sub(1);
                }
            }
            None => self.events.push_back(StackEvent::Closed(id, reason)),
        }
    }

    /// When [`Stack::handle_timeout`] is to be called.
    pub fn deadline(&self) -> Option<Time> {
        let connections = self.deadlines.first().map(|(at, _)| *at);
        [connections, self.neighbors.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Deadlines have passed. Questions for Ethernet addresses are asked by [`Stack::poll_transmit`].
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(entry) = self.connections.get_mut(&id) {
                entry.deadline = None;
                entry.connection.handle_timeout(now);
                self.touch(id);
            }
        }
    }

    /// A frame of the stack itself.
    fn answer(&mut self, frame: Vec<u8>) {
        if self.frames.len() < MAX_WAITING_FRAMES {
            self.frames.push_back(frame);
        } else {
            self.counters.refused += 1;
        }
    }

    /// Whether a packet that belongs to nothing may be answered.
    fn may_refuse(&mut self, now: Time) -> bool {
        let limit = &mut self.refusals;
        if now.since(limit.since) >= Duration::from_secs(1) {
            *limit = Refusals {
                since: now,
                count: 0,
            };
        }
        limit.count = limit.count.saturating_add(1);
        let may = limit.count <= MAX_REFUSALS_PER_SECOND;
        self.counters.refused += u64::from(!may);
        may
    }
}
