//! The receive state of a queue pair: bytes that are not parsed, the receive that a message has taken, and why the stream is not read.
//! A message holds at most one receive, and a request that is deferred waits with the stream. Bytes are parsed and placed by the
//! caller.
//!
//! A receive of a shared queue that is held for the peer, taken by a half received message or reserved and announced by READY, is
//! supervised: a peer that makes no progress for [`shared_receive_wait`](super::Transfer::shared_receive_wait) loses the connection,
//! so that it cannot keep the receive from the queue pairs that share the queue. The timer is coarse: progress is compared a few times
//! within that time instead of being recorded with every byte. Only bytes of this message are progress, not other traffic.

use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_stream::{Delivery, SendProgress, Time, Violation};
use verbena_wire::Stag;

use super::QpInit;
use super::ahead_state::Ahead;
use super::queue::Heads;
use super::stage::Stage;
use super::target_state::TargetState;
use super::touch::Touching;
use crate::receive::Receive;
use crate::srq::Srq;

/// A deadline that must be computed as soon as the time is known.
pub(super) const UNTIMED: Time = Time::ZERO;

/// How long a stream is held for responses of which nothing is sent. A peer that is stopped for a while continues later; two
/// that hold each other never would.
pub(super) const RESPONSES_WAIT: Duration = Duration::from_secs(60);

/// Short runs after which a sequence of long ones counts as over: the end of a long message is often short.
const BULK: u8 = 3;

/// Messages of an unreliable peer that memory refuses before its connection ends (docs/connections.md).
pub(super) const MAX_REFUSALS: u8 = 16;

/// How often the progress of a peer that holds a shared receive is compared within `shared_receive_wait`.
const CHECKS_PER_WAIT: u32 = 4;

/// Why a stream is not read further, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blocked {
    pub(super) until: Time,
    pub(super) reason: BlockReason,
}

/// What a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BlockReason {
    /// A message has no receive.
    Receive,
    /// The next request changes memory of responses that have not been sent; bytes framed and accepted by then.
    Responses { framed: u64, accepted: u64 },
    /// The entry that the next bytes or the last request need, and the violation if it is not registered in time. A queue pair that
    /// waits for it cannot be moved.
    #[serde(skip)]
    Memory(Stag, Violation),
    /// The process of the shared receive queue that a request is for, or room to send to it. An XRC queue pair is not moved.
    #[serde(skip)]
    Process,
}

impl Blocked {
    pub(super) fn for_receive(self) -> bool {
        self.reason == BlockReason::Receive
    }

    pub(super) fn for_memory(self) -> bool {
        matches!(self.reason, BlockReason::Memory(..))
    }

    pub(super) fn for_process(self) -> bool {
        self.reason == BlockReason::Process
    }

    pub(super) fn for_responses(self) -> bool {
        matches!(self.reason, BlockReason::Responses { .. })
    }
}

/// A receive of a shared queue is held, or was at the last comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SrqHold {
    next_check: Time,
    /// The progress first seen at that time, and unchanged since.
    since: Option<(Time, PeerProgress)>,
}

/// How much of its messages the peer has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageProgress {
    /// So much of the message of its stream.
    Stream(SendProgress),
    /// So many packets.
    Packets(u64),
}

impl MessageProgress {
    fn is_beyond(self, before: MessageProgress) -> bool {
        match (self, before) {
            (MessageProgress::Stream(now), MessageProgress::Stream(then)) => now.is_beyond(then),
            (now, then) => now != then,
        }
    }
}

/// Progress of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerProgress {
    /// It has sent so much of the message.
    Message(MessageProgress),
    /// It was told that a receive is ready, when so many bytes had arrived.
    Reserved { bytes_in: u64 },
    /// It cannot continue: this side does not read.
    LocallyBlocked,
}

impl PeerProgress {
    fn is_progress_from(self, before: PeerProgress) -> bool {
        match (self, before) {
            (PeerProgress::Message(now), PeerProgress::Message(then)) => now.is_beyond(then),
            (PeerProgress::Reserved { .. }, PeerProgress::Reserved { .. }) => false,
            _ => true,
        }
    }
}

