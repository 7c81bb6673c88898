//! Waiting as sessions do: for a completion queue, polling for a moment and then asleep; or for a connection that is to be.
//! It promises to come back when something may have happened, when one of the caller's descriptors is readable, or in time.
//! It refuses to take completions.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::Cq;
use verbena::low::Beside;

use crate::error::Error;

/// Who waits for more than so many requests waits for the target, not for a wake-up: polling would take the processor that it needs.
const FEW: usize = 4;

/// Waits for completions of so many requests; `poll` is how long it polls before it sleeps.
pub(super) fn doze(
    cq: &Cq,
    poll: Duration,
    requests: usize,
    beside: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<(), Error> {
    if requests <= FEW && !poll.is_zero() {
        let end = Instant::now() + poll.min(timeout);
        while Instant::now() < end {
            if cq.peek() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
    }
    let mut others: Vec<Beside<'_>> = beside.iter().map(|fd| Beside::read(*fd)).collect();
    Ok(cq.sleep_until_some(&mut others, timeout)?)
}

/// Sleeps without a link; `dialled` is writable when there is one, or will be none.
pub(super) fn rest(
    beside: &[BorrowedFd<'_>],
    dialled: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> Result<(), Error> {
    let read = beside
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    let write = dialled.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
    let mut fds: Vec<PollFd<'_>> = read.chain(write).collect();
    let limit = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::io("poll")(errno.into())),
    }
}
