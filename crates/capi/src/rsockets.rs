//! rsockets for C programs: socket calls with an `r` before them (`man 7 rsocket`, docs/rsockets.md).
//! It promises the numbers, flags and waiting rules of socket calls; a socket's number is a descriptor that nobody else has.
//! It refuses to be a socket for the system: only these calls know what the number means.
//!
//! Reading order: `table` (numbers) → `address` → `life` → `name` → `outgoing`, `incoming` → `ready` → `option` → `mapping`.

mod address;
mod cancel;
mod defaults;
mod incoming;
mod life;
mod mapping;
mod name;
mod option;
mod outgoing;
mod ready;
mod table;

use core::ffi::{c_int, c_void};

use verbena_rsocket::Error;

use crate::errno::Errno;

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(match error {
            Error::WouldBlock => libc::EAGAIN,
            Error::InProgress => libc::EINPROGRESS,
            Error::Already => libc::EALREADY,
            Error::Interrupted => libc::EINTR,
            Error::NotConnected => libc::ENOTCONN,
            Error::Connected => libc::EISCONN,
            Error::Closed => libc::EBADF,
            Error::Refused(_) => libc::ECONNREFUSED,
            Error::Stranger(_) => libc::EPROTO,
            Error::TimedOut => libc::ETIMEDOUT,
            Error::Reset => libc::ECONNRESET,
            Error::Pipe => libc::EPIPE,
            Error::Full { .. } => libc::ENOBUFS,
            Error::Unmapped { .. } => libc::EFAULT,
            Error::Adapter(error) => return error.into(),
            _ => libc::EINVAL,
        })
    }
}

/// The answer of a call that counts bytes.
fn count(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// The answer of a call that returns a number of its own.
fn answer(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// What the C library says.
fn checked(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last())
}

/// The error number that the C library has left.
fn last() -> Errno {
    // SAFETY: the address of this thread's own error number.
    Errno(unsafe { *libc::__errno_location() })
}

/// The program's bytes to send.
///
/// # Safety
/// There are `len` of them, and nobody writes them during the call.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match at {
        _ if len == 0 => Ok(&[]),
        at if at.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: the caller's word.
        at => Ok(unsafe { core::slice::from_raw_parts(at.cast(), len) }),
    }
}

/// The program's room for bytes.
///
/// # Safety
/// There is room for `len` of them, and nobody else uses it during the call.
unsafe fn room<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match at {
        _ if len == 0 => Ok(&mut []),
        at if at.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: the caller's word.
        at => Ok(unsafe { core::slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

#[cfg(test)]
mod tests;
