//! Shared memory for a connection whose peer is another process of the same host, or this one: both exchange random tokens over TCP, in their
//! CAPS, and the side that initiated the connection hands a memfd with two rings over a local socket of the other.
//!
//! A token names the local socket of an engine (8 bytes), which is abstract and, with the setting `same_host_path`, also a file in a folder; and it
//! has a secret of one connection (8 bytes). The initiator proves with the
//! secret of the peer's token that it received it, and the answer of the responder contains the secret of the initiator's token. The kernel
//! tells that both are processes of the same user, and their numbers; whether one can read the other's memory (process_vm_readv) is tried
//! by reading a word.
//!
//! 1. Both: [`SameHost::expect`], and the token goes into the own CAPS.
//! 2. The responder: [`Expected::set_peer`] with the token in the peer's CAPS. The initiator: [`SameHost::offer`].
//! 3. Each: [`RingWaiter::rings_ready`] or [`RingWaiter::rings_failed`], from a thread of a shard, with no lock held.
//!
//! The responder has its rings before it answers: from then on the initiator may write to its ring, and close its TCP connection. The responder
//! learns that the initiator has them, too, when the initiator's ring begins, and does not begin its own before. An initiator that does not
//! take them ends its ring.
//!
//! Limits: 256 local connections at once, each for five seconds at most ([`LIMITS`]); a wrong secret is counted and closes the connection
//! without an answer. Before the first call there is no socket and no thread. A forked child has none of the descriptors, and its calls
//! do nothing.

mod client;
mod message;
mod server;

use core::fmt;
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use verbena_mem::{Mapping, SharedMemoryError, Targets};
use verbena_ring::{Consumer, Layout, Producer, RingMemory};
use verbena_sync::atomic::{AtomicU32, Ordering};
use verbena_sync::locks::Mutex;

use crate::core::Core;
use crate::sys::{self, Doorbell, PacketChannel, SocketFolder};
use client::Offering;
use message::Message;
use server::Server;

/// Limits of local connections.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// That one engine serves at once; one more is closed.
    clients: u32,
    /// How long each may take, on either side.
    time: Duration,
}

/// A legitimate local connection lasts for some microseconds, or until the peer's CAPS have arrived.
const LIMITS: Limits = Limits {
    clients: 256,
    time: Duration::from_secs(5),
};

/// Most bytes of one ring that a peer may have us map.
pub(crate) const MAX_RING: usize = 16 << 20;

/// Connections of one engine with rings of the full size; further ones have a quarter, so that many connections do not fill the memory.
const LARGE_RINGS: u32 = 64;

/// A quarter is not less than this, if the setting is more.
const SMALL_RING: usize = 64 << 10;

/// What one side tells the other over TCP: where its local socket is, and the secret of one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    socket: u64,
    secret: u64,
}

impl Token {
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Token {
        let both = u128::from_be_bytes(bytes);
        Token {
            socket: (both >> 64) as u64,
            secret: both as u64,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.socket) << 64 | u128::from(self.secret)).to_be_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// What the names of local sockets begin with.
const NAME_PREFIX: &str = "verbena-";

/// The name of a local socket: its abstract name, and that of its file where there is a folder.
fn socket_name(socket: u64) -> String {
    format!("{NAME_PREFIX}{socket:016x}")
}

/// One side of two rings. Both keep their memory mapped.
#[derive(Debug)]
pub(crate) struct RingEnds {
    pub(crate) tx: Producer,
    pub(crate) rx: Consumer,
    /// Rung by the peer.
    pub(crate) doorbell_in: Doorbell,
    /// Rung for the peer.
    pub(crate) doorbell_out: Doorbell,
    /// The peer's process, if it has a number here.
    pub(crate) peer_pid: Option<u32>,
    /// A word of the peer's memory could be read by [`sys::read_process`].
    pub(crate) reads_peer: bool,
}

/// Why a connection has no rings, and stays on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRings {
    /// There is no such socket: another host or network namespace, or the peer has ended; or it is another user's (EPERM).
    #[error("the peer's local socket cannot be reached: {0}")]
    Unreachable(sys::Error),
    /// The peer closed the local connection.
    #[error("the peer closed the local connection")]
    Closed,
    /// It did not answer in time.
    #[error("the local connection took too long")]
    TimedOut,
    /// It sent something else.
    #[error("the peer's message is not valid")]
    Malformed,
    /// It does not know our secret.
    #[error("the peer did not prove that it received our token")]
    WrongSecret,
    /// The shared memory cannot be used.
    #[error("shared memory: {0}")]
    Memory(#[from] SharedMemoryError),
    /// The rings have another size than allowed.
    #[error("rings of {0} bytes")]
    Size(u64),
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] sys::Error),
    /// Its CAPS have no token, or something is between the two: an older peer, one with the setting off, a proxy.
    #[error("the peer offers none on this path")]
    NotOffered,
    /// The engine ends, or is one that has no local sockets.
    #[error("the engine serves no local connections")]
    Stopped,
    /// Neither an abstract name nor the folder can be used.
    #[error("the folder same_host_path cannot be used: {0}")]
    Folder(sys::Error),
    /// By the setting.
    #[error("same_host is off")]
    Off,
    /// `same_host = auto`, and the address of the peer is none of this host.
    #[error("same_host is auto and the peer has an address of another host")]
    OtherAddress,
    /// Encrypted connections stay on TCP.
    #[error("the connection uses TLS")]
    Tls,
    /// The queue pair is connected to itself.
    #[error("the connection begins and ends at one queue pair")]
    Itself,
    /// Too many connections have rings.
    #[error("same_host_connections is reached: {0}")]
    TooMany(u32),
    /// The peer has no CAPS.
    #[error("the peer does not use the extensions")]
    NoExtensions,
    /// They are being agreed on, or the peer has not begun to use them.
    #[error("no offer has been accepted yet")]
    Pending,
    /// A side of the connection was moved, or could not use the rings that it had.
    #[error("the connection has returned to TCP")]
    Returned,
}

