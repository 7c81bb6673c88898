//! Receives of a shared queue that this queue pair holds for its peer: one that a half received message has taken, or one that
//! is reserved and was announced by READY. A peer that makes no progress for
//! [`shared_receive_wait`](super::Transfer::shared_receive_wait) loses the connection, so that it cannot keep the receive from the
//! queue pairs that share the queue.
//!
//! The timer is coarse: progress is compared a few times within that time instead of being recorded with every byte. Only bytes of
//! this message are progress, not other traffic.

use core::time::Duration;

use verbena_stream::{SendProgress, Stream, Time};
use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::inner::Inner;
use crate::srq::Srq;
use crate::state::QpEvent;
use verbena_events::event::{Event, Outbox};

/// How often progress is compared within that time.
const CHECKS_PER_WAIT: u32 = 4;

/// A receive is held, or was at the last comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SrqHold {
    next_check: Time,
    /// The progress first seen at that time, and unchanged since.
    since: Option<(Time, PeerProgress)>,
}

/// Progress of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerProgress {
    /// It has sent so much of the message.
    Message(SendProgress),
    /// It was told that a receive is ready, when so many bytes had arrived.
    Reserved { bytes_in: u64 },
    /// It cannot continue: this side does not read.
    LocallyBlocked,
}

impl PeerProgress {
    fn is_progress_from(self, before: PeerProgress) -> bool {
        match (self, before) {
            (PeerProgress::Message(now), PeerProgress::Message(then)) => now.is_beyond(then),
            (PeerProgress::Reserved { .. }, PeerProgress::Reserved { .. }) => false,
            _ => true,
        }
    }
}

impl Inner {
    /// A message has taken a receive, or may take a reserved one.
    pub(super) fn begin_srq_hold(&mut self, init: &QpInit, now: Time) {
        if init.srq.is_some() && self.srq_hold.is_none() {
            // Compared too early if `now` is old, which is harmless: the time counts from the first comparison.
            self.srq_hold = Some(SrqHold {
                next_check: now + interval(init),
                since: None,
            });
        }
    }

    /// Checks whether the shared queue has reserved a receive: it had when it woke this queue pair, which may have left the line since.
    pub(super) fn hold_reservation(&mut self, init: &QpInit) {
        let promises = |srq: &Srq| srq.has_reservation(init.number);
        self.reserved = init.srq.as_deref().is_some_and(promises);
        if self.reserved {
            self.srq_hold = None;
            self.begin_srq_hold(init, self.now);
        }
    }

    /// When to compare the peer's progress.
    pub(super) fn next_hold_check(&self) -> Option<Time> {
        let holds = |_: &SrqHold| self.claimed.is_some() || self.reserved;
        self.srq_hold
            .filter(holds)
            .map(|holding| holding.next_check)
    }

    /// Compares the progress for a receive that is held.
    pub(super) fn check_hold(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let Some(holding) = self.srq_hold.filter(|holding| now >= holding.next_check) else {
            return;
        };
        let Some(mark) = self.peer_progress() else {
            self.srq_hold = None;
            // The receive of a dropped message (unreliable connections) is returned to the shared queue.
            if !self.state.flushes() {
                self.return_claimed(init, out);
            }
            return;
        };
        let wait = init.transfer.shared_receive_wait;
        let unchanged = holding
            .since
            .filter(|(_, before)| !mark.is_progress_from(*before));
        match unchanged {
            Some((then, before)) if now.since(then) >= wait => {
                self.fail_hold_expired(init, before, out);
            }
            unchanged => {
                let since = unchanged.unwrap_or((now, mark));
                self.srq_hold = Some(SrqHold {
                    next_check: (now + interval(init)).min(since.0 + wait),
                    since: Some(since),
                });
            }
        }
    }

    /// `None` if no message of the peer needs what is held.
    fn peer_progress(&self) -> Option<PeerProgress> {
        if self.state.flushes() {
            None
        } else if self.claimed.is_some() {
            let progress = self.stream.as_ref().and_then(Stream::send_progress);
            let message = progress.map(PeerProgress::Message);
            message.map(|mark| {
                if self.blocked.is_some() {
                    PeerProgress::LocallyBlocked
                } else {
                    mark
                }
            })
        } else {
            let bytes_in = self.counters.bytes_in;
            self.reserved.then_some(PeerProgress::Reserved { bytes_in })
        }
    }

    fn fail_hold_expired(&mut self, init: &QpInit, before: PeerProgress, out: &mut Outbox) {
        self.srq_hold = None;
        let cause = match before {
            PeerProgress::Message(_) => {
                "the peer began a message for a shared receive and did not go on"
            }
            // It is slow, and bytes that it sent before it received READY come first. The receive is returned to the queue.
            PeerProgress::Reserved { bytes_in } if self.counters.bytes_in > bytes_in => {
                return self.leave_srq_waiters(init, out);
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

fn interval(init: &QpInit) -> Duration {
    init.transfer.shared_receive_wait / CHECKS_PER_WAIT
}
