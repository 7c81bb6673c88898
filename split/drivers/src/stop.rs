//! A request that a driver end, from a signal handler or another thread. A sleeping driver is woken through an eventfd, and a request
//! cannot be withdrawn.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// The request; clones share it.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requested: AtomicBool,
    eventfd: OwnedFd,
}

impl Stop {
    /// Not requested yet.
    pub fn new() -> std::io::Result<Stop> {
        let event_channel = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wished = AtomicBool::new(false);
        Ok(Stop(Arc::new(Inner {
            requested: wished,
            eventfd: event_channel,
        })))
    }

    /// Requests the stop.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
        // The eventfd is never read, so it stays readable; a write that fails because the counter is full leaves it readable, too.
        let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}
