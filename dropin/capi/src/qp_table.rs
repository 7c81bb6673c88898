//! Queue pairs by number, for threads that may hold the number of one that has been destroyed.
//! The lock is held while a queue pair is used through the table, and `remove` takes it before the queue pair is freed: a queue pair
//! that is used exists. Nothing of this crate is used here, so that the schedules compile this file alone (docs/schedules.md).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_sync::locks::RwLock;

/// Queue pairs by the number that their programs see; `P` leads to the memory of one.
pub(crate) struct QpTable<P> {
    pairs: RwLock<HashMap<u32, P>>,
}

impl<P> QpTable<P> {
    /// An empty table.
    pub(crate) fn new() -> Arc<QpTable<P>> {
        Arc::new(QpTable {
            pairs: RwLock::new(HashMap::new()),
        })
    }

    /// Makes a queue pair known by its number.
    pub(crate) fn add(&self, number: u32, pair: P) {
        self.pairs.write().insert(number, pair);
    }

    /// Removes a queue pair, which may be freed afterwards: no other thread uses it through the table from now on.
    pub(crate) fn remove(&self, number: u32) {
        let removed = self.pairs.write().remove(&number);
        drop(removed);
    }

    /// Calls `act` with the queue pair of this number, which is not freed before `act` returns; `None` if there is none.
    pub(crate) fn with<R>(&self, number: u32, act: impl FnOnce(&P) -> R) -> Option<R> {
        self.pairs.read().get(&number).map(act)
    }

    /// A reference to the queue pair of this number, for a thread that does not know whether it still exists.
    pub(crate) fn reference(self: &Arc<Self>, number: u32) -> QpRef<P> {
        QpRef {
            table: Arc::downgrade(self),
            number,
        }
    }
}

/// A queue pair that may have been destroyed. It refers to the queue pair by number and not by address: the program may destroy the queue
/// pair at the moment at which another thread has connected it.
pub(crate) struct QpRef<P> {
    table: Weak<QpTable<P>>,
    number: u32,
}

impl<P> QpRef<P> {
    /// Calls `act` with the queue pair, if it still exists; it is not freed before `act` returns.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&P) -> R) -> Option<R> {
        self.table.upgrade()?.with(self.number, act)
    }
}
