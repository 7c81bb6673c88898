//! Owns a descriptor of the simulated system.
//! Each has a real eventfd of its own, which is never read or written: its number names the descriptor, so that code which borrows or compares
//! descriptors works as with real ones.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

use super::waiting::{point, wake};
use super::world::{Id, Object, try_with, with};
use crate::sys::fd::Fd;
use crate::sys::{Error, Result};

/// A descriptor.
#[derive(Debug)]
pub(in crate::sys) struct Descriptor {
    fd: Fd,
}

impl Descriptor {
    /// A descriptor of a new object.
    pub(in crate::sys) fn new(object: Object) -> Result<Descriptor> {
        let id = with(|world| world.add(object));
        Descriptor::of(id)
    }

    /// Another descriptor of an object.
    pub(in crate::sys) fn of(id: Id) -> Result<Descriptor> {
        point();
        let fd = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::of("eventfd"))?;
        let fd = Fd::from(fd);
        with(|world| world.open(fd.as_fd().as_raw_fd(), id));
        Ok(Descriptor { fd })
    }

    /// A duplicate.
    pub(in crate::sys) fn duplicate(&self) -> Result<Descriptor> {
        match with(|world| world.id(self.raw())) {
            Some(id) => Descriptor::of(id),
            None => Err(Error::new("fcntl", rustix::io::Errno::BADF)),
        }
    }

    /// Its number.
    pub(in crate::sys) fn raw(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let fd = self.raw();
        // After a panic shuttle may be gone, so that no thread can be suspended or woken.
        if std::thread::panicking() {
            try_with(|world| world.close(fd));
            return;
        }
        point();
        with(|world| world.close(fd));
        wake();
    }
}