/// Result of comparing the peer's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldCheck {
    /// The receive is held further.
    Held,
    /// No message of the peer needs the receive.
    Unused,
    /// The peer has made no progress since this for too long.
    Expired(PeerProgress),
}

/// What is between the carrier and the completion of a receive.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ReceiveState {
    /// Received and not yet parsed.
    stage: Stage,
    /// Long runs of payload arrived recently, and the next one probably is long, too; counts down.
    bulk: u8,
    /// The receive of the message that is being received, or of one that was dropped.
    claimed: Option<Receive>,
    /// Receives of the next messages, of which segments arrived ahead of a gap. Not moved, like what arrived there.
    #[serde(skip)]
    early: VecDeque<Receive>,
    /// What arrived ahead of a gap, on a queue pair that is given segments. Not moved: such a queue pair is not migrated.
    #[serde(skip)]
    ahead: Option<Box<Ahead>>,
    /// The shared receive queue has reserved a receive for this queue pair.
    #[serde(skip)]
    reserved: bool,
    /// A receive of the shared queue is held for the peer.
    #[serde(skip)]
    srq_hold: Option<SrqHold>,
    /// The stream is not read further: a message of a standard peer waits for a receive, a request for its memory or for
    /// responses to be sent.
    blocked: Option<Blocked>,
    /// A request that has arrived in full and waits with the stream.
    deferred: Option<Box<Delivery>>,
    /// The Write that is being received touches one-touch memory (M9).
    #[serde(skip)]
    touching: Touching,
    /// The last message of an unreliable peer was a Write that memory refused.
    write_dropped: bool,
    /// Messages of an unreliable peer that memory refused. Not moved: a peer cannot cause a move.
    #[serde(skip)]
    refusals: u8,
    /// `LastWqe` has been raised.
    last_wqe_raised: bool,
    /// Not moved: an XRC queue pair is not migrated.
    #[serde(skip)]
    target: TargetState,
}

/// Bytes that are not parsed.
impl ReceiveState {
    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    /// Long runs of payload arrived recently.
    #[inline]
    pub(super) fn expects_bulk(&self) -> bool {
        self.bulk > 0
    }

    /// Records a run of payload: long ones come in sequences.
    #[inline]
    pub(super) fn note_run(&mut self, long: bool) {
        self.bulk = if long {
            BULK
        } else {
            self.bulk.saturating_sub(1)
        };
    }
}

/// The receive of a message.
impl ReceiveState {
    /// The receive that a message has taken.
    #[inline]
    pub(super) fn claimed(&self) -> Option<&Receive> {
        self.claimed.as_ref()
    }

    /// Takes the receive out: it completes.
    #[inline]
    pub(super) fn take_claimed(&mut self) -> Option<Receive> {
        self.claimed.take()
    }

    /// The message that is being received has this receive.
    pub(super) fn set_claimed(&mut self, receive: Receive) {
        self.claimed = Some(receive);
    }

    /// The receive for a message that begins, if there is one: of a message that was dropped, or the next of its queue. `from_srq` takes
    /// it from the shared queue; `None` if the queue pair has failed and takes nothing more from there.
    #[inline]
    pub(super) fn find_receive(
        &mut self,
        init: &QpInit,
        heads: &mut Heads,
        from_srq: Option<impl FnOnce(&Srq) -> Option<Receive>>,
    ) -> Option<Receive> {
        self.claimed.take().or_else(|| match &init.srq {
            Some(srq) => {
                let take = from_srq?;
                self.reserved = false;
                take(srq)
            }
            None if self.early.is_empty() => heads.next_receive(),
            None => self.early.pop_front(),
        })
    }

    /// The receive behind the next `before` ones, for a message ahead of a gap. It and those before it leave their queue.
    pub(super) fn early_receive(&mut self, before: u32, heads: &mut Heads) -> Option<&Receive> {
        let at = before as usize;
        while self.early.len() <= at {
            self.early.push_back(heads.next_receive()?);
        }
        self.early.get(at)
    }

    /// Takes the next receive that left its queue early.
    pub(super) fn next_early(&mut self) -> Option<Receive> {
        self.early.pop_front()
    }

