//! rsockets for C programs: socket calls with the prefix `r` (`man 7 rsocket`, docs/rsockets.md).
//! Error numbers, flags and blocking behaviour are those of socket calls. The number of a stream socket is a descriptor of this process that
//! is used for nothing else; the system's own socket calls do not work on it.
//!
//! Reading order: `table` (numbers) → `address` → `lifecycle` → `name` → `pieces`, `outgoing`, `incoming` → `ready` → `option` → `mapping`.

/// `pass_on!(cancel::recv(socket, buf, len, how))`: the call of the C library for a socket that is not a stream socket of this library. As the macros of
/// `caller`, it compiles only inside an `unsafe fn`.
///
/// # Safety
/// The function around it has the signature of the function of the C library that it calls, and passes its arguments on unchanged: its caller guarantees
/// what `man 2` of that function requires of the pointers, until it returns.
macro_rules! pass_on {
    ($($function:ident)::+($($arg:ident),*)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let result = $($function)::+($($arg),*);
        result
    }};
}

mod address;
mod cancel;
mod defaults;
mod incoming;
mod lifecycle;
mod mapping;
mod name;
mod option;
mod outgoing;
mod pieces;
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
            Error::WrongProtocol(_) => libc::EPROTO,
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

/// The result of a call that counts bytes.
fn size_result(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// The result of a call that returns an `int`.
fn int_result(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// The result of a call of the C library.
fn checked(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// Bytes of the program to send.
///
/// # Safety
/// `at` is null or points to `len` bytes that are valid for reads and not written during the call.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match at {
        _ if len == 0 => Ok(&[]),
        at if at.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: `at` is not null, so the caller guarantees `len` bytes.
        at => Ok(unsafe { core::slice::from_raw_parts(at.cast(), len) }),
    }
}

/// A buffer of the program to receive into.
///
/// # Safety
/// `at` is null or points to `len` bytes that are valid for writes and not used otherwise during the call.
unsafe fn buffer<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match at {
        _ if len == 0 => Ok(&mut []),
        at if at.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: `at` is not null, so the caller guarantees exclusive access to `len` bytes.
        at => Ok(unsafe { core::slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

#[cfg(test)]
mod tests;
