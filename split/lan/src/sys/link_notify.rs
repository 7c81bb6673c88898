//! A netlink socket for link notifications (`RTMGRP_LINK`). Any change of an interface after it was opened makes it readable; the
//! messages are not parsed.

use core::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::check_result;

/// A socket for notifications of all links of the calling thread's network namespace.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only.
    let fd = check_result(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: `socket` has just returned this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: `sockaddr_nl` is a C structure of integers, for which zeros are valid.
    let mut at: libc::sockaddr_nl = unsafe { mem::zeroed() };
    at.nl_family = libc::AF_NETLINK as u16;
    at.nl_groups = libc::RTMGRP_LINK as u32;
    let len = mem::size_of_val(&at) as libc::socklen_t;
    // SAFETY: the pointer is to the local `at`, of `len` bytes; the kernel reads it during the call only.
    check_result(unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), len) })?;
    Ok(fd)
}
