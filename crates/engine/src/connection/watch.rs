//! Which poller watches a connection's socket: the shard's while it starts or lingers, the group's while it runs.
//! What is watched for is in [`Watch`](crate::watch::Watch).

use std::sync::Arc;

use super::{Bound, Connection};
use crate::sys::{self, Interest};
use crate::watch::By;

impl Connection {
    /// The group's poller watches from now on.
    pub(super) fn watch_by_group(self: &Arc<Self>, bound: &Bound) -> sys::Result<()> {
        let mut state = self.watch.lock();
        if state.by != By::Shard {
            return Ok(());
        }
        self.shard.unwatch(self.line.reads());
        bound.group.join(self.clone());
        state.by = By::Group;
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
        match (&state.by, self.bound.get()) {
            (By::Nobody, _) => {}
            (By::Group, Some(bound)) => {
                bound.group.leave(self);
                state.by = By::Shard;
                // If it cannot be watched, it ends at its time limit.
                let _ = self.shard.watch(self.line.reads(), self.token, interest);
            }
            _ => drop(self.shard.arm(self.line.reads(), self.token, interest)),
        }
    }

    pub(super) fn watch_no_more(&self) {
        let mut state = self.watch.lock();
        match (&state.by, self.bound.get()) {
            (By::Nobody, _) => return,
            (By::Group, Some(bound)) => bound.group.leave(self),
            _ => self.shard.unwatch(self.line.reads()),
        }
        state.by = By::Nobody;
    }

    /// Watches for room to write, or stops; true if that changed.
    pub(super) fn want_room(&self, bound: &Bound, wanted: bool) -> bool {
        self.watch.want_room(&bound.group, self, wanted)
    }

    /// Watches for input, or stops; true if that changed.
    pub(super) fn listen(&self, bound: &Bound, wanted: bool) -> bool {
        self.watch.listen(&bound.group, self, wanted)
    }
}
