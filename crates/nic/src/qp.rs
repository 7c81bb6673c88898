//! A queue pair: what its consumer posts, the stream it posts to, and what becomes of both (N1, M16).
//! It promises verbs semantics: work starts and completes in order, a failure strikes one request and flushes the rest,
//! and the first cause is kept as one sentence. It refuses to know sockets: bytes and the time are handed in.

mod answer;
mod complete;
mod deliver;
mod inner;
mod memory;
mod modify;
mod post;
mod query;
mod receive;
mod send;
mod wqe;

pub use inner::Counters;
pub use post::PostError;
pub use query::View;

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::{Pd, Tpt};
use verbena_stream::{Stream, Time};
use verbena_wire::ext::RnrTimer;

use crate::cq::Cq;
use crate::event::Outbox;
use crate::srq::Srq;
use crate::state::{Personality, QpState, QpType};
use inner::Inner;

/// What a queue pair is made of; fixed at creation.
#[derive(Debug, Clone)]
pub struct QpInit {
    /// Its number.
    pub number: u32,
    /// Its domain.
    pub pd: Pd,
    /// Whose manners it has.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Where its sends complete.
    pub send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<Cq>,
    /// A receive queue shared with others, instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// The memory it works on.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
}

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Send requests.
    pub sends: usize,
    /// Receive requests.
    pub receives: usize,
    /// Pieces of one request.
    pub pieces: usize,
    /// Bytes of inline data.
    pub inline: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sends: 128,
            receives: 128,
            pieces: 16,
            inline: 256,
        }
    }
}

/// What the peer may do through this queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    /// RDMA Write.
    pub write: bool,
    /// RDMA Read.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}

impl Default for Enabled {
    fn default() -> Enabled {
        Enabled {
            write: true,
            read: true,
            atomic: true,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    init: QpInit,
    inner: Mutex<Inner>,
}

impl Qp {
    /// A fresh queue pair in `Reset`.
    pub fn new(init: QpInit) -> Qp {
        Qp {
            inner: Mutex::new(Inner::new(&init)),
            init,
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.init.number
    }

    /// What it was made of.
    pub fn init(&self) -> &QpInit {
        &self.init
    }

    /// Where it stands.
    pub fn state(&self) -> QpState {
        self.inner.lock().state
    }

    /// Why it failed, in one sentence; the first cause, never a later one.
    pub fn cause(&self) -> Option<String> {
        self.inner.lock().cause.clone()
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.inner.lock().counters
    }

    /// What the peer may do.
    pub fn enable(&self, enabled: Enabled) {
        self.inner.lock().enabled = enabled;
    }

    /// How long a peer is told to wait when no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer) {
        self.inner.lock().rnr_timer = timer;
    }

    /// A stream is there: the queue pair sends and receives on it. `rfc7306`: its peer takes atomics and immediate data.
    ///
    /// False if the state does not allow it; nothing has changed then.
    pub fn attach(&self, stream: Stream, rfc7306: bool, out: &mut Outbox) -> bool {
        let mut inner = self.inner.lock();
        let connected = inner.connect(&self.init, stream, rfc7306);
        if connected {
            inner.settle(&self.init, out);
        }
        connected
    }

    /// Bytes arrived from the peer.
    pub fn handle_bytes(&self, bytes: &[u8], now: Time, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.take_bytes(&self.init, bytes, now, out);
        inner.settle(&self.init, out);
    }

    /// Frames to send, at most about `room` bytes; they count as accepted.
    pub fn transmit(&self, room: usize, now: Time, out: &mut Outbox) -> Vec<u8> {
        let mut inner = self.inner.lock();
        let bytes = inner.make_bytes(&self.init, room, now, out);
        inner.settle(&self.init, out);
        bytes
    }

    /// The peer closed its direction; `reset` if ours is gone as well.
    pub fn handle_eof(&self, reset: bool, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.peer_gone(&self.init, reset, out);
        inner.settle(&self.init, out);
    }

    /// Both directions of the connection are closed and nothing of it is left.
    ///
    /// An `iwarp` queue pair that closed gracefully can be connected again; one that was terminated is in error now.
    pub fn handle_closed(&self, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.closed(&self.init);
        inner.settle(&self.init, out);
    }

    /// The peer has not answered for as long as the consumer allows: whatever needs it fails.
    ///
    /// Whoever drives the connection decides that; a peer that merely does not read is not dead.
    pub fn handle_peer_dead(&self, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.peer_dead(&self.init, out);
        inner.settle(&self.init, out);
    }

    /// Requests wait for an answer of the peer, so that its silence counts.
    pub fn awaits_peer(&self) -> bool {
        self.inner.lock().begun > 0
    }

    /// When [`handle_timeout`](Qp::handle_timeout) wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        self.inner.lock().deadline()
    }

    /// Time passed.
    pub fn handle_timeout(&self, now: Time, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        inner.time_passed(&self.init, now, out);
        inner.settle(&self.init, out);
    }

    /// The connection can be closed: nothing more will be sent.
    pub fn wants_close(&self) -> bool {
        self.inner.lock().wants_close()
    }

    /// Send requests that have not completed, and receives that have not.
    pub fn outstanding(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let claimed = usize::from(inner.claimed.is_some());
        (inner.sends.len(), inner.receives.len() + claimed)
    }
}

#[cfg(test)]
mod tests;
