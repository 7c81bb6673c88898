//! Whether this process is a forked child of the one that made the adapter.
//! It promises that the count of [`forks`] differs in the child from the moment `fork` returns there,
//! and that the child has none of the adapter's descriptors: nothing it does can disturb its parent's connections.
//! It refuses to free memory: a fork may come between any two instructions of other threads, so it counts and closes.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

/// How many forks lie between the first call, in some ancestor, and this process. Call it when an adapter is made, and
/// compare later: if it grew, threads and sockets belong to the parent.
pub fn forks() -> u64 {
    WATCH.call_once(|| {
        // SAFETY: the handler touches atomics and closes descriptors, which is sound in a child of any program. Refused only for want of
        // memory, and then forks go unnoticed, as they do in every program without a handler.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::fd::close_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let before = forks();
        // SAFETY: the child makes no call but `_exit`, which is allowed after a fork of many threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let grew = forks() == before + 1;
            // SAFETY: ends the child at once, without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!grew)) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waits for the child made above; the status is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw no fork");
        assert_eq!(forks(), before, "the parent is no child");
    }
}
