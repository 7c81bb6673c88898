//! Readiness of many descriptors at once (epoll); a poller is a descriptor itself and may sit in another one.
//! It promises that arming looks again: whatever became ready while a one-shot entry was spent is reported after the next arming.
//! It refuses to remember descriptors: tokens name them, and closing one removes it.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use arrayvec::ArrayVec;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::fd::Fd;
use super::{Error, Result, cancel, interrupted, now};

/// Most entries that one wait reports; the others are not lost, they come with the next.
pub const MAX_READY: usize = 64;
/// The same for a thread that sleeps.
pub const SOME_READY: usize = 16;

/// What an entry waits for. Broken connections are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Bytes to read, the end of the stream, a connection to accept.
    pub read: bool,
    /// Room to write, or a finished connect.
    pub write: bool,
    /// Reported once, then silent until armed again.
    pub oneshot: bool,
}

impl Interest {
    /// To read, for as long as there is something.
    pub const READ: Interest = Interest {
        read: true,
        write: false,
        oneshot: false,
    };

    /// To read, once.
    pub const READ_ONCE: Interest = Interest {
        oneshot: true,
        ..Interest::READ
    };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags.set(epoll::EventFlags::ONESHOT, self.oneshot);
        flags
    }
}

/// One entry that has something to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The name it was added under.
    pub token: u64,
    /// Reading would not say "nothing": there are bytes, the end, or an error.
    pub readable: bool,
    /// Writing would not say "nothing": there is room, or an error.
    pub writable: bool,
    /// Both directions are over, or the connection broke.
    pub hangup: bool,
}

/// Watches descriptors.
#[derive(Debug)]
pub struct Poller {
    fd: Fd,
}

impl Poller {
    /// Watches nothing yet.
    pub fn new() -> Result<Poller> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::of("epoll_create1"))?;
        Ok(Poller { fd: fd.into() })
    }

    /// Watches `fd` under the name `token`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.fd, fd, data, interest.flags()).map_err(Error::of("epoll_ctl add"))
    }

    /// Changes what `fd` waits for, or arms it again, and looks at it at once.
    pub fn arm(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::modify(&self.fd, fd, data, interest.flags()).map_err(Error::of("epoll_ctl modify"))
    }

    /// Forgets `fd`.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.fd, fd).map_err(Error::of("epoll_ctl delete"))
    }

    /// Waits until something is ready and says what, up to [`MAX_READY`] entries; none if the time is over first.
    /// The system counts milliseconds here; a part of one is rounded up.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> Result<()> {
        ready.clear();
        let start = now();
        let mut left = timeout;
        let mut events = [MaybeUninit::uninit(); MAX_READY];
        loop {
            // A wait too long for the system's type is one without an end.
            let timespec = left.and_then(|left| Timespec::try_from(left).ok());
            match epoll::wait(&self.fd, &mut events, timespec.as_ref()) {
                Ok((events, _)) => {
                    ready.extend(events.iter().map(told));
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

/// Sleeps until something is ready on the poller that has this descriptor, and says what.
///
/// Inside the C library, and with a number instead of a poller: the thread may be cancelled here, and should hold nothing.
/// Signals interrupt it as they do [`wait_beside`](super::Channel::wait_beside).
pub fn sleep(fd: RawFd, ready: &mut ArrayVec<Ready, SOME_READY>) -> Result<()> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; SOME_READY];
    ready.clear();
    let n = interrupted::like_a_read("epoll_wait", || {
        // SAFETY: writes at most as many entries as there are.
        unsafe { cancel::epoll_wait(fd, events.as_mut_ptr(), SOME_READY as i32, -1) }
    })?;
    ready.extend(events.iter().take(n).map(heard));
    Ok(())
}

/// The same for so many milliseconds; false if the time was over first, or a signal came.
pub fn sleep_for(fd: RawFd, ready: &mut ArrayVec<Ready, SOME_READY>, millis: i32) -> Result<bool> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; SOME_READY];
    ready.clear();
    // SAFETY: writes at most as many entries as there are.
    let n = unsafe { cancel::epoll_wait(fd, events.as_mut_ptr(), SOME_READY as i32, millis) };
    let Ok(n) = usize::try_from(n) else {
        return match Error::last("epoll_wait") {
            error if error.code() == Errno::INTR.raw_os_error() => Ok(false),
            error => Err(error),
        };
    };
    ready.extend(events.iter().take(n).map(heard));
    Ok(n > 0)
}

/// Sleeps until something is ready on the poller, a signal comes or the time is over; what it is stays to be asked.
pub fn nap(poller: &Poller, limit: Duration) {
    let mut event = [MaybeUninit::uninit(); 1];
    let limit = Timespec::try_from(limit).ok();
    // Whatever ended it, the caller looks for itself.
    let _ = epoll::wait(&poller.fd, &mut event, limit.as_ref());
}

/// A time as the system's calls count it, rounded up.
pub fn millis(time: Duration) -> i32 {
    let part = time.subsec_nanos().div_ceil(1_000_000);
    let whole = time.as_secs().saturating_mul(1000);
    i32::try_from(whole.saturating_add(part.into())).unwrap_or(i32::MAX)
}

fn heard(event: &libc::epoll_event) -> Ready {
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

fn told(event: &epoll::Event) -> Ready {
    // Copied out, since the kernel's record is packed.
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
