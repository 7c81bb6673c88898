//! One connection: a socket, the queue pair it serves, and whoever runs it at the moment.
//! It promises that bytes move in order whoever moves them, that the peer hears the last words of a queue pair that ends,
//! and that a socket is closed only when nothing can be lost by it. It refuses to judge what is said.

mod close;
mod join;
mod line;
mod liveness;
mod moving;
mod permit;
mod secure;
mod slot;
mod starting;
mod startup;
mod turn;
mod watch;

pub(crate) use line::Line;
pub(crate) use moving::{Berth, Moving};
pub(crate) use slot::Slot;
pub(crate) use startup::{Decision, Done, Options};

use core::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbena_nic::{Outbox, Qp};
use verbena_stream::Time;

use crate::core::Core;
use crate::door::Permit;
use crate::group::{Group, Member};
use crate::introduction::Introduction;
use crate::shard::{Served, Shard};
use crate::sys::{Ready, Socket};
use crate::watch::Watch;
use liveness::Progress;
use starting::Starting;

/// A connection.
pub(crate) struct Connection {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    line: Line,
    peer: SocketAddr,
    /// What is not the queue pair's business: how it began, and how it ends.
    phase: Mutex<Phase>,
    /// Once the startup is over.
    bound: OnceLock<Bound>,
    /// Some bytes that came with the startup are not read yet.
    early: AtomicBool,
    /// Who watches the socket, and for what.
    watch: Watch,
    /// When the startup must be over.
    startup: Time,
    /// A polling thread put off an acknowledgement.
    deferred: AtomicBool,
    /// Acknowledgements that are not put off, because one was for too long.
    distrust: AtomicU32,
    /// Polls that found the socket full.
    polls: AtomicU32,
    /// A timer runs that watches for a dead or stalled peer.
    watched: AtomicBool,
    /// Bytes that were sent when it last ended, because nothing was owed.
    settled: AtomicU64,
    /// What that timer saw last.
    progress: Mutex<Progress>,
    /// When the last words of a queue pair that failed must have left, in nanoseconds; 0 while it lives.
    last_moment: AtomicU64,
    /// When a peer that has said nothing gets its nudge, in nanoseconds; 0 if it gets none.
    nudge: AtomicU64,
    /// The peer has none of the extensions.
    is_standard: AtomicBool,
    /// The earliest time that the shard was asked for, in nanoseconds.
    due: AtomicU64,
}

/// What a running connection serves.
pub(crate) struct Bound {
    qp: Arc<Qp>,
    group: Arc<Group>,
    slot: Arc<Slot>,
    /// How the two ends know each other, if they were connected by hand.
    introduction: Option<Introduction>,
}

/// Where a connection stands, apart from its queue pair.
enum Phase {
    /// Not yet a stream.
    Starting(Box<Starting>),
    /// A stream of the queue pair; bytes that came with the startup are its first input.
    Running { early: Vec<u8> },
    /// Nothing is sent any more, and what comes is thrown away until the peer closes, too, or the time is over.
    Lingering {
        unsent: Vec<u8>,
        /// When our direction is closed.
        shut: Time,
        until: Time,
        /// A connection that never got beyond its startup still counts as starting: its descriptor costs as much.
        permit: Option<Permit>,
    },
    /// Over.
    Closed,
}

impl Connection {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
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
        (self.line.socket(), self.line.other())
    }

    fn turn(&self, out: &mut Outbox) {
        self.full_turn(out);
    }

    fn poll_turn(&self, now: Time, out: &mut Outbox) -> bool {
        self.polled_turn(now, out)
    }

    fn send_deferred(&self, late: bool, out: &mut Outbox) {
        self.send_put_off(late, out);
    }

    fn carried(&self) -> u64 {
        let counters = |bound: &Bound| bound.qp.counters();
        let counted = self.bound.get().map(counters);
        counted.map_or(0, |counted| counted.bytes_in + counted.bytes_out)
    }
}

impl Served for Connection {
    /// Only while it starts or lingers; meanwhile its group is watched.
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
