//! Readiness of descriptors as a poller takes and reports it, for the kernel's poller and the simulated one.
//! Tokens are chosen by the caller and have no meaning here.

use core::time::Duration;
use std::os::fd::BorrowedFd;

/// Most entries that one wait reports; the others come with the next.
pub const MAX_READY: usize = 64;
/// The same for [`sleep`](super::poller::sleep) and [`sleep_for`](super::poller::sleep_for).
pub const MAX_SLEEP_READY: usize = 16;

/// The readiness that an entry waits for. Broken connections are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Bytes to read, the end of the stream, a connection to accept.
    pub read: bool,
    /// Room to write, or a finished connect.
    pub write: bool,
    /// Reported once, then disarmed until armed again.
    pub oneshot: bool,
}

impl Interest {
    /// Input, level-triggered.
    pub const READ: Interest = Interest {
        read: true,
        write: false,
        oneshot: false,
    };

    /// Input, once.
    pub const READ_ONCE: Interest = Interest {
        oneshot: true,
        ..Interest::READ
    };
}

/// A ready entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token it was added with.
    pub token: u64,
    /// A read would not return EAGAIN: there are bytes, the end, or an error.
    pub readable: bool,
    /// A write would not return EAGAIN: there is room, or an error.
    pub writable: bool,
    /// Both directions are over, or the connection broke.
    pub hangup: bool,
}

/// A duration in milliseconds for system calls, rounded up.
pub fn millis(time: Duration) -> i32 {
    let part = time.subsec_nanos().div_ceil(1_000_000);
    let whole = time.as_secs().saturating_mul(1000);
    i32::try_from(whole.saturating_add(part.into())).unwrap_or(i32::MAX)
}

/// A program's descriptor that a wait includes.
#[derive(Debug, Clone, Copy)]
pub struct WaitFd<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wait for room to write, too.
    pub write: bool,
    /// Set by the wait: a read or write would not return EAGAIN.
    pub ready: bool,
}

impl<'a> WaitFd<'a> {
    /// Waits for input.
    pub fn read(fd: BorrowedFd<'a>) -> WaitFd<'a> {
        WaitFd {
            fd,
            write: false,
            ready: false,
        }
    }
}

/// What ended a wait, apart from the program's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    /// The channel has a ring.
    pub rung: bool,
    /// One of the adapter's descriptors is ready.
    pub adapter_ready: bool,
}
