//! The end of work: completions in order, the one request that gets the status of a failure, and the flush of the rest.
//! Every posted request ends in exactly one completion (or none, if it succeeded unsignalled), in posting order. A request that fails
//! locally fails in its turn: requests before it have succeeded by then, and none behind starts meanwhile.

use verbena_events::event::{Event, Outbox};
use verbena_stream::stream::State as StreamState;
use verbena_stream::{Violation, requester};
use verbena_wire::ext::Features;
use verbena_wire::rdmap::Terminate;

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::link_state::{LinkAct, LinkEvent, LinkState};
use super::send_queue::CompletionPoint;
use super::wqe::Wqe;
use crate::state::{Personality, QpEvent, QpState, QpType};
use crate::trace::{self, TraceEvent};
use crate::wc::{Status, Wc, WcOp, status_of};
use crate::wr::Flags;

/// Requests that have ended.
impl Inner {
    /// Completes what has ended at the front of the send queue, and gives up what can no longer succeed.
    #[inline]
    pub(super) fn settle(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.sends.is_empty() && self.state == QpState::Rts && self.link == LinkState::Open {
            // Nothing can complete, be given up or be waited for.
            self.responder.release_spent();
        } else {
            self.settle_requests(init, out);
        }
    }

    fn settle_requests(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.link != LinkState::Open {
            self.settle_end(init, out);
        }
        if !self.complete_sends(init, out) {
            self.fail_cq_overflow(init, out);
        }
        if self.sends.failing().is_some() {
            self.fail_deferred(init, out);
        }
        // Messages that were cut short have spent their entries, too (M9).
        if self.receive.touching().is_touching() && (self.link.is_gone() || self.state.flushes()) {
            self.receive.take_touching();
        }
        self.responder.release_spent();
        if self.sends.is_empty() && self.state == QpState::Rts {
            // No request is left that could be given up or waited for.
            return;
        }
        self.fail_rnr_exceeded(init, out);
        self.notify_drained(init, out);
        let notices = init.qp_type != QpType::Uc;
        let needs = self.link.is_gone() && notices && !self.sends.is_empty();
        if needs && !self.state.flushes() && !self.wait_for_lost_peer() {
            // The remaining requests will not be answered.
            self.fail_peer_lost(init, FailureKind::PeerGone, "the peer is gone", out);
        }
    }

    /// The peer is gone, or its end had to wait for a message before it.
    #[cold]
    fn settle_end(&mut self, init: &QpInit, out: &mut Outbox) {
        if !self.receive.is_blocked()
            && let Some(reset) = self.link.deferred_end()
        {
            self.peer_disconnected(init, reset, out);
        }
        if self.link.is_gone() && init.qp_type == QpType::Uc {
            self.discard_sends(init, out);
        }
    }

    /// Requests that wait for a lost peer's answer go on waiting for a grace period, as on a network where a loss is noticed by a
    /// timer: a program that has what it wanted may exit, and its peer with it, before a failure is reported.
    fn wait_for_lost_peer(&mut self) -> bool {
        let (now, grace) = (self.now, self.attributes.grace);
        self.link.handle(LinkEvent::Need { now, grace }) == LinkAct::Wait
    }

    /// Sends complete when the peer has acknowledged them, or already when they were sent (docs/connections.md).
    fn completion_point(&self, init: &QpInit) -> CompletionPoint {
        let stream = self.wire.stream().filter(|s| s.peer_caps().is_some());
        match stream {
            Some(stream) if init.personality == Personality::Roce && init.qp_type.is_reliable() => {
                let requester = &stream.accounting().requester;
                // With an RNR the receiver also acknowledges all requests before it.
                CompletionPoint::Acked(
                    requester.given_up().unwrap_or(requester.acked()),
                    self.transmit.accepted(),
                )
            }
            _ => CompletionPoint::Accepted(self.transmit.accepted()),
        }
    }

    /// Pushes the completions of what has ended at the front of the send queue. Also called before the completion of a receive: a
    /// program that finds the answer to a request in a queue finds the request's own completion before it, if the peer acknowledged it
    /// first.
    ///
    /// False if one found no room: then the caller calls [`fail_cq_overflow`](Self::fail_cq_overflow), after the completion of a receive whose
    /// message has arrived, because it flushes the receives behind that one.
    #[inline]
    pub(super) fn complete_sends(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        if self.sends.is_empty() {
            return true;
        }
        if trace::is_active() {
            return self.complete_traced(init, out);
        }
        self.complete_with::<false>(init, out)
    }

    #[cold]
    #[inline(never)]
    fn complete_traced(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        self.complete_with::<true>(init, out)
    }

