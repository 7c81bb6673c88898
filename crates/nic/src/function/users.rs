//! Counts of the users of an object, so that it is not destroyed while others use it. A use ends when it is dropped.

use std::sync::Arc;

use verbena_sync::atomic::{AtomicU32, Ordering};

/// The number of users of an object.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    /// The present number.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// One use of an object; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Use(Arc<Users>);

impl Use {
    /// Taken while the table is locked, so that the object is not removed in between.
    pub(super) fn of(users: &Arc<Users>) -> Use {
        users.0.fetch_add(1, Ordering::AcqRel);
        Use(users.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
