//! The end of a peer's stream, whatever the cause: work is flushed once, with the status of the cause.
//! No work is left unfinished after the end. The links are closed by the world when the peer wants it.

use verbena_stream::requester::State as Requesting;
use verbena_stream::stream::State;
use verbena_wire::rdmap::{Cause, RdmapError};

use super::Peer;
use crate::work::{Report, Status};

impl Peer {
    /// Flushes if the stream is over.
    pub(super) fn settle_stream(&mut self) {
        let Some(stream) = self.stream.as_ref().filter(|_| !self.ended) else {
            return;
        };
        if let Some(violation) = stream.cause().copied()
            && !core::mem::replace(&mut self.violation_reported, true)
        {
            self.reports.push(Report::Violation(violation));
        }
        match stream.state() {
            // A failing stream still has responses and its Terminate to send.
            State::Opening | State::Running | State::Ended | State::Failing => {}
            State::Terminated => self.end_all(),
            State::PeerTerminated => {
                // docs/extensions.md: what was acknowledged succeeded, the next request is the one refused.
                let cause = self.reports.iter().rev().find_map(|r| match r {
                    Report::Terminated(cause) => Some(*cause),
                    _ => None,
                });
                let begun = self.begun > 0;
                self.ended = true;
                self.flush(cause.filter(|_| begun).map(Status::Refused));
                self.answers.clear();
            }
        }
    }

    /// RNR retries are exceeded: the request fails, and the stream with it.
    pub(super) fn give_up(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        debug_assert_eq!(stream.accounting().requester.state(), Requesting::GaveUp);
        stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        self.flush(Some(Status::RnrExceeded));
    }

    /// The peer's direction ended.
    pub(super) fn finish(&mut self, reset: bool) {
        let staged = self.stage.len();
        let clean = match &mut self.stream {
            Some(stream) => stream.handle_eof(staged).is_ok(),
            None => false,
        };
        if reset {
            self.outbox.clear();
        }
        self.reports.push(Report::Closed(clean && !reset));
        self.end_all();
    }

    pub(super) fn end_all(&mut self) {
        if !core::mem::replace(&mut self.ended, true) {
            self.flush(None);
            self.answers.clear();
            if let Some(stream) = &mut self.stream {
                stream.drop_responses();
            }
        }
    }
}
