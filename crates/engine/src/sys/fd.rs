//! An owned descriptor that is closed by the bare system call.
//! The C library's `close` is a point of cancellation, and a thread cancelled there would die holding our locks.
//! It refuses to say whether closing went well: the kernel gives the number up in any case.

use core::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

/// Owns one descriptor.
#[derive(Debug)]
pub(super) struct Fd(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        Fd(ManuallyDrop::new(fd))
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: taken once, because this is the end of `self`.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: the number was ours alone, and nobody can have borrowed it beyond our end.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}
