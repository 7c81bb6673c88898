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

/// The same, for whoever has asked before: one plain load.
pub fn forks_since() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::fd::close_all();
}

#[cfg(test)]
mod tests;
