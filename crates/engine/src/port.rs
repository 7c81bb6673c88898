//! A port of the adapter's own: a TAP or a cable, the TCP/IP stack that speaks on it, and the connections of the two (docs/tcpip.md, M1, M17).
//! Its shard reads frames and hands segments to the owners of connections; every thread sends. The state is locked for as long as the stack
//! needs, never while an owner is called; locks are taken in the order: a line's gate, a queue pair's lock, the state.
//!
//! A connection is a [`Line`](crate::sys::Line) behind one end of a local pair. What happens to it is collected under the lock, and told afterwards
//! by the thread of the shard.

mod line;
mod outbox;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Weak};

use verbena_nic::{IoOutcome, Outbox};
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, MutexGuard, OnceLock};
use verbena_tcpip::tcp::{CloseReason, Connection, Framing, TcpConfig};
use verbena_tcpip::{
    Arrival, ConnectionId, FrameError, InterfaceAddress, ListenConfig, Mac, Outgoing, Stack,
    StackConfig, StackError, StackEvent,
};

use crate::config::{PortLink, PortSetting};
use crate::error::{Error, PortError};
use crate::poll::shard::{Shard, ShardTask, Shards, next_token};
use crate::sys::{
    self, FRAME_ROOM, FrameDevice, FrameRead, FrameSent, Interest, LineError, LineOwner, Listener,
    Ready, Socket,
};
use line::{LineEnd, LinePort, PortLine, RECEIVE_WINDOW, probes, traffic_class};

/// Frames that are read in one turn, before other connections of the shard are served.
const BURST: usize = 64;
/// Established connections of one port number that the acceptor has not taken yet.
const MAX_UNACCEPTED: usize = 1024;
/// How often a cable whose switch has ended is connected again.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// Is told that connections wait to be accepted.
pub(crate) trait PortAcceptor: Send + Sync {
    fn connections_wait(self: Arc<Self>);
}

/// The port of an engine, opened when it is first needed.
pub(crate) struct PortSlot {
    setting: Option<PortSetting>,
    keep_alive: Duration,
    shards: Arc<Shards>,
    port: OnceLock<Arc<Port>>,
    /// Held while it is opened.
    opening: Mutex<()>,
}

