//! An owned descriptor that is closed by the bare system call, and that a forked child closes at once.
//! The C library's `close` is a cancellation point, and a thread cancelled there would end with locks held. A child that kept the
//! sockets would keep connections open that its parent had lost. Errors of close(2) are ignored: the number is released in any case.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::net::SocketFlags;

use super::{fork_count, watch_forks};

/// Flags of every socket: not inherited by other programs, and no call blocks.
pub(super) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Descriptor numbers that are recorded, one bit each: more than a process may have open.
const MAX_FDS: usize = 1 << 20;
const BITS: usize = 64;

/// Which numbers belong to the adapter. Static and without a lock, since a fork may happen at any moment.
static OWN_FDS: [AtomicU64; MAX_FDS / BITS] = [const { AtomicU64::new(0) }; MAX_FDS / BITS];
/// Words of it that were ever used.
static USED_WORDS: AtomicUsize = AtomicUsize::new(0);

/// Owns one descriptor.
#[derive(Debug)]
pub(super) struct Fd {
    fd: ManuallyDrop<OwnedFd>,
    /// The fork count of the process it was made in.
    forks: u64,
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        let forks = watch_forks();
        if let Some((word, bit)) = word_and_bit(fd.as_raw_fd()) {
            USED_WORDS.fetch_max(word + 1, Ordering::Relaxed);
            OWN_FDS[word].fetch_or(bit, Ordering::Relaxed);
        }
        let fd = ManuallyDrop::new(fd);
        Fd { fd, forks }
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if fork_count() != self.forks {
            // Closed when this child began; the number may have been reused by now.
            return;
        }
        // SAFETY: called once, in `drop`, after which `self.fd` is not used.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Some((word, bit)) = word_and_bit(fd.as_raw_fd()) {
            // Before it is closed: another thread may get the same number at once.
            OWN_FDS[word].fetch_and(!bit, Ordering::Relaxed);
        }
        // SAFETY: `self` owned the number, and every borrow of it ended with `self`.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

fn word_and_bit(fd: RawFd) -> Option<(usize, u64)> {
    let n = usize::try_from(fd).ok().filter(|n| *n < MAX_FDS)?;
    Some((n / BITS, 1 << (n % BITS)))
}

/// The adapter's descriptors in this process.
#[cfg(test)]
pub(super) fn count() -> u32 {
    OWN_FDS
        .iter()
        .map(|w| w.load(Ordering::Relaxed).count_ones())
        .sum()
}

/// Closes every descriptor of the adapter, in a child that was just forked; its parent's are not affected.
/// Uses only atomics and system calls, as a fork handler must.
pub(super) fn close_all() {
    let used = USED_WORDS.load(Ordering::Relaxed).min(OWN_FDS.len());
    for (word, ours) in OWN_FDS.iter().take(used).enumerate() {
        let mut bits = ours.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let fd = (word * BITS + bit) as RawFd;
            // SAFETY: a bit is set only while an `Fd` of the parent owns the number. This child has one thread, and an `Fd` inherited here does
            // not use its number after the fork count has changed. The kernel copies the descriptor table a moment before memory, so a number
            // recorded in between may not exist here; hence the raw call, since rustix asserts that close does not fail.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
}
