//! Requests that fail locally: in their turn, so that the first failure in posting order is the one reported.
//! Requests executed before have succeeded by then, and none behind starts meanwhile. Failures reported by the peer are in
//! [`super::complete`].

use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::inner::Inner;
use super::wqe::{Progress, Wqe};
use crate::event::Outbox;
use crate::state::QpEvent;
use crate::wc::Status;

impl Inner {
    /// A request that was begun cannot continue, because of its own memory. It fails in its turn, so that it is the first to
    /// fail; it fails out of turn only if the connection is lost, or if the peer has waited too long for an answer behind it.
    pub(super) fn doom(&mut self, init: &QpInit, number: u64, out: &mut Outbox) {
        self.current = None;
        if self.severed {
            let at = number.saturating_sub(self.completed) as usize;
            self.strike(init, at, Status::LocProtErr, out);
            return;
        }
        self.doomed = Some(self.doomed.map_or(number, |n| n.min(number)));
        self.fail_doomed(init, out);
    }

    pub(super) fn fail_doomed(&mut self, init: &QpInit, out: &mut Outbox) {
        self.mark_executed(init);
        let Some(at) = self
            .doomed
            .map(|n| n.saturating_sub(self.completed) as usize)
        else {
            return;
        };
        if self.sends.iter().take(at).all(Wqe::is_done) || self.has_blocked_answers(init) {
            self.doomed = None;
            self.strike(init, at, Status::LocProtErr, out);
        }
    }

    /// The doomed request is half sent, so that no answer can be sent; true if the oldest one has waited long enough. If the
    /// peer is in the same state, neither would ever get what it waits for.
    fn has_blocked_answers(&mut self, init: &QpInit) -> bool {
        let stream = self.stream.as_ref().filter(|s| s.state().is_open());
        let blocked = stream.is_some_and(|s| !s.takes_answers());
        blocked && !self.owed.is_empty() && !self.answer_waits(init)
    }

    /// The request that found no receive for too long fails, when everything before it has ended.
    pub(super) fn give_up(&mut self, init: &QpInit, out: &mut Outbox) {
        let stream = self.stream.as_ref().filter(|s| s.state().is_open());
        let refused = stream.and_then(|s| s.ledger().requester.given_up());
        let (Some(n), Some(front)) = (refused, self.sends.front()) else {
            return;
        };
        if front.is_refused(n) {
            self.cause
                .get_or_insert_with(|| "the peer had no receive for too long".to_owned());
            self.strike(init, 0, Status::RnrRetryExcErr, out);
        }
    }

    /// A request that cannot even start fails when everything before it has ended, so that it is the first to fail.
    ///
    /// False while it has to wait; nothing behind it starts meanwhile.
    pub(super) fn strike_in_turn(
        &mut self,
        init: &QpInit,
        at: usize,
        status: Status,
        out: &mut Outbox,
    ) -> bool {
        let first = self.sends.iter().take(at).all(Wqe::is_done);
        if first {
            self.strike(init, at, status, out);
        }
        first
    }

    /// The request at `at` failed locally: it gets the status, the rest is flushed, the stream ends.
    pub(super) fn strike(&mut self, init: &QpInit, at: usize, status: Status, out: &mut Outbox) {
        self.mark_executed(init);
        if let Some(wqe) = self.sends.get_mut(at) {
            let (id, op) = (wqe.id, wqe.wc_op());
            wqe.progress = Progress::Done(status);
            self.cause
                .get_or_insert_with(|| format!("request {id} ({op:?}) failed: {status:?}"));
        }
        if let Some(stream) = &mut self.stream {
            stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        }
        self.end(init, QpEvent::Failed, out);
    }
}