    #[inline(always)]
    fn complete_with<const TRACED: bool>(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let point = self.completion_point(init);
        while let Some((wqe, status)) = self.sends.pop_ended(point) {
            self.heads.ended(1);
            if TRACED {
                self.trace_ended(init, &wqe, status);
            }
            if !push_completion(init, &wqe, status, out) {
                return false;
            }
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn trace_ended(&self, init: &QpInit, wqe: &Wqe, status: Status) {
        init.observer.record(&TraceEvent::Ended {
            qp: init.number,
            // It was counted as ended.
            number: self.heads.posted_number(0).wrapping_sub(1),
            id: wqe.id,
            op: wqe.wc_op(),
            status,
            len: wqe.len,
            entry: has_entry(wqe.flags, status),
        });
    }

    /// Marks the requests that had succeeded before the stream ended, up to the first that had not: requests end in order.
    pub(super) fn mark_executed(&mut self, init: &QpInit) {
        let point = self.completion_point(init);
        self.sends.mark_executed(point);
    }

    /// The peer has closed its direction, with so many of our bytes undelivered to its process.
    ///
    /// A process that dies between executing a request and acknowledging it never sends the acknowledgement. A Verbena
    /// peer that closes in good order announces it (`Features::CLOSING_ACK`). Without that the close is the end of the
    /// process, and a FIN instead of a reset means that the process had read every byte that its TCP acknowledged: each
    /// complete request among them was executed, unless a request before it was refused (docs/connections.md). A proxy terminates
    /// TCP itself and has bytes that the process never read, so the connection must be known to be direct. An XRC target may have read requests for a
    /// queue of another process, which has not executed them, so nothing is presumed of it.
    pub(super) fn presume_executed(&mut self, init: &QpInit, undelivered: Option<u64>) {
        let executes = init.qp_type.is_reliable() && init.qp_type != QpType::XrcSend;
        let tracked = init.personality == Personality::Roce && executes;
        let Some(undelivered) = undelivered.filter(|_| tracked && !self.link.is_gone()) else {
            return;
        };
        let died = self.wire.stream().is_some_and(|stream| {
            let requester = &stream.accounting().requester;
            stream.state() == StreamState::Running
                && stream.has(Features::CLOSING_ACK)
                && stream.is_direct()
                && requester.state() == requester::State::Flowing
                && !requester.is_closing()
        });
        if !died {
            return;
        }
        self.mark_executed(init);
        let delivered = self.transmit.accepted().saturating_sub(undelivered);
        self.sends
            .mark_executed(CompletionPoint::Accepted(delivered));
    }

    /// An unreliable connection does not notice that its peer is gone: sends succeed and are discarded.
    fn discard_sends(&mut self, init: &QpInit, out: &mut Outbox) {
        let may_end = match self.state {
            QpState::Rts => usize::MAX,
            // A draining queue finishes what it began and starts nothing.
            QpState::Sqd | QpState::Sqe => self.sends.begun(),
            _ => return,
        };
        self.sends.take_current();
        self.responder.drop_current();
        // The requests release their memory, but a frame that was begun is still finished.
        self.copy_payload(init);
        while let Some(at) = self.sends.first_pending(may_end) {
            if !self.register_before_send(init, at, out) {
                break;
            }
            if self.sends[at].op.is_local() {
                if !self.run_local(init, at, out) {
                    // It waits for memory that is pending.
                    break;
                }
            } else {
                self.sends.end(at, Status::Success);
            }
        }
    }

    fn notify_drained(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.sends.notice_drained(self.state) {
            out.push(Event::SqDrained { qp: init.number });
        }
    }
}

/// Failures that the peer causes or reports.
impl Inner {
    /// The peer violated the protocol, or accessed memory that it may not.
    pub(super) fn handle_violation(
        &mut self,
        init: &QpInit,
        violation: &Violation,
        out: &mut Outbox,
    ) {
        if self.drop_unauthenticated() {
            return;
        }
        self.cause.record(FailureKind::of_violation(violation), || {
            format!("the peer violated the protocol: {violation}")
        });
        if let Violation::Access { stag, .. } = violation
            && !self.is_relaying()
        {
            self.cause.add_access(*stag, &init.tpt);
        }
        // Requests acknowledged before that, perhaps in the same bytes, have succeeded.
        self.mark_executed(init);
        let status = match violation {
            Violation::TooLong { .. } => Some(Status::LocLenErr),
            Violation::ReceiveBuffer => Some(Status::LocProtErr),
            _ => None,
        };
        // Any other violation leaves the claimed receive to the flush.
        if let Some(status) = status {
            self.fail_relayed(status);
        }
        if let Some(status) = status
            && let Some(receive) = self.receive.take_claimed()
        {
            let wc = receive_flush(init, receive.id, status);
            let parts = self.receive.target_parts();
            parts.as_deref().unwrap_or(init).recv_cq.push(wc, out);
        }
        let qp = init.number;
        out.push(match violation {
            Violation::Access { .. } => Event::QpAccess { qp },
            Violation::NotEnabled(_)
            | Violation::Unaligned { .. }
            | Violation::TooManyReads { .. }
            | Violation::TooLong { .. }
            | Violation::NoSuchSrq(_)
            | Violation::NoReceive { .. } => Event::QpRequest { qp },
            _ => Event::QpFatal { qp },
        });
        self.end(init, QpEvent::Failed, out);
    }

    /// The peer terminated the stream: the first request that it did not execute gets the status.
    pub(super) fn peer_terminated(
        &mut self,
        init: &QpInit,
        terminate: &Terminate,
        out: &mut Outbox,
    ) {
        if self.drop_unauthenticated() {
            return;
        }
        self.cause
            .record(FailureKind::of_terminate(terminate.cause), || {
                format!("the peer sent Terminate: {}", terminate.cause)
            });
        self.mark_executed(init);
        self.sends.end_first_begun(status_of(terminate.cause));
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::PeerTerminated, out);
    }

    /// The peer is gone with work outstanding.
    pub(super) fn fail_peer_lost(
        &mut self,
        init: &QpInit,
        kind: FailureKind,
        why: &str,
        out: &mut Outbox,
    ) {
        self.cause.record(kind, || why.to_owned());
        self.mark_executed(init);
        let status = if init.personality == Personality::Roce {
            Status::RetryExcErr
        } else {
            Status::WrFlushErr
        };
        self.sends.end_first(status);
        self.end(init, QpEvent::PeerLost, out);
    }
}

/// Local failures.
impl Inner {
    /// A request that was begun cannot continue, because of its own memory. It fails in its turn, so that it is the first to
    /// fail; it fails out of turn only if the connection is lost, or if the peer has waited too long for an answer behind it.
    pub(super) fn defer_failure(&mut self, init: &QpInit, number: u64, out: &mut Outbox) {
        self.sends.take_current();
        self.responder.drop_current();
        if self.link.is_severed() {
            let at = self.sends.position(number);
            self.fail_request(init, at, Status::LocProtErr, out);
            return;
        }
        self.sends.set_failing(number);
        self.fail_deferred(init, out);
    }

