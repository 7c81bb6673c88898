//! The socket on which the kernel tells that some interface has changed.
//! It promises that a change after it was opened makes it readable.
//! It refuses to read what changed: whoever is told looks himself.

use core::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::answer;

/// A socket for news of all links of this network namespace.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let fd = answer(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the kernel just gave it to us, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a plain C structure, for which zeros are a value.
    let mut at: libc::sockaddr_nl = unsafe { mem::zeroed() };
    at.nl_family = libc::AF_NETLINK as u16;
    at.nl_groups = libc::RTMGRP_LINK as u32;
    let len = mem::size_of_val(&at) as libc::socklen_t;
    // SAFETY: reads so many bytes of the address, which is ours until the call returns.
    answer(unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), len) })?;
    Ok(fd)
}
