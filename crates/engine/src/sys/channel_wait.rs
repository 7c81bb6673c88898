//! Waits on a channel, on the adapter's descriptors and on the program's own at once.
//! It marks which of the program's descriptors are ready; a signal ends the wait. Rings of the channel are not taken.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::io::Errno;
use smallvec::SmallVec;

use super::{Channel, Error, Result, cancel};

pub use super::readiness::{WaitFd, Woken};

/// Waits until the channel is rung, one of `ours` is readable or one of `others` ready, and marks those; `None` after a signal
/// or at the timeout.
pub fn wait(
    channel: &Channel,
    ours: &[RawFd],
    others: &mut [WaitFd<'_>],
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
    // A timeout too long for the system's type is treated as none.
    let limit = timeout.and_then(|timeout| {
        Some(libc::timespec {
            tv_sec: timeout.as_secs().try_into().ok()?,
            tv_nsec: timeout.subsec_nanos().into(),
        })
    });
    let limit = limit
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `list` and `len` describe the vector `all`, which outlives the call and is not accessed meanwhile; `limit` is null or points
    // to the `timespec` above; a null mask leaves the signal mask as it is.
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
    for (other, polled) in others.iter_mut().zip(theirs) {
        other.ready = n > 0 && polled.revents != 0;
    }
    let ready = |fd: &libc::pollfd| fd.revents != 0;
    Ok((n > 0).then(|| Woken {
        rung: ready(&own[0]),
        adapter_ready: own[1..].iter().any(ready),
    }))
}

#[cfg(test)]
mod tests;
