//! Creation and end of rsockets: `socket`, `accept`, `close`, and calls that would duplicate one. Only TCP sockets become rsockets.
//! Duplicating one, adding it to an epoll instance and `sendfile` fail.

use core::ffi::{c_int, c_long, c_void};

use libc::{off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::fd_table;
use crate::symbols::{call_next, call_verbena, fail_with};

/// Flags in the type argument.
const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

pub(crate) fn is_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !FLAGS == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP)
}

/// Registers a new rsocket.
fn register_rsocket(fd: c_int) -> c_int {
    if fd >= 0 && !fd_table::add(fd) {
        call_verbena!(rclose(fd => c_int) -> c_int);
        return fail_with(libc::EMFILE);
    }
    fd
}

/// As the C library's, but TCP sockets are rsockets.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if is_tcp(domain, kind, protocol) {
        return register_rsocket(
            call_verbena!(rsocket(domain => c_int, kind => c_int, protocol => c_int) -> c_int),
        );
    }
    call_next!(socket(domain => c_int, kind => c_int, protocol => c_int) -> c_int)
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    if fd_table::is_rsocket(fd) {
        return register_rsocket(
            call_verbena!(raccept(fd => c_int, addr => *mut sockaddr, len => *mut socklen_t) -> c_int),
        );
    }
    call_next!(accept(fd => c_int, addr => *mut sockaddr, len => *mut socklen_t) -> c_int)
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !fd_table::is_rsocket(fd) {
        return call_next!(accept4(fd => c_int, addr => *mut sockaddr, len => *mut socklen_t, flags => c_int) -> c_int);
    }
    // SAFETY: the caller of `accept4` guarantees the contract of `accept` for `addr` and `len`, which are passed on unchanged.
    let made = unsafe { accept(fd, addr, len) };
    if made >= 0 {
        for (flag, command, value) in [
            (libc::SOCK_NONBLOCK, libc::F_SETFL, libc::O_NONBLOCK),
            (libc::SOCK_CLOEXEC, libc::F_SETFD, libc::FD_CLOEXEC),
        ] {
            if flags & flag != 0 {
                let value = c_long::from(value);
                call_verbena!(rfcntl(made => c_int, command => c_int, value => c_long) -> c_int);
            }
        }
    }
    made
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    // Removed before the descriptor is closed: its number may be reused at once, for something else than an rsocket.
    if fd_table::remove(fd) {
        return call_verbena!(rclose(fd => c_int) -> c_int);
    }
    call_next!(close(fd => c_int) -> c_int)
}

/// As the C library's; an rsocket cannot be duplicated.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if fd_table::is_rsocket(fd) {
        return fail_with(libc::EOPNOTSUPP);
    }
    call_next!(dup(fd => c_int) -> c_int)
}

/// As the C library's; an rsocket cannot be duplicated, and one that is replaced is closed.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd_table::is_rsocket(fd) {
        return if fd == to {
            fd
        } else {
            fail_with(libc::EOPNOTSUPP)
        };
    }
    if fd_table::is_rsocket(to) {
        // SAFETY: `close` takes an integer; `dup2` closes `to` by contract.
        unsafe { close(to) };
    }
    call_next!(dup2(fd => c_int, to => c_int) -> c_int)
}

/// As the C library's; an rsocket cannot be added to an epoll instance.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut c_void,
) -> c_int {
    if fd_table::is_rsocket(fd) {
        return fail_with(libc::EPERM);
    }
    call_next!(epoll_ctl(epoll => c_int, op => c_int, fd => c_int, event => *mut c_void) -> c_int)
}

/// As the C library's; fails with `EINVAL` on an rsocket, upon which programs fall back to `read` and `write`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    at: *mut off_t,
    len: size_t,
) -> ssize_t {
    if fd_table::is_rsocket(to) || fd_table::is_rsocket(from) {
        return fail_with(libc::EINVAL) as ssize_t;
    }
    call_next!(sendfile(to => c_int, from => c_int, at => *mut off_t, len => size_t) -> ssize_t)
}
