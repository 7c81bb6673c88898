//! Notification that some interface of the network namespace has changed. No change after it was opened is missed, and calls do not
//! block. What has changed is not reported: query the interfaces.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::{Capability, Error, Result};
use crate::sys::link_notify;

/// Limit on messages discarded per call; the rest keeps the socket readable.
const BUDGET: usize = 64;

/// Readable when an interface of the network namespace has changed.
#[derive(Debug)]
pub struct LinkWatch {
    fd: OwnedFd,
}

impl LinkWatch {
    /// Watches the interfaces of the thread's network namespace from now on.
    pub fn open() -> Result<LinkWatch> {
        let refused = |errno| Error::of("socket AF_NETLINK", "*", errno, Capability::NetAdmin);
        let fd = link_notify::open().map_err(refused)?;
        Ok(LinkWatch { fd })
    }

    /// An interface has changed since the last call.
    pub fn take_changed(&self) -> Result<bool> {
        let mut changed = false;
        for _ in 0..BUDGET {
            // The content does not matter: reading one byte discards a message.
            match recv(&self.fd, &mut [0u8; 1], RecvFlags::DONTWAIT) {
                // ENOBUFS: notifications were lost, so something has changed.
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::of("recv", "*", errno, Capability::NetAdmin)),
            }
        }
        Ok(changed)
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
