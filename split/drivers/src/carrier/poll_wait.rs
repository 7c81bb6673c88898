//! `poll` for carriers that make no progress while they sleep. It marks which of the other descriptors are ready. A signal ends the wait
//! without an error.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{CarrierFd, WaitFd};

/// Waits until a descriptor is ready, or the timeout has passed.
pub(crate) fn poll(
    own: &[CarrierFd<'_>],
    others: &mut [WaitFd<'_>],
    timeout: Option<Duration>,
) -> std::io::Result<()> {
    let flags = |write| match write {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let mine = own.iter().map(|one| (one.fd, one.write));
    let theirs = others.iter().map(|one| (one.fd, one.write));
    let mut fds: Vec<PollFd<'_>> = mine
        .chain(theirs)
        .map(|(fd, write)| PollFd::from_borrowed_fd(fd, flags(write)))
        .collect();
    // A timeout too long for the system's type is none.
    let limit = timeout.and_then(|limit| Timespec::try_from(limit).ok());
    let found = match rustix::event::poll(&mut fds, limit.as_ref()) {
        Ok(found) => found,
        Err(Errno::INTR) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let watched = fds.iter().skip(own.len());
    let ready: Vec<bool> = watched
        .map(|fd| found > 0 && !fd.revents().is_empty())
        .collect();
    for (other, ready) in others.iter_mut().zip(ready) {
        other.ready = ready;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
