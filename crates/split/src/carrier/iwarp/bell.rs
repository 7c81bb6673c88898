//! Passes events of the adapter's threads to the driver, through one descriptor and a queue. The descriptor is signalled once for all
//! events since the last [`take`](Bell::take). Calls do not block for long: the adapter's threads make them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbena::low::{BareCq, Beside, Channel, Watched};
use verbena::{Error, Event};

use crate::carrier::Pair;

/// An event for the driver.
#[derive(Debug)]
pub(super) enum Told {
    /// The listener may have requests.
    Request,
    /// The result of connecting or accepting.
    Answer(Pair, Result<Vec<u8>, Error>),
    /// An event of the queue pair with this number, or of an earlier one that had it: its state is checked.
    Event(u32),
    /// A request of this pair failed.
    Failed(Pair),
}

/// A descriptor, and the events that it signals.
#[derive(Debug)]
pub(super) struct Bell {
    channel: Channel,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Signalled since the last `take`; further signals are not needed.
    rung: bool,
    /// The signal is still in the channel.
    waits: bool,
    told: VecDeque<Told>,
}

impl Bell {
    pub(super) fn new() -> Result<Bell, Error> {
        Ok(Bell {
            channel: Channel::new()?,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals a completion.
    pub(super) fn ring(&self) {
        self.ring_with(&mut self.state());
    }

    /// Signals under the lock, so that `take` sees the signal and its flag together.
    fn ring_with(&self, state: &mut State) {
        if !state.rung {
            (state.rung, state.waits) = (true, true);
            self.channel.ring();
        }
    }

    pub(super) fn tell(&self, told: Told) {
        let mut state = self.state();
        state.told.push_back(told);
        self.ring_with(&mut state);
    }

    /// Events of queue pairs that may be an end.
    pub(super) fn event(&self, event: Event) {
        match event {
            Event::QpRequest { qp }
            | Event::QpAccess { qp }
            | Event::QpFatal { qp }
            | Event::Disconnected { qp } => self.tell(Told::Event(qp)),
            // There is room for every completion, and nothing is shared or drained.
            Event::Completion { .. }
            | Event::CqOverflow { .. }
            | Event::SrqLimit { .. }
            | Event::Established { .. }
            | Event::SqDrained { .. }
            | Event::LastWqe { .. }
            | Event::Missed { .. } => {}
            // Its queue pairs are flushed, which the completions show.
            Event::DeviceFatal => self.ring(),
        }
    }

    /// Waits until it is signalled, another descriptor is ready or the timeout has passed; meanwhile this thread serves the connections of the
    /// queue.
    pub(super) fn sleep(
        &self,
        cq: &BareCq,
        others: &mut [Beside<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if Watched::wait_beside(&self.channel, || [cq.watched()], others, timeout)? {
            // There is no other signal until the next `take`.
            self.state().waits = false;
        }
        Ok(())
    }

    pub(super) fn is_rung(&self) -> bool {
        self.state().rung
    }

    /// Clears the signal, and appends the events.
    pub(super) fn take(&self, told: &mut VecDeque<Told>) {
        let mut state = self.state();
        if state.rung {
            state.rung = false;
            if core::mem::take(&mut state.waits) {
                self.channel.try_take();
            }
            told.append(&mut state.told);
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
