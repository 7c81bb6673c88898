//! How calls fail in C: a number, returned or left in `errno`.
//! It promises the numbers that the original's programs look for, and a sentence in the log where a number says too little.
//! It refuses to invent: what cannot be done is `EOPNOTSUPP`, and what has no better number is `EINVAL`.

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

    /// The one that was left last.
    pub(crate) fn last() -> Errno {
        // SAFETY: the address of this thread's own error number.
        Errno(unsafe { *libc::__errno_location() })
    }

    /// Leaves it where C programs look.
    pub(crate) fn set(self) {
        // SAFETY: the address of this thread's own error number.
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
            _ => Errno::INVAL,
        }
    }
}

/// The answer of a call that returns a pointer.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// The answer of a call that returns the number itself.
pub(crate) fn number(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            // Some programs print this one although they were told.
            errno.set();
            errno.0
        }
    }
}

/// The answer of a call that returns -1 and leaves the number.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}
