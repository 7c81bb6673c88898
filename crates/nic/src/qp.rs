//! A queue pair: its posted requests, its stream, and their completion (N1, M16).
//! Verbs semantics: work starts and completes in order, a failure completes one request with its status and flushes the rest, and the
//! first cause is kept as one sentence. Sockets are not known here: bytes and the time are passed in.

mod answer;
mod attributes;
mod complete;
mod deliver;
mod image;
mod in_order;
mod inner;
mod link_state;
mod local_failure;
mod memory;
mod modify;
mod peer_exit;
mod place;
mod post;
mod prediction;
mod pull;
mod push;
mod query;
mod queue;
mod receive;
mod receive_state;
mod register;
mod responder;
mod send;
mod send_fast_path;
mod send_queue;
mod snapshot;
mod srq_hold;
pub(crate) mod ssq_channel;
mod stage;
mod touch;
mod transfer;
mod transmit_buffer;
mod turn;
mod wait;
pub(crate) mod wqe;

pub use attributes::Psns;
pub use image::{Image, ImageError, MigrateRefusal, Traits};
pub use inner::Counters;
pub use post::{PostError, PostRecvError, PostSendError};
pub use pull::{Received, Receiving, SendDemand};
pub use push::{Acks, Sending};
pub use query::{ConnectionAction, TurnStatus, View};
pub use register::{OnFailure, RegisterError, Registration};
pub use transfer::Transfer;

use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_mem::Pd;
use verbena_stream::{Stream, Time, requester};
use verbena_wire::ext::RnrTimer;

use crate::carrier::Carrier;
use crate::cq::Cq;
use crate::memory_scope::MemoryScope;
use crate::srq::Srq;
use crate::state::{Personality, QpState, QpType};
use inner::Inner;
use queue::{Tails, queues};
use verbena_events::event::Outbox;
use verbena_sync::combining_lock::CombiningLock;

/// The parts of a queue pair; fixed at creation.
#[derive(Debug, Clone)]
pub struct QpInit {
    /// Its number.
    pub number: u32,
    /// Its number in completions: its own, or the one that peers know.
    pub wc_qpn: u32,
    /// Its domain.
    pub pd: Pd,
    /// RoCE or iWARP.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// The completion queue of its sends.
    pub send_cq: Arc<Cq>,
    /// The completion queue of its receives.
    pub recv_cq: Arc<Cq>,
    /// A receive queue shared with others, instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// The memory it works on.
    pub tpt: MemoryScope,
    /// Its limits.
    pub limits: Limits,
    /// How its bytes are moved.
    pub transfer: Transfer,
    /// Whether its requests may register memory.
    pub registration: Registration,
}

/// Limits of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Send requests.
    pub sends: usize,
    /// Receive requests.
    pub receives: usize,
    /// Scatter or gather elements of one request.
    pub max_sge: usize,
    /// Bytes of inline data.
    pub inline: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sends: 128,
            receives: 128,
            max_sge: 16,
            inline: 256,
        }
    }
}

/// What the peer may do through this queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAccessFlags {
    /// RDMA Write.
    pub write: bool,
    /// RDMA Read.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}

impl Default for QpAccessFlags {
    fn default() -> QpAccessFlags {
        QpAccessFlags {
            write: true,
            read: true,
            atomic: true,
        }
    }
}

/// A queue pair.
///
/// It is protected by one combining lock ([`CombiningLock`]) and run by the thread that holds it. After a method that takes an [`Outbox`],
/// such as `modify` or `set_access_flags`, the caller calls [`transmit`](Qp::transmit): a thread that posts while the lock is held leaves its
/// requests to the holder, and a holder that does something else finds them but does not send them.
#[derive(Debug)]
pub struct Qp {
    init: QpInit,
    tails: Tails,
    lock: CombiningLock<Inner>,
    /// A thread wanted acknowledgements to be sent and found the lock held by another, which might defer them.
    acks_due: AtomicBool,
}

