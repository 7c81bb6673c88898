//! TCP and UDP of the simulated system: one host, whose sockets reach each other by address without delay.
//! Buffers are small and of random size, reads may be short, and a connection that is closed with unread bytes is reset, as Linux does.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::os::fd::RawFd;

use rustix::io::Errno;

use super::world::{DatagramQueue, Id, ListeningSocket, Object, State, Stream, World};

/// Bytes that a receive buffer holds at least, and the additional sizes that the seed chooses from.
const MIN_BUFFER: usize = 64;
const BUFFER_SIZES: [usize; 4] = [0, 1 << 10, 16 << 10, 128 << 10];
/// Datagrams that wait in a socket; further ones are lost.
const MAX_DATAGRAMS: usize = 64;
/// Ports that the system chooses.
const FIRST_PORT: u16 = 40_000;

impl World {
    fn new_stream(&mut self, local: Option<SocketAddr>, remote: Option<SocketAddr>) -> Id {
        let size = BUFFER_SIZES[self.below(BUFFER_SIZES.len() as u64) as usize];
        let stream = Stream {
            local,
            remote,
            peer: None,
            incoming: VecDeque::new(),
            capacity: MIN_BUFFER + size,
            low_water: 1,
            fin_received: false,
            fin_sent: false,
            broken: false,
            error: None,
            abortive: false,
        };
        self.add(Object::Stream(stream))
    }

    pub(super) fn open_streams(&self) -> usize {
        let objects = self.objects.values();
        let streams = objects.filter(|entry| matches!(entry.object, Object::Stream(_)));
        streams.count()
    }

    /// Two connected ends without addresses.
    pub(in crate::sys) fn new_pair(&mut self) -> (Id, Id) {
        let (a, b) = (self.new_stream(None, None), self.new_stream(None, None));
        self.join(a, b);
        (a, b)
    }

    fn join(&mut self, a: Id, b: Id) {
        for (one, other) in [(a, b), (b, a)] {
            if let Some(stream) = self.stream_of(one) {
                stream.peer = Some(other);
            }
        }
    }

