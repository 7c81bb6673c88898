//! Waiting of sessions: for completions, first by polling for a short time and then asleep; or for a connection to be established. Returns
//! when something may have happened, when one of the caller's descriptors is readable, or at the timeout. Completions are not consumed.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::low::{Cq, WaitFd};
use verbena::unstable::Backoff;

use crate::error::Error;

#[cfg(test)]
mod tests;

/// Most outstanding requests at which polling is used. With more the target is the bottleneck, and polling would take CPU time from it.
const MAX_POLLED_REQUESTS: usize = 4;

/// Longest adaptive polling: about the cost of a wake-up.
const MAX_POLL_TIME: Duration = Duration::from_micros(50);

/// Whether to poll before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polling {
    /// Always, for this time.
    Fixed(Duration),
    /// Adaptive: as long as polling finds completions.
    Adaptive(Backoff),
}

impl Polling {
    pub(super) fn new(fixed: Option<Duration>) -> Polling {
        fixed.map_or(Polling::Adaptive(Backoff::default()), Polling::Fixed)
    }

    /// How long to poll this time.
    fn time(&mut self) -> Duration {
        match self {
            Polling::Fixed(time) => *time,
            Polling::Adaptive(backoff) if backoff.should_attempt() => MAX_POLL_TIME,
            Polling::Adaptive(backoff) => {
                backoff.skip();
                Duration::ZERO
            }
        }
    }

    /// Records whether polling found a completion.
    fn learn(&mut self, found: bool) {
        if let Polling::Adaptive(backoff) = self {
            backoff.record(found);
        }
    }
}

/// Waits for completions while `requests` are outstanding.
pub(super) fn sleep_poll(
    cq: &Cq,
    polling: &mut Polling,
    requests: usize,
    beside: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<(), Error> {
    if (1..=MAX_POLLED_REQUESTS).contains(&requests) {
        let time = polling.time().min(timeout);
        if !time.is_zero() {
            let found = poll_for(cq, time);
            polling.learn(found);
            if found {
                return Ok(());
            }
        }
    }
    let mut others: Vec<WaitFd<'_>> = beside.iter().map(|fd| WaitFd::read(*fd)).collect();
    Ok(cq.sleep_until_completion(&mut others, timeout)?)
}

/// Polls for a completion; false at the timeout.
fn poll_for(cq: &Cq, time: Duration) -> bool {
    let start = Instant::now();
    loop {
        if cq.peek() {
            return true;
        }
        if start.elapsed() >= time {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Sleeps without a link. `dialled` is writable when the connection is established or has failed.
pub(super) fn sleep_on_fds(
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
