//! Who is at either end of a socket.
//! It promises an address in the form of the socket's family. It refuses to make up a peer.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use verbena_rsocket::Error;

use super::table::Entry;
use super::{address, answer, checked, table};

/// The peer's address.
///
/// # Safety
/// `addr` and `addrlen` are the program's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    answer(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let peer = own.stream.peer()?;
            // SAFETY: the program's word.
            unsafe { address::write(peer, own.family, addr, addrlen) }?;
            Ok(0)
        }
        Entry::Datagram => {
            // SAFETY: the program's word, to the C library.
            let done = unsafe { libc::getpeername(socket, addr, addrlen) };
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// Our address.
///
/// # Safety
/// `addr` and `addrlen` are the program's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    answer(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let local = match own.stream.local() {
                Err(Error::NotConnected) => address::none(own.family),
                local => local?,
            };
            // SAFETY: the program's word.
            unsafe { address::write(local, own.family, addr, addrlen) }?;
            Ok(0)
        }
        Entry::Datagram => {
            // SAFETY: the program's word, to the C library.
            let done = unsafe { libc::getsockname(socket, addr, addrlen) };
            Ok(checked(done as isize)? as c_int)
        }
    }))
}