impl PortSlot {
    pub(crate) fn new(
        setting: Option<PortSetting>,
        keep_alive: Duration,
        shards: &Arc<Shards>,
    ) -> PortSlot {
        PortSlot {
            setting,
            keep_alive,
            shards: shards.clone(),
            port: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// Whether this is an address of the port.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        let setting = self.setting.as_ref();
        setting.is_some_and(|port| port.has_address(ip.to_canonical()))
    }

    /// The address of the port from which a peer is reached; `None` if the kernel reaches it.
    pub(crate) fn route(&self, source: Option<IpAddr>, peer: IpAddr) -> Option<IpAddr> {
        let setting = self.setting.as_ref()?;
        let peer = peer.to_canonical();
        if let Some(source) = source.filter(|ip| !ip.is_unspecified()) {
            return self.has_address(source).then_some(source.to_canonical());
        }
        if peer.is_loopback() || setting.has_address(peer) {
            return None;
        }
        let family = |ip: IpAddr| ip.is_ipv4() == peer.is_ipv4();
        let own = || setting.addresses.iter().filter(|(own, _)| family(*own));
        if let Some((own, _)) = own().find(|(own, prefix)| is_in(*own, *prefix, peer)) {
            return Some(*own);
        }
        let gateway = setting.gateways.iter().find(|gateway| family(**gateway))?;
        // A peer that the kernel has itself is not behind a router.
        if matches!(sys::interface_of(peer), Ok(Some(_))) {
            return None;
        }
        let (own, _) = own().find(|(own, prefix)| is_in(*own, *prefix, *gateway))?;
        Some(*own)
    }

    /// The port, if connections from or to this local address use it: one of its own, or all.
    pub(crate) fn for_listener(&self, local: IpAddr) -> Result<Option<Arc<Port>>, Error> {
        let Some(setting) = &self.setting else {
            return Ok(None);
        };
        let family = |(own, _): &(IpAddr, u8)| own.is_ipv4() == local.is_ipv4();
        if local.is_unspecified() && setting.addresses.iter().any(family) || self.has_address(local)
        {
            return self.open().map(Some);
        }
        Ok(None)
    }

    /// The port.
    pub(crate) fn open(&self) -> Result<Arc<Port>, Error> {
        if let Some(port) = self.port.get() {
            return Ok(port.clone());
        }
        let setting = self.setting.as_ref().ok_or(Error::Closed)?;
        let opening = self.opening.lock();
        if let Some(port) = self.port.get() {
            return Ok(port.clone());
        }
        let port = Port::open(setting, self.keep_alive, &self.shards)?;
        drop(opening);
        Ok(self.port.get_or_init(|| port).clone())
    }

    /// The shards have ended: waits until peers have acknowledged what was sent, at most for this time.
    pub(crate) fn drain(&self, limit: Duration) {
        if let Some(port) = self.port.get() {
            port.drain(limit);
        }
    }
}

/// The first `prefix` bits of two addresses of one family are the same.
fn is_in(network: IpAddr, prefix: u8, ip: IpAddr) -> bool {
    let differ = match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(prefix)
}

/// A port.
pub(crate) struct Port {
    own: Weak<Port>,
    shard: Arc<Shard>,
    token: u64,
    link: PortLink,
    tcp: TcpConfig,
    began: Time,
    /// Room for a frame; its holder is the only thread that reads frames.
    reader: Mutex<Vec<u8>>,
    /// Where the kernel has the same addresses.
    host: Option<HostSide>,
    state: Mutex<State>,
}

/// The interface by which the kernel shares the addresses of the port (M13).
struct HostSide {
    device: FrameDevice,
    token: u64,
}

/// What all threads share.
struct State {
    device: Arc<FrameDevice>,
    stack: Stack,
    lines: HashMap<ConnectionId, Entry>,
    listeners: BTreeMap<u16, Vec<PortListener>>,
    /// A frame that found no room.
    stalled: Option<Vec<u8>>,
    /// The device is watched for room.
    is_watched_for_room: bool,
    /// The switch of the cable has ended.
    is_lost: bool,
    /// The timer that is set.
    armed: Option<Time>,
    /// What is to be told without the lock.
    changes: VecDeque<Change>,
}

struct Entry {
    line: Arc<PortLine>,
    outbox: outbox::Outbox,
    /// Reserves its port in the kernel, if that shares the address.
    _reserved: Option<Listener>,
}

/// A listener of the port.
struct PortListener {
    /// Where it listens; all addresses of its family if unspecified.
    at: IpAddr,
    number: u64,
    acceptor: Weak<dyn PortAcceptor>,
    waiting: VecDeque<(Socket, SocketAddr)>,
}

/// What is to be told to an owner or an acceptor.
enum Change {
    /// It is connected, has ended, or the peer has finished.
    Line(Arc<PortLine>),
    /// There is room again.
    Room(Arc<PortLine>),
    Acceptor(Weak<dyn PortAcceptor>),
}

impl Port {
    fn open(
        setting: &PortSetting,
        keep_alive: Duration,
        shards: &Arc<Shards>,
    ) -> Result<Arc<Port>, Error> {
        let shares = setting.host.is_some();
        let device = open_device(&setting.link, shares).map_err(Error::Port)?;
        let host = setting.host.as_deref().map(host_side).transpose();
        let host = host.map_err(Error::Port)?;
        let mut random = [0; 32];
        for part in random.chunks_exact_mut(8) {
            part.copy_from_slice(&sys::random_u64()?.to_ne_bytes());
        }
        let own = |&(address, prefix): &(IpAddr, u8)| InterfaceAddress { address, prefix };
        let config = StackConfig {
            mac: host
                .as_ref()
                .map_or_else(|| mac_of(setting), |(_, mac)| *mac),
            is_shared: shares,
            addresses: setting.addresses.iter().map(own).collect(),
            gateways: setting.gateways.clone(),
            mtu: setting.mtu.into(),
            ..StackConfig::default()
        };
        let tcp = TcpConfig {
            receive_window: RECEIVE_WINDOW,
            framing: Framing::Messages,
            mtu: setting.mtu.into(),
            keep_alive: probes(keep_alive),
            ..TcpConfig::default()
        };
        let shard = shards.pick()?;
        let port = Arc::new_cyclic(|own| Port {
            own: own.clone(),
            shard,
            token: next_token(),
            link: setting.link.clone(),
            tcp,
            began: sys::now(),
            reader: Mutex::new(vec![0; FRAME_ROOM]),
            host: host.map(|(side, _)| side),
            state: Mutex::new(State {
                device: Arc::new(device),
                stack: Stack::new(config, random),
                lines: HashMap::new(),
                listeners: BTreeMap::new(),
                stalled: None,
                is_watched_for_room: false,
                is_lost: false,
                armed: None,
                changes: VecDeque::new(),
            }),
        });
        let device = port.state.lock().device.clone();
        let shard = &port.shard;
        shard.serve_watched(port.token, port.clone(), &*device, Interest::READ)?;
        if let Some(host) = &port.host {
            shard.serve_watched(host.token, port.clone(), &host.device, Interest::READ)?;
        }
        Ok(port)
    }

