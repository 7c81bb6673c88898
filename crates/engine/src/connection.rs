//! One connection: a socket, and after the startup the queue pair that it serves.
//! Bytes stay in order although the shard, polling threads and posting threads take turns. At the end, frames that are left are sent first, and the
//! socket is closed when the peer has closed or a time limit has passed, so that unread input causes no reset before.

mod close;
mod join;
mod liveness;
mod migrate;
mod permit;
mod port;
mod rings;
mod same_host;
mod secure;
mod slot;
mod starting;
mod startup;
mod transport;
mod turn;
mod watch;

pub(crate) use migrate::{AttachPoint, DetachedStream};
pub(crate) use slot::Slot;
pub(crate) use startup::{Decision, Done, Options};
pub(crate) use transport::Transport;

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, Qp};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use verbena_sync::locks::Mutex;
use verbena_sync::locks::OnceLock;

use crate::accept::acceptor::Permit;
use crate::core::Core;
use crate::notify::packet_addresses::PacketAddresses;
use crate::oob::hello::OobHello;
use crate::poll::group::{Group, Member};
use crate::poll::shard::{Shard, ShardTask};
use crate::poll::watch::Watch;
use crate::same_host::NoRings;
use crate::sys::{Doorbell, Ready, Socket};
use liveness::Progress;
use rings::Rings;
use same_host::ExpectedRings;
use starting::Starting;

/// A connection.
pub(crate) struct Connection {
    /// For what calls it later.
    own: Weak<Connection>,
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    transport: Transport,
    peer: SocketAddr,
    packet: PacketAddresses,
    /// The part of the state outside the queue pair: startup and close.
    phase: Mutex<Phase>,
    /// Set once the startup is over.
    bound: OnceLock<Bound>,
    /// Bytes received with the startup are not processed yet.
    early: AtomicBool,
    /// Which poller watches the socket, and for what.
    watch: Watch,
    /// When the startup must be over.
    startup_deadline: Time,
    /// A polling thread deferred an acknowledgement.
    deferred: AtomicBool,
    /// Acknowledgements that are still sent at once, because one was deferred for too long.
    immediate_acks: AtomicU32,
    /// Polls that found the socket's send buffer full.
    polls: AtomicU32,
    /// The timer that detects a dead or stalled peer is running.
    liveness_armed: AtomicBool,
    /// Bytes sent when that timer last stopped, because the peer owed nothing.
    sent_when_idle: AtomicU64,
    /// What that timer saw last.
    progress: Mutex<Progress>,
    /// When the remaining frames of a failed queue pair must have been sent, in nanoseconds; 0 before it fails.
    flush_deadline: AtomicU64,
    /// When a peer that has sent nothing is sent a first message, in nanoseconds; 0 for never.
    nudge: AtomicU64,
    /// The peer does not use the extensions.
    is_standard: AtomicBool,
    /// The last wake-up time requested from the shard, in nanoseconds.
    wake_time: AtomicU64,
    /// The initiator offers rings when the peer's CAPS have arrived.
    awaits_token: AtomicBool,
    /// What the peer finds when it comes with rings, until they are installed.
    expected_rings: Mutex<Option<ExpectedRings>>,
    /// Why the stream stays on TCP, if that is certain.
    no_rings: Mutex<Option<NoRings>>,
}

/// What a running connection serves.
pub(crate) struct Bound {
    qp: Arc<Qp>,
    group: Arc<Group>,
    slot: Arc<Slot>,
    /// Identifies both ends of an out-of-band connection.
    oob_hello: Option<OobHello>,
}

/// State of a connection, apart from its queue pair.
enum Phase {
    /// Not yet a stream.
    Starting(Box<Starting>),
    /// A stream of the queue pair; bytes received with the startup are its first input.
    Running { early: Vec<u8> },
    /// Only `unsent` is still sent, and input is discarded until the peer closes or `until` has passed.
    Lingering {
        unsent: Vec<u8>,
        /// When the sending direction is shut down.
        shut: Time,
        until: Time,
        /// A connection that ends during its startup keeps its permit, because it still uses a descriptor.
        permit: Option<Permit>,
    },
    /// Closed.
    Closed,
}

impl Connection {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn is_starting(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Starting(_))
    }
}

impl Member for Connection {
    fn token(&self) -> u64 {
        self.token
    }

    fn sockets(&self) -> (&Socket, Option<&Socket>) {
        (self.transport.socket(), self.transport.separate_reader())
    }

    fn doorbell(&self) -> Option<&Doorbell> {
        self.transport.doorbell()
    }

    fn watches_room(&self) -> bool {
        !self.transport.rings().is_some_and(Rings::is_writing) && self.transport.line().is_none()
    }

    fn prepare_sleep(&self) {
        self.prepare_ring_sleep();
    }

    fn turn(&self, out: &mut Outbox) {
        self.full_turn(out);
    }

    fn poll_turn(&self, now: Time, out: &mut Outbox) -> bool {
        self.polled_turn(now, out)
    }

    fn send_deferred(&self, late: bool, out: &mut Outbox) {
        self.send_deferred_acks(late, out);
    }

    fn byte_count(&self) -> u64 {
        let counters = |bound: &Bound| bound.qp.counters();
        let counted = self.bound.get().map(counters);
        counted.map_or(0, |counted| counted.bytes_in + counted.bytes_out)
    }
}

impl ShardTask for Connection {
    /// Called only while the connection starts or lingers; in between the group's poller watches the socket.
    fn ready(self: Arc<Self>, _: Ready) {
        if self.is_starting() {
            self.startup_ready();
        } else {
            self.linger_ready();
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        if self.is_starting() {
            self.startup_expired(now);
        } else {
            self.turn_expired(now);
        }
    }

    fn stop(self: Arc<Self>) {
        self.startup_stopped();
    }
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
