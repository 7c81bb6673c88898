//! Whether an engine accepts work: it may be shut down, have failed, or be a copy in a forked child.
//! The first cause of a failure is kept. Objects that need nothing else of the engine hold this part alone.

use verbena_sync::atomic::{AtomicBool, AtomicU8, Ordering};
use verbena_sync::locks::OnceLock;

use verbena_nic::QpState;

use crate::error::{EngineFailure, Error};
use crate::sys;

/// Set once, when the engine is shut down or fails.
const CLOSING: u8 = 1;
/// Faults for tests are set.
const FAULTS: u8 = 2;

/// What a post finds at the gate of an engine that accepts posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Nothing.
    Open,
    /// Faults are set, which the post must be shown to.
    Faults,
}

/// The end of an engine, as far as it has come.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// What posts must look at: [`CLOSING`] and [`FAULTS`]. One word, so that a post of a working engine tests it once.
    gate: AtomicU8,
    /// Why the engine failed.
    failure: OnceLock<Box<EngineFailure>>,
    /// `DeviceFatal` was raised, and waiting calls were woken.
    waits_ended: AtomicBool,
    /// Number of forks before the engine was made; identifies its process.
    forks: u64,
}

impl Lifecycle {
    pub(crate) fn new() -> Lifecycle {
        Lifecycle {
            gate: AtomicU8::new(0),
            failure: OnceLock::new(),
            waits_ended: AtomicBool::new(false),
            forks: sys::watch_forks(),
        }
    }

    /// False in a forked child of the process that made the engine: its threads do not exist there, a lock may be held by one of them
    /// forever, and the descriptors are closed. No other state may be used then.
    pub(crate) fn is_alive(&self) -> bool {
        sys::fork_count() == self.forks
    }

    /// New work is refused (N8).
    pub(crate) fn is_closing(&self) -> bool {
        self.gate.load(Ordering::Acquire) & CLOSING != 0
    }

    /// Faults for tests are set.
    pub(crate) fn has_faults(&self) -> bool {
        self.gate.load(Ordering::Acquire) & FAULTS != 0
    }

    /// Whether posts are shown to faults from now on.
    pub(crate) fn set_faults(&self, set: bool) {
        if set {
            self.gate.fetch_or(FAULTS, Ordering::AcqRel);
        } else {
            self.gate.fetch_and(!FAULTS, Ordering::AcqRel);
        }
    }

    /// Refuses new work from now on; false if it was refused before.
    pub(crate) fn close(&self) -> bool {
        self.gate.fetch_or(CLOSING, Ordering::AcqRel) & CLOSING == 0
    }

    /// An error if the engine does not accept new work, or this is a forked child.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.is_alive() {
            return Err(Error::Closed);
        }
        if self.is_closing() {
            return Err(self.closed_error());
        }
        Ok(())
    }

    /// An error with the state to report for the queue pairs if posts are not accepted: Err when closing, Reset in a forked child.
    #[inline]
    pub(crate) fn check_posts(&self) -> Result<Gate, QpState> {
        let found = match self.gate.load(Ordering::Acquire) {
            0 => Gate::Open,
            gate if gate & CLOSING != 0 => return Err(QpState::Err),
            _ => Gate::Faults,
        };
        if self.is_alive() {
            Ok(found)
        } else {
            Err(QpState::Reset)
        }
    }

    /// Records the failure; false if there was one before.
    pub(crate) fn set_failure(&self, why: EngineFailure) -> bool {
        self.failure.set(Box::new(why)).is_ok()
    }

    /// Why the engine failed, if it did.
    pub(crate) fn failure(&self) -> Option<&EngineFailure> {
        self.failure.get().map(|why| &**why)
    }

    /// The error for calls after the end: the failure, or closed.
    pub(crate) fn closed_error(&self) -> Error {
        match self.failure.get() {
            Some(why) => Error::Failed(why.clone()),
            None => Error::Closed,
        }
    }

    /// No notification follows; true for the first call.
    pub(crate) fn end_waits(&self) -> bool {
        !self.waits_ended.swap(true, Ordering::AcqRel)
    }

    /// No notification follows.
    pub(crate) fn waits_ended(&self) -> bool {
        self.waits_ended.load(Ordering::Acquire)
    }
}
