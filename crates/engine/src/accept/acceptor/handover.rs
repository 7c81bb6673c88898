//! Handover of a listener to another process (V1): it stops accepting, and its socket is used elsewhere.
//! Connections that arrive meanwhile wait in the kernel's queue for the process that accepts them. Requests accepted before are
//! shown here.

use std::os::fd::OwnedFd;

use verbena_sync::atomic::Ordering;

use super::Acceptor;
use crate::sys;

impl Acceptor {
    /// Stops accepting; when this returns, no `accept` is in progress.
    pub(crate) fn pause(&self) {
        *self.paused.lock() = true;
    }

    /// Accepts again.
    pub(crate) fn resume(&self) {
        *self.paused.lock() = false;
        self.arm();
        if self.port.is_some() {
            // Those that arrived on the port meanwhile are reported by the shard.
            self.shard.set_timer(sys::now(), self.token);
        }
    }

    /// New connections are not accepted now.
    pub(crate) fn is_paused(&self) -> bool {
        *self.paused.lock()
    }

    /// No accepted connection is still to be shown.
    pub(crate) fn is_idle(&self) -> bool {
        self.order.lock().is_empty()
    }

    pub(crate) fn duplicate(&self) -> sys::Result<OwnedFd> {
        self.listener.duplicate()
    }

    /// The socket belongs to another process now: `close` does not shut it down.
    pub(crate) fn mark_handed_over(&self) {
        self.handed_over.store(true, Ordering::Release);
    }
}
