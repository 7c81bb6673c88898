//! From `rsocket` to `rclose`.
//! `rclose` frees the descriptor at once; bytes that were sent before are transmitted in the background. It refuses families and types that
//! are not IPv4 or IPv6, stream or datagram.

use core::ffi::c_int;

use libc::{sockaddr, socklen_t};
use verbena_rsocket::{Half, Stream};

use super::cancel;
use super::table::Entry;
use super::{address, answer, checked, defaults, table};
use crate::errno::{Errno, minus_one};
use crate::home::home;

/// Makes a socket.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsocket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    answer(make(domain, kind, protocol))
}

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    if domain != libc::AF_INET && domain != libc::AF_INET6 {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            let home = home()?;
            let stream = Stream::with(&home.net, defaults::options());
            stream.set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
            table::add(home, stream, domain, kind & libc::SOCK_CLOEXEC != 0)
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            // SAFETY: makes a descriptor.
            let made = unsafe { libc::socket(domain, kind, protocol) };
            let number = checked(made as isize)? as c_int;
            table::add_datagram(number);
            Ok(number)
        }
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => Err(Errno(libc::EPROTONOSUPPORT)),
        _ => Err(Errno(libc::ESOCKTNOSUPPORT)),
    }
}

/// Takes an address.
///
/// # Safety
/// `addr` begins `addrlen` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rbind(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    answer(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the program's word.
            own.stream.bind(unsafe { address::read(addr, addrlen) }?)?;
            Ok(0)
        }
        Entry::Datagram => {
            // SAFETY: the program's word, to the C library.
            let done = unsafe { libc::bind(socket, addr, addrlen) };
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// Listens.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rlisten(socket: c_int, backlog: c_int) -> c_int {
    minus_one(table::stream(socket).and_then(|own| {
        // As the system: less than nothing is a lot.
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        Ok(own.stream.listen(backlog.min(4096))?)
    }))
}

/// The next connection, and who it is.
///
/// # Safety
/// `addr` and `addrlen` are null or the program's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    answer(table::stream(socket).and_then(|own| {
        let stream = own.stream.accept()?;
        if let Ok(peer) = stream.peer() {
            // SAFETY: the program's word.
            unsafe { address::write(peer, own.family, addr, addrlen) }?;
        }
        table::add(own.home.clone(), stream, own.family, false)
    }))
}

/// Connects.
///
/// # Safety
/// `addr` begins `addrlen` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rconnect(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    answer(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the program's word.
            let address = unsafe { address::read(addr, addrlen) }?;
            own.stream.connect(address)?;
            Ok(0)
        }
        Entry::Datagram => {
            // SAFETY: the program's word, to the C library.
            let done = unsafe { cancel::connect(socket, addr, addrlen) };
            Ok(checked(done as isize)? as c_int)
        }
    }))
}

/// Ends one half of a connection, or both.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rshutdown(socket: c_int, how: c_int) -> c_int {
    answer(table::get(socket).and_then(|entry| match entry {
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
        // SAFETY: ends a half of a socket of ours.
        Entry::Datagram => Ok(checked(unsafe { libc::shutdown(socket, how) } as isize)? as c_int),
    }))
}

/// Closes a socket; what was sent still reaches the peer. Waits only where `SO_LINGER` says so.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rclose(socket: c_int) -> c_int {
    answer(table::remove(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            own.stream.close_keeping(Some(own.home.clone()));
            Ok(0)
        }
        // SAFETY: the descriptor is the socket's own.
        Entry::Datagram => Ok(checked(unsafe { cancel::close(socket) } as isize)? as c_int),
    }))
}
