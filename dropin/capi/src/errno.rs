//! Error numbers, returned or left in `errno`, as the C API expects them of each call.
//! An operation that is not supported is `EOPNOTSUPP`; without a better number it is `EINVAL`. The text of an error goes to the log.

use core::ffi::c_int;
use core::ptr;

use verbena::Error;
use verbena::low::PostError;

/// An error number of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const NOMEM: Errno = Errno(libc::ENOMEM);
    pub(crate) const BUSY: Errno = Errno(libc::EBUSY);
    pub(crate) const NOSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub(crate) const NODEV: Errno = Errno(libc::ENODEV);
    pub(crate) const NODATA: Errno = Errno(libc::ENODATA);
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);

    /// `errno` of this thread.
    pub(crate) fn last() -> Errno {
        // SAFETY: `__errno_location` returns this thread's own variable, which is valid for reads.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Stores it in `errno`.
    pub(crate) fn set(self) {
        // SAFETY: `__errno_location` returns this thread's own variable, which is valid for writes; no other thread accesses it.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        use verbena::Fault;
        crate::log::info(|| error.to_string());
        if let Some(code) = error.os_error() {
            return Errno(code);
        }
        match error.fault() {
            Fault::Limit => Errno::NOMEM,
            Fault::System => Errno(libc::EIO),
            Fault::Caller | Fault::Peer if error.is_busy() => Errno::BUSY,
            Fault::Caller if error.is_tls() => Errno::NOSUPP,
            Fault::Peer if error.is_tls() => Errno(libc::EPROTO),
            Fault::Caller | Fault::Peer => Errno::INVAL,
        }
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Errno {
        match error {
            PostError::Full(_) => Errno::NOMEM,
            PostError::Injected(errno) => Errno(errno),
            _ => Errno::INVAL,
        }
    }
}

/// The result of a call that returns a pointer.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// The result of a call that returns the error number.
pub(crate) fn number(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            // Some programs print `errno` although the number is returned.
            errno.set();
            errno.0
        }
    }
}

/// The result of a call that returns -1 and leaves the number in `errno`.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}