    /// Opens a connection; the result is one end of a pair, with the line behind it.
    pub(crate) fn connect(&self, to: SocketAddr, class: Option<u8>) -> Result<Socket, sys::Error> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let now = sys::now();
        let (near, far) = Socket::pair()?;
        let filler = fill(&near);
        let mut state = self.state.lock();
        let (id, reserved) = self.connect_stack(&mut state, to, class, now)?;
        let (local, _) = state.stack.addresses(id).unwrap_or((to, to));
        let line = PortLine::new(self.own.clone(), (local, to), id, far, Some(filler));
        self.add_line(&mut state, id, &line, reserved);
        self.flush(&mut state, now);
        drop(state);
        line.watch();
        Ok(near.with_line(Arc::new(LineEnd(line))))
    }

    fn connect_stack(
        &self,
        state: &mut State,
        to: SocketAddr,
        class: Option<u8>,
        now: Time,
    ) -> Result<(ConnectionId, Option<Listener>), sys::Error> {
        let class = traffic_class(class.unwrap_or(0));
        let source = state.stack.route(to.ip()).filter(|_| self.host.is_some());
        let reserve = |ip| Listener::reserve_foreign(SocketAddr::new(ip, 0));
        let reserved = source.map(reserve).transpose()?;
        let port = reserved.as_ref().map(Listener::local_addr).transpose()?;
        let port = port.map(|at| at.port());
        let opened = state.stack.connect(to, port, self.tcp.clone(), class, now);
        let opened = opened.map(|id| (id, reserved));
        opened.map_err(|cause| {
            sys::Error::of_line(match cause {
                StackError::Full(_) => LineError::Full,
                StackError::InUse(_) => LineError::InUse,
                _ => LineError::NoRoute,
            })
        })
    }

    fn add_line(
        &self,
        state: &mut State,
        id: ConnectionId,
        line: &Arc<PortLine>,
        reserved: Option<Listener>,
    ) {
        let entry = Entry {
            line: line.clone(),
            outbox: outbox::Outbox::default(),
            _reserved: reserved,
        };
        state.lines.insert(id, entry);
    }

    /// Accepts connections to a port number; `number` names the listener.
    pub(crate) fn listen(
        &self,
        at: SocketAddr,
        number: u64,
        acceptor: Weak<dyn PortAcceptor>,
    ) -> Result<(), sys::Error> {
        let mut state = self.state.lock();
        let all = state.listeners.entry(at.port()).or_default();
        let is_first = all.is_empty();
        all.push(PortListener {
            at: at.ip().to_canonical(),
            number,
            acceptor,
            waiting: VecDeque::new(),
        });
        if is_first {
            let config = ListenConfig {
                tcp: self.tcp.clone(),
                ..ListenConfig::default()
            };
            let listening = state.stack.listen(at.port(), config);
            listening.map_err(|_| sys::Error::of_line(LineError::InUse))?;
        }
        Ok(())
    }

