//! The descriptor of a completion or event channel: one ring is one event, and the program may do with it what it likes.
//! It promises that taking waits or not as the descriptor's own flags say, because programs set `O_NONBLOCK` on it themselves
//! and expect "try again" from then on; so it is born without that flag, unlike a [`super::Bell`].
//! It refuses to hide that a signal came: programs rely on being told.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, fcntl_dupfd_cloexec, preadv2, retry_on_intr};

use smallvec::SmallVec;

use super::fd::Fd;
use super::{Error, Result, cancel, interrupted};

/// A channel's descriptor.
#[derive(Debug)]
pub struct Channel {
    fd: Fd,
    /// Tells it from others, also from later ones with the same number.
    id: u64,
    closed: AtomicBool,
}

/// A second descriptor of a channel, to be watched for as long as it likes.
#[derive(Debug)]
pub struct Double {
    fd: Fd,
    id: u64,
}

impl Double {
    /// It is of this channel.
    pub fn is_of(&self, channel: &Channel) -> bool {
        self.id == channel.id
    }
}

impl AsFd for Double {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

thread_local! {
    /// The channel whose rings this thread catches, and how many it has caught.
    static CATCHES: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// Ends the catching.
struct Catching;

impl Drop for Catching {
    fn drop(&mut self) {
        CATCHES.set((0, 0));
    }
}

impl Channel {
    /// Nothing rung yet.
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

    /// A second descriptor.
    pub fn double(&self) -> Result<Double> {
        let fd = fcntl_dupfd_cloexec(&self.fd, 0).map_err(Error::of("fcntl"))?;
        let (fd, id) = (fd.into(), self.id);
        Ok(Double { fd, id })
    }

    /// Does `work`, and says whether this thread rang meanwhile: one ring counts as taken, and costs no system call.
    pub fn catch(&self, work: impl FnOnce()) -> bool {
        CATCHES.set((self.id, 0));
        let catching = Catching;
        work();
        let (_, rings) = CATCHES.get();
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
        CATCHES.try_with(count).unwrap_or(false)
    }

    /// Rings once more. Does not wait: there is room for 2⁶⁴ − 2 events, and the queue behind them is shorter.
    pub fn ring(&self) {
        if self.is_caught() {
            return;
        }
        let one = 1_u64.to_ne_bytes();
        // The descriptor is ours and open; there is nothing else to refuse.
        let _ = retry_on_intr(|| rustix::io::write(&self.fd, &one));
    }

    /// Every wait ends from now on: more rings than can be taken.
    pub fn ring_for_good(&self) {
        let many = (u64::MAX / 4).to_ne_bytes();
        // As above. A second time there is no room for as many, and it would wait: the first ones are enough.
        if !self.closed.swap(true, Ordering::AcqRel) {
            let _ = retry_on_intr(|| rustix::io::write(&self.fd, &many));
        }
    }

    /// Takes one ring, waiting for it unless the descriptor says otherwise; false if it does and there is none.
    ///
    /// Waits inside the C library, on purpose: a program may cancel a thread that asks for an event. No lock may be held.
    pub fn take(&self) -> Result<bool> {
        let mut count = 0_u64;
        let fd = self.fd.as_fd().as_raw_fd();
        // SAFETY: writes up to eight bytes to a number of ours.
        let n = unsafe { cancel::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
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
        interrupted::like_a_read("poll", || {
            // SAFETY: reads and writes a list of ours.
            unsafe { cancel::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) }
        })?;
        Ok(all[0].revents != 0)
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

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
