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
use crate::event::{Event, Outbox};
use crate::srq::Srq;
use crate::state::QpEvent;

/// How often progress is compared within that time.
const LOOKS: u32 = 4;

/// A receive is held, or was at the last comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    look: Time,
    /// The progress first seen at that time, and unchanged since.
    since: Option<(Time, Mark)>,
}

/// Progress of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// It has sent so much of the message.
    Message(SendProgress),
    /// It was told that a receive is ready, when so many bytes had arrived.
    Promise { bytes_in: u64 },
    /// It cannot continue: this side does not read.
    Ours,
}

impl Mark {
    fn is_progress_from(self, before: Mark) -> bool {
        match (self, before) {
            (Mark::Message(now), Mark::Message(then)) => now.is_beyond(then),
            (Mark::Promise { .. }, Mark::Promise { .. }) => false,
            _ => true,
        }
    }
}

impl Inner {
    /// A message has taken a receive, or may take a reserved one.
    pub(super) fn begin_holding(&mut self, init: &QpInit, now: Time) {
        if init.srq.is_some() && self.holding.is_none() {
            // Compared too early if `now` is old, which is harmless: the time counts from the first comparison.
            self.holding = Some(Holding {
                look: now + interval(init),
                since: None,
            });
        }
    }

    /// Checks whether the shared queue has reserved a receive: it had when it woke this queue pair, which may have left the line since.
    pub(super) fn hold_promise(&mut self, init: &QpInit) {
        let promises = |srq: &Srq| srq.is_promised(init.number);
        self.promised = init.srq.as_deref().is_some_and(promises);
        if self.promised {
            self.holding = None;
            self.begin_holding(init, self.now);
        }
    }

    /// When to compare the peer's progress.
    pub(super) fn holding_ends(&self) -> Option<Time> {
        let holds = |_: &Holding| self.claimed.is_some() || self.promised;
        self.holding.filter(holds).map(|holding| holding.look)
    }

    /// Compares the progress for a receive that is held.
    pub(super) fn holding_passed(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let Some(holding) = self.holding.filter(|holding| now >= holding.look) else {
            return;
        };
        let Some(mark) = self.mark() else {
            self.holding = None;
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
                self.holding_overdue(init, before, out);
            }
            unchanged => {
                let since = unchanged.unwrap_or((now, mark));
                self.holding = Some(Holding {
                    look: (now + interval(init)).min(since.0 + wait),
                    since: Some(since),
                });
            }
        }
    }

    /// `None` if no message of the peer needs what is held.
    fn mark(&self) -> Option<Mark> {
        if self.state.flushes() {
            None
        } else if self.claimed.is_some() {
            let progress = self.stream.as_ref().and_then(Stream::send_progress);
            let message = progress.map(Mark::Message);
            message.map(|mark| {
                if self.blocked.is_some() {
                    Mark::Ours
                } else {
                    mark
                }
            })
        } else {
            let bytes_in = self.counters.bytes_in;
            self.promised.then_some(Mark::Promise { bytes_in })
        }
    }

    fn holding_overdue(&mut self, init: &QpInit, before: Mark, out: &mut Outbox) {
        self.holding = None;
        let cause = match before {
            Mark::Message(_) => "the peer began a message for a shared receive and did not go on",
            // It is slow, and bytes that it sent before it received READY come first. The receive is returned to the queue.
            Mark::Promise { bytes_in } if self.counters.bytes_in > bytes_in => {
                return self.leave_line(init, out);
            }
            Mark::Promise { .. } => {
                "the peer was told that a shared receive is ready and did not resume"
            }
            Mark::Ours => return,
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
    init.transfer.shared_receive_wait / LOOKS
}
