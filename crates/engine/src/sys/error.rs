//! An error of a system call: the call and its error number.
//! It is small and allocates nothing, since it is made under locks.

use core::fmt;

use rustix::io::Errno;

/// A failed system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    call: &'static str,
    errno: Errno,
}

/// The result of a system call.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// `call` failed with `errno`.
    pub(super) const fn new(call: &'static str, errno: Errno) -> Error {
        Error { call, errno }
    }

    /// `call` failed with the C library's `errno` of this thread.
    #[cfg(not(shuttle))]
    pub(super) fn last(call: &'static str) -> Error {
        let code = std::io::Error::last_os_error().raw_os_error();
        Error::new(call, code.map_or(Errno::IO, Errno::from_raw_os_error))
    }

    /// Adds the name of the call to an error number.
    pub(super) fn of(call: &'static str) -> impl Fn(Errno) -> Error {
        move |errno| Error::new(call, errno)
    }

    /// The adapter has loopback addresses only, and another one was requested.
    pub(crate) const fn not_loopback() -> Error {
        Error::new(
            "bind (the setting `device` names loopback addresses only: listen at one of them, or change it)",
            Errno::ADDRNOTAVAIL,
        )
    }

    /// An XRC domain must be new, and exists (`EINVAL`, as from the kernel).
    pub(crate) const fn xrc_domain_exists() -> Error {
        Error::new(
            "open XRC domain (a process has one of this file, and it must be new)",
            Errno::INVAL,
        )
    }

    /// An XRC domain must exist, and does not (`EAGAIN`, as from the kernel).
    pub(crate) const fn no_xrc_domain() -> Error {
        Error::new(
            "open XRC domain (no process has one of this file)",
            Errno::AGAIN,
        )
    }

    /// An XRC domain has as many processes as it can have.
    pub(crate) const fn xrc_domain_full() -> Error {
        Error::new(
            "open XRC domain (it has as many processes as it can have)",
            Errno::NOSPC,
        )
    }

    /// The peer has no listener at this port.
    pub(crate) const fn refused() -> Error {
        Error::new("connect", Errno::CONNREFUSED)
    }

    /// The connection of a port failed.
    pub(crate) const fn of_line(cause: LineError) -> Error {
        let errno = match cause {
            LineError::Refused => Errno::CONNREFUSED,
            LineError::TimedOut => Errno::TIMEDOUT,
            LineError::Reset => Errno::CONNRESET,
            LineError::NoRoute => Errno::HOSTUNREACH,
            LineError::InUse => Errno::ADDRINUSE,
            LineError::Full => Errno::MFILE,
        };
        Error::new("connect", errno)
    }

    /// The name of the failed call.
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The error number, as in `errno.h`.
    pub const fn code(&self) -> i32 {
        self.errno.raw_os_error()
    }

    /// The address or port is in use.
    pub fn is_in_use(&self) -> bool {
        self.errno == Errno::ADDRINUSE
    }

    /// Out of descriptors, in this process or on this host: can be retried when some were closed.
    #[cfg(test)]
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno, Errno::MFILE | Errno::NFILE)
    }

    /// The connection was refused: can be retried while the peer may still be starting.
    pub fn is_refused(&self) -> bool {
        self.errno == Errno::CONNREFUSED
    }
}

/// Why a connection of a port failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineError {
    /// Nothing listens there.
    Refused,
    /// Nothing answers.
    TimedOut,
    /// The peer has reset it.
    Reset,
    /// No address of the port reaches the peer.
    NoRoute,
    /// The addresses have a connection.
    InUse,
    /// There are as many as there may be.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, std::io::Error::from(self.errno))
    }
}

impl core::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        error.errno.into()
    }
}
