//! A flag that ends a loop and wakes it, for example on SIGINT. Once set it stays set, and its descriptor stays readable. Signals are
//! caught by the caller, which calls [`Stop::request`].

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
    requested: AtomicBool,
    eventfd: OwnedFd,
}

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Result<Stop, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let doorbell = eventfd(0, flags).map_err(|e| Error::io("an event descriptor")(e.into()))?;
        Ok(Stop(Arc::new(Inner {
            requested: AtomicBool::new(false),
            eventfd: doorbell,
        })))
    }

    /// Sets the flag and wakes the loop.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        // Fails only when the counter is at its maximum, and then the descriptor is readable as well.
        let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
    }

    /// Whether it is set.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }
}

impl AsFd for Stop {
    /// Readable once it is set, and from then on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}