/// A connection that waits for its rings. It is called once, or not at all if it is dropped before or no peer offers anything; the
/// responder's is told of a failure after [`RingWaiter::rings_ready`] if the answer cannot be sent.
pub(crate) trait RingWaiter: Send + Sync {
    /// This process has the rings. False if the connection cannot use them any more: it stays on TCP, on both sides.
    fn rings_ready(self: Arc<Self>, ends: RingEnds) -> bool;

    /// There will be none, or the peer will not use them.
    fn rings_failed(self: Arc<Self>, why: NoRings);
}

/// Local connections that an engine has rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rejections {
    /// The secret was none of ours.
    pub(crate) wrong_secret: u64,
    /// There were too many at once.
    pub(crate) too_many: u64,
    /// Anything else that no Verbena sends, and connections that sent nothing in time.
    pub(crate) invalid: u64,
}

/// The folder of the setting `same_host_path`, or why it cannot be used; none without the setting.
type Folder = Option<sys::Result<Arc<SocketFolder>>>;

/// The same-host part of an engine.
#[derive(Debug)]
pub(crate) struct SameHost {
    /// Made by the first call.
    server: Mutex<Option<Arc<Server>>>,
    limits: Limits,
    /// Connections that have or expect rings.
    connections: Arc<AtomicU32>,
    /// Since its first use.
    folder: OnceLock<Folder>,
}

/// A share of the connections that may have rings at once: each takes descriptors and memory. Returned when it is dropped.
#[derive(Debug)]
pub(crate) struct RingPermit(Arc<AtomicU32>);

impl Drop for RingPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for SameHost {
    fn default() -> SameHost {
        SameHost::with_limits(LIMITS)
    }
}

impl SameHost {
    fn with_limits(limits: Limits) -> SameHost {
        SameHost {
            server: Mutex::new(None),
            limits,
            connections: Arc::default(),
            folder: OnceLock::new(),
        }
    }

    /// The folder for sockets that processes in other network namespaces find, too.
    fn folder(&self, core: &Core) -> Folder {
        let open = |path: &PathBuf| SocketFolder::open(path).map(Arc::new);
        let folder = || core.config.same_host_path.as_ref().map(open);
        self.folder.get_or_init(folder).clone()
    }

    /// Why no offer has been accepted yet.
    pub(crate) fn pending(&self) -> NoRings {
        let server = self.server.lock();
        let error = server.as_ref().and_then(|server| server.folder_error());
        error.map_or(NoRings::Pending, NoRings::Folder)
    }

    /// Permits one more connection to have rings, of at most `most`.
    pub(crate) fn permit(&self, most: u32) -> Option<RingPermit> {
        let order = Ordering::Relaxed;
        let more = |n: u32| (n < most).then_some(n + 1);
        let permitted = self.connections.fetch_update(order, order, more).is_ok();
        permitted.then(|| RingPermit(self.connections.clone()))
    }

    /// The size of the rings of one more connection, by the setting.
    pub(crate) fn ring_size(&self, setting: usize) -> usize {
        let size = setting.next_power_of_two();
        if self.connections.load(Ordering::Relaxed) <= LARGE_RINGS {
            size
        } else {
            (size / 4).max(size.min(SMALL_RING))
        }
    }

