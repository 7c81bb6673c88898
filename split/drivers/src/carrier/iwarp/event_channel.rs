//! Passes events of the adapter's threads to the driver, through one descriptor and a queue. The descriptor is signalled once for all
//! events since the last [`take`](EventChannel::take). Calls do not block for long: the adapter's threads make them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbena::Error;
use verbena::events::Event;
use verbena::low::{BareCq, WaitFd};
use verbena::unstable::{Channel, WeakCompletionQueue};

use crate::carrier::Pair;

/// An event for the driver.
#[derive(Debug)]
pub(super) enum AdapterEvent {
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
pub(super) struct EventChannel {
    channel: Channel,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Signalled since the last `take`; further signals are not needed.
    signalled: bool,
    /// The signal is still in the channel.
    signal_pending: bool,
    events: VecDeque<AdapterEvent>,
}

impl EventChannel {
    pub(super) fn new() -> Result<EventChannel, Error> {
        Ok(EventChannel {
            channel: Channel::new()?,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals a completion.
    pub(super) fn signal(&self) {
        self.signal_locked(&mut self.state());
    }

    /// Signals under the lock, so that `take` sees the signal and its flag together.
    fn signal_locked(&self, state: &mut State) {
        if !state.signalled {
            (state.signalled, state.signal_pending) = (true, true);
            self.channel.ring();
        }
    }

    pub(super) fn push(&self, event: AdapterEvent) {
        let mut state = self.state();
        state.events.push_back(event);
        self.signal_locked(&mut state);
    }

    /// Events of queue pairs that may be an end.
    pub(super) fn push_event(&self, event: Event) {
        match event {
            Event::QpRequest { qp }
            | Event::QpAccess { qp }
            | Event::QpFatal { qp }
            | Event::Disconnected { qp } => self.push(AdapterEvent::Event(qp)),
            // There is room for every completion, and nothing is shared or drained.
            Event::Completion { .. }
            | Event::CqOverflow { .. }
            | Event::SrqLimit { .. }
            | Event::SrqError { .. }
            | Event::Established { .. }
            | Event::SqDrained { .. }
            | Event::LastWqe { .. }
            | Event::PortActive { .. }
            | Event::PortError { .. }
            | Event::Channel { .. }
            | Event::Missed { .. } => {}
            // Its queue pairs are flushed, which the completions show.
            Event::DeviceFatal => self.signal(),
        }
    }

    /// Waits until it is signalled, another descriptor is ready or the timeout has passed; meanwhile this thread serves the connections of the
    /// queue.
    pub(super) fn sleep(
        &self,
        cq: &BareCq,
        others: &mut [WaitFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if WeakCompletionQueue::wait_with_fds(&self.channel, || [cq.downgrade()], others, timeout)?
        {
            // There is no other signal until the next `take`.
            self.state().signal_pending = false;
        }
        Ok(())
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.state().signalled
    }

    /// Clears the signal, and appends the events.
    pub(super) fn take(&self, events: &mut VecDeque<AdapterEvent>) {
        let mut state = self.state();
        if state.signalled {
            state.signalled = false;
            if core::mem::take(&mut state.signal_pending) {
                self.channel.try_take();
            }
            events.append(&mut state.events);
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
