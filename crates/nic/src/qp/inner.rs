//! The state of a queue pair behind its lock: its parts, one turn over them, and its timers.
//! A part owns its state, and its fields are private to its file; what coordinates parts is a method of [`Inner`], in this file and, by
//! direction, in [`super::send`], [`super::receive`], [`super::place`], [`super::answer`], [`super::complete`] and [`super::modify`].
//! In a turn posted requests are taken in before its work, and ended ones are completed after it. The caller holds the lock.

use serde::{Deserialize, Serialize};

use verbena_events::event::Outbox;
use verbena_stream::responder::State as Responding;
use verbena_stream::{Stream, Time};

use super::QpInit;
use super::attributes::{Attributes, Authentication};
use super::failure::FirstCause;
use super::link_state::LinkState;
use super::pending_faults::Injected;
use super::queue::Heads;
use super::receive_state::{BlockReason, Blocked, RESPONSES_WAIT, ReceiveState, UNTIMED};
use super::relay_state::PROCESS_WAIT;
use super::responder::Responder;
use super::send_queue::SendQueue;
use super::transmit_buffer::TransmitBuffer;
use super::wire::Wire;
use super::wqe::{Progress, Wqe};
use super::{ConnectionAction, TurnStatus};
use crate::state::QpState;
use crate::trace::{self, TraceEvent};
use crate::wc::Status;

/// Counters of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received on the stream.
    pub bytes_in: u64,
    /// Bytes sent on the stream.
    pub bytes_out: u64,
    /// Payload bytes, both ways, that were transferred directly between the carrier and registered memory (M20).
    pub bytes_direct: u64,
    /// Messages of the peer that were delivered.
    pub messages_in: u64,
    /// Messages begun, those begun again included.
    pub messages_out: u64,
    /// Messages of the peer that found no receive.
    pub rnr_sent: u64,
    /// Local requests that found no receive.
    pub rnr_received: u64,
}

/// Everything behind the lock: the parts, each of which owns its state, and what coordinates them. All of it moves with a connection
/// (V1), except fields marked `serde(skip)` and the counters, which begin at zero.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inner {
    pub(super) state: QpState,
    /// What is left of the connection. Not moved: only an open one is.
    #[serde(skip)]
    pub(super) link: LinkState,
    /// What its messages travel on.
    pub(super) wire: Wire,
    /// Not moved: a queue pair cannot be moved before the peer is authenticated.
    #[serde(skip)]
    pub(super) authentication: Authentication,
    pub(super) attributes: Attributes,
    /// The consuming ends of the work queues.
    #[serde(skip)]
    pub(super) heads: Heads,
    pub(super) sends: SendQueue,
    pub(super) transmit: TransmitBuffer,
    pub(super) receive: ReceiveState,
    pub(super) responder: Responder,
    /// The latest time that was passed in.
    pub(super) now: Time,
    /// Why the queue pair failed; the first cause.
    pub(super) cause: FirstCause,
    pub(super) counters: Counters,
    /// Faults for tests. Not moved: a queue pair that has some is not.
    #[serde(skip)]
    pub(super) injected: Option<Box<Injected>>,
    /// Bytes that had been framed and read before the stream began, for traces. Not moved: the counters begin at zero.
    #[serde(skip)]
    pub(super) stream_began: (u64, u64),
}

impl Inner {
    pub(super) fn new(heads: Heads) -> Inner {
        Inner {
            state: QpState::Reset,
            link: LinkState::default(),
            wire: Wire::None,
            authentication: Authentication::default(),
            attributes: Attributes::default(),
            heads,
            sends: SendQueue::default(),
            transmit: TransmitBuffer::default(),
            receive: ReceiveState::default(),
            responder: Responder::default(),
            now: Time::ZERO,
            cause: FirstCause::default(),
            counters: Counters::default(),
            injected: None,
            stream_began: (0, 0),
        }
    }

    /// Resets everything but the counters; posted requests are dropped without a completion.
    pub(super) fn reset(&mut self) {
        self.heads.show_receives();
        while self.heads.next_send().is_some() {
            self.heads.ended(1);
        }
        while self.heads.next_receive().is_some() {}
        self.reset_keep_posted();
    }

    /// Resets everything but the counters and requests that were posted and not yet taken in. Its function sums up the
    /// counters (V1), so nothing that was counted is lost.
    pub(super) fn reset_keep_posted(&mut self) {
        self.heads.ended(self.sends.len());
        let counters = self.counters;
        *self = Inner::new(core::mem::take(&mut self.heads));
        self.counters = counters;
    }
}

