//! The descriptors behind TAP interfaces.
//! It promises descriptors that do not wait and that programs started later do not inherit.
//! It refuses to choose: flags and offloads come from above.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::answer;
use super::request::{name_in, named};

/// A descriptor that belongs to no interface yet.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty())
}

/// Makes it a queue of the TAP interface with this name or pattern; the name that it got.
pub(crate) fn attach(fd: &OwnedFd, name: &str, several: bool) -> Result<String, Errno> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if several {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut request = named(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let pointer = &raw mut request;
    // SAFETY: reads and writes one such structure, which is ours until the call returns.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, pointer) })?;
    Ok(name_in(&request))
}

/// The length of the header before each frame.
pub(crate) fn set_header(fd: &OwnedFd, len: usize) -> Result<(), Errno> {
    let len = len as libc::c_int;
    // SAFETY: reads one integer, which is ours until the call returns.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) }).map(drop)
}

/// What the reader of this interface takes over.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    let bits = libc::c_ulong::from(bits);
    // SAFETY: takes its argument as a number.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, bits) }).map(drop)
}

/// Plugs the cable in, or pulls it.
pub(crate) fn set_carrier(fd: BorrowedFd<'_>, carrier: bool) -> Result<(), Errno> {
    let carrier = libc::c_int::from(carrier);
    let pointer = &raw const carrier;
    // SAFETY: reads one integer, which is ours until the call returns.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETCARRIER, pointer) }).map(drop)
}
