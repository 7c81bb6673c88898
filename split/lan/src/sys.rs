//! Thin wrappers of system calls on network interfaces: ioctls, TAP descriptors, packet sockets, datagrams, netlink. Error numbers are
//! returned as the kernel gave them, and no memory is passed to the kernel beyond a call. The crate's only `unsafe` code is here.

#![expect(unsafe_code, reason = "calls that no safe wrapper offers")]

pub(crate) mod fanout;
pub(crate) mod ifreq;
pub(crate) mod link_notify;
pub(crate) mod mmsg;
pub(crate) mod packet;
pub(crate) mod promiscuity;
pub(crate) mod tun;
pub(crate) mod udp;

use rustix::io::Errno;

/// The error number of the call that just returned less than zero.
fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The result of a C library call that reports an error by a negative number.
fn check_result(got: libc::c_int) -> Result<libc::c_int, Errno> {
    if got < 0 { Err(last_errno()) } else { Ok(got) }
}
