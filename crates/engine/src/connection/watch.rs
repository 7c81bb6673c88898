//! Which poller watches a connection's socket: the shard's while it starts or lingers, the group's while it runs.
//! What is watched for is in [`Watch`](crate::poll::watch::Watch).

use std::sync::Arc;

use super::{Bound, Connection};
use crate::poll::watch::WatchedBy;
use crate::sys::{self, Interest};

impl Connection {
    /// The group's poller watches from now on.
    pub(super) fn watch_by_group(self: &Arc<Self>, bound: &Bound) -> sys::Result<()> {
        let mut state = self.watch.lock();
        if state.watched_by != WatchedBy::Shard {
            return Ok(());
        }
        self.shard.unwatch(self.transport.reader());
        bound.group.join(self.clone());
        state.watched_by = WatchedBy::Group;
        state.apply(&bound.group, &**self)
    }

    /// The shard's poller watches again: the connection lingers, and the group's queue may be destroyed meanwhile.
    pub(super) fn watch_by_shard(&self, room: bool) {
        let interest = Interest {
            read: true,
            write: room,
            oneshot: true,
        };
        let mut state = self.watch.lock();
        match (&state.watched_by, self.bound.get()) {
            (WatchedBy::None, _) => {}
            (WatchedBy::Group, Some(bound)) => {
                bound.group.leave(self);
                state.watched_by = WatchedBy::Shard;
                // If it cannot be watched, it ends at its time limit.
                let _ = self
                    .shard
                    .watch(self.transport.reader(), self.token, interest);
            }
            _ => drop(
                self.shard
                    .arm(self.transport.reader(), self.token, interest),
            ),
        }
    }

    pub(super) fn unwatch(&self) {
        let mut state = self.watch.lock();
        match (&state.watched_by, self.bound.get()) {
            (WatchedBy::None, _) => return,
            (WatchedBy::Group, Some(bound)) => bound.group.leave(self),
            _ => self.shard.unwatch(self.transport.reader()),
        }
        state.watched_by = WatchedBy::None;
    }

    /// Watches for room to write, or stops; true if that changed.
    pub(super) fn want_room(&self, bound: &Bound, wanted: bool) -> bool {
        self.watch.want_room(&bound.group, self, wanted)
    }

    /// Watches for input, or stops; true if that changed.
    pub(super) fn watch_input(&self, bound: &Bound, wanted: bool) -> bool {
        self.watch.want_input(&bound.group, self, wanted)
    }
}
