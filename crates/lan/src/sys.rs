//! The kernel's network interfaces, call by call: requests to an interface, TAP descriptors, packet sockets, datagrams, link news.
//! It promises error numbers as the kernel gave them, and that no memory is lent to the kernel beyond a call.
//! It refuses to interpret: names, rights and states are for the modules above. The crate's only `unsafe` is here.

#![expect(unsafe_code, reason = "calls that no safe wrapper offers")]

pub(crate) mod fanout;
pub(crate) mod many;
pub(crate) mod news;
pub(crate) mod packet;
pub(crate) mod promiscuity;
pub(crate) mod request;
pub(crate) mod tun;
pub(crate) mod udp;

use rustix::io::Errno;

/// The error number of the call that just returned less than zero.
fn last() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The answer of a call of the C library, which says no with a number below zero.
fn answer(got: libc::c_int) -> Result<libc::c_int, Errno> {
    if got < 0 { Err(last()) } else { Ok(got) }
}
