//! Requests that fail locally: in their turn, so that the first failure in posting order is the one reported.
//! Requests executed before have succeeded by then, and none behind starts meanwhile. Failures reported by the peer are in
//! [`super::complete`].

use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::inner::Inner;
use crate::state::QpEvent;
use crate::wc::Status;
use verbena_events::event::Outbox;

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
        let Some(at) = self.sends.failing() else {
            return;
        };
        if self.sends.is_first(at) || self.has_blocked_answers(init) {
            self.sends.clear_failing();
            self.fail_request(init, at, Status::LocProtErr, out);
        }
    }

    /// The doomed request is half sent, so that no answer can be sent; true if the oldest one has waited long enough. If the
    /// peer is in the same state, neither would ever get what it waits for.
    fn has_blocked_answers(&mut self, init: &QpInit) -> bool {
        let stream = self.stream.as_ref().filter(|s| s.state().is_open());
        let blocked = stream.is_some_and(|s| !s.can_respond());
        let until = self.now + init.transfer.memory_wait;
        blocked && !self.responder.has_begun_all() && !self.responder.waits(until)
    }

    /// The request that found no receive for too long fails, when everything before it has ended.
    pub(super) fn fail_rnr_exceeded(&mut self, init: &QpInit, out: &mut Outbox) {
        let stream = self.stream.as_ref().filter(|s| s.state().is_open());
        let refused = stream.and_then(|s| s.accounting().requester.given_up());
        if refused.is_some_and(|n| self.sends.is_front_refused(n)) {
            self.cause
                .get_or_insert_with(|| "the peer had no receive for too long".to_owned());
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
            self.cause
                .get_or_insert_with(|| format!("request {id} ({op:?}) failed: {status:?}"));
            self.sends.end(at, status);
        }
        if let Some(stream) = &mut self.stream {
            stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        }
        self.end(init, QpEvent::Failed, out);
    }
}
