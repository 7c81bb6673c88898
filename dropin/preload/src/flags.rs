//! `fcntl` and `ioctl`, whose last argument may be of any type and is passed on unchanged.
//! On an rsocket `fcntl` reads and sets the descriptor and status flags, and `ioctl` knows `FIONBIO`, `FIOCLEX` and
//! `FIONCLEX`; every other request fails with `EINVAL`.

use core::ffi::{c_int, c_long, c_ulong};

use crate::fd_table;
use crate::symbols::{call_next, call_verbena, fail_with};

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if fd_table::is_rsocket(fd) {
        return call_verbena!(rfcntl(fd => c_int, command => c_int, argument => c_long) -> c_int);
    }
    call_next!(fcntl(fd => c_int, command => c_int, argument => c_long) -> c_int)
}

/// As the C library's, for rsockets too.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if fd_table::is_rsocket(fd) {
        return call_verbena!(rfcntl(fd => c_int, command => c_int, argument => c_long) -> c_int);
    }
    call_next!(fcntl64(fd => c_int, command => c_int, argument => c_long) -> c_int)
}

/// As the C library's; on an rsocket it sets `O_NONBLOCK` or the close-on-exec flag, and nothing else.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_int) -> c_int {
    // Close-on-exec is a property of the descriptor, which the kernel has too.
    let of_descriptor = [libc::FIOCLEX as c_ulong, libc::FIONCLEX as c_ulong];
    if !fd_table::is_rsocket(fd) || of_descriptor.contains(&request) {
        return call_next!(ioctl(fd => c_int, request => c_ulong, argument => *mut c_int) -> c_int);
    }
    if request != libc::FIONBIO as c_ulong || argument.is_null() {
        return fail_with(libc::EINVAL);
    }
    // SAFETY: `argument` is not null, and the caller of `ioctl(FIONBIO)` passes a pointer to an `int` that is valid for this call.
    let on = unsafe { *argument } != 0;
    let flag = if on {
        c_long::from(libc::O_NONBLOCK)
    } else {
        0
    };
    call_verbena!(rfcntl(fd => c_int, libc::F_SETFL => c_int, flag => c_long) -> c_int)
}
