//! Faults that the program's tester injects into a queue pair (`verbena faults`): requests and receives that fail with a chosen status, requests
//! that begin late, messages that are refused although receives are posted, and the end of the queue pair. Which fault happens when is
//! decided by the caller. A fault goes the way of the failure that it stands for, and its cause says that it was injected.

use verbena_events::event::Outbox;
use verbena_stream::Time;
use verbena_wire::Srqn;

use super::failure::FailureKind;
use super::inner::Inner;
use super::pending_faults::{Injected, RefuseUntil, Refusing, SendFault};
use super::post::PostError;
use super::wqe::Progress;
use super::{Qp, QpInit};
use crate::state::QpState;
use crate::wc::{Status, Wc, WcOp};
use crate::wr::{ReceiveWr, SendWr};

/// What every cause of an injected failure ends with.
pub const INJECTED: &str = "(injected by verbena faults)";

/// The time between a refusal by [`Qp::refuse_messages`] and the next message that may be refused.
const REFUSAL_PAUSE: core::time::Duration = core::time::Duration::from_millis(1);

impl Qp {
    /// Queues a request to which this happens, as [`queue_send`](Qp::queue_send) or, with a number, [`queue_send_to`](Qp::queue_send_to) does.
    #[cold]
    pub fn queue_faulty_send(
        &self,
        srqn: Option<Srqn>,
        wr: &SendWr<'_>,
        fault: SendFault,
    ) -> Result<(), PostError> {
        let progress = Progress::Injected(fault);
        match srqn {
            None => self.queue_with_progress(wr, progress),
            Some(srqn) => self.queue_to_with_progress(srqn, wr, progress),
        }
    }

    /// Queues a receive that fails with this status when a message takes it, as [`queue_receive`](Qp::queue_receive) does.
    #[cold]
    pub fn queue_faulty_receive(
        &self,
        wr: &ReceiveWr<'_>,
        status: Status,
    ) -> Result<bool, PostError> {
        self.queue_receive_with(wr, Some(status))
    }

    /// The queue pair fails, for this reason. False if it has failed or was never used.
    pub fn kill(&self, why: &str, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, out| {
            if inner.state == QpState::Reset || inner.state.flushes() {
                return false;
            }
            inner.record_injected(|| format!("{why} {INJECTED}"));
            inner.fail_fatal(init, out);
            if !inner.state.flushes() {
                // Not connected: there is no stream to end. Any state can become Err.
                let _ = inner.modify(init, QpState::Err, out);
            }
            true
        })
    }

    /// Its connection is about to end: if the queue pair fails because of that, this is the cause.
    pub fn blame_injected(&self, why: &str, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.record_injected(|| format!("{why} {INJECTED}"));
        });
    }

    /// From now on messages that need a receive of the queue pair's own queue are refused as if none were posted. False if it has
    /// failed or was never used, or refuses them already.
    pub fn refuse_messages(&self, until: RefuseUntil, out: &mut Outbox) -> bool {
        self.run_locked(out, |inner, init, _| {
            let unused = inner.state == QpState::Reset || inner.state.flushes();
            if unused || init.srq.is_some() || !inner.heads.hide_receives() {
                return false;
            }
            let again = None;
            inner.injected().refusing = Some(Refusing { until, again });
            true
        })
    }
}

impl Inner {
    #[cold]
    fn record_injected(&mut self, why: impl FnOnce() -> String) {
        self.cause.record(FailureKind::Injected, why);
    }

    /// Faults were decided that have not happened yet.
    pub(super) fn has_pending_faults(&self) -> bool {
        let pending = |all: &Injected| !all.sends.is_empty() || all.refusing.is_some();
        self.injected.as_deref().is_some_and(pending)
    }

    fn injected(&mut self) -> &mut Injected {
        self.injected.get_or_insert_default()
    }

    /// The request that was queued last has this fault.
    #[cold]
    pub(super) fn begin_send_fault(&mut self, fault: SendFault) {
        let last = self.sends.len().saturating_sub(1);
        self.sends[last].progress = Progress::Waiting { part: 0 };
        let number = self.sends.number(last);
        self.injected().sends.push_back((number, fault));
        self.sends.set_failing(number);
    }

