//! A wake-up counter (eventfd) that can be polled by descriptor or waited for.
//! Ringing never blocks, and no ring is lost; a plain doorbell is cleared as a whole, a counting one gives one ring to each reader.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr};

use super::fd::Fd;
use super::{Error, Result, cancel, now, poller};

/// An eventfd.
#[derive(Debug)]
pub struct Doorbell {
    fd: Fd,
}

impl Doorbell {
    /// A doorbell that is rung or not: a read takes all rings at once.
    pub fn new() -> Result<Doorbell> {
        Doorbell::with(EventfdFlags::empty())
    }

    /// A semaphore: every read takes one ring. For completion channels, where one ring is one event.
    pub fn counting() -> Result<Doorbell> {
        Doorbell::with(EventfdFlags::SEMAPHORE)
    }

    fn with(flags: EventfdFlags) -> Result<Doorbell> {
        let flags = flags | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let fd = eventfd(0, flags).map_err(Error::of("eventfd"))?;
        Ok(Doorbell { fd: fd.into() })
    }

    /// An eventfd of another process; an error if it is another kind of file, to which a ring would be written as bytes. That process can make
    /// it blocking again and full, and so stop a thread that rings it: only a process that may stop this one anyway is given such trust.
    pub fn adopt(fd: OwnedFd) -> Result<Doorbell> {
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        if !kind.is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]") {
            return Err(Error::new("readlink /proc/self/fd", Errno::INVAL));
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(Error::of("ioctl FIONBIO"))?;
        Ok(Doorbell { fd: fd.into() })
    }

    /// Another descriptor of the same doorbell.
    pub fn duplicate(&self) -> Result<Doorbell> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(Error::of("fcntl"))?;
        Ok(Doorbell { fd: fd.into() })
    }

    /// Rings. At the limit of 2⁶⁴ − 2 unread rings it stays rung, which is all that matters.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // The descriptor is open, so the only possible error is EAGAIN at the limit.
        let _ = retry_on_intr(|| rustix::io::write(&self.fd, &one));
    }

    /// Takes the rings without blocking: all, or one of a counting doorbell; zero if there are none.
    pub fn clear(&self) -> u64 {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(&self.fd, &mut count)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    /// Waits until the doorbell is rung and takes it; false at the timeout.
    ///
    /// A cancellation point on purpose: a program may cancel a thread that waits for an event. No lock may be held.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = timeout.map(|timeout| now() + timeout);
        loop {
            if self.clear() > 0 {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.since(now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            self.sleep(left)?;
        }
    }

    /// Sleeps until the doorbell is rung, the timeout or a signal.
    fn sleep(&self, timeout: Option<Duration>) -> Result<()> {
        let mut doorbell = libc::pollfd {
            fd: self.fd.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up, so that the last millisecond is not spent spinning.
        let millis = timeout.map_or(-1, poller::millis);
        // SAFETY: `doorbell` is one valid `pollfd` on this stack frame, which outlives the call; the count is 1.
        if unsafe { cancel::poll(&raw mut doorbell, 1, millis) } >= 0 {
            return Ok(());
        }
        match Error::last("poll") {
            e if e.code() == Errno::INTR.raw_os_error() => Ok(()),
            e => Err(e),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn plain_doorbell_is_cleared_as_a_whole() {
        let doorbell = Doorbell::new().unwrap();
        assert_eq!(doorbell.clear(), 0);
        doorbell.ring();
        doorbell.ring();
        assert_eq!((doorbell.clear(), doorbell.clear()), (2, 0));
    }

    #[test]
    fn counting_doorbell_gives_each_ring_once() {
        let doorbell = Doorbell::counting().unwrap();
        doorbell.ring();
        doorbell.ring();
        assert_eq!(
            (doorbell.clear(), doorbell.clear(), doorbell.clear()),
            (1, 1, 0)
        );
    }

    #[test]
    fn only_an_eventfd_is_adopted() {
        let doorbell = Doorbell::new().unwrap();
        let adopted = Doorbell::adopt(doorbell.fd.as_fd().try_clone_to_owned().unwrap()).unwrap();
        adopted.ring();
        assert_eq!(doorbell.clear(), 1);
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(Doorbell::adopt(file.into()).is_err());
    }

    #[test]
    fn doorbell_wait_ends_with_ring_or_timeout() {
        let doorbell = Arc::new(Doorbell::counting().unwrap());
        assert!(!doorbell.wait(Some(Duration::ZERO)).unwrap());
        let start = now();
        assert!(!doorbell.wait(Some(Duration::from_millis(5))).unwrap());
        assert!(now().since(start) >= Duration::from_millis(5));
        let ringer = doorbell.clone();
        let waiter = std::thread::spawn(move || doorbell.wait(None));
        ringer.ring();
        assert!(waiter.join().unwrap().unwrap());
    }
}