    /// The shared queue that receives come from: that of the queue pair, or the one that the last request to an XRC target named.
    fn srq(&self, init: &QpInit) -> Option<Arc<Srq>> {
        self.target.parts_or(init).srq.clone()
    }

    /// A receive that is held is returned to the shared queue.
    pub(super) fn return_claimed(&mut self, init: &QpInit, out: &mut Outbox) {
        if let Some(srq) = self.srq(init)
            && let Some(receive) = self.claimed.take()
            && let Some(qpn) = srq.give_back(receive)
        {
            out.wake(qpn);
        }
    }

    /// No message will take a receive of the shared queue any more: a reserved one goes to the next waiter.
    pub(super) fn leave_srq_waiters(&mut self, init: &QpInit, out: &mut Outbox) {
        self.reserved = false;
        let next = self.srq(init).and_then(|srq| srq.leave(init.number));
        if let Some(qpn) = next {
            out.wake(qpn);
        }
    }

    /// The last receive of a shared queue was taken; true once for a connection.
    pub(super) fn notice_last_wqe(&mut self) -> bool {
        !core::mem::replace(&mut self.last_wqe_raised, true)
    }

    /// Another stream begins.
    pub(super) fn begin_stream(&mut self) {
        self.last_wqe_raised = false;
        self.ahead = None;
        self.target = TargetState::default();
    }

    /// Drops what was received of a stream that is over.
    pub(super) fn drop_stage(&mut self) {
        self.stage = Stage::default();
        self.ahead = None;
    }
}

/// What arrived ahead of a gap.
impl ReceiveState {
    /// Takes it out while a segment is processed.
    pub(super) fn take_ahead(&mut self) -> Box<Ahead> {
        self.ahead.take().unwrap_or_default()
    }

    pub(super) fn put_ahead(&mut self, ahead: Box<Ahead>) {
        self.ahead = Some(ahead);
    }

    /// The queue pair is given segments instead of a stream of bytes.
    pub(super) fn has_segments(&self) -> bool {
        self.ahead.is_some()
    }

    /// The stream is over: what is missing will not arrive.
    pub(super) fn drop_ahead(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.clear();
        }
    }
}

/// A shared receive that is held for the peer.
impl ReceiveState {
    /// A message has taken a receive, or may take a reserved one.
    pub(super) fn begin_srq_hold(&mut self, init: &QpInit, now: Time) {
        let shared = init.srq.is_some() || init.xrcd.is_some();
        if shared && self.srq_hold.is_none() {
            // Compared too early if `now` is old, which is harmless: the time counts from the first comparison.
            self.srq_hold = Some(SrqHold {
                next_check: now + check_interval(init),
                since: None,
            });
        }
    }

    /// Checks whether the shared queue has reserved a receive: it had when it woke this queue pair, which may have left the line since.
    pub(super) fn hold_reservation(&mut self, init: &QpInit, now: Time) {
        let reserves = |srq: Arc<Srq>| srq.has_reservation(init.number);
        self.reserved = self.srq(init).is_some_and(reserves);
        if self.reserved {
            self.srq_hold = None;
            self.begin_srq_hold(init, now);
        }
    }

    /// When to compare the peer's progress.
    pub(super) fn next_hold_check(&self) -> Option<Time> {
        let holds = |_: &SrqHold| self.claimed.is_some() || self.reserved;
        self.srq_hold.filter(holds).map(|hold| hold.next_check)
    }

    /// Compares the progress for a receive that is held; `None` if it is not time yet. `message` is how much has arrived of the
    /// message that is being received, if one is; `receives` is false when none can be any more.
    pub(super) fn check_hold(
        &mut self,
        init: &QpInit,
        receives: bool,
        message: Option<MessageProgress>,
        bytes_in: u64,
        now: Time,
    ) -> Option<HoldCheck> {
        let hold = self.srq_hold.filter(|hold| now >= hold.next_check)?;
        let progress = receives.then(|| self.peer_progress(message, bytes_in));
        let Some(progress) = progress.flatten() else {
            self.srq_hold = None;
            return Some(HoldCheck::Unused);
        };
        let wait = init.transfer.shared_receive_wait;
        let unchanged = hold
            .since
            .filter(|(_, before)| !progress.is_progress_from(*before));
        match unchanged {
            Some((then, before)) if now.since(then) >= wait => {
                self.srq_hold = None;
                Some(HoldCheck::Expired(before))
            }
            unchanged => {
                let since = unchanged.unwrap_or((now, progress));
                self.srq_hold = Some(SrqHold {
                    next_check: (now + check_interval(init)).min(since.0 + wait),
                    since: Some(since),
                });
                Some(HoldCheck::Held)
            }
        }
    }

