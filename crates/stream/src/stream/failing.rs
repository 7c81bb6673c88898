//! How this side ends a stream: which responses are still sent, and the Terminate behind them.
//! The peer can tell which of its requests failed: all before that request are answered and acknowledged first
//! (docs/connections.md), unless an unfinished request of this side or the caller prevents it. The responses come from the caller, which
//! sees by [`Stream::owes_answers`] that they are due.

use verbena_wire::Rsn;
use verbena_wire::rdmap::{Cause, Terminate};

use super::{Event, State, Stream};
use crate::terminate::{Offender, terminate_for};
use crate::violation::Violation;

impl Stream {
    /// Ends the stream because of the segment being received, or of no segment at all.
    ///
    /// Reads and atomics that arrived before it are still to be answered: see [`owes_answers`](Stream::owes_answers).
    pub fn fail(&mut self, violation: Violation) {
        let offender = self.rx.offender();
        let terminate = terminate_for(&violation, offender.as_ref());
        let struck = self.ledger.responder.next();
        self.end_with(violation, terminate, struck);
    }

    /// Ends the stream because of a segment received earlier: answering the oldest unanswered read failed.
    ///
    /// Responses are sent in order, so none is due any more. On a stream that is failing already, the Terminate now reports
    /// this read: the peer attributes it to the first request that it sees neither answered nor acknowledged.
    pub fn fail_for(&mut self, violation: Violation, offender: Option<Offender>) {
        let terminate = terminate_for(&violation, offender.as_ref());
        if self.state == State::Failing {
            self.control.terminate = terminate.or(self.control.terminate.take());
            self.drop_answers();
        } else {
            self.end_with(violation, terminate, self.oldest_undone());
        }
    }

    /// Ends the stream for a local reason that is not a violation; responses that are due are dropped.
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

    /// The stream is failing, and the peer's reads and atomics before the failed request are not all answered.
    ///
    /// While this is true the Terminate waits, and [`poll_control`](Stream::poll_control) may return nothing although it is not
    /// done. The caller must either [`begin`](Stream::begin) the responses in order and send their
    /// [`next_frame`](Stream::next_frame)s as usual, or call [`drop_answers`](Stream::drop_answers). Without either
    /// the stream never reaches [`State::Terminated`], and no Terminate is sent.
    pub fn owes_answers(&self) -> bool {
        self.state == State::Failing && !self.ledger.reads_in.is_empty()
    }

    /// Drops the responses that a failing stream owes: the Terminate is sent next, and the peer attributes it to the oldest of them.
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

    /// Responses can be sent before the Terminate: the first message was sent, and no request of this side has been partly sent.
    ///
    /// docs/extensions.md: only control messages and a Terminate may come between the segments of a message.
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
