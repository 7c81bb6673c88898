//! Where a driver waits: until a descriptor is ready or a moment has come.
//! It promises to be back by that moment, and to say which descriptors are ready.
//! It refuses to do anything else.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::carrier::{Carrier, Sleeper};

/// Never longer than this, so that nothing is overlooked for good.
const LONGEST: Duration = Duration::from_secs(1);

/// Sleeps on the carriers' descriptors and these others.
pub(crate) fn sleep<'a>(
    carriers: impl Iterator<Item = &'a dyn Carrier>,
    others: impl Iterator<Item = BorrowedFd<'a>>,
    until: Option<Instant>,
) -> std::io::Result<()> {
    let mut on: Vec<Sleeper<'a>> = Vec::with_capacity(8);
    for carrier in carriers {
        carrier.sleepers(&mut on);
    }
    on.extend(others.map(|fd| Sleeper { fd, write: false }));
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(on.len());
    for sleeper in &on {
        let flags = if sleeper.write {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        fds.push(PollFd::from_borrowed_fd(sleeper.fd, flags));
    }
    let wait = until.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
    let wait = wait.min(LONGEST);
    let wait = Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    match poll(&mut fds, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