    fn stream_of(&mut self, id: Id) -> Option<&mut Stream> {
        match &mut self.objects.get_mut(&id)?.object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(in crate::sys) fn stream(&mut self, fd: RawFd) -> Option<&mut Stream> {
        let id = self.id(fd)?;
        self.stream_of(id)
    }

    pub(in crate::sys) fn listener(&mut self, fd: RawFd) -> Option<&mut ListeningSocket> {
        let id = self.id(fd)?;
        match &mut self.objects.get_mut(&id)?.object {
            Object::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// A socket that no connection uses yet.
    pub(in crate::sys) fn new_client(&mut self, from: Option<IpAddr>, to: SocketAddr) -> Id {
        let port = self.choose_port();
        let local = SocketAddr::new(from.unwrap_or(to.ip()), port);
        self.new_stream(Some(local), Some(to))
    }

    /// Connects a socket to the listener at its remote address.
    pub(in crate::sys) fn connect(&mut self, client: Id) -> Result<(), Errno> {
        let (local, remote) = match self.stream_of(client) {
            Some(stream) => (stream.local, stream.remote),
            None => return Err(Errno::BADF),
        };
        let to = remote.ok_or(Errno::INVAL)?;
        let accepts = |listener: &ListeningSocket| listener.listening && serves(listener.at, to);
        let found = self
            .objects
            .iter()
            .find_map(|(id, entry)| match &entry.object {
                Object::Listener(listener) if accepts(listener) => Some(*id),
                _ => None,
            });
        let listener = found.ok_or(Errno::CONNREFUSED)?;
        let server = self.new_stream(remote, local);
        self.join(client, server);
        if let Some(Object::Listener(socket)) = self
            .objects
            .get_mut(&listener)
            .map(|entry| &mut entry.object)
        {
            socket.backlog.push_back(server);
        }
        Ok(())
    }

    /// Connects a socket again, after a refusal.
    pub(in crate::sys) fn reconnect(&mut self, fd: RawFd, to: SocketAddr) -> Result<(), Errno> {
        let id = self.id(fd).ok_or(Errno::BADF)?;
        if let Some(stream) = self.stream_of(id) {
            stream.remote = Some(to);
        }
        self.connect(id)
    }

    pub(in crate::sys) fn listener_addr(&mut self, fd: RawFd) -> Option<SocketAddr> {
        self.listener(fd).map(|listener| listener.at)
    }

    /// The oldest connection that was not accepted yet, and its source.
    pub(in crate::sys) fn accept(&mut self, fd: RawFd) -> Option<(Id, SocketAddr)> {
        let id = self.listener(fd)?.backlog.pop_front()?;
        let from = self.stream_of(id)?.remote?;
        Some((id, from))
    }

    /// A bound socket; port 0 is replaced by a free port.
    pub(in crate::sys) fn bind(&mut self, at: SocketAddr, shared: bool) -> Result<Id, Errno> {
        let at = self.complete(at);
        let taken = self.objects.values().any(|entry| match &entry.object {
            Object::Listener(other) => {
                (serves(other.at, at) || serves(at, other.at)) && (!shared || other.listening)
            }
            _ => false,
        });
        if taken {
            return Err(Errno::ADDRINUSE);
        }
        Ok(self.add(Object::Listener(ListeningSocket {
            at,
            listening: false,
            backlog: VecDeque::new(),
        })))
    }

    /// A bound UDP socket.
    pub(in crate::sys) fn bind_datagram(&mut self, at: SocketAddr) -> Result<Id, Errno> {
        let at = self.complete(at);
        let taken = self.objects.values().any(|entry| match &entry.object {
            Object::Datagram(other) => serves(other.at, at) || serves(at, other.at),
            _ => false,
        });
        if taken {
            return Err(Errno::ADDRINUSE);
        }
        Ok(self.add(Object::Datagram(DatagramQueue {
            at,
            received: VecDeque::new(),
        })))
    }

    fn datagram(&mut self, fd: RawFd) -> Option<&mut DatagramQueue> {
        let id = self.id(fd)?;
        match &mut self.objects.get_mut(&id)?.object {
            Object::Datagram(socket) => Some(socket),
            _ => None,
        }
    }

    pub(in crate::sys) fn datagram_addr(&mut self, fd: RawFd) -> Option<SocketAddr> {
        self.datagram(fd).map(|socket| socket.at)
    }

    /// Takes the oldest datagram.
    pub(in crate::sys) fn take_datagram(&mut self, fd: RawFd) -> Option<(Vec<u8>, SocketAddr)> {
        self.datagram(fd)?.received.pop_front()
    }

    /// Delivers a datagram, if a socket is bound there and has room.
    pub(in crate::sys) fn send_datagram(&mut self, fd: RawFd, bytes: &[u8], to: SocketAddr) {
        let Some(from) = self.datagram(fd).map(|socket| socket.at) else {
            return;
        };
        for entry in self.objects.values_mut() {
            if let Object::Datagram(socket) = &mut entry.object
                && serves(socket.at, to)
                && socket.received.len() < MAX_DATAGRAMS
            {
                socket.received.push_back((bytes.to_vec(), from));
            }
        }
    }

    fn complete(&mut self, mut at: SocketAddr) -> SocketAddr {
        if at.port() == 0 {
            at.set_port(self.choose_port());
        }
        at
    }

    /// Each port is given once until all were; no run opens that many.
    fn choose_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    /// Takes received bytes, up to `room`: perhaps fewer than there are. Zero is the end of the stream.
    pub(in crate::sys) fn receive(&mut self, fd: RawFd, room: usize) -> Result<Vec<u8>, Errno> {
        let whole = self.below(4) != 0;
        let part = self.random() as usize;
        let stream = self.stream(fd).ok_or(Errno::BADF)?;
        let there = stream.incoming.len().min(room);
        if there == 0 {
            return match stream {
                Stream { broken: true, .. } => Err(Errno::CONNRESET),
                Stream {
                    fin_received: true, ..
                } => Ok(Vec::new()),
                _ => Err(Errno::AGAIN),
            };
        }
        let count = if whole { there } else { 1 + part % there };
        Ok(stream.incoming.drain(..count).collect())
    }

    /// How many bytes a write would move now.
    pub(in crate::sys) fn room(&mut self, fd: RawFd) -> Result<usize, Errno> {
        let stream = self.stream(fd).ok_or(Errno::BADF)?;
        if stream.broken || stream.fin_sent {
            return Err(Errno::PIPE);
        }
        let Some(peer) = stream.peer else {
            // The other end is closed: it answers what is written with a reset.
            stream.broken = true;
            return Ok(usize::MAX);
        };
        match self.stream_of(peer) {
            Some(peer) if peer.incoming.len() < peer.capacity => {
                Ok(peer.capacity - peer.incoming.len())
            }
            _ => Err(Errno::AGAIN),
        }
    }

    /// Moves bytes to the other end; the caller has asked for room.
    pub(in crate::sys) fn transmit(&mut self, fd: RawFd, bytes: &[u8]) {
        let peer = self.stream(fd).and_then(|stream| stream.peer);
        if let Some(peer) = peer.and_then(|peer| self.stream_of(peer)) {
            peer.incoming.extend(bytes);
        }
    }

    /// Sends FIN.
    pub(in crate::sys) fn shutdown_write(&mut self, fd: RawFd) -> Result<(), Errno> {
        let stream = self.stream(fd).ok_or(Errno::BADF)?;
        if stream.broken {
            return Err(Errno::NOTCONN);
        }
        stream.fin_sent = true;
        let peer = stream.peer;
        if let Some(peer) = peer.and_then(|peer| self.stream_of(peer)) {
            peer.fin_received = true;
        }
        Ok(())
    }

    /// The last descriptor of an end was closed.
    pub(super) fn end_stream(&mut self, stream: &Stream) {
        let Some(peer) = stream.peer.and_then(|peer| self.stream_of(peer)) else {
            return;
        };
        peer.peer = None;
        if stream.abortive || !stream.incoming.is_empty() {
            peer.broken = true;
            peer.error = Some(Errno::CONNRESET);
        } else {
            peer.fin_received = true;
        }
    }

    pub(super) fn stream_state(&self, stream: &Stream) -> State {
        let room = match stream.peer.map(|peer| self.objects.get(&peer)) {
            Some(Some(entry)) => match &entry.object {
                Object::Stream(peer) => peer.incoming.len() < peer.capacity,
                _ => false,
            },
            _ => true,
        };
        let enough = stream.low_water.min(stream.capacity).max(1);
        let over = stream.broken || stream.error.is_some();
        State {
            readable: over || stream.fin_received || stream.incoming.len() >= enough,
            writable: over || stream.fin_sent || room,
            hangup: over || stream.fin_received && stream.fin_sent,
        }
    }
}

/// Whether a socket bound to `bound` receives what is sent to `to`.
fn serves(bound: SocketAddr, to: SocketAddr) -> bool {
    bound.port() == to.port() && (bound.ip() == to.ip() || bound.ip().is_unspecified())
}