    /// Accepts no more connections for this listener; those that wait are reset.
    pub(crate) fn unlisten(&self, at: SocketAddr, number: u64) {
        let gone = {
            let mut state = self.state.lock();
            let Some(all) = state.listeners.get_mut(&at.port()) else {
                return;
            };
            let gone: Vec<PortListener> = all.extract_if(.., |one| one.number == number).collect();
            if all.is_empty() {
                state.listeners.remove(&at.port());
                state.stack.unlisten(at.port());
            }
            gone
        };
        for (socket, _) in gone.into_iter().flat_map(|one| one.waiting) {
            socket.abort();
        }
    }

    /// The next connection of a listener.
    pub(crate) fn accept(&self, at: SocketAddr, number: u64) -> Option<(Socket, SocketAddr)> {
        let mut state = self.state.lock();
        let all = state.listeners.get_mut(&at.port())?;
        let one = all.iter_mut().find(|one| one.number == number)?;
        one.waiting.pop_front()
    }

    /// A thread polls one of the connections: it reads frames, too. What has happened to connections is told by the shard all the same, since
    /// owners may call programs.
    fn poll_frames(&self) {
        if self.read_frames() {
            let mut state = self.state.lock();
            self.flush(&mut state, sys::now());
        }
    }

    /// Reads frames and hands on what they bring; false if there were none.
    fn read_frames(&self) -> bool {
        let Some(mut room) = self.reader.try_lock() else {
            return false;
        };
        let device = self.state.lock().device.clone();
        let mut taken: Vec<Arc<dyn LineOwner>> = Vec::new();
        let mut out = Outbox::new();
        let (mut is_gone, mut any) = (false, false);
        let now = sys::now();
        for _ in 0..BURST {
            match device.read(&mut room) {
                FrameRead::Frame { len, verified } => {
                    any = true;
                    let frame = room.get(..len).unwrap_or_default();
                    self.take_frame(frame, verified, now, &mut taken, &mut out);
                }
                FrameRead::Lost => {}
                FrameRead::None => break,
                FrameRead::Gone => {
                    is_gone = true;
                    break;
                }
            }
        }
        drop(room);
        for owner in taken {
            owner.segments_taken(&mut out);
        }
        if is_gone {
            self.lose_device(&device);
        }
        any
    }

    /// Sends what there is to send, and tells what has happened.
    fn flush_all(&self) {
        let mut state = self.state.lock();
        self.flush(&mut state, sys::now());
        self.tell(state);
    }

    fn take_frame(
        &self,
        frame: &[u8],
        verified: bool,
        now: Time,
        taken: &mut Vec<Arc<dyn LineOwner>>,
        out: &mut Outbox,
    ) {
        let mut state = self.state.lock();
        let arrival = state.stack.handle_frame(frame, verified, now);
        self.take_events(&mut state);
        if let Some(host) = &self.host {
            // The kernel can put fragments together and reads options; what is damaged is of no use to it.
            let is_hosts = match &arrival {
                Arrival::Foreign => true,
                Arrival::Dropped(why) => *why != FrameError::Checksum,
                _ => false,
            };
            if is_hosts {
                host.device.send(frame, &[]);
            }
        }
        let Arrival::Segment {
            connection,
            received,
            payload,
        } = arrival
        else {
            return;
        };
        self.update_outbox(&mut state, connection, now);
        let Some(line) = state.lines.get(&connection).map(|entry| entry.line.clone()) else {
            return;
        };
        drop(state);
        let bytes = frame.get(payload).unwrap_or_default();
        let consumed = line.take(&received, bytes, now, taken, out);
        if consumed > 0 {
            self.state.lock().stack.consume(connection, consumed);
        }
    }

    /// Drops what was acknowledged, and queues what found no room in the stack before.
    fn update_outbox(&self, state: &mut State, id: ConnectionId, now: Time) {
        let State {
            stack,
            lines,
            changes,
            ..
        } = state;
        let Some(entry) = lines.get_mut(&id) else {
            return;
        };
        if let Some(connection) = stack.connection(id) {
            entry.outbox.release(connection.released());
        }
        entry.outbox.advance(stack, id, now);
        if entry.outbox.takes_again() {
            changes.push_back(Change::Room(entry.line.clone()));
        }
    }

