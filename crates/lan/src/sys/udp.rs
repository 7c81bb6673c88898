//! Options of UDP sockets that no safe wrapper offers: joined datagrams, fragments, and the longest packet on a way.
//! It promises error numbers as the kernel gave them.
//! It refuses to decide what to do without an option.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::answer;

fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: libc::c_int) -> Result<(), Errno> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: reads so many bytes of the value, which is ours until the call returns.
    answer(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) }).map(drop)
}

/// Datagrams of one sender and one length may come as one message.
pub(crate) fn join_arrivals(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// What is too long for the way goes in fragments, whatever the kernel has heard about the way.
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
    // A socket of both families keeps both settings.
    let dont = libc::IPV6_PMTUDISC_DONT;
    set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, dont)
}

/// The longest packet on the way to where this socket is connected.
pub(crate) fn path_mtu(fd: BorrowedFd<'_>, v6: bool) -> Result<usize, Errno> {
    let (level, option) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU)
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (to, len) = ((&raw mut mtu).cast(), &raw mut len);
    // SAFETY: writes at most so many bytes, which are ours until the call returns.
    answer(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, to, len) })?;
    Ok(usize::try_from(mtu).unwrap_or(0))
}