/// One turn under the lock, whatever it is for.
impl Inner {
    /// One turn: takes in what was posted, does `work`, completes what has ended.
    pub(super) fn turn<R>(
        &mut self,
        init: &QpInit,
        out: &mut Outbox,
        work: impl FnOnce(&mut Inner, &QpInit, &mut Outbox) -> R,
    ) -> R {
        self.take_posted(init, out);
        let result = work(self, init, out);
        self.settle(init, out);
        self.publish_state(init);
        while self.heads.publish_receives_idle(self.receives_idle()) {
            self.take_posted(init, out);
            self.settle(init, out);
            self.publish_state(init);
        }
        debug_assert!(self.invariants(), "a part is inconsistent after a turn");
        result
    }

    #[inline(always)]
    fn publish_state(&self, init: &QpInit) {
        if self.heads.published_state() != self.state {
            self.publish_change(init);
        }
    }

    #[cold]
    #[inline(never)]
    fn publish_change(&self, init: &QpInit) {
        let (from, to) = (self.heads.published_state(), self.state);
        self.heads.publish_state(to);
        if trace::is_active() {
            let (qp, wc_qpn) = (init.number, init.wc_qpn);
            init.observer.record(&TraceEvent::State {
                qp,
                wc_qpn,
                from,
                to,
            });
        }
    }

    /// Bytes of the stream that the carrier has sent, and that it has read.
    pub(super) fn moved(&self) -> (u64, u64) {
        let (framed, read) = self.stream_began;
        (
            self.transmit.accepted().saturating_sub(framed),
            self.counters.bytes_in.saturating_sub(read),
        )
    }

    /// The request at this position was framed in full, up to here.
    #[cold]
    #[inline(never)]
    pub(super) fn trace_segmented(&self, init: &QpInit, at: usize) {
        init.observer.record(&TraceEvent::Segmented {
            qp: init.number,
            number: self.heads.posted_number(at),
            end: self.transmit.framed().saturating_sub(self.stream_began.0),
        });
    }

    /// The cursors of every part fit its contents.
    fn invariants(&self) -> bool {
        self.sends.invariants()
            && self.responder.invariants()
            && self.transmit.invariants()
            && self.receive.invariants()
            && self.wire.invariants()
    }

    /// Takes in what was posted meanwhile.
    fn take_posted(&mut self, init: &QpInit, out: &mut Outbox) {
        while let Some(mut wqe) = self.heads.next_send() {
            // The state may have changed since it was posted.
            if self.state == QpState::Reset {
                // Requests posted before a reset end without a completion.
                self.heads.ended(1);
                continue;
            }
            if self.state.flushes_sends() || !self.state.takes_sends() {
                // In a state that takes none, the connection that it was posted for has closed gracefully since.
                wqe.progress = Progress::Done(Status::WrFlushErr);
            }
            // One place that moves the request: with two it is copied twice more.
            let progress = wqe.progress;
            self.sends.push(wqe);
            if let Progress::Injected(fault) = progress {
                self.begin_send_fault(fault);
                // In this turn, so that the Terminate is sent with it.
                self.fail_deferred(init, out);
            }
        }
        // While `receives_idle` is set, receives stay in their queue until a message needs one.
        if !self.heads.receives_idle() && self.heads.has_receive() {
            match self.state {
                QpState::Reset => while self.heads.next_receive().is_some() {},
                state if state.flushes() => self.flush_receives(init, out),
                _ => self.receive_posted(init, out),
            }
        }
    }

    /// Takes in a request of a shared send queue (V6); false if the state does not allow it.
    pub(super) fn accept_from_ssq(&mut self, mut wqe: Wqe) -> bool {
        if self.link.is_retired() || !self.state.takes_sends() {
            self.heads.ended(1);
            return false;
        }
        if self.state.flushes_sends() {
            wqe.progress = Progress::Done(Status::WrFlushErr);
        }
        self.sends.push(wqe);
        true
    }

    /// A receive that is posted now can wait for a message: no message waits for one, and none is flushed.
    fn receives_idle(&self) -> bool {
        let works = !self.state.flushes() && self.state != QpState::Reset;
        works && !self.receive.is_blocked() && !self.refuses_requests()
    }

    /// A message waits for a receive, here or at its sender.
    pub(super) fn awaits_receive(&self) -> bool {
        self.receive.blocked().is_some_and(Blocked::for_receive) || self.refuses_requests()
    }

    /// The peer was told that there is no receive.
    fn refuses_requests(&self) -> bool {
        let waits = |stream: &Stream| stream.accounting().responder.state() == Responding::Waiting;
        self.wire.stream().is_some_and(waits)
    }
}