    /// Collects what has happened to connections.
    fn take_events(&self, state: &mut State) {
        while let Some(event) = state.stack.poll_event() {
            match event {
                StackEvent::Connected(id) => {
                    if let Some(entry) = state.lines.get(&id) {
                        entry.line.set_connected();
                        let line = entry.line.clone();
                        state.changes.push_back(Change::Line(line));
                    }
                }
                StackEvent::Accepted {
                    port,
                    connection,
                    peer,
                } => self.accepted(state, port, connection, peer),
                StackEvent::PeerFinished(id) => {
                    if let Some(entry) = state.lines.get(&id) {
                        entry.line.set_finished();
                        let line = entry.line.clone();
                        state.changes.push_back(Change::Line(line));
                    }
                }
                StackEvent::Closed(id, reason) => {
                    if let Some(entry) = state.lines.remove(&id) {
                        entry.line.set_closed(match reason {
                            CloseReason::Finished => None,
                            CloseReason::Refused => Some(LineError::Refused),
                            CloseReason::TimedOut => Some(LineError::TimedOut),
                            CloseReason::Reset | CloseReason::Aborted => Some(LineError::Reset),
                        });
                        state.changes.push_back(Change::Line(entry.line));
                    }
                }
            }
        }
    }

    fn accepted(&self, state: &mut State, port: u16, id: ConnectionId, peer: SocketAddr) {
        let Some((local, _)) = state.stack.addresses(id) else {
            return;
        };
        let pair = Socket::pair();
        let found = state.listeners.get_mut(&port).and_then(|all| {
            let family = |at: IpAddr| at.is_unspecified() && at.is_ipv4() == local.is_ipv4();
            let exact = all.iter().position(|one| one.at == local.ip());
            let any = || all.iter().position(|one| family(one.at));
            let at = exact.or_else(any)?;
            all.get_mut(at)
        });
        let (Ok((near, far)), Some(listener)) = (pair, found) else {
            return state.stack.abort(id);
        };
        if listener.waiting.len() >= MAX_UNACCEPTED {
            return state.stack.abort(id);
        }
        let line = PortLine::new(self.own.clone(), (local, peer), id, far, None);
        let end = Arc::new(LineEnd(line.clone()));
        listener.waiting.push_back((near.with_line(end), peer));
        let acceptor = listener.acceptor.clone();
        self.add_line(state, id, &line, None);
        state.changes.push_back(Change::Acceptor(acceptor));
        line.watch();
    }

    /// Sends what there is to send, and sets the timer for the stack's next deadline.
    fn flush(&self, state: &mut State, now: Time) {
        self.send_frames(state, now);
        self.take_events(state);
        let next = if state.changes.is_empty() {
            state.stack.deadline()
        } else {
            // For a thread that may call owners.
            Some(now)
        };
        if let Some(at) = next
            && state.armed.is_none_or(|armed| at < armed)
        {
            state.armed = Some(at);
            self.shard.set_timer(at, self.token);
        }
    }

    fn send_frames(&self, state: &mut State, now: Time) {
        let device = state.device.clone();
        if state.is_lost {
            // Frames are lost, as on a cable that is not plugged in.
            while state.stack.poll_transmit(now).is_some() {}
            return;
        }
        if let Some(frame) = state.stalled.take()
            && device.send(&frame, &[]) == FrameSent::Full
        {
            state.stalled = Some(frame);
            return;
        }
        while let Some(outgoing) = state.stack.poll_transmit(now) {
            let (sent, frame) = match outgoing {
                Outgoing::Frame(frame) => (device.send(&frame, &[]), Some(frame)),
                Outgoing::Segment(mut segment) => {
                    let entry = state.lines.get(&segment.connection);
                    let range = segment.payload.clone();
                    let payload = match entry {
                        _ if range.is_empty() => &[],
                        Some(entry) => match entry.outbox.slice(&range) {
                            Some(payload) => payload,
                            None => continue,
                        },
                        None => continue,
                    };
                    segment.complete([payload]);
                    match device.send(segment.headers(), payload) {
                        FrameSent::Done => (FrameSent::Done, None),
                        FrameSent::Full => {
                            let frame = [segment.headers(), payload].concat();
                            (FrameSent::Full, Some(frame))
                        }
                    }
                }
            };
            if sent == FrameSent::Full {
                state.stalled = frame;
                state.is_watched_for_room = true;
                self.watch_device(state);
                return;
            }
        }
    }