    /// `None` if no message of the peer needs what is held.
    fn peer_progress(
        &self,
        message: Option<MessageProgress>,
        bytes_in: u64,
    ) -> Option<PeerProgress> {
        if self.claimed.is_none() {
            return self.reserved.then_some(PeerProgress::Reserved { bytes_in });
        }
        let progress = message?;
        Some(match self.blocked {
            Some(_) => PeerProgress::LocallyBlocked,
            None => PeerProgress::Message(progress),
        })
    }
}

/// The shared receive queue that requests to an XRC target are for.
impl ReceiveState {
    pub(super) fn target(&self) -> &TargetState {
        &self.target
    }

    pub(super) fn target_mut(&mut self) -> &mut TargetState {
        &mut self.target
    }

    /// The parts of an XRC target with the queue of its last request; `None` for every other queue pair.
    #[inline]
    pub(super) fn target_parts(&self) -> Option<Arc<QpInit>> {
        self.target.parts.clone()
    }
}

/// A stream that is not read further.
impl ReceiveState {
    #[inline]
    pub(super) fn blocked(&self) -> Option<Blocked> {
        self.blocked
    }

    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// The stream is not read further.
    pub(super) fn block(&mut self, until: Time, reason: BlockReason) {
        self.blocked = Some(Blocked { until, reason });
    }

    /// Changes the deadline of a stream that is not read.
    pub(super) fn set_block_deadline(&mut self, until: Time) {
        if let Some(blocked) = &mut self.blocked {
            blocked.until = until;
        }
    }

    /// The stream is read again, after the request that [`take_deferred`](Self::take_deferred) returns.
    pub(super) fn unblock(&mut self) {
        self.blocked = None;
    }

    /// Keeps a request that has arrived in full, to be executed later. The stream is blocked.
    pub(super) fn defer(&mut self, delivery: &Delivery) {
        self.deferred = Some(Box::new(delivery.clone()));
    }

    /// The request that was deferred.
    pub(super) fn take_deferred(&mut self) -> Option<Box<Delivery>> {
        self.deferred.take()
    }

    /// The queue pair fails: nothing waits any more.
    pub(super) fn drop_waits(&mut self) {
        self.blocked = None;
        self.deferred = None;
    }
}

/// Writes that memory refuses, and Writes to one-touch memory.
impl ReceiveState {
    /// The one-touch memory of the Write that is being received.
    pub(super) fn touching(&self) -> &Touching {
        &self.touching
    }

    pub(super) fn set_touching(&mut self, touching: Touching) {
        self.touching = touching;
    }

    /// The Write has arrived in full, or is dropped.
    pub(super) fn take_touching(&mut self) -> Touching {
        core::mem::take(&mut self.touching)
    }

    /// A Write was dropped, or a message behind it was placed.
    #[inline]
    pub(super) fn set_write_dropped(&mut self, dropped: bool) {
        self.write_dropped = dropped;
    }

    /// The last message was a Write that was dropped; true once.
    pub(super) fn take_write_dropped(&mut self) -> bool {
        core::mem::take(&mut self.write_dropped)
    }

    /// Memory refused a message of an unreliable peer; false if the limit is reached.
    pub(super) fn count_refusal(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals < MAX_REFUSALS
    }

    /// Its cursors fit its contents, and a deferred request waits with the stream.
    pub(super) fn invariants(&self) -> bool {
        self.stage.invariants()
            && self.bulk <= BULK
            && (self.deferred.is_none() || self.blocked.is_some())
    }
}

fn check_interval(init: &QpInit) -> Duration {
    init.transfer.shared_receive_wait / CHECKS_PER_WAIT
}
