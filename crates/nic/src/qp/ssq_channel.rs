//! A queue pair as a channel of a shared send queue (V6): requests are given to it one by one, past its own send queue.
//! A request is begun, flushed or rejected, and an idle channel keeps no memory for requests.

use verbena_events::event::Outbox;

use super::post::{PostError, check_data};
use super::wqe::Wqe;
use super::{Qp, QpInit};
use crate::wr::SendWr;

/// Progress of a channel: two equal values mean that there was none in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelProgress {
    completed: u64,
    begun: usize,
    accepted: u64,
    /// Bytes of the peer's response; other bytes from the peer are no progress of our requests.
    answered: Option<u64>,
}

impl Qp {
    /// Checks a request for this channel, and copies it.
    pub(crate) fn check_send(&self, wr: &SendWr<'_>) -> Result<Wqe, PostError> {
        let state = self.tails.status.state();
        if !state.takes_sends() {
            return Err(PostError::State(state));
        }
        let len = check_data(&self.init, wr)?;
        Ok(Wqe::new(wr, len))
    }

    /// Gives it a request; false if the state does not allow it, and the request is dropped.
    pub(crate) fn post_from_ssq(&self, wqe: Wqe, out: &mut Outbox) -> bool {
        self.tails.count_send();
        self.run_locked(out, |inner, _: &QpInit, _| inner.accept_from_ssq(wqe))
    }

    /// Everything it was given has been begun, or has ended.
    pub(crate) fn has_begun_all(&self) -> bool {
        self.lock.read(|inner| inner.sends.has_begun_all())
    }

    /// Requests that it has and that have not completed. Completions of all others are in their queue.
    pub(crate) fn outstanding_sends(&self) -> usize {
        self.lock.read(|inner| inner.sends.len())
    }

    /// Its progress; `answers` if its oldest request waits for a response.
    pub(crate) fn progress(&self, answers: bool) -> ChannelProgress {
        self.lock.read(|inner| ChannelProgress {
            completed: inner.sends.completed(),
            begun: inner.sends.begun(),
            accepted: inner.transmit.accepted(),
            answered: answers.then_some(inner.counters.bytes_in),
        })
    }

    /// For tests: requests that it has memory for.
    #[cfg(test)]
    pub(crate) fn send_capacity(&self) -> usize {
        self.lock.read(|inner| inner.sends.capacity())
    }

    /// Frees the memory for requests if it has none.
    pub(crate) fn free_send_memory(&self, out: &mut Outbox) {
        self.run_locked(out, |inner, _, _| {
            inner.sends.free_idle_memory();
        });
    }
}