    /// Watches the device for what is awaited from it.
    fn watch_device(&self, state: &mut State) {
        let interest = Interest {
            read: true,
            write: state.is_watched_for_room,
            oneshot: false,
        };
        let _ = self.shard.arm(&*state.device, self.token, interest);
    }

    /// Tells owners and acceptors what has happened. Called by the shard's thread.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let mut state = state;
        while let Some(change) = state.changes.pop_front() {
            drop(state);
            match change {
                Change::Line(line) => line.tell(),
                Change::Room(line) => line.tell_room(),
                Change::Acceptor(acceptor) => {
                    if let Some(acceptor) = acceptor.upgrade() {
                        acceptor.connections_wait();
                    }
                }
            }
            state = self.state.lock();
        }
    }

    /// Sends what the kernel sends.
    fn forward_host_frames(&self, host: &HostSide) {
        let Some(mut room) = self.reader.try_lock() else {
            return;
        };
        for _ in 0..BURST {
            match host.device.read(&mut room) {
                FrameRead::Frame { len, .. } => {
                    let device = self.state.lock().device.clone();
                    // Without room it is lost, as on any network.
                    device.send(room.get(..len).unwrap_or_default(), &[]);
                }
                FrameRead::Lost => {}
                FrameRead::None => return,
                FrameRead::Gone => return self.shard.unwatch(&host.device),
            }
        }
    }

    /// The device has ended. A TAP stays so; a cable is connected again when there is a switch.
    fn lose_device(&self, device: &Arc<FrameDevice>) {
        self.shard.unwatch(&**device);
        if matches!(self.link, PortLink::Cable(_)) {
            let at = sys::now() + RECONNECT_INTERVAL;
            self.shard.set_timer(at, self.token);
            let mut state = self.state.lock();
            if Arc::ptr_eq(&state.device, device) {
                state.stalled = None;
                state.is_lost = true;
            }
        }
    }

    /// Connects a cable again whose switch had ended.
    fn reconnect_device(&self) {
        let PortLink::Cable(path) = &self.link else {
            return;
        };
        match FrameDevice::cable(path) {
            Ok(device) => {
                let device = Arc::new(device);
                let mut state = self.state.lock();
                state.device = device.clone();
                (state.is_watched_for_room, state.is_lost) = (false, false);
                drop(state);
                let _ = self.shard.watch(&*device, self.token, Interest::READ);
            }
            Err(_) => {
                let at = sys::now() + RECONNECT_INTERVAL;
                self.shard.set_timer(at, self.token);
            }
        }
    }

    /// The shards have ended: serves the stack here until all bytes are acknowledged, at most for this time.
    fn drain(&self, limit: Duration) {
        let end = sys::now() + limit;
        let mut taken = Vec::new();
        let mut out = Outbox::new();
        loop {
            let now = sys::now();
            let device = {
                let mut state = self.state.lock();
                if state.stack.deadline().is_some_and(|at| at <= now) {
                    state.stack.handle_timeout(now);
                }
                self.send_frames(&mut state, now);
                self.take_events(&mut state);
                state.changes.clear();
                let unsent = state.lines.keys().any(|id| {
                    let connection = state.stack.connection(*id);
                    connection.is_some_and(Connection::has_unacknowledged)
                });
                if !unsent || now >= end {
                    return;
                }
                state.device.clone()
            };
            let Some(mut room) = self.reader.try_lock() else {
                return;
            };
            match device.read(&mut room) {
                FrameRead::Frame { len, verified } => {
                    let frame = room.get(..len).unwrap_or_default();
                    self.take_frame(frame, verified, now, &mut taken, &mut out);
                    taken.clear();
                }
                FrameRead::Gone => return,
                FrameRead::Lost => {}
                FrameRead::None => sys::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn open_device(link: &PortLink, complete: bool) -> Result<FrameDevice, PortError> {
    match link {
        PortLink::Tap(name) => Ok(tap(name, complete)?.0),
        PortLink::Cable(path) => cable(path),
    }
}

fn tap(name: &str, complete: bool) -> Result<(FrameDevice, [u8; 6]), PortError> {
    FrameDevice::tap(name, complete).map_err(|cause| PortError::Tap(Arc::new(cause)))
}

/// The kernel's side, whose Ethernet address is that of the port.
fn host_side(name: &str) -> Result<(HostSide, Mac), PortError> {
    let (device, mac) = tap(name, true)?;
    let token = next_token();
    Ok((HostSide { device, token }, Mac(mac)))
}

/// Fills an end of a pair, so that it is not writable before the connection behind it is established; returns with how many bytes.
fn fill(near: &Socket) -> usize {
    let piece = [0; 16 << 10];
    let mut filled = 0;
    while let IoOutcome::Bytes(n) = sys::write_from(near, &piece) {
        filled += n;
    }
    filled
}

fn cable(path: &Path) -> Result<FrameDevice, PortError> {
    FrameDevice::cable(path).map_err(|cause| PortError::Cable {
        path: path.to_owned(),
        cause,
    })
}

/// A locally administered address that follows from the first address of the port, so that it stays when the program starts again.
fn mac_of(setting: &PortSetting) -> Mac {
    let first = setting.addresses.first().map(|(ip, _)| *ip);
    let tail: [u8; 4] = match first {
        Some(IpAddr::V4(ip)) => ip.octets(),
        Some(IpAddr::V6(ip)) => {
            let octets = ip.octets();
            let fold = |at: usize| (0..16).step_by(4).fold(0, |sum, n| sum ^ octets[n + at]);
            core::array::from_fn(fold)
        }
        None => [0; 4],
    };
    let [a, b, c, d] = tail;
    Mac([0x02, 0x56, a, b, c, d])
}

impl LinePort for Port {
    fn shard(&self) -> &Shard {
        &self.shard
    }

    fn with_outbox(
        &self,
        id: ConnectionId,
        act: &mut dyn FnMut(&mut Stack, &mut outbox::Outbox),
    ) -> bool {
        let mut state = self.state.lock();
        let State { stack, lines, .. } = &mut *state;
        let Some(entry) = lines.get_mut(&id) else {
            return false;
        };
        act(stack, &mut entry.outbox);
        self.flush(&mut state, sys::now());
        true
    }

    fn with_stack(&self, act: &mut dyn FnMut(&mut Stack)) {
        let mut state = self.state.lock();
        act(&mut state.stack);
        self.flush(&mut state, sys::now());
    }

    fn look(&self, id: ConnectionId, act: &mut dyn FnMut(&Connection, &outbox::Outbox)) {
        let state = self.state.lock();
        if let (Some(connection), Some(entry)) = (state.stack.connection(id), state.lines.get(&id))
        {
            act(connection, &entry.outbox);
        }
    }

    fn connect_again(&self, line: &Arc<PortLine>) -> sys::Result<(ConnectionId, SocketAddr)> {
        let (mut state, now) = (self.state.lock(), sys::now());
        let to = line.peer();
        let (id, reserved) = self.connect_stack(&mut state, to, None, now)?;
        let (local, _) = state.stack.addresses(id).unwrap_or((to, to));
        line.set_id(id);
        self.add_line(&mut state, id, line, reserved);
        self.flush(&mut state, now);
        Ok((id, local))
    }

    fn tell_room_soon(&self, line: &Arc<PortLine>) {
        let mut state = self.state.lock();
        state.changes.push_back(Change::Room(line.clone()));
        self.flush(&mut state, sys::now());
    }

    fn poll(&self) {
        self.poll_frames();
    }
}

impl ShardTask for Port {
    fn ready(self: Arc<Self>, ready: Ready) {
        if let Some(host) = self.host.as_ref().filter(|host| host.token == ready.token) {
            return self.forward_host_frames(host);
        }
        if ready.writable {
            let mut state = self.state.lock();
            state.is_watched_for_room = false;
            self.watch_device(&mut state);
        }
        self.read_frames();
        self.flush_all();
    }

    fn expire(self: Arc<Self>, now: Time) {
        let mut state = self.state.lock();
        state.armed = None;
        if state.stack.deadline().is_some_and(|at| at <= now) {
            state.stack.handle_timeout(now);
        }
        let is_lost = state.is_lost;
        self.flush(&mut state, now);
        self.tell(state);
        if is_lost {
            self.reconnect_device();
        }
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for Port {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Port")
            .field("link", &self.link)
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}
