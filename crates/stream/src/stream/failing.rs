//! How a stream is ended from our side: for a violation of the peer's, or for a reason of our own.
//! It promises one Terminate, the first cause.
//! It refuses to send it: that is the transmit half's.

use verbena_wire::rdmap::{Cause, Terminate};

use super::{Event, Stream};
use crate::terminate::{Offender, terminate_for};
use crate::violation::Violation;

impl Stream {
    /// Ends the stream because of the segment being received, or of no segment at all.
    pub fn fail(&mut self, violation: Violation) {
        let offender = self.rx.offender();
        self.fail_for(violation, offender);
    }

    /// Ends the stream because of a segment received earlier: a read that failed while it was answered.
    pub fn fail_for(&mut self, violation: Violation, offender: Option<Offender>) {
        let terminate = terminate_for(&violation, offender.as_ref());
        self.end_with(violation, terminate);
    }

    /// Ends the stream for a reason of our own that no violation describes.
    pub fn abort(&mut self, cause: Cause) {
        if self.state.is_open() {
            self.enter(Event::Violation);
            self.control.terminate = Some(Terminate {
                cause,
                segment: None,
            });
        }
    }

    fn end_with(&mut self, violation: Violation, terminate: Option<Terminate>) {
        if !self.state.is_open() {
            return;
        }
        self.cause = Some(violation);
        self.enter(Event::Violation);
        self.control.terminate = terminate;
        if self.control.terminate.is_none() {
            self.enter(Event::TerminateSent);
        }
    }
}
