//! Whether an engine accepts work: it may be shut down, have failed, or be a copy in a forked child.
//! The first cause of a failure is kept. Objects that need nothing else of the engine hold this part alone.

use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::OnceLock;

use verbena_nic::QpState;

use crate::error::{EngineFailure, Error};
use crate::sys;

/// The end of an engine, as far as it has come.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// Set once, when the engine is shut down or fails.
    closing: AtomicBool,
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
            closing: AtomicBool::new(false),
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
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses new work from now on; false if it was refused before.
    pub(crate) fn close(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
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
    pub(crate) fn check_posts(&self) -> Result<(), QpState> {
        if self.is_closing() {
            return Err(QpState::Err);
        }
        if self.is_alive() {
            Ok(())
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
