//! How a stream is ended from our side: which answers still leave, and the Terminate behind them.
//! It promises that the peer can tell which of its requests was struck: whatever came before that request is answered
//! and acknowledged first (docs/connections.md), unless the bytes on the wire or our caller forbid it.
//! It refuses to fetch answers: the caller who holds them is told that they are wanted.

use verbena_wire::Rsn;
use verbena_wire::rdmap::{Cause, Terminate};

use super::{Event, State, Stream};
use crate::terminate::{Offender, terminate_for};
use crate::violation::Violation;

impl Stream {
    /// Ends the stream because of the segment being received, or of no segment at all.
    ///
    /// Reads and atomics that came before it are still owed: see [`owes_answers`](Stream::owes_answers).
    pub fn fail(&mut self, violation: Violation) {
        let offender = self.rx.offender();
        let terminate = terminate_for(&violation, offender.as_ref());
        let struck = self.ledger.responder.next();
        self.end_with(violation, terminate, struck);
    }

    /// Ends the stream because of a segment received earlier: the oldest read not yet answered failed while it was.
    ///
    /// Answers go in order, so none is owed any more. On a stream that is failing already, the Terminate now speaks of
    /// this read: the peer blames the first request that it sees neither answered nor acknowledged.
    pub fn fail_for(&mut self, violation: Violation, offender: Option<Offender>) {
        let terminate = terminate_for(&violation, offender.as_ref());
        if self.state == State::Failing {
            self.control.terminate = terminate.or(self.control.terminate.take());
            self.drop_answers();
        } else {
            self.end_with(violation, terminate, self.oldest_undone());
        }
    }

    /// Ends the stream for a reason of our own that no violation describes; answers that are owed are dropped.
    pub fn abort(&mut self, cause: Cause) {
        if self.state.is_open() {
            self.enter(Event::Violation);
            self.control.terminate = Some(Terminate {
                cause,
                segment: None,
            });
        }
        self.drop_answers();
    }

    /// The stream is failing, and the peer's reads and atomics before the struck request are not all answered.
    ///
    /// While this is true the Terminate waits and [`poll_control`](Stream::poll_control) can be empty without being
    /// done. The caller owes one of two things: to [`begin`](Stream::begin) the answers in order and send their
    /// [`next_frame`](Stream::next_frame)s as ever, or to [`drop_answers`](Stream::drop_answers). A caller that does
    /// neither never sees [`State::Terminated`], and its peer never learns why.
    pub fn owes_answers(&self) -> bool {
        self.state == State::Failing && !self.ledger.reads_in.is_empty()
    }

    /// Gives up the answers that a failing stream owes: the Terminate goes at once, and the peer blames the oldest of them.
    ///
    /// Without effect on a stream that is not failing.
    pub fn drop_answers(&mut self) {
        if self.owes_answers() {
            let oldest = self.oldest_undone();
            self.ledger.strike(oldest);
        }
    }

    /// `struck` is the request that ends the stream: neither it nor any later one counts or is answered.
    fn end_with(&mut self, violation: Violation, terminate: Option<Terminate>, struck: Rsn) {
        if !self.state.is_open() {
            return;
        }
        self.cause = Some(violation);
        self.enter(Event::Violation);
        self.ledger.strike(struck);
        if !self.may_answer_first() {
            self.drop_answers();
        }
        self.control.terminate = terminate;
        if self.control.terminate.is_none() {
            self.enter(Event::TerminateSent);
        }
    }

    /// Responses can leave before the Terminate: what opens the stream has left, and no request of ours is cut open.
    ///
    /// docs/extensions.md: only control messages and a Terminate may stand between the segments of a message.
    fn may_answer_first(&mut self) -> bool {
        let opened = self.rtr.is_none() && self.control.caps.is_none();
        opened && self.tx.set_request_aside()
    }

    /// The oldest request that is not executed, or not answered.
    fn oldest_undone(&self) -> Rsn {
        let ledger = &self.ledger;
        ledger.responder.executed(ledger.reads_in.oldest())
    }
}
