//! Detects that this process is a forked child of the one that made the adapter.
//! The count of [`watch_forks`] differs in the child from the moment `fork` returns there, and the child has none of the adapter's descriptors,
//! so it cannot disturb its parent's connections. Memory is not freed: other threads of the parent may have held any lock.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

static FORKS: AtomicU64 = AtomicU64::new(0);
static ATFORK: Once = Once::new();

/// The number of forks between the first call, in some ancestor, and this process. Call it when an adapter is made, and
/// compare later: if it grew, threads and sockets belong to the parent.
pub fn watch_forks() -> u64 {
    ATFORK.call_once(|| {
        // SAFETY: the handler only uses atomics and close(2), which are async-signal-safe. It fails only for lack of
        // memory; then forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// The same after a first call of [`watch_forks`]: one relaxed load.
pub fn fork_count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    super::fd::close_all();
}

#[cfg(test)]
mod tests;
