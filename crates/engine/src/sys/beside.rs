//! Sleeping on a channel, on descriptors of ours and on a program's own at once.
//! It promises to say which of the program's are ready, and that a signal ends the wait. It refuses to take rings.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::io::Errno;
use smallvec::SmallVec;

use super::{Channel, Error, Result, cancel};

/// A program's own descriptor, for one who sleeps on something else as well.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// It waits for room to write, too.
    pub write: bool,
    /// Trying would not say "nothing": set by the sleeper.
    pub ready: bool,
}

impl<'a> Beside<'a> {
    /// Something to read.
    pub fn read(fd: BorrowedFd<'a>) -> Beside<'a> {
        Beside {
            fd,
            write: false,
            ready: false,
        }
    }
}

/// What ended a wait, apart from the program's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    /// The channel is rung.
    pub rung: bool,
    /// One of ours is ready.
    pub served: bool,
}

/// Waits until the channel is rung, one of `ours` is readable or one of `others` ready, and marks those; `None` if a signal
/// came or the time is over first.
pub fn wait(
    channel: &Channel,
    ours: &[RawFd],
    others: &mut [Beside<'_>],
    timeout: Option<Duration>,
) -> Result<Option<Woken>> {
    let watch = |fd: RawFd, write: bool| libc::pollfd {
        fd,
        events: libc::POLLIN | if write { libc::POLLOUT } else { 0 },
        revents: 0,
    };
    let first = [channel.as_fd().as_raw_fd()];
    let own = first.iter().chain(ours).map(|fd| watch(*fd, false));
    let theirs = others.iter().map(|o| watch(o.fd.as_raw_fd(), o.write));
    let mut all: SmallVec<[libc::pollfd; 8]> = own.chain(theirs).collect();
    // A wait too long for the system's type is one without an end.
    let limit = timeout.and_then(|timeout| {
        Some(libc::timespec {
            tv_sec: timeout.as_secs().try_into().ok()?,
            tv_nsec: timeout.subsec_nanos().into(),
        })
    });
    let limit = limit
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: reads and writes a list of ours, reads a time of ours or none, and no mask.
    let n = unsafe {
        let (list, len) = (all.as_mut_ptr(), all.len() as libc::nfds_t);
        cancel::ppoll(list, len, limit, core::ptr::null())
    };
    let refused = (n < 0).then(|| Error::last("ppoll"));
    let interrupted = refused.filter(|error| error.code() == Errno::INTR.raw_os_error());
    if let Some(error) = refused.filter(|_| interrupted.is_none()) {
        return Err(error);
    }
    let (own, theirs) = all.split_at(1 + ours.len());
    for (other, told) in others.iter_mut().zip(theirs) {
        other.ready = n > 0 && told.revents != 0;
    }
    let ready = |fd: &libc::pollfd| fd.revents != 0;
    Ok((n > 0).then(|| Woken {
        rung: ready(&own[0]),
        served: own[1..].iter().any(ready),
    }))
}

#[cfg(test)]
mod tests;
