//! A simulated wake-up counter that can be polled by descriptor or waited for.
//! A plain doorbell is cleared as a whole, a counting one gives one ring to each reader.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::simulated::{Descriptor, Event, Object, block, point, wake, with};
use super::{Error, Result, now};

/// A simulated eventfd.
#[derive(Debug)]
pub struct Doorbell {
    fd: Descriptor,
    counting: bool,
}

impl Doorbell {
    /// A doorbell that is rung or not: a read takes all rings at once.
    pub fn new() -> Result<Doorbell> {
        Doorbell::with(false)
    }

    /// A semaphore: every read takes one ring.
    pub fn counting() -> Result<Doorbell> {
        Doorbell::with(true)
    }

    fn with(counting: bool) -> Result<Doorbell> {
        let fd = Descriptor::new(Object::Event(Event::default()))?;
        Ok(Doorbell { fd, counting })
    }

    /// No other process is simulated.
    pub fn adopt(_: OwnedFd) -> Result<Doorbell> {
        Err(Error::refused())
    }

    /// Only for other processes.
    pub fn duplicate(&self) -> Result<Doorbell> {
        Err(Error::refused())
    }

    /// Rings.
    pub fn ring(&self) {
        point();
        with(|world| {
            if let Some(event) = world.event(self.fd.raw()) {
                event.count += 1;
            }
        });
        wake();
    }

    /// Takes the rings without blocking: all, or one of a counting doorbell; zero if there are none.
    pub fn clear(&self) -> u64 {
        point();
        with(|world| match world.event(self.fd.raw()) {
            Some(event) if self.counting => {
                let taken = event.count.min(1);
                event.count -= taken;
                taken
            }
            Some(event) => core::mem::take(&mut event.count),
            None => 0,
        })
    }

    /// Waits until the doorbell is rung and takes it; false at the timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = timeout.map(|timeout| now() + timeout);
        let fd = self.fd.raw();
        while block("wait for a doorbell", deadline, move |world| {
            world.state(fd).readable
        }) {
            if self.clear() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