    pub(super) fn fail_deferred(&mut self, init: &QpInit, out: &mut Outbox) {
        self.mark_executed(init);
        if let Some(fault) = self.send_fault() {
            return self.meet_send_fault(init, fault, out);
        }
        let Some(at) = self.sends.failing() else {
            return;
        };
        if self.sends.is_first(at) || self.has_blocked_answers(init) {
            self.sends.clear_failing();
            self.fail_request(init, at, Status::LocProtErr, out);
        }
    }

    /// The request that fails is half sent, so that no answer can be sent; true if the oldest one has waited long enough. If the
    /// peer is in the same state, neither would ever get what it waits for.
    fn has_blocked_answers(&mut self, init: &QpInit) -> bool {
        let stream = self.wire.stream().filter(|s| s.state().is_open());
        let blocked = stream.is_some_and(|s| !s.can_respond());
        let until = self.now + init.transfer.memory_wait;
        blocked && !self.responder.has_begun_all() && !self.responder.waits(until)
    }

    /// The request that found no receive for too long fails, when everything before it has ended.
    fn fail_rnr_exceeded(&mut self, init: &QpInit, out: &mut Outbox) {
        let stream = self.wire.stream().filter(|s| s.state().is_open());
        let refused = stream.and_then(|s| s.accounting().requester.given_up());
        if refused.is_some_and(|n| self.sends.is_front_refused(n)) {
            self.cause.record(FailureKind::RnrExceeded, || {
                "the peer had no receive for too long".to_owned()
            });
            self.fail_request(init, 0, Status::RnrRetryExcErr, out);
        }
    }

    /// A request that cannot even start fails when everything before it has ended, so that it is the first to fail.
    ///
    /// False while it has to wait; nothing behind it starts meanwhile.
    pub(super) fn fail_in_turn(
        &mut self,
        init: &QpInit,
        at: usize,
        status: Status,
        out: &mut Outbox,
    ) -> bool {
        let first = self.sends.is_first(at);
        if first {
            self.fail_request(init, at, status, out);
        }
        first
    }

