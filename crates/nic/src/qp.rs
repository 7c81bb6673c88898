//! A queue pair: its posted requests, its stream, and their completion (N1, M16).
//! Verbs semantics: work starts and completes in order, a failure completes one request with its status and flushes the rest, and the
//! first cause is kept as one sentence. Sockets are not known here: bytes and the time are passed in.

mod ahead;
mod ahead_state;
mod answer;
mod attributes;
mod complete;
mod failure;
mod image;
mod inject;
mod inner;
mod link_state;
mod local_ops;
mod memory;
mod modify;
mod owed;
mod pending_faults;
mod place;
mod post;
mod queue;
mod receive;
mod receive_state;
mod register;
mod relay;
mod relay_state;
mod responder;
mod roce;
mod send;
mod send_queue;
mod snapshot;
pub(crate) mod ssq_channel;
mod stage;
mod target;
mod target_state;
mod touch;
mod transfer;
mod transmit_buffer;
mod wait;
mod waits;
mod wire;
pub(crate) mod wqe;
mod xrc_executor;

pub use ahead::{Segment, SegmentTaken};
pub use attributes::Psns;
pub use failure::{Blame, EntryInfo, Failure, FailureKind, RefusedAccess, RequestInfo};
pub use image::{Image, ImageError, MigrateRefusal, Traits};
pub use inject::INJECTED;
pub use inner::Counters;
pub use pending_faults::{RefuseUntil, SendFault};
pub use post::{PostError, PostRecvError, PostSendError};
pub use receive::{Received, Receiving, SendDemand};
pub use register::{OnFailure, RegisterError, Registration};
pub use roce::{PacketSender, PacketTurn};
pub use send::{Acks, Sending};
pub use transfer::Transfer;
pub use waits::{Blocked, RnrWait, Waits};
pub use xrc_executor::{BadRecord, XrcExecutor};

use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use verbena_sync::atomic::{AtomicBool, Ordering};

use verbena_mem::Pd;
use verbena_stream::{Framing, RnrRetry, Stream, Time, requester};
use verbena_wire::Srqn;
use verbena_wire::ext::{Features, RnrTimer};

use crate::carrier::Carrier;
use crate::cq::Cq;
use crate::memory_scope::MemoryScope;
use crate::srq::Srq;
use crate::state::{Personality, QpState, QpType, TransitionError};
use crate::trace::ObserverCell;
use crate::xrc::XrcDomain;
use attributes::Authentication;
use inner::Inner;
use link_state::LinkEvent;
use queue::{Tails, queues};
use verbena_events::event::{Outbox, Wake};
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
    /// The domain of an XRC target, whose shared receive queues its messages name. Its domain and completion queues are replaced by those of
    /// the queue that a request is for.
    pub xrcd: Option<Arc<XrcDomain>>,
    /// Send requests of an XRC initiator, which all name a shared receive queue of the peer; `limits.sends` is 0 then.
    pub xrc_sends: usize,
    /// The memory it works on.
    pub tpt: MemoryScope,
    /// Its limits.
    pub limits: Limits,
    /// How its bytes are moved.
    pub transfer: Transfer,
    /// Whether its requests may register memory.
    pub registration: Registration,
    /// What traces are told.
    pub observer: ObserverCell,
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
    /// Flush.
    pub flush: bool,
}

impl Default for QpAccessFlags {
    fn default() -> QpAccessFlags {
        QpAccessFlags {
            write: true,
            read: true,
            atomic: true,
            flush: true,
        }
    }
}

/// The changing attributes of a queue pair, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its state.
    pub state: QpState,
    /// What the peer may do.
    pub enabled: QpAccessFlags,
    /// Why it failed, in one sentence.
    pub cause: Option<String>,
    /// The same with its numbers.
    pub failure: Option<Failure>,
    /// What it waits for.
    pub waits: Waits,
    /// The last request whose registration failed and may be tried again, and why it failed (M4).
    pub register_error: Option<(u64, RegisterError)>,
    /// Its counters.
    pub counters: Counters,
    /// The peer has closed its direction, or is lost.
    pub peer_disconnected: bool,
    /// Send requests that have not completed.
    pub sends: usize,
    /// Receives of its own that have not completed.
    pub receives: usize,
}

/// Where frames begin in the bytes of a stream that the carrier moves next.
#[derive(Debug, Clone, Copy)]
pub struct FrameStarts<'a> {
    /// How they are framed, from the last byte on that was parsed.
    pub framing: Framing,
    /// Whole frames, the first of which the carrier may have begun to send: a frame begins behind so many bytes.
    pub unsent: usize,
    /// Bytes that the carrier has read, behind the last that was parsed.
    pub staged: &'a [u8],
    /// Bytes of the stream that the carrier has sent, and that it has read.
    pub moved: (u64, u64),
}

