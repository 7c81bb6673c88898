//! One turn at a queue pair's desk, whoever takes it and for whatever.
//! It promises that what was posted before is found, that what has ended is completed, and that posters know how things stand.
//! It refuses to lock; the desk does.

use verbena_stream::Stream;
use verbena_stream::responder::State as Responding;

use super::QpInit;
use super::inner::Inner;
use super::wait::Blocked;
use crate::event::Outbox;
use crate::state::QpState;

impl Inner {
    /// One turn at the desk: finds what was posted, does its work, completes what has ended.
    pub(super) fn turn<R>(
        &mut self,
        init: &QpInit,
        out: &mut Outbox,
        work: impl FnOnce(&mut Inner, &QpInit, &mut Outbox) -> R,
    ) -> R {
        self.absorb(init, out);
        let result = work(self, init, out);
        self.settle(init, out);
        self.heads.tell_state(self.state);
        while self.heads.tell_calm(self.is_calm()) {
            self.absorb(init, out);
            self.settle(init, out);
            self.heads.tell_state(self.state);
        }
        result
    }

    /// A receive that is posted now can wait for a message: none waits for it, and none is flushed.
    fn is_calm(&self) -> bool {
        let works = !self.state.flushes() && self.state != QpState::Reset;
        works && self.blocked.is_none() && !self.refuses_requests()
    }

    /// A message waits for a receive, here or at its sender.
    pub(super) fn awaits_receive(&self) -> bool {
        self.blocked.is_some_and(Blocked::for_receive) || self.refuses_requests()
    }

    /// The peer was told that no receive is there.
    fn refuses_requests(&self) -> bool {
        let waits = |stream: &Stream| stream.ledger().responder.state() == Responding::Waiting;
        self.stream.as_ref().is_some_and(waits)
    }
}
