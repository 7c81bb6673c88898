//! Readiness of many descriptors (epoll); a poller is a descriptor itself and may be watched by another one.
//! Arming checks again: readiness that arose while a one-shot entry was disarmed is reported after the next arming. Descriptors are named by
//! tokens and not stored; closing one removes it.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use verbena_stream::Time;

use super::fd::Fd;
use super::{Error, Result, cancel, eintr, now};

pub use super::readiness::{Interest, MAX_READY, MAX_SLEEP_READY, Ready, millis};

/// Descriptors beside a poller that [`sleep_until_ready`] watches.
pub const MAX_OTHERS: usize = 8;

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    fd: Fd,
}

impl Poller {
    /// An empty one.
    pub fn new() -> Result<Poller> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::of("epoll_create1"))?;
        Ok(Poller { fd: fd.into() })
    }

    /// Watches `fd` with this token.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.fd, fd, data, flags(interest)).map_err(Error::of("epoll_ctl add"))
    }

    /// Changes the interest in `fd`, or arms it again; existing readiness is reported.
    pub fn arm(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::modify(&self.fd, fd, data, flags(interest)).map_err(Error::of("epoll_ctl modify"))
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.fd, fd).map_err(Error::of("epoll_ctl delete"))
    }

    /// Waits until something is ready and reports up to [`MAX_READY`] entries; none at the timeout.
    /// The kernel counts milliseconds here; a part of one is rounded up.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> Result<()> {
        ready.clear();
        let start = now();
        let mut left = timeout;
        let mut events = [MaybeUninit::uninit(); MAX_READY];
        loop {
            // A timeout too long for the system's type is treated as none.
            let timespec = left.and_then(|left| Timespec::try_from(left).ok());
            match epoll::wait(&self.fd, &mut events, timespec.as_ref()) {
                Ok((events, _)) => {
                    ready.extend(events.iter().map(ready_from_rustix));
                    return Ok(());
                }
                Err(Errno::INTR) => {
                    let spent = now().since(start);
                    left = timeout.map(|timeout| timeout.saturating_sub(spent));
                }
                Err(errno) => return Err(Error::new("epoll_wait", errno)),
            }
        }
    }
}

impl Poller {
    /// Polls without sleeping until something is ready, for at most `limit` and as long as `goes_on` after an empty poll. True if it
    /// reports something.
    pub fn spin(
        &self,
        ready: &mut Vec<Ready>,
        limit: Duration,
        mut goes_on: impl FnMut(Time) -> bool,
    ) -> Result<bool> {
        let end = now() + limit;
        loop {
            self.wait(ready, Some(Duration::ZERO))?;
            if !ready.is_empty() {
                return Ok(true);
            }
            let at = now();
            if at >= end || !goes_on(at) {
                return Ok(false);
            }
            core::hint::spin_loop();
        }
    }
}

/// Sleeps until something is ready on the poller with this descriptor, and reports it.
///
/// A cancellation point of the C library, and with a descriptor number instead of a [`Poller`]: a cancelled thread should own nothing.
/// Signals interrupt it as they do [`wait_with_fds`](super::Channel::wait_with_fds).
pub fn sleep(fd: RawFd, ready: &mut ArrayVec<Ready, MAX_SLEEP_READY>) -> Result<()> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; MAX_SLEEP_READY];
    ready.clear();
    let n = eintr::restart_like_read("epoll_wait", || {
        // SAFETY: `events` has `MAX_SLEEP_READY` entries and outlives the call.
        unsafe { cancel::epoll_wait(fd, events.as_mut_ptr(), MAX_SLEEP_READY as i32, -1) }
    })?;
    ready.extend(events.iter().take(n).map(ready_from_libc));
    Ok(())
}

/// The same with a timeout in milliseconds; false at the timeout or after a signal.
pub fn sleep_for(
    fd: RawFd,
    ready: &mut ArrayVec<Ready, MAX_SLEEP_READY>,
    millis: i32,
) -> Result<bool> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; MAX_SLEEP_READY];
    ready.clear();
    // SAFETY: `events` has `MAX_SLEEP_READY` entries and outlives the call.
    let n = unsafe { cancel::epoll_wait(fd, events.as_mut_ptr(), MAX_SLEEP_READY as i32, millis) };
    let Ok(n) = usize::try_from(n) else {
        return match Error::last("epoll_wait") {
            error if error.code() == Errno::INTR.raw_os_error() => Ok(false),
            error => Err(error),
        };
    };
    ready.extend(events.iter().take(n).map(ready_from_libc));
    Ok(n > 0)
}

/// Sleeps until something is ready on the poller or one of the others can be read, a signal or the timeout. False at the timeout and after a
/// signal; what is ready is not reported.
pub fn sleep_until_ready(poller: &Poller, others: &[BorrowedFd<'_>], limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    // Whatever ended the sleep, the caller checks for itself.
    if others.is_empty() {
        let mut event = [MaybeUninit::uninit(); 1];
        let ready = epoll::wait(&poller.fd, &mut event, limit.as_ref());
        return ready.is_ok_and(|(events, _)| !events.is_empty());
    }
    let all = [poller.as_fd()].into_iter().chain(others.iter().copied());
    let mut fds: ArrayVec<PollFd<'_>, { 1 + MAX_OTHERS }> = all
        .take(1 + MAX_OTHERS)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    poll(&mut fds, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags.set(epoll::EventFlags::ONESHOT, interest.oneshot);
    flags
}

fn ready_from_libc(event: &libc::epoll_event) -> Ready {
    let flags = event.events;
    let has = |flag: libc::c_int| flags & flag as u32 != 0;
    let hangup = has(libc::EPOLLHUP) || has(libc::EPOLLERR);
    Ready {
        token: event.u64,
        readable: hangup || has(libc::EPOLLIN),
        writable: hangup || has(libc::EPOLLOUT),
        hangup,
    }
}

fn ready_from_rustix(event: &epoll::Event) -> Ready {
    // Copied out, since the kernel's structure is packed.
    let (flags, data) = (event.flags, event.data);
    let hangup = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
    Ready {
        token: data.u64(),
        readable: hangup || flags.contains(epoll::EventFlags::IN),
        writable: hangup || flags.contains(epoll::EventFlags::OUT),
        hangup,
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