/// What the code that drives the connection must know after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnStatus {
    /// When to call [`handle_timeout`](Qp::handle_timeout).
    pub deadline: Option<Time>,
    /// What to do with the connection.
    pub action: ConnectionAction,
    /// Requests wait for an answer of the peer.
    pub awaits_peer: bool,
    /// Bytes sent on the stream so far, whose TCP acknowledgement is expected.
    pub sent: u64,
    /// The queue pair is closing or has failed: a peer that does not read its last frames must not keep it.
    pub closing: bool,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Keep it.
    Open,
    /// Nothing more will be sent: close it, and read to the end.
    Close,
    /// Abort it: the peer has the beginning of a frame whose rest is lost.
    Reset,
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
    /// Its connection continues in another queue pair, whose completions may have the same number (V1).
    moved: AtomicBool,
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
            moved: AtomicBool::new(false),
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
        self.lock.read(|inner| inner.cause.sentence())
    }

    /// Calls `each` with where frames begin in the bytes of the stream that come next, while no thread moves any; not if there is no stream.
    pub fn with_frame_starts(&self, each: impl FnOnce(FrameStarts<'_>)) {
        self.lock.read(|inner| {
            if let Some(stream) = inner.wire.stream() {
                each(FrameStarts {
                    framing: stream.framing(),
                    unsent: inner.transmit.len(),
                    staged: inner.receive.stage().bytes(),
                    moved: inner.moved(),
                });
            }
        });
    }

    /// The changing attributes, at one moment.
    pub fn view(&self) -> View {
        self.lock.read(|inner| {
            let (sends, receives) = self.count_outstanding(inner);
            View {
                state: inner.state,
                enabled: inner.attributes.enabled,
                cause: inner.cause.sentence(),
                failure: inner.cause.failure().cloned(),
                waits: inner.waits(),
                register_error: inner.sends.register_error(),
                counters: inner.counters,
                peer_disconnected: inner.link.is_gone(),
                sends,
                receives,
            }
        })
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

    /// Sets how often a request is retried at a peer that has no receive.
    pub fn set_rnr_retry(&self, retry: RnrRetry, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.attributes.rnr_retry = Some(retry);
            if let Some(stream) = inner.wire.stream_mut() {
                stream.set_rnr_retry(retry);
            }
        });
    }

    /// Sets how long requests that wait for a lost peer's answer go on waiting before they fail; by default they fail at once.
    pub fn set_grace(&self, grace: Duration, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| inner.attributes.grace = grace);
    }

    /// Limits the reads and atomics that are outstanding at once; the peer may allow fewer.
    pub fn limit_reads(&self, depth: u16, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.attributes.read_depth = Some(depth);
            if let Some(stream) = inner.wire.stream_mut() {
                stream.limit_reads(depth);
            }
        });
    }

    /// Sets the packet sequence numbers of a queue pair that is connected out of band, before it sends.
    pub fn set_psns(&self, psns: Psns, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| inner.attributes.psns = Some(psns));
    }

    /// Requests a state. An error if the transition is not allowed, or the queue pair was retired: nothing has changed then.
    pub fn modify(&self, to: QpState, out: &mut Outbox) -> Result<(), TransitionError> {
        self.run_locked(out, |inner, init, out| inner.modify(init, to, out))
    }

    /// Attaches a stream: the queue pair sends and receives on it. `rfc7306`: its peer supports atomics and immediate data.
    ///
    /// False if the state does not allow it; nothing has changed then.
    pub fn attach(&self, stream: Stream, rfc7306: bool, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, _| inner.connect(init, stream, rfc7306))
    }

    /// Attaches a stream whose peer must show this nonce in its capabilities. Until it has done so the stream is
    /// unauthenticated: if it ends before, for whatever reason, the queue pair is as if it had never been attached.
    ///
    /// False if the state does not allow it; nothing has changed then.
    pub fn attach_unauthenticated(&self, stream: Stream, nonce: u64, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, _| {
            let attached = inner.connect(init, stream, true);
            if attached {
                inner.authentication = Authentication::Expected(nonce);
            }
            attached
        })
    }

    /// The same for a queue pair whose program knows that it is connected: if the peer shows another nonce, the stream
    /// and the queue pair fail.
    pub fn attach_requiring_nonce(
        &self,
        stream: Stream,
        rfc7306: bool,
        nonce: u64,
        out: &mut Outbox,
    ) -> bool {
        self.run_locked(out, |inner, init, _| {
            let attached = inner.connect(init, stream, rfc7306);
            if attached {
                inner.authentication = Authentication::Required(nonce);
            }
            attached
        })
    }

    /// The peer of its stream has not shown the required nonce yet.
    pub fn is_unauthenticated(&self) -> bool {
        self.lock
            .read(|inner| inner.authentication != Authentication::Done)
    }

    /// It has a stream, possibly one that ended.
    pub fn has_stream(&self) -> bool {
        self.lock.read(|inner| inner.wire.stream().is_some())
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

    /// Takes a part of a segment that has arrived, ahead of a gap or not, instead of [`receive`](Qp::receive). A queue pair is given its whole
    /// stream in one of the two ways.
    ///
    /// Bytes that arrived before are ignored, so a part may be given again. While [`Receiving::Held`] is returned, nothing is processed;
    /// an empty segment at the processed position continues where [`receive`](Qp::receive) would read again. The end of the stream is
    /// told by [`handle_eof`](Qp::handle_eof) when everything before it is processed.
    pub fn receive_segment(
        &self,
        segment: &Segment<'_>,
        now: Time,
        out: &mut Outbox,
    ) -> SegmentTaken {
        self.run_locked(out, |inner, init, out| {
            inner.take_segment(init, segment, now, out)
        })
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

    /// Ends the connection in good order, and flushes what is not done. An `iwarp` queue pair with nothing to send closes
    /// gracefully; otherwise the bytes that the connection should still send before it is closed are returned.
    pub fn disconnect(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.run_locked(out, Inner::disconnect)
    }

    /// The connection is about to be closed, after [`ConnectionAction::Close`]: the bytes to send before that.
    pub fn closing_bytes(&self, out: &mut Outbox) -> Vec<u8> {
        self.run_locked(out, |inner, _, _| inner.closing_bytes())
    }

    /// Its stream has ended with a local Terminate.
    pub fn has_terminated(&self) -> bool {
        use verbena_stream::stream::State;
        let terminated = |inner: &Inner| {
            let state = inner.wire.stream().map(Stream::state);
            state == Some(State::Terminated)
        };
        self.lock.read(terminated)
    }

    /// A completion queue of this queue pair lost entries: it fails.
    pub fn fail_overflowed(&self, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| {
            if inner.state == QpState::Reset {
                // None of its completions can have been lost, and nothing is in progress.
                return;
            }
            inner.fail_cq_overflow(init, out);
            if !inner.state.flushes() {
                // Not connected: there is no stream to end, only receives to flush; a retired queue pair has none.
                let _ = inner.modify(init, QpState::Err, out);
            }
        });
    }

    /// Ends the queue pair for good: nothing completes any more, and it leaves the line of its shared receive queue.
    ///
    /// Returns the bytes its connection should still send before it is closed: the rest of a frame that the peer has
    /// in part, and acknowledgements that it waits for. `None` if it was retired before.
    pub fn retire(&self, out: &mut Outbox) -> Option<Vec<u8>> {
        self.run_locked(out, |inner, init, out| {
            if inner.link.is_retired() {
                return None;
            }
            let last = inner.take_final_bytes(init);
            inner.return_receives(init, out);
            inner.reset();
            inner.transmit.end(last.clone());
            inner.link.handle(LinkEvent::Retire);
            Some(last)
        })
    }

    /// The token for rings in the peer's CAPS, once those have arrived: `None` within if there was none, or if `direct` and the TCP connection
    /// has other ends at the peer than here.
    pub fn peer_token(&self, direct: bool) -> Option<Option<[u8; 16]>> {
        self.lock.read(|inner| {
            let stream = inner.wire.stream()?;
            let caps = stream.peer_caps()?;
            let usable = caps.features.contains(Features::RINGS) && (!direct || stream.is_direct());
            Some(caps.same_host.filter(|_| usable))
        })
    }

    /// Requests wait for an answer of the peer, so that its silence counts.
    pub fn awaits_peer(&self) -> bool {
        self.lock.read(Inner::awaits_peer)
    }

    /// The peer has reported that it has no receive, and its READY is waited for.
    pub fn waits_for_receive(&self) -> bool {
        self.lock.read(|inner| {
            let stream = inner.wire.stream();
            stream.is_some_and(|s| s.accounting().requester.state() == requester::State::Paused)
        })
    }

    /// Continues with what it was woken for.
    pub fn wake(&self, wake: Wake, out: &mut Outbox) {
        match wake {
            Wake::Receive(_) => self.receive_ready(out),
            Wake::Memory(_) => self.run_locked(out, Inner::memory_settled),
            // Not for a queue pair, or not to wake it.
            Wake::Sends(_) | Wake::Failed(_) => {}
        }
    }

    /// A shared receive queue of its XRC domain is being destroyed: nothing of this queue pair completes there any more.
    pub(crate) fn forget_srq(&self, number: Srqn, out: &mut Outbox) {
        self.run_locked(out, |inner, init, out| inner.forget_srq(init, number, out));
    }

    /// When to call [`handle_timeout`](Qp::handle_timeout).
    pub fn deadline(&self) -> Option<Time> {
        self.lock.read(Inner::deadline)
    }

    /// The connection exists for a while: a peer that may have missed our first frame gets another, empty one.
    pub fn send_empty_frame(&self, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.wire.stream_mut().is_some_and(Stream::nudge)
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