impl Qp {
    /// A queue pair in `Reset`.
    pub fn new(init: QpInit) -> Qp {
        let (tails, heads) = queues();
        Qp {
            init,
            tails,
            lock: CombiningLock::new(Inner::new(heads)),
            acks_due: AtomicBool::new(false),
        }
    }

    /// Does `work` under the lock, after taking in what was posted before, and completes what has ended.
    fn run_locked<R>(
        &self,
        out: &mut Outbox,
        work: impl FnOnce(&mut Inner, &QpInit, &mut Outbox) -> R,
    ) -> R {
        let (init, out) = (&self.init, RefCell::new(out));
        self.lock.lock_and_run(
            |inner| inner.turn(init, &mut out.borrow_mut(), work),
            |inner| inner.turn(init, &mut out.borrow_mut(), |_, _, _| ()),
        )
    }

    /// Takes in what was posted, unless the holder of the lock will. Nothing is sent.
    pub fn ring_doorbell(&self, out: &mut Outbox) {
        self.lock
            .run_or_delegate(|inner| inner.turn(&self.init, out, |_, _, _| ()));
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.init.number
    }

    /// Its parts.
    pub fn init(&self) -> &QpInit {
        &self.init
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.lock.read(|inner| inner.state)
    }

    /// Why it failed, in one sentence; the first cause, never a later one.
    pub fn cause(&self) -> Option<String> {
        self.lock.read(|inner| inner.cause.clone())
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.lock.read(|inner| inner.counters)
    }

