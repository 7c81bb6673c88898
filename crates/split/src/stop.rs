//! The wish that a driver end, from a signal's handler or another thread.
//! It promises that a driver which sleeps is woken.
//! It refuses to be taken back.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// The wish; clones are the same one.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wished: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    /// Nobody wishes it yet.
    pub fn new() -> std::io::Result<Stop> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wished = AtomicBool::new(false);
        Ok(Stop(Arc::new(Inner { wished, bell })))
    }

    /// Wishes it.
    pub fn wish(&self) {
        self.0.wished.store(true, Ordering::Release);
        // It is never read, so it stays readable; a full counter is readable, too.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Somebody wishes it.
    pub fn is_wished(&self) -> bool {
        self.0.wished.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}
