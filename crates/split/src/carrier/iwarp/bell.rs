//! What the adapter's threads tell the driver: one descriptor for all of it, and what cannot be polled for.
//! It promises that whoever sleeps on it wakes for everything told since the last [`take`](Bell::take), by one ring.
//! It refuses to wait, since the adapter's threads call it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbena::low::{BareCq, Beside, Channel, Watched};
use verbena::{Error, Event};

use crate::carrier::Pair;

/// Something to look at.
#[derive(Debug)]
pub(super) enum Told {
    /// Somebody may wait with the listener.
    Request,
    /// How asking or accepting ended.
    Answer(Pair, Result<Vec<u8>, Error>),
    /// Something happened to the queue pair of this number: perhaps to an earlier one, so it is looked at.
    Event(u32),
    /// A request of this pair failed.
    Failed(Pair),
}

/// A descriptor and what it rings for.
#[derive(Debug)]
pub(super) struct Bell {
    channel: Channel,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// It was rung since the driver last looked; further rings would say nothing new.
    rung: bool,
    /// That ring is in the channel still.
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

    /// There is a completion.
    pub(super) fn ring(&self) {
        self.ring_with(&mut self.state());
    }

    /// Under the lock, so that a ring and its flag are never apart for whoever takes them.
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

    /// What happens to queue pairs, as far as it may be an end.
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
            // Its queue pairs are flushed; the completions say so.
            Event::DeviceFatal => self.ring(),
        }
    }

    /// Sleeps until it is rung, another descriptor is ready or the time is over; whatever the queue's connections need meanwhile
    /// is done by this thread.
    pub(super) fn sleep(
        &self,
        cq: &BareCq,
        others: &mut [Beside<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if Watched::wait_beside(&self.channel, || [cq.watched()], others, timeout)? {
            // It rings no more until somebody looks, so this was the only one.
            self.state().waits = false;
        }
        Ok(())
    }

    pub(super) fn is_rung(&self) -> bool {
        self.state().rung
    }

    /// Stops ringing, and appends what was told.
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
