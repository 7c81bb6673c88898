//! Options of UDP sockets that no safe wrapper offers: GRO, fragmentation and the path MTU. Error numbers are returned as the kernel
//! gave them.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::check_result;

fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: libc::c_int) -> Result<(), Errno> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: `value` points to a local `int`, of `len` bytes; the kernel reads it during the call only.
    check_result(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) }).map(drop)
}

/// Turns GRO on: datagrams of one sender and one length may arrive as one message.
pub(crate) fn enable_gro(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Lets the kernel fragment datagrams beyond the path MTU, and turns path MTU discovery off.
pub(crate) fn allow_fragments(fd: BorrowedFd<'_>, v6: bool) -> Result<(), Errno> {
    let v4 = set(
        fd,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DONT,
    );
    if !v6 {
        return v4;
    }
    // A dual-stack socket has both settings.
    let dont = libc::IPV6_PMTUDISC_DONT;
    set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, dont)
}

/// The MTU of the path to the socket's peer.
pub(crate) fn path_mtu(fd: BorrowedFd<'_>, v6: bool) -> Result<usize, Errno> {
    let (level, option) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU)
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (to, len) = ((&raw mut mtu).cast(), &raw mut len);
    // SAFETY: `to` points to the local `mtu` and `len` to its length; the kernel writes at most that many bytes, during the call only.
    check_result(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, to, len) })?;
    Ok(usize::try_from(mtu).unwrap_or(0))
}
