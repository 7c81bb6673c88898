//! The eventfd of a completion or event channel: one ring is one event.
//! Whether [`Channel::take`] blocks depends on the descriptor's flags: programs set `O_NONBLOCK` themselves and expect EAGAIN from then
//! on, so it is created without that flag, unlike a [`super::Doorbell`]. A signal ends a wait as it ends a read(2), since programs rely on it.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, fcntl_dupfd_cloexec, preadv2, retry_on_intr};

use smallvec::SmallVec;

use super::fd::Fd;
use super::{Error, Result, cancel, eintr};

/// A channel's descriptor.
#[derive(Debug)]
pub struct Channel {
    fd: Fd,
    /// Distinguishes it from other channels, also from later ones with the same descriptor number.
    id: u64,
    closed: AtomicBool,
}

/// A duplicate of a channel's descriptor, which stays valid when the channel is closed.
#[derive(Debug)]
pub struct ChannelDup {
    fd: Fd,
    id: u64,
}

impl ChannelDup {
    /// Whether it belongs to this channel.
    pub fn is_of(&self, channel: &Channel) -> bool {
        self.id == channel.id
    }
}

impl AsFd for ChannelDup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

thread_local! {
    /// The channel whose rings this thread catches, and how many it has caught.
    static CAUGHT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// Ends the catching on drop, also after a panic.
struct CatchGuard;

impl Drop for CatchGuard {
    fn drop(&mut self) {
        CAUGHT.set((0, 0));
    }
}

impl Channel {
    /// A channel without rings.
    pub fn new() -> Result<Channel> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        let fd = eventfd(0, flags).map_err(Error::of("eventfd"))?;
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Ok(Channel {
            fd: fd.into(),
            id,
            closed: AtomicBool::new(false),
        })
    }

    /// Duplicates the descriptor.
    pub fn duplicate(&self) -> Result<ChannelDup> {
        let fd = fcntl_dupfd_cloexec(&self.fd, 0).map_err(Error::of("fcntl"))?;
        let (fd, id) = (fd.into(), self.id);
        Ok(ChannelDup { fd, id })
    }

    /// Runs `work` and returns whether this thread rang the channel meanwhile: one ring counts as taken and costs no system call.
    pub fn catch_rings(&self, work: impl FnOnce()) -> bool {
        CAUGHT.set((self.id, 0));
        let catching = CatchGuard;
        work();
        let (_, rings) = CAUGHT.get();
        drop(catching);
        for _ in 1..rings {
            self.ring();
        }
        rings > 0
    }

    fn is_caught(&self) -> bool {
        let count = |catches: &Cell<(u64, u32)>| match catches.get() {
            (id, rings) if id == self.id => {
                catches.set((id, rings + 1));
                true
            }
            _ => false,
        };
        CAUGHT.try_with(count).unwrap_or(false)
    }

    /// Adds a ring. Does not block: there is room for 2⁶⁴ − 2 events, and the queue behind them is shorter.
    pub fn ring(&self) {
        if self.is_caught() {
            return;
        }
        let one = 1_u64.to_ne_bytes();
        // The descriptor is open; there is no other error.
        let _ = retry_on_intr(|| rustix::io::write(&self.fd, &one));
    }

    /// Ends every wait from now on, by more rings than can be taken.
    pub fn ring_forever(&self) {
        let many = (u64::MAX / 4).to_ne_bytes();
        // A second time would block for lack of room, and the first rings are enough.
        if !self.closed.swap(true, Ordering::AcqRel) {
            let _ = retry_on_intr(|| rustix::io::write(&self.fd, &many));
        }
    }

    /// Takes one ring, blocking unless the descriptor is non-blocking; false if it is and there is none.
    ///
    /// A cancellation point on purpose: a program may cancel a thread that waits for an event. No lock may be held.
    pub fn take(&self) -> Result<bool> {
        let mut count = 0_u64;
        let fd = self.fd.as_fd().as_raw_fd();
        // SAFETY: writes at most eight bytes to `count`, which outlives the call.
        let n = unsafe { cancel::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
        if n >= 0 {
            return Ok(true);
        }
        match Error::last("read") {
            e if e.code() == Errno::AGAIN.raw_os_error() => Ok(false),
            e => Err(e),
        }
    }

    /// Whether taking blocks: the program has not set `O_NONBLOCK`.
    pub fn is_blocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
    }

    /// Waits until there is a ring, or one of these descriptors is readable; true in the first case.
    ///
    /// A cancellation point as [`take`](Channel::take). A signal interrupts it where it would interrupt a read: the kernel never
    /// restarts poll(2), so this does if all handlers of the program have `SA_RESTART`.
    pub fn wait_with_fds(&self, others: &[RawFd]) -> Result<bool> {
        let watch = |fd: RawFd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let all = core::iter::once(self.fd.as_fd().as_raw_fd()).chain(others.iter().copied());
        let mut all: SmallVec<[libc::pollfd; 8]> = all.map(watch).collect();
        eintr::restart_like_read("poll", || {
            // SAFETY: pointer and length are those of `all`, which outlives the call and is not accessed meanwhile.
            unsafe { cancel::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) }
        })?;
        Ok(all[0].revents != 0)
    }

    /// Takes one ring if there is one, without blocking whatever the descriptor's flags.
    pub fn try_take(&self) -> bool {
        let mut count = [0; size_of::<u64>()];
        let room = &mut [IoSliceMut::new(&mut count)];
        // An offset of -1 means none: an eventfd has no file position.
        let none = u64::MAX;
        retry_on_intr(|| preadv2(&self.fd, room, none, ReadWriteFlags::NOWAIT)).is_ok()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
