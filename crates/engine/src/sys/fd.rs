//! An owned descriptor that is closed by the bare system call, and that a forked child closes at once.
//! The C library's `close` is a point of cancellation, and a thread cancelled there would die holding our locks. A child that
//! kept our sockets would keep connections open that its parent had lost (DESIGN §4).
//! It refuses to say whether closing went well: the kernel gives the number up in any case.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use super::{forks, forks_since};

/// Numbers that are remembered: more than a process may have open here, and a bit for each.
const KNOWN: usize = 1 << 20;
const BITS: usize = 64;

/// Which numbers are ours. In memory of its own, without a lock, since a fork may come at any moment.
static OURS: [AtomicU64; KNOWN / BITS] = [const { AtomicU64::new(0) }; KNOWN / BITS];
/// Words of it that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Owns one descriptor.
#[derive(Debug)]
pub(super) struct Fd {
    fd: ManuallyDrop<OwnedFd>,
    /// The process it was made in, by the forks that lie before it.
    forks: u64,
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        let forks = forks();
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            USED.fetch_max(word + 1, Ordering::Relaxed);
            OURS[word].fetch_or(bit, Ordering::Relaxed);
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
        if forks_since() != self.forks {
            // Closed when this child began; the number may be somebody else's by now.
            return;
        }
        // SAFETY: taken once, because this is the end of `self`.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            // Before it is closed: another thread may get the same number at once.
            OURS[word].fetch_and(!bit, Ordering::Relaxed);
        }
        // SAFETY: the number was ours alone, and nobody can have borrowed it beyond our end.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

fn place(fd: RawFd) -> Option<(usize, u64)> {
    let n = usize::try_from(fd).ok().filter(|n| *n < KNOWN)?;
    Some((n / BITS, 1 << (n % BITS)))
}

/// Descriptors of the adapter in this process.
#[cfg(test)]
pub(super) fn count() -> u32 {
    OURS.iter()
        .map(|w| w.load(Ordering::Relaxed).count_ones())
        .sum()
}

/// Closes every descriptor of the adapter, in a child that was just forked; its parent's are as they were.
/// Touches nothing but atomics and the system, as a fork handler must.
pub(super) fn close_all() {
    let used = USED.load(Ordering::Relaxed).min(OURS.len());
    for (word, ours) in OURS.iter().take(used).enumerate() {
        let mut bits = ours.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let fd = (word * BITS + bit) as RawFd;
            // SAFETY: a bit is set only while an `Fd` of the parent owns the number. This child has the only thread,
            // and whatever holds that `Fd` here knows from the count of forks that it is closed. The system copies
            // descriptors a moment before memory, so one that was made in between is refused here; rustix would
            // take that for a mistake of ours.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
}