    /// A token for the CAPS of one connection; a peer that offers rings with it reaches `waiter`.
    pub(crate) fn expect(
        &self,
        core: &Core,
        waiter: Weak<dyn RingWaiter>,
    ) -> Result<Expected, NoRings> {
        // Local sockets are not simulated.
        if cfg!(shuttle) || core.check().is_err() {
            return Err(NoRings::Stopped);
        }
        let mut server = self.server.lock();
        let server = match &*server {
            Some(server) => server.clone(),
            None => {
                let started = Server::start(core, self.limits, self.folder(core));
                server
                    .insert(started.map_err(|_| NoRings::Stopped)?)
                    .clone()
            }
        };
        let secret = server.add(waiter)?;
        Ok(Expected {
            server,
            secret,
            forks: sys::fork_count(),
        })
    }

    /// The initiator's side: offers rings of `capacity` bytes each to the engine whose token the peer's CAPS contained. `own` is the
    /// token in the own CAPS. Nothing blocks, and `waiter` is not called before this returns: a shard does the work.
    pub(crate) fn offer(
        &self,
        core: &Core,
        own: &Token,
        peer: &Token,
        capacity: usize,
        waiter: Weak<dyn RingWaiter>,
    ) -> Result<(), NoRings> {
        if cfg!(shuttle) || core.check().is_err() {
            return Err(NoRings::Stopped);
        }
        let layout = Layout::new(capacity).filter(|_| capacity <= MAX_RING);
        let layout = layout.ok_or(NoRings::Size(capacity as u64))?;
        let (time, folder) = (self.limits.time, self.folder(core));
        Offering::start(core, (*own, *peer), (layout, folder), waiter, time)
            .map_err(|_| NoRings::Stopped)
    }

    /// Local connections rejected so far.
    pub(crate) fn rejections(&self) -> Rejections {
        let server = self.server.lock();
        server
            .as_ref()
            .map_or_else(Rejections::default, |server| server.rejections())
    }
}

/// A connection whose peer may offer rings, until this is dropped.
pub(crate) struct Expected {
    server: Arc<Server>,
    secret: u64,
    /// The fork count of the process it was made in.
    forks: u64,
}

impl Expected {
    /// For the own CAPS.
    pub(crate) fn token(&self) -> Token {
        Token {
            socket: self.server.socket(),
            secret: self.secret,
        }
    }

    /// The token in the peer's CAPS: an offer is answered from now on. For the responder.
    pub(crate) fn set_peer(&self, token: &Token) {
        if sys::fork_count() == self.forks {
            self.server.set_peer(self.secret, token.secret);
        }
    }
}

impl Expected {
    /// No offer is accepted any more; false if one was, or is about to be. For the responder.
    pub(crate) fn cancel(&self) -> bool {
        sys::fork_count() != self.forks || self.server.cancel(self.secret)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        // In a forked child a thread of the parent may hold the lock for ever.
        if sys::fork_count() == self.forks {
            self.server.remove(self.secret);
        }
    }
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected").finish_non_exhaustive()
    }
}

/// A word of this process that peers try to read: its address and value.
fn probe_word() -> (u64, u64) {
    static WORD: OnceLock<u64> = OnceLock::new();
    // Any value serves; a random one is not found at a wrong address.
    let word = WORD.get_or_init(|| sys::random_u64().unwrap_or(0x5642_5f50_524f_4245));
    (core::ptr::from_ref(word).addr() as u64, *word)
}

/// Whether the word at `address` of that process can be read, and is `value`.
fn can_read(pid: Option<u32>, (address, value): (u64, u64)) -> bool {
    let mut word = [0; 8];
    let mut targets = Targets::new();
    targets.stage(&mut word);
    let read = pid.is_some_and(|pid| sys::read_process(pid, address, 8, &mut targets) == Ok(8));
    drop(targets);
    read && word == value.to_ne_bytes()
}

/// Sends a message with descriptors. It is the first in its direction, so that there is room.
fn send(channel: &PacketChannel, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), NoRings> {
    match channel.send_with_fds(&message.emit(), fds) {
        Ok(true) => Ok(()),
        Err(error) if error.code() != libc::EPIPE && error.code() != libc::ECONNRESET => {
            Err(error.into())
        }
        Ok(false) | Err(_) => Err(NoRings::Closed),
    }
}

/// The two rings in a mapping: the initiator writes to the first, the responder to the second.
fn rings_in(mapping: Mapping, layout: Layout) -> Result<(RingMemory, RingMemory), NoRings> {
    RingMemory::pair(mapping.into_pages(), layout)
        .map_err(|pages| NoRings::Size(pages.len() as u64))
}

#[cfg(test)]
mod tests;