    /// Sets what the peer may do.
    pub fn set_access_flags(&self, enabled: QpAccessFlags, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| inner.attributes.enabled = enabled);
    }

    /// Sets how long a peer is told to wait when no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| inner.attributes.rnr_timer = timer);
    }

    /// Attaches a stream: the queue pair sends and receives on it. `rfc7306`: its peer supports atomics and immediate data.
    ///
    /// False if the state does not allow it; nothing has changed then.
    pub fn attach(&self, stream: Stream, rfc7306: bool, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, _| inner.connect(init, stream, rfc7306))
    }

    /// Reads once from the carrier, directly into memory where that pays, and processes the bytes.
    ///
    /// `scratch` receives bytes that are not payload of a long run: any size but zero works, a few frames' worth is best.
    pub fn receive(
        &self,
        carrier: &mut impl Carrier,
        scratch: &mut [u8],
        now: Time,
        out: &mut Outbox,
    ) -> Received {
        let (init, out) = (&self.init, RefCell::new(out));
        let wants = Cell::new(SendDemand::Send);
        let receiving = self.lock.lock_and_run(
            |inner| {
                let pull = |inner: &mut Inner, init: &QpInit, out: &mut Outbox| {
                    inner.pull(init, carrier, scratch, now, out)
                };
                let receiving = inner.turn(init, &mut out.borrow_mut(), pull);
                wants.set(inner.send_demand());
                receiving
            },
            |inner| {
                // The thread that rang relies on this one to send.
                inner.turn(init, &mut out.borrow_mut(), |_, _, _| ());
                wants.set(SendDemand::Send);
            },
        );
        let wants = match receiving {
            Receiving::Held | Receiving::Ended => SendDemand::Send,
            Receiving::Some(_) | Receiving::WouldBlock => wants.get(),
        };
        Received {
            receiving,
            demand: wants,
        }
    }

    /// Sends what may be sent until there is nothing left or the carrier takes no more.
    pub fn transmit(&self, carrier: &mut impl Carrier, now: Time, out: &mut Outbox) -> Sending {
        let (init, hands) = (&self.init, RefCell::new((carrier, out)));
        let send = |inner: &mut Inner| {
            let (carrier, out) = &mut *hands.borrow_mut();
            inner.turn(init, out, |inner, init, out| {
                inner.push(init, *carrier, Acks::Now, now, out)
            })
        };
        let last = Cell::new(Sending::Idle);
        self.lock
            .lock_and_run(|inner| last.set(send(inner)), |inner| last.set(send(inner)));
        last.get()
    }

    /// The same, with the outlook, unless another thread holds the lock: `None` then. The holder sends before it unlocks or, if its
    /// work is of another kind, calls [`transmit`](Qp::transmit) afterwards.
    pub fn try_transmit(
        &self,
        carrier: &mut impl Carrier,
        acks: Acks,
        now: Time,
        out: &mut Outbox,
    ) -> Option<(Sending, TurnStatus)> {
        let mut last = None;
        if acks == Acks::Now {
            // Relaxed: the holder that sees the ring, or the next thread that gets the lock, sees this store.
            self.acks_due.store(true, Ordering::Relaxed);
        }
        self.lock.run_or_delegate(|inner| {
            let acks = if self.acks_due.load(Ordering::Relaxed) {
                // Not an exchange: the acknowledgements of a thread that stored it before are known in here, and are sent below.
                self.acks_due.store(false, Ordering::Relaxed);
                Acks::Now
            } else {
                acks
            };
            let sending = inner.turn(&self.init, out, |inner, init, out| {
                inner.push(init, carrier, acks, now, out)
            });
            last = Some((sending, inner.turn_status()));
        });
        last
    }

    /// The peer closed its direction; `reset` if the other direction is gone as well.
    pub fn handle_eof(&self, reset: bool, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| {
            inner.peer_disconnected(init, reset, out);
        });
    }

    /// Both directions of the connection are closed and nothing of it is left.
    ///
    /// An `iwarp` queue pair that closed gracefully can be connected again; one that was terminated is in error now.
    pub fn handle_closed(&self, out: &mut Outbox) {
        self.run_locked(out, Inner::closed);
    }

    /// The peer has not answered for as long as the program allows: requests that need it fail.
    ///
    /// The code that drives the connection decides that; a peer that merely does not read is not dead.
    pub fn handle_peer_dead(&self, out: &mut Outbox) {
        self.run_locked(out, Inner::peer_dead);
    }

    /// Requests wait for an answer of the peer, so that its silence counts.
    pub fn awaits_peer(&self) -> bool {
        self.lock.read(Inner::awaits_peer)
    }

    /// The peer has reported that it has no receive, and its READY is waited for.
    pub fn waits_for_receive(&self) -> bool {
        self.lock.read(|inner| {
            let stream = inner.stream.as_ref();
            stream.is_some_and(|s| s.accounting().requester.state() == requester::State::Paused)
        })
    }

    /// When to call [`handle_timeout`](Qp::handle_timeout).
    pub fn deadline(&self) -> Option<Time> {
        self.lock.read(Inner::deadline)
    }

    /// The connection exists for a while: a peer that may have missed our first frame gets another, empty one.
    pub fn send_empty_frame(&self, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.stream.as_mut().is_some_and(Stream::nudge)
        });
    }

    /// Processes timeouts.
    pub fn handle_timeout(&self, now: Time, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| inner.handle_timeout(init, now, out));
    }

    /// The connection can be closed: nothing more will be sent.
    pub fn wants_close(&self) -> bool {
        self.lock.read(Inner::wants_close)
    }

    /// The connection must be aborted: the peer has the beginning of a frame whose rest is lost.
    pub fn wants_reset(&self) -> bool {
        self.lock.read(|inner| inner.link.is_severed())
    }

    /// Send requests that have not completed, and receives that have not.
    pub fn outstanding(&self) -> (usize, usize) {
        self.lock.read(|inner| self.count_outstanding(inner))
    }

    /// The same under the lock, so that a receive which is being taken counts once.
    fn count_outstanding(&self, inner: &Inner) -> (usize, usize) {
        let (sends, receives) = self.tails.waiting();
        (
            sends,
            receives + usize::from(inner.receive.claimed().is_some()),
        )
    }
}

#[cfg(test)]
mod tests;