    /// The fault of the request at which the send queue stops, if it stops for a fault.
    pub(super) fn send_fault(&self) -> Option<SendFault> {
        let (number, fault) = self.injected.as_ref()?.sends.front()?;
        let stops = self.sends.failing() == Some(self.sends.position(*number));
        stops.then_some(*fault)
    }

    /// The request whose fault is next has met it; the queue goes on to the next one with a fault.
    fn pass_send_fault(&mut self) {
        let Some(injected) = &mut self.injected else {
            return;
        };
        injected.sends.pop_front();
        let next = injected.sends.front().map(|(number, _)| *number);
        self.sends.clear_failing();
        if let Some(number) = next {
            self.sends.set_failing(number);
        }
    }

    /// A request that had to fail does not: the queue stops at the next fault again.
    pub(super) fn restore_send_fault(&mut self) {
        let next = self.injected.as_ref().and_then(|all| all.sends.front());
        if let Some(number) = next.map(|(number, _)| *number) {
            self.sends.set_failing(number);
        }
    }

    /// The request at which the send queue stops has this fault; it fails if all before it have ended.
    #[cold]
    pub(super) fn meet_send_fault(&mut self, init: &QpInit, fault: SendFault, out: &mut Outbox) {
        let SendFault::Fail(status) = fault else {
            return;
        };
        let Some(at) = self.sends.failing().filter(|at| self.sends.is_first(*at)) else {
            return;
        };
        self.pass_send_fault();
        if let Some((id, op)) = self.sends.get(at).map(|wqe| (wqe.id, wqe.wc_op())) {
            self.record_injected(|| format!("request {id} ({op:?}) failed: {status:?} {INJECTED}"));
        }
        self.fail_request(init, at, status, out);
    }

    /// Ends the faults whose time has passed.
    pub(super) fn handle_injected_timeout(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let is_over = |fault: &SendFault| matches!(fault, SendFault::HoldUntil(t) if *t <= now);
        while self.injected.as_ref().is_some_and(|all| {
            let first = all.sends.front();
            first.is_some_and(|(_, fault)| is_over(fault))
        }) {
            self.pass_send_fault();
        }
        let Some(injected) = &mut self.injected else {
            return;
        };
        let Some(refusing) = &mut injected.refusing else {
            return;
        };
        let ended = match refusing.until {
            RefuseUntil::Count(left) => left == 0,
            RefuseUntil::Time(until) => until <= now,
        };
        let tell = ended || refusing.again.is_some_and(|again| again <= now);
        if ended {
            injected.refusing = None;
            self.heads.show_receives();
        } else if tell {
            refusing.again = None;
        }
        if tell && (self.awaits_receive() || self.heads.has_receive()) {
            self.receive_posted(init, out);
        }
    }

    /// A message found no receive; counted if that was injected.
    pub(super) fn note_refusal(&mut self, now: Time) {
        let Some(refusing) = self.injected.as_mut().and_then(|all| all.refusing.as_mut()) else {
            return;
        };
        if let RefuseUntil::Count(left) = &mut refusing.until {
            *left = left.saturating_sub(1);
        }
        refusing.again.get_or_insert(now + REFUSAL_PAUSE);
    }

    /// A message has taken a receive that fails with this status: it completes. The caller fails the queue pair.
    #[cold]
    pub(super) fn complete_faulty_receive(
        &mut self,
        init: &QpInit,
        id: u64,
        status: Status,
        out: &mut Outbox,
    ) {
        self.record_injected(|| format!("receive {id} failed: {status:?} {INJECTED}"));
        self.receive.unblock();
        let wc = Wc {
            id,
            qpn: init.wc_qpn,
            status,
            op: WcOp::Receive,
            ..Wc::default()
        };
        init.recv_cq.push(wc, out);
    }
}

#[cfg(test)]
mod tests;
