//! One turn under a queue pair's lock, whatever it is for.
//! Posted requests are taken in before its work, ended ones are completed after it, and the state is published for posting threads.
//! The caller holds the lock.

use verbena_stream::Stream;
use verbena_stream::responder::State as Responding;

use super::QpInit;
use super::inner::Inner;
use super::receive_state::Blocked;
use crate::state::QpState;
use verbena_events::event::Outbox;

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
        self.heads.publish_state(self.state);
        while self.heads.publish_receives_idle(self.receives_idle()) {
            self.take_posted(init, out);
            self.settle(init, out);
            self.heads.publish_state(self.state);
        }
        debug_assert!(self.invariants(), "a part is inconsistent after a turn");
        result
    }

    /// The cursors of every part fit its contents.
    fn invariants(&self) -> bool {
        self.sends.invariants()
            && self.responder.invariants()
            && self.transmit.invariants()
            && self.receive.invariants()
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
        self.stream.as_ref().is_some_and(waits)
    }
}
