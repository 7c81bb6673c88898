//! A count of the users of an object, so that destroying it can be refused while it is in use.
//! A use ends when its [`Use`] is dropped. It does not keep the object alive.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The users of an object.
#[derive(Default)]
pub(crate) struct Uses(Arc<AtomicUsize>);

impl Uses {
    /// Adds a user.
    pub(crate) fn begin(&self) -> Use {
        self.0.fetch_add(1, Ordering::AcqRel);
        Use(self.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn any(&self) -> bool {
        self.count() > 0
    }
}

/// One user of an object.
pub(crate) struct Use(Arc<AtomicUsize>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
