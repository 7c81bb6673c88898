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
    wished: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    /// Not requested yet.
    pub fn new() -> std::io::Result<Stop> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wished = AtomicBool::new(false);
        Ok(Stop(Arc::new(Inner { wished, bell })))
    }

    /// Requests the stop.
    pub fn wish(&self) {
        self.0.wished.store(true, Ordering::Release);
        // The eventfd is never read, so it stays readable; a write that fails because the counter is full leaves it readable, too.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Whether a stop was requested.
    pub fn is_wished(&self) -> bool {
        self.0.wished.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}
