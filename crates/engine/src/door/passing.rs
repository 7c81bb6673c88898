//! A door that passes to another process (V1): it takes nobody for a while, and its socket goes on elsewhere.
//! It promises that whoever comes meanwhile waits in the system's queue, for whichever of the two takes it.
//! It refuses to pass on those who have come already: they are shown here.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::Door;
use crate::sys;

impl Door {
    /// Takes nobody new from now on; when this returns, nobody is being taken.
    pub(crate) fn pause(&self) {
        *self.paused.lock() = true;
    }

    /// Takes those who come, again.
    pub(crate) fn resume(&self) {
        *self.paused.lock() = false;
        self.listen();
    }

    /// Nobody who came is on the way to be shown.
    pub(crate) fn is_quiet(&self) -> bool {
        self.order.lock().is_empty()
    }

    pub(crate) fn duplicate(&self) -> sys::Result<OwnedFd> {
        self.listener.duplicate()
    }

    /// The socket is another process's.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}
