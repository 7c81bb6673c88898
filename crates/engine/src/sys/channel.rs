//! The descriptor of a completion or event channel: one ring is one event, and the program may do with it what it likes.
//! It promises that taking waits or not as the descriptor's own flags say, because programs set `O_NONBLOCK` on it themselves
//! and expect "try again" from then on; so it is born without that flag, unlike a [`super::Bell`].
//! It refuses to hide that a signal came: programs rely on being told.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};

use smallvec::SmallVec;

use super::fd::Fd;
use super::{Error, Result};

/// A channel's descriptor.
#[derive(Debug)]
pub struct Channel {
    fd: Fd,
}

impl Channel {
    /// Nothing rung yet.
    pub fn new() -> Result<Channel> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        let fd = eventfd(0, flags).map_err(Error::of("eventfd"))?;
        Ok(Channel { fd: fd.into() })
    }

    /// Rings once more. Does not wait: there is room for 2⁶⁴ − 2 events, and the queue behind them is shorter.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // The descriptor is ours and open; there is nothing else to refuse.
        let _ = retry_on_intr(|| rustix::io::write(&self.fd, &one));
    }

    /// Takes one ring, waiting for it unless the descriptor says otherwise; false if it does and there is none.
    ///
    /// Waits inside the C library, on purpose: a program may cancel a thread that asks for an event. No lock may be held.
    pub fn take(&self) -> Result<bool> {
        let mut count = 0_u64;
        let fd = self.fd.as_fd().as_raw_fd();
        // SAFETY: writes up to eight bytes to a number of ours.
        let n = unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
        if n >= 0 {
            return Ok(true);
        }
        match Error::last("read") {
            e if e.code() == Errno::AGAIN.raw_os_error() => Ok(false),
            e => Err(e),
        }
    }

    /// Taking waits for a ring: the program has not asked for the contrary.
    pub fn waits(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
    }

    /// Waits until there is a ring, or one of these descriptors is readable; true in the first case.
    ///
    /// Waits inside the C library as [`take`](Channel::take) does. A signal interrupts it where it would interrupt a read:
    /// the system never goes on waiting here by itself, so this does, if the program wants it for all its handlers.
    pub fn wait_beside(&self, others: &[RawFd]) -> Result<bool> {
        let watch = |fd: RawFd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let all = core::iter::once(self.fd.as_fd().as_raw_fd()).chain(others.iter().copied());
        let mut all: SmallVec<[libc::pollfd; 8]> = all.map(watch).collect();
        loop {
            // SAFETY: reads and writes a list of ours.
            let n = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) };
            if n >= 0 {
                return Ok(all[0].revents != 0);
            }
            match Error::last("poll") {
                e if e.code() == Errno::INTR.raw_os_error() && signals_restart() => {}
                e => return Err(e),
            }
        }
    }

    /// Takes one ring if there is one, whatever the descriptor's flags say.
    pub fn try_take(&self) -> bool {
        let mut count = [0; size_of::<u64>()];
        let room = &mut [IoSliceMut::new(&mut count)];
        // No offset: it is a descriptor without places.
        let none = u64::MAX;
        retry_on_intr(|| preadv2(&self.fd, room, none, ReadWriteFlags::NOWAIT)).is_ok()
    }
}

/// Every handler that the program has for a signal from outside wants interrupted calls to go on (`SA_RESTART`).
fn signals_restart() -> bool {
    const FAULTS: [libc::c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    let restarts = |signal: libc::c_int| {
        let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks only, into room of ours; numbers that are no signals are refused.
        let action = unsafe {
            if libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) != 0 {
                return true;
            }
            action.assume_init()
        };
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    };
    (1..=libc::SIGRTMAX())
        .filter(|signal| !FAULTS.contains(signal))
        .all(restarts)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn taking_waits_for_a_ring_and_takes_one() {
        let channel = Arc::new(Channel::new().unwrap());
        let taker = channel.clone();
        let taker = std::thread::spawn(move || (taker.take(), taker.take()));
        channel.ring();
        channel.ring();
        assert_eq!(taker.join().unwrap(), (Ok(true), Ok(true)));
    }

    #[test]
    fn a_program_that_asks_not_to_wait_is_told_to_try_again() {
        let channel = Channel::new().unwrap();
        let fd = channel.as_fd().as_raw_fd();
        // SAFETY: sets a flag of a descriptor that `channel` keeps open, as programs do.
        let refused = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(refused, 0);
        assert_eq!(channel.take(), Ok(false));
        channel.ring();
        assert_eq!((channel.take(), channel.take()), (Ok(true), Ok(false)));
    }

    #[test]
    fn a_ring_can_be_taken_without_waiting_from_a_descriptor_that_would_wait() {
        let channel = Channel::new().unwrap();
        assert!(!channel.try_take());
        channel.ring();
        channel.ring();
        assert!(channel.try_take() && channel.try_take() && !channel.try_take());
    }
}
