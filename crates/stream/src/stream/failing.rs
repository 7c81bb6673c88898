//! How this side ends a stream: which responses are still sent, and the Terminate behind them.
//! The peer can tell which of its requests failed: all before that request are answered and acknowledged first
//! (docs/connections.md), unless an unfinished request of this side or the caller prevents it. The responses come from the caller, which
//! sees by [`Stream::owes_responses`] that they are due.

use verbena_wire::Rsn;
use verbena_wire::rdmap::{Cause, Terminate};

use super::{Event, State, Stream};
use crate::terminate::{Offender, terminate_for};
use crate::violation::Violation;

impl Stream {
    /// Ends the stream because of the segment being received, or of no segment at all.
    ///
    /// Reads and atomics that arrived before it are still to be answered: see [`owes_responses`](Stream::owes_responses).
    pub fn fail(&mut self, violation: Violation) {
        let offender = self.rx.offender();
        let terminate = terminate_for(&violation, offender.as_ref());
        let struck = self.accounting.responder.next();
        self.end_with(violation, terminate, struck);
    }

    /// Ends the stream because of a segment that arrived ahead of a gap. What was delivered is answered first, as after
    /// [`fail`](Stream::fail).
    pub fn fail_ahead(&mut self, violation: Violation, offender: Option<Offender>) {
        let terminate = terminate_for(&violation, offender.as_ref());
        let struck = self.accounting.responder.next();
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
            self.drop_responses();
        } else {
            self.end_with(violation, terminate, self.oldest_unexecuted());
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
        self.drop_responses();
    }

    /// The stream is failing, and the peer's reads and atomics before the failed request are not all answered.
    ///
    /// While this is true the Terminate waits, and [`poll_control`](Stream::poll_control) may return nothing although it is not
    /// done. The caller must either [`begin`](Stream::begin) the responses in order and send their
    /// [`next_frame`](Stream::next_frame)s as usual, or call [`drop_responses`](Stream::drop_responses). Without either
    /// the stream never reaches [`State::Terminated`], and no Terminate is sent.
    pub fn owes_responses(&self) -> bool {
        self.state == State::Failing && !self.accounting.reads_in.is_empty()
    }

    /// Drops the responses that a failing stream owes: the Terminate is sent next, and the peer attributes it to the oldest of them.
    ///
    /// Without effect on a stream that is not failing.
    pub fn drop_responses(&mut self) {
        if self.owes_responses() {
            let oldest = self.oldest_unexecuted();
            self.accounting.fail_from(oldest);
        }
    }

    /// `struck` is the request that ends the stream: neither it nor any later one counts or is answered.
    fn end_with(&mut self, violation: Violation, terminate: Option<Terminate>, failed: Rsn) {
        if !self.state.is_open() {
            return;
        }
        self.cause = Some(violation);
        self.enter(Event::Violation);
        self.accounting.fail_from(failed);
        if !self.can_respond_first() {
            self.drop_responses();
        }
        self.control.terminate = terminate;
        if self.control.terminate.is_none() {
            self.enter(Event::TerminateSent);
        }
    }

    /// Responses can be sent before the Terminate: the first message was sent, and no request of this side has been partly sent.
    ///
    /// docs/extensions.md: only control messages and a Terminate may come between the segments of a message.
    fn can_respond_first(&mut self) -> bool {
        let opened = self.rtr.is_none() && self.control.caps.is_none();
        opened && self.tx.abandon_if_unsent()
    }

    /// The oldest request that is not executed, or not answered.
    fn oldest_unexecuted(&self) -> Rsn {
        let accounting = &self.accounting;
        accounting.responder.executed(accounting.reads_in.oldest())
    }
}
