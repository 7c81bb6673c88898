//! The connections of a group, in a list and by name.
//! It promises that finding, adding and removing one takes no longer the more there are.
//! It refuses to keep an order: who leaves is replaced by the last.

use std::sync::Arc;

use crate::connection::Connection;
use crate::shard::ByToken;

#[derive(Default)]
pub(super) struct Members {
    pub(super) list: Vec<Arc<Connection>>,
    /// Where each one is in the list: there may be thousands, and they come and go.
    places: ByToken<usize>,
}

impl Members {
    pub(super) fn add(&mut self, connection: &Arc<Connection>) {
        self.places.insert(connection.token(), self.list.len());
        self.list.push(connection.clone());
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Arc<Connection>> {
        let at = self.places.remove(&token)?;
        let gone = self.list.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            self.places.insert(moved.token(), at);
        }
        Some(gone)
    }

    pub(super) fn find(&self, token: u64) -> Option<Arc<Connection>> {
        let at = *self.places.get(&token)?;
        self.list.get(at).cloned()
    }
}
