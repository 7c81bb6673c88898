//! Calls with one descriptor that have the same meaning for an rsocket, as a table. For any other descriptor all arguments are passed to
//! the C library unchanged.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::fd_table;
use crate::symbols::{call_next, call_verbena};

/// Defines functions: the C library's name, the arguments behind the descriptor, the result, and Verbena's name.
macro_rules! define_socket_calls {
    ($( $name:ident($( $arg:ident: $ty:ty ),*) -> $ret:ty = $own:ident; )+) => {
        $(
            /// As the C library's, for rsockets too.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(fd: c_int $( , $arg: $ty )*) -> $ret {
                if fd_table::is_rsocket(fd) {
                    call_verbena!($own(fd => c_int $( , $arg => $ty )*) -> $ret)
                } else {
                    call_next!($name(fd => c_int $( , $arg => $ty )*) -> $ret)
                }
            }
        )+
    };
}

define_socket_calls! {
    bind(addr: *const sockaddr, len: socklen_t) -> c_int = rbind;
    listen(backlog: c_int) -> c_int = rlisten;
    connect(addr: *const sockaddr, len: socklen_t) -> c_int = rconnect;
    shutdown(how: c_int) -> c_int = rshutdown;
    getpeername(addr: *mut sockaddr, len: *mut socklen_t) -> c_int = rgetpeername;
    getsockname(addr: *mut sockaddr, len: *mut socklen_t) -> c_int = rgetsockname;
    getsockopt(level: c_int, name: c_int, at: *mut c_void, len: *mut socklen_t) -> c_int = rgetsockopt;
    setsockopt(level: c_int, name: c_int, at: *const c_void, len: socklen_t) -> c_int = rsetsockopt;
    send(buf: *const c_void, len: size_t, flags: c_int) -> ssize_t = rsend;
    sendto(buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addrlen: socklen_t) -> ssize_t = rsendto;
    sendmsg(msg: *const msghdr, flags: c_int) -> ssize_t = rsendmsg;
    write(buf: *const c_void, len: size_t) -> ssize_t = rwrite;
    writev(iov: *const iovec, count: c_int) -> ssize_t = rwritev;
    recv(buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t = rrecv;
    recvfrom(buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> ssize_t = rrecvfrom;
    recvmsg(msg: *mut msghdr, flags: c_int) -> ssize_t = rrecvmsg;
    read(buf: *mut c_void, len: size_t) -> ssize_t = rread;
    readv(iov: *const iovec, count: c_int) -> ssize_t = rreadv;
}

/// Aborts a program that is about to write beyond its buffer, as the C library does.
fn check_fortified(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: `abort` has no preconditions.
        unsafe { libc::abort() }
    }
}

/// The variant of `read` in programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check_fortified(len, room);
    // SAFETY: the caller guarantees that `buf` is writable for `room` bytes, and `check_fortified` has returned, so `len` is not more.
    unsafe { read(fd, buf, len) }
}

/// The variant of `recv` in programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check_fortified(len, room);
    // SAFETY: the caller guarantees that `buf` is writable for `room` bytes, and `check_fortified` has returned, so `len` is not more.
    unsafe { recv(fd, buf, len, flags) }
}

/// The variant of `recvfrom` in programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    check_fortified(len, room);
    // SAFETY: the caller guarantees that `buf` is writable for `room` bytes, and `check_fortified` has returned, so `len` is not more; `addr` and
    // `addrlen` are passed on unchanged under the same contract.
    unsafe { recvfrom(fd, buf, len, flags, addr, addrlen) }
}
