//! The addresses of both ends of a socket, in the form of the socket's family.
//! A socket without a local address has the wildcard address; one without a peer fails with `ENOTCONN`.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use verbena_rsocket::Error;

use super::table::Entry;
use super::{address, checked, int_result, table};

/// The peer's address.
///
/// # Safety
/// `addr` and `addrlen` are valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let peer = own.stream.peer_addr()?;
            // SAFETY: the caller guarantees that `addrlen` is null or valid, and that `addr` is null or has room for `*addrlen` bytes.
            unsafe { address::write(peer, own.family, addr, addrlen) }?;
            Ok(0)
        }
        Entry::Datagram => {
            let done = pass_on!(libc::getpeername(socket, addr, addrlen));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// The local address.
///
/// # Safety
/// `addr` and `addrlen` are valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let local = match own.stream.local_addr() {
                Err(Error::NotConnected) => address::unspecified(own.family),
                local => local?,
            };
            // SAFETY: the caller guarantees that `addrlen` is null or valid, and that `addr` is null or has room for `*addrlen` bytes.
            unsafe { address::write(local, own.family, addr, addrlen) }?;
            Ok(0)
        }
        Entry::Datagram => {
            let done = pass_on!(libc::getsockname(socket, addr, addrlen));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}
