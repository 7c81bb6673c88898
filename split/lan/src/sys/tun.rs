//! The descriptors of TAP interfaces. They are non-blocking and close on exec.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::check_result;
use super::ifreq::{ifreq_for, ifreq_name};

/// A descriptor that is not attached to an interface yet.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty())
}

/// Attaches it as a queue to the TAP interface with this name or pattern; returns the interface's name.
pub(crate) fn attach(fd: &OwnedFd, name: &str, several: bool) -> Result<String, Errno> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if several {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut request = ifreq_for(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let pointer = &raw mut request;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, the local `request`, during the call only.
    check_result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, pointer) })?;
    Ok(ifreq_name(&request))
}

/// Sets the length of the virtio-net header before each frame.
pub(crate) fn set_header(fd: &OwnedFd, len: usize) -> Result<(), Errno> {
    let len = len as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one `int`, the local `len`, during the call only.
    check_result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) })
        .map(drop)
}

/// Sets the offloads that the reader of this interface takes over.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    let bits = libc::c_ulong::from(bits);
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check_result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, bits) }).map(drop)
}

/// Sets the carrier state.
pub(crate) fn set_carrier(fd: BorrowedFd<'_>, carrier: bool) -> Result<(), Errno> {
    let carrier = libc::c_int::from(carrier);
    let pointer = &raw const carrier;
    // SAFETY: TUNSETCARRIER reads one `int`, the local `carrier`, during the call only.
    check_result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETCARRIER, pointer) }).map(drop)
}