/// Timers, and what the code that drives the connection must know.
impl Inner {
    pub(super) fn deadline(&self) -> Option<Time> {
        let rnr = self.wire.deadline(self.state.flushes());
        let grace = self
            .link
            .grace_ends()
            .filter(|until| self.now < *until && !self.sends.is_empty() && !self.state.flushes());
        match (rnr, self.wait_deadline(), grace) {
            // The usual case.
            (None, None, None) => None,
            (rnr, waits, grace) => rnr.into_iter().chain(waits).chain(grace).min(),
        }
    }

    /// When the first wait ends.
    fn wait_deadline(&self) -> Option<Time> {
        let blocked = self.receive.blocked().map(|b| b.until);
        let waits = self.responder.deadline().into_iter().chain(blocked);
        let first = waits.chain(self.receive.next_hold_check()).min();
        match &self.injected {
            None => first,
            Some(injected) => first.into_iter().chain(injected.deadline()).min(),
        }
    }

    pub(super) fn handle_timeout(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        self.now = self.now.max(now);
        match &mut self.wire {
            Wire::None => {}
            // The consequences follow when requests are completed.
            Wire::Stream(stream) => {
                stream.handle_timeout(now);
            }
            Wire::Roce(_) if self.state.flushes() => {}
            Wire::Roce(_) => self.handle_roce_timeout(init, now, out),
        }
        self.handle_injected_timeout(init, now, out);
        self.check_wait_timeouts(init, now, out);
    }

    /// Processes the timeouts of what is blocked.
    fn check_wait_timeouts(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        self.responder.handle_timeout(now);
        self.check_hold(init, now, out);
        let Some(blocked) = self.receive.blocked() else {
            return;
        };
        if blocked.until == UNTIMED {
            let wait = match blocked.reason {
                BlockReason::Memory(..) => init.transfer.memory_wait,
                BlockReason::Responses { .. } => RESPONSES_WAIT,
                BlockReason::Receive => init.transfer.receive_wait,
                BlockReason::Process => PROCESS_WAIT,
            };
            self.receive.set_block_deadline(now + wait);
        } else if now >= blocked.until {
            match blocked.reason {
                BlockReason::Receive => self.no_receive(init, out),
                BlockReason::Process => self.fail_relay(init, "did not answer", out),
                BlockReason::Responses { accepted, framed }
                    if self.transmit.accepted() > accepted =>
                {
                    // A slow peer is not one that takes nothing.
                    let accepted = self.transmit.accepted();
                    let reason = BlockReason::Responses { framed, accepted };
                    self.receive.block(now + RESPONSES_WAIT, reason);
                }
                BlockReason::Responses { .. } => self.responses_overdue(init, out),
                BlockReason::Memory(stag, violation) => {
                    self.receive.unblock();
                    if self.take_deferred().is_some() {
                        self.refuse_request(init, violation, out);
                    } else if self.fail_pending_expired(init, (stag, violation), out) {
                        self.process_bytes(init, &[], now, out);
                    }
                }
            }
        }
    }

    pub(super) fn turn_status(&self) -> TurnStatus {
        let future = if self.link.is_severed() {
            ConnectionAction::Reset
        } else if self.wire.stream().is_none() || self.wants_close() {
            // A queue pair that was reset has dropped its stream.
            ConnectionAction::Close
        } else {
            ConnectionAction::Open
        };
        TurnStatus {
            deadline: self.deadline(),
            action: future,
            awaits_peer: self.awaits_peer(),
            sent: self.counters.bytes_out,
            closing: self.state.flushes(),
        }
    }

    /// Requests wait for an answer of the peer, or for its first frame before they can begin.
    pub(super) fn awaits_peer(&self) -> bool {
        self.sends.begun() > 0 || self.state == QpState::Rts && !self.sends.is_empty()
    }

    pub(super) fn wants_close(&self) -> bool {
        let over = self.wire.stream().is_some_and(|s| !s.state().is_open());
        let closing = matches!(
            self.state,
            QpState::Closing | QpState::Terminate | QpState::Err
        );
        let waits = self.link.keeps_connection() && !self.state.flushes();
        self.link.is_severed()
            || (!waits && self.transmit.is_empty() && (over || closing) && self.is_terminate_done())
    }

    fn is_terminate_done(&self) -> bool {
        use verbena_stream::stream::State;
        self.wire
            .stream()
            .is_none_or(|s| s.state() != State::Failing)
    }
}

impl QpInit {
    /// Removes the completions of this queue pair that have not been polled. A receive of a shared queue whose
    /// completion is removed is consumed.
    ///
    /// A queue that feeds a shared send queue (V6) keeps them: they are the results of requests that complete elsewhere.
    pub(super) fn remove_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq] {
            if !cq.is_for_ssq() {
                cq.discard_qp_entries(self.wc_qpn);
            }
        }
    }
}
