//! A flag that ends a loop and wakes it from its sleep: what Ctrl-C pulls.
//! It promises that a loop that looks after it was pulled sees it, however often it looks.
//! It knows nothing of signals: whoever catches one pulls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::Error;

/// Asks a loop to end. Cloning it gives another handle to the same flag, for the thread that catches the signal.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pulled: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    /// A flag that nobody has pulled.
    pub fn new() -> Result<Stop, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(|e| Error::io("an event descriptor")(e.into()))?;
        Ok(Stop(Arc::new(Inner {
            pulled: AtomicBool::new(false),
            bell,
        })))
    }

    /// Asks the loop to end.
    pub fn pull(&self) {
        self.0.pulled.store(true, Ordering::SeqCst);
        // It fails only when the counter is full, and then the descriptor is readable as well.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Whether it was pulled.
    pub fn pulled(&self) -> bool {
        self.0.pulled.load(Ordering::SeqCst)
    }
}

impl AsFd for Stop {
    /// Readable once it was pulled, and for ever after.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}
