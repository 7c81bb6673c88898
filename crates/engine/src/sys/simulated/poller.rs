//! The simulated epoll: readiness of many descriptors; a poller is a descriptor itself and may be watched by another one.
//! Entries are level-triggered or one-shot; arming checks again. Which entry is reported first is random.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use verbena_stream::Time;

use super::simulated::{Descriptor, Object, block, point, wake, with};
use super::{Error, Result, now};

pub use super::readiness::{Interest, MAX_READY, MAX_SLEEP_READY, Ready, millis};

/// A simulated epoll instance.
#[derive(Debug)]
pub struct Poller {
    fd: Descriptor,
}

impl Poller {
    /// An empty one.
    pub fn new() -> Result<Poller> {
        let fd = Descriptor::new(Object::Poller(Vec::new()))?;
        Ok(Poller { fd })
    }

    fn change(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut super::simulated::World, RawFd) -> core::result::Result<(), Errno>,
    ) -> Result<()> {
        point();
        with(|world| change(world, self.fd.raw())).map_err(Error::of(call))?;
        wake();
        Ok(())
    }

    /// Watches `fd` with this token.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        self.change("epoll_ctl add", |world, poller| {
            world.add_watch(poller, fd, token, interest)
        })
    }

    /// Changes the interest in `fd`, or arms it again; existing readiness is reported.
    pub fn arm(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        self.change("epoll_ctl modify", |world, poller| {
            world.change_watch(poller, fd, token, interest)
        })
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        let fd = fd.as_fd().as_raw_fd();
        self.change("epoll_ctl delete", |world, poller| {
            world.remove_watch(poller, fd)
        })
    }

    /// Waits until something is ready and reports up to [`MAX_READY`] entries; none at the timeout.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> Result<()> {
        ready.clear();
        let deadline = timeout.map(|timeout| now() + timeout);
        wait(self.fd.raw(), deadline, MAX_READY, |one| ready.push(one));
        Ok(())
    }

    /// The same for at most `limit`: time passes here only while threads wait.
    pub fn spin(
        &self,
        ready: &mut Vec<Ready>,
        limit: Duration,
        _: impl FnMut(Time) -> bool,
    ) -> Result<bool> {
        self.wait(ready, Some(limit))?;
        Ok(!ready.is_empty())
    }
}

/// Waits until the poller has something to report, and reports at most `limit` entries.
fn wait(fd: RawFd, deadline: Option<Time>, limit: usize, mut report: impl FnMut(Ready)) -> bool {
    // Another thread may take what made this one wake.
    while block("epoll_wait", deadline, move |world| {
        world.state(fd).readable
    }) {
        let all = with(|world| world.take_ready(fd, limit));
        if !all.is_empty() {
            all.into_iter().for_each(&mut report);
            return true;
        }
    }
    false
}

/// Sleeps until something is ready on the poller with this descriptor, and reports it.
pub fn sleep(fd: RawFd, ready: &mut ArrayVec<Ready, MAX_SLEEP_READY>) -> Result<()> {
    ready.clear();
    wait(fd, None, MAX_SLEEP_READY, |one| ready.push(one));
    Ok(())
}

/// The same with a timeout in milliseconds; false at the timeout.
pub fn sleep_for(
    fd: RawFd,
    ready: &mut ArrayVec<Ready, MAX_SLEEP_READY>,
    millis: i32,
) -> Result<bool> {
    ready.clear();
    let timeout = u64::try_from(millis).ok().map(Duration::from_millis);
    let deadline = timeout.map(|timeout| now() + timeout);
    Ok(wait(fd, deadline, MAX_SLEEP_READY, |one| ready.push(one)))
}

/// Descriptors beside a poller: UDP sockets, which are not simulated.
pub const MAX_OTHERS: usize = 8;

/// Sleeps until something is ready on the poller, or the timeout; takes one entry, which is not reported. False at the timeout.
pub fn sleep_until_ready(poller: &Poller, _: &[BorrowedFd<'_>], limit: Duration) -> bool {
    wait(poller.fd.raw(), Some(now() + limit), 1, drop)
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
