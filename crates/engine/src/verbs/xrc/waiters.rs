//! What waits for receives on behalf of targets of other processes, by numbers that no queue pair has.
//! Entries do not keep a waiter alive.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_nic::xrc::FIRST_WAITER;
use verbena_sync::atomic::{AtomicU32, Ordering};
use verbena_sync::locks::RwLock;

/// Waits for a receive.
pub(super) trait Waiter: Send + Sync {
    /// A receive is reserved, or the queue is being destroyed.
    fn resume(&self);
}

/// All waiters of an engine.
#[derive(Default)]
pub(crate) struct XrcWaiters {
    next: AtomicU32,
    by_number: RwLock<HashMap<u32, Weak<dyn Waiter>>>,
}

impl XrcWaiters {
    /// A number that no other waiter of the engine has.
    pub(super) fn number(&self) -> u32 {
        let by_number = self.by_number.read();
        loop {
            let number = FIRST_WAITER | self.next.fetch_add(1, Ordering::Relaxed);
            if !by_number.contains_key(&number) {
                return number;
            }
        }
    }

    pub(super) fn add(&self, number: u32, waiter: &Arc<impl Waiter + 'static>) {
        let waiter: Arc<dyn Waiter> = waiter.clone();
        self.by_number
            .write()
            .insert(number, Arc::downgrade(&waiter));
    }

    pub(super) fn remove(&self, number: u32) {
        self.by_number.write().remove(&number);
    }

    /// Wakes the waiter with this number, if there is one.
    pub(crate) fn resume(&self, number: u32) {
        let waiter = self.by_number.read().get(&number).and_then(Weak::upgrade);
        if let Some(waiter) = waiter {
            waiter.resume();
        }
    }
}
