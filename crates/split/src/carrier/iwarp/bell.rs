//! What the adapter's threads tell the driver: one descriptor for all of it, and what cannot be polled for.
//! It promises that whoever sleeps on it wakes for everything told since the last [`take`](Bell::take), by one ring.
//! It refuses to wait, since the adapter's threads call it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbena::low::Channel;
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
            state.rung = true;
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
            | Event::LastWqe { .. } => {}
        }
    }

    pub(super) fn is_rung(&self) -> bool {
        self.state().rung
    }

    /// Stops ringing, and appends what was told.
    pub(super) fn take(&self, told: &mut VecDeque<Told>) {
        let mut state = self.state();
        if state.rung {
            state.rung = false;
            self.channel.try_take();
            told.append(&mut state.told);
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
