//! Links a queue pair to its current connection, and the connection to the timeout that the program may change at any time.
//! There is at most one connection. Replacing or clearing it drops the old one after the lock is released.

use core::time::Duration;
use std::sync::Arc;

use verbena_stream::saturating_nanos;
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::{Mutex, MutexGuard, RwLock};

use super::Connection;
use crate::roce::connection::RoceConnection;

/// A queue pair's reference to its connection.
#[derive(Debug)]
pub(crate) struct Slot {
    connection: RwLock<Option<Arc<Connection>>>,
    /// The connection over RoCEv2, instead.
    roce: RwLock<Option<Arc<RoceConnection>>>,
    /// See [`lock_binding`](Slot::lock_binding).
    binding: Mutex<()>,
    /// In nanoseconds; `u64::MAX` is unlimited.
    peer_timeout: AtomicU64,
}

impl Slot {
    pub(crate) fn new(patience: Option<Duration>) -> Slot {
        let slot = Slot {
            connection: RwLock::default(),
            roce: RwLock::default(),
            binding: Mutex::default(),
            peer_timeout: AtomicU64::new(u64::MAX),
        };
        slot.set_peer_timeout(patience);
        slot
    }

    pub(crate) fn get(&self) -> Option<Arc<Connection>> {
        self.connection.read().clone()
    }

    /// The connection over RoCEv2.
    pub(crate) fn roce(&self) -> Option<Arc<RoceConnection>> {
        self.roce.read().clone()
    }

    pub(crate) fn set_roce(&self, connection: &Arc<RoceConnection>) {
        let before = self.roce.write().replace(connection.clone());
        drop(before);
    }

    /// Takes the connection over RoCEv2 out, to be closed.
    pub(crate) fn take_roce(&self) -> Option<Arc<RoceConnection>> {
        self.roce.write().take()
    }

    /// Held while a stream is attached to the queue pair and its connection is recorded, and while the queue pair loses its stream and the
    /// connection is looked up. Otherwise a queue pair that is reset in between could get another connection, which the first one then
    /// replaces. Neither the phase of a connection nor a callback is locked or called under it.
    pub(crate) fn lock_binding(&self) -> MutexGuard<'_, ()> {
        self.binding.lock()
    }

    /// How long a peer that owes an answer may be silent or unreachable; none is unlimited.
    pub(crate) fn peer_timeout(&self) -> Option<Duration> {
        let nanos = self.peer_timeout.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn set_peer_timeout(&self, patience: Option<Duration>) {
        let nanos = patience.map_or(u64::MAX, saturating_nanos);
        self.peer_timeout.store(nanos, Ordering::Relaxed);
    }

    /// Under [`lock_binding`](Slot::lock_binding).
    pub(super) fn set(&self, connection: &Arc<Connection>) {
        debug_assert!(self.binding.is_locked());
        let before = self.connection.write().replace(connection.clone());
        drop(before);
    }

    pub(super) fn holds(&self, connection: &Connection) -> bool {
        let slot = self.connection.read();
        slot.as_ref()
            .is_some_and(|c| core::ptr::eq(&**c, connection))
    }

    /// Clears the slot if it holds this connection; returns whether it did.
    pub(super) fn clear(&self, connection: &Connection) -> bool {
        let ours = |c: &mut Arc<Connection>| core::ptr::eq(&**c, connection);
        let before = self.connection.write().take_if(ours);
        before.is_some()
    }
}
