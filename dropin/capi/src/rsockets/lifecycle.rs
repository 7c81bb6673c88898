//! From `rsocket` to `rclose`. `rclose` frees the descriptor at once; bytes that were sent before are transmitted in the background.
//! Sockets are IPv4 or IPv6, stream or datagram; other families and types are refused as by `socket`.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use verbena_rsocket::{Half, Stream};

use super::cancel;
use super::table::Entry;
use super::{address, checked, defaults, int_result, table};
use crate::errno::{Errno, minus_one};
use crate::function::first_function;

/// Creates a socket.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsocket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    int_result(make(domain, kind, protocol))
}

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    if domain != libc::AF_INET && domain != libc::AF_INET6 {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            let function = first_function()?;
            let stream = Stream::with(&function.net, defaults::options());
            stream.set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
            table::add(function, stream, domain, kind & libc::SOCK_CLOEXEC != 0)
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            // SAFETY: `socket` takes integers and has no preconditions.
            let made = unsafe { libc::socket(domain, kind, protocol) };
            let number = checked(made as isize)? as c_int;
            table::add_datagram(number);
            Ok(number)
        }
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => Err(Errno(libc::EPROTONOSUPPORT)),
        _ => Err(Errno(libc::ESOCKTNOSUPPORT)),
    }
}

/// Binds an address.
///
/// # Safety
/// `addr` points to `addrlen` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rbind(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the caller guarantees a socket address of `addrlen` bytes at `addr`.
            own.stream.bind(unsafe { address::read(addr, addrlen) }?)?;
            Ok(0)
        }
        Entry::Datagram => {
            let done = pass_on!(libc::bind(socket, addr, addrlen));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// Listens.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rlisten(socket: c_int, backlog: c_int) -> c_int {
    minus_one(table::stream(socket).and_then(|own| {
        // As for the system's sockets, a negative backlog means a large one.
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        Ok(own.stream.listen(backlog.min(4096))?)
    }))
}

/// Accepts a connection, and writes the peer's address.
///
/// # Safety
/// `addr` and `addrlen` are null or valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    int_result(table::stream(socket).and_then(|own| {
        let stream = own.stream.accept()?;
        if let Ok(peer) = stream.peer_addr() {
            // SAFETY: the caller guarantees that `addrlen` is null or valid, and that `addr` is null or has room for `*addrlen` bytes.
            unsafe { address::write(peer, own.family, addr, addrlen) }?;
        }
        table::add(own.function.clone(), stream, own.family, false)
    }))
}

/// Connects.
///
/// # Safety
/// `addr` points to `addrlen` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rconnect(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the caller guarantees a socket address of `addrlen` bytes at `addr`.
            let address = unsafe { address::read(addr, addrlen) }?;
            own.stream.connect(address)?;
            Ok(0)
        }
        Entry::Datagram => {
            let done = pass_on!(cancel::connect(socket, addr, addrlen));
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// Shuts down one direction of a connection, or both.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rshutdown(socket: c_int, how: c_int) -> c_int {
    int_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let half = match how {
                libc::SHUT_RD => Half::Read,
                libc::SHUT_WR => Half::Write,
                libc::SHUT_RDWR => Half::Both,
                _ => return Err(Errno::INVAL),
            };
            own.stream.shutdown(half)?;
            Ok(0)
        }
        // SAFETY: `shutdown` takes integers and has no preconditions.
        Entry::Datagram => Ok(checked(unsafe { libc::shutdown(socket, how) } as isize)? as c_int),
    }))
}

/// Closes a socket; bytes that were sent before still reach the peer. Waits only if `SO_LINGER` is set.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rclose(socket: c_int) -> c_int {
    int_result(table::remove(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            own.stream.close_keeping(Some(own.function.clone()));
            Ok(0)
        }
        // SAFETY: the descriptor belongs to the socket that was just removed from the table.
        Entry::Datagram => Ok(checked(unsafe { cancel::close(socket) } as isize)? as c_int),
    }))
}
