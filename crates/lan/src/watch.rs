//! News of links: something about some interface has changed, so look again.
//! It promises that no change after it was opened goes unnoticed, and not to wait.
//! It refuses to say what changed: an interface is asked for that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::{Capability, Error, Result};
use crate::sys::news;

/// Messages that are thrown away at once; the rest keeps the socket readable.
const BUDGET: usize = 64;

/// Readable when an interface of the network namespace has changed.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// Watches the interfaces of the thread's network namespace from now on.
    pub fn open() -> Result<Watch> {
        let refused = |errno| Error::of("socket AF_NETLINK", "*", errno, Capability::NetAdmin);
        let fd = news::open().map_err(refused)?;
        Ok(Watch { fd })
    }

    /// Something has changed since the last question.
    pub fn changed(&self) -> Result<bool> {
        let mut changed = false;
        for _ in 0..BUDGET {
            // The messages are not read: a byte of each is enough to be rid of it.
            match recv(&self.fd, &mut [0u8; 1], RecvFlags::DONTWAIT) {
                // More news than room for it is news.
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::of("recv", "*", errno, Capability::NetAdmin)),
            }
        }
        Ok(changed)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
