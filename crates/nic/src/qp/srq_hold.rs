//! Receives of a shared queue that this queue pair holds for its peer: what happens when the peer makes no progress.
//! The comparison is in [`super::receive_state`]; here the receive is returned, or the connection ends.

use verbena_stream::Time;
use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::inner::Inner;
use super::receive_state::{HoldCheck, PeerProgress};
use crate::state::QpEvent;
use verbena_events::event::{Event, Outbox};

impl Inner {
    /// Compares the progress for a receive that is held.
    pub(super) fn check_hold(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let works = !self.state.flushes();
        let stream = self.stream.as_ref().filter(|_| works);
        let bytes_in = self.counters.bytes_in;
        match self.receive.check_hold(init, stream, bytes_in, now) {
            None | Some(HoldCheck::Held) => {}
            // The receive of a dropped message (unreliable connections) is returned to the shared queue.
            Some(HoldCheck::Unused) if works => self.receive.return_claimed(init, out),
            Some(HoldCheck::Unused) => {}
            Some(HoldCheck::Expired(before)) => self.fail_hold_expired(init, before, out),
        }
    }

    fn fail_hold_expired(&mut self, init: &QpInit, before: PeerProgress, out: &mut Outbox) {
        let cause = match before {
            PeerProgress::Message(_) => {
                "the peer began a message for a shared receive and did not go on"
            }
            // It is slow, and bytes that it sent before it received READY come first. The receive is returned to the queue.
            PeerProgress::Reserved { bytes_in } if self.counters.bytes_in > bytes_in => {
                return self.receive.leave_srq_waiters(init, out);
            }
            PeerProgress::Reserved { .. } => {
                "the peer was sent READY for a shared receive and did not resume"
            }
            PeerProgress::LocallyBlocked => return,
        };
        let seconds = init.transfer.shared_receive_wait.as_secs_f32();
        self.cause
            .get_or_insert_with(|| format!("{cause} for {seconds} s"));
        if let Some(stream) = &mut self.stream {
            stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        }
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }
}