    /// The request at `at` failed locally: it gets the status, the rest is flushed, the stream ends.
    pub(super) fn fail_request(
        &mut self,
        init: &QpInit,
        at: usize,
        status: Status,
        out: &mut Outbox,
    ) {
        self.mark_executed(init);
        if let Some(wqe) = self.sends.get(at) {
            let (id, op) = (wqe.id, wqe.wc_op());
            self.cause.record(FailureKind::of_status(status), || {
                format!("request {id} ({op:?}) failed: {status:?}")
            });
            self.sends.end(at, status);
        }
        self.abort();
        self.end(init, QpEvent::Failed, out);
    }

    /// A completion was lost: the queue pair fails.
    pub(super) fn fail_cq_overflow(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.state.flushes() {
            return;
        }
        self.mark_executed(init);
        self.cause.record(FailureKind::CqOverflow, || {
            "a completion queue overflowed".to_owned()
        });
        self.fail_fatal(init, out);
    }
}

/// The flush.
impl Inner {
    /// The connection cannot continue, for a reason that is not one request's: it ends with a Terminate.
    pub(super) fn fail_fatal(&mut self, init: &QpInit, out: &mut Outbox) {
        self.abort();
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }

    /// Leaves the working states and flushes everything.
    pub(super) fn end(&mut self, init: &QpInit, event: QpEvent, out: &mut Outbox) {
        if let Some(next) = self.state.next(init.personality, event) {
            self.state = next;
        }
        self.flush(init, out);
    }

    /// Flushes every request that had not succeeded, each queue in posting order.
    pub(super) fn flush(&mut self, init: &QpInit, out: &mut Outbox) {
        // Flushed requests release their memory: frames made of them must not need it any more.
        self.copy_payload(init);
        self.keep_owed_answers();
        self.receive.drop_waits();
        // What was acknowledged just before the end counts, however the bytes were split.
        self.mark_executed(init);
        let (unfinished, failed) = (self.sends.count_unfinished(), self.sends.failed_request());
        if self.cause.complete(self.now, unfinished, failed) {
            out.report_failure(init.number);
        }
        while let Some((wqe, status)) = self.sends.pop_flushed() {
            self.heads.ended(1);
            if trace::is_active() {
                self.trace_ended(init, &wqe, status);
            }
            push_completion(init, &wqe, status, out);
        }
        self.flush_receives(init, out);
    }

    pub(super) fn flush_receives(&mut self, init: &QpInit, out: &mut Outbox) {
        self.heads.show_receives();
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        if let Some(receive) = self.receive.take_claimed() {
            init.recv_cq
                .push(receive_flush(init, receive.id, Status::WrFlushErr), out);
        }
        self.receive.drop_ahead();
        self.drop_relays();
        while let Some(receive) = self
            .receive
            .next_early()
            .or_else(|| self.heads.next_receive())
        {
            init.recv_cq
                .push(receive_flush(init, receive.id, Status::WrFlushErr), out);
        }
        self.receive.leave_srq_waiters(init, out);
        let shared = init.srq.is_some() || init.xrcd.is_some();
        if shared && self.receive.notice_last_wqe() {
            out.push(Event::LastWqe { qp: init.number });
        }
    }

    /// The queue pair is reset or destroyed: a receive that it holds is returned to the shared queue.
    pub(super) fn return_receives(&mut self, init: &QpInit, out: &mut Outbox) {
        self.receive.leave_srq_waiters(init, out);
        self.receive.return_claimed(init, out);
    }
}

/// Whether a request that ended so has a completion.
fn has_entry(flags: Flags, status: Status) -> bool {
    let wants = |flag| flags.contains(flag);
    status != Status::Success || wants(Flags::NOTIFY) || wants(Flags::SIGNALED)
}

/// Pushes the completion of a request, if it has one; false if the queue has no room for it.
fn push_completion(init: &QpInit, wqe: &Wqe, status: Status, out: &mut Outbox) -> bool {
    let notify = wqe.flags.contains(Flags::NOTIFY);
    if status == Status::Success && !notify && !wqe.flags.contains(Flags::SIGNALED) {
        return true;
    }
    let wc = send_wc(init, wqe, status);
    if notify {
        init.send_cq.push_and_notify(wc, out)
    } else {
        init.send_cq.push(wc, out)
    }
}

fn send_wc(init: &QpInit, wqe: &Wqe, status: Status) -> Wc {
    Wc {
        id: wqe.id,
        qpn: init.wc_qpn,
        status,
        op: wqe.wc_op(),
        len: wqe.len,
        ..Wc::default()
    }
}

fn receive_flush(init: &QpInit, id: u64, status: Status) -> Wc {
    Wc {
        id,
        qpn: init.wc_qpn,
        status,
        op: WcOp::Receive,
        ..Wc::default()
    }
}
