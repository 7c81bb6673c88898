//! Who watches a connection's socket, and for what: its shard while it starts or lingers, its group while it runs.
//! It promises that what is watched is what was asked for last, whoever asked at the same time: the wish and the system
//! call are one step. It refuses to know whether a wish is still true; whoever has one looks again after it was granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Bound, Connection};
use crate::sys::{self, Interest};

/// Who watches, and for what.
pub(super) struct Watch {
    state: Mutex<State>,
    /// The same as in the state, for those who would change nothing.
    wants_room: AtomicBool,
    deaf: AtomicBool,
}

struct State {
    by: By,
    /// The socket is among the group's.
    listed: bool,
    /// Room to write is waited for.
    wants_room: bool,
    /// Input is not waited for: a message waits for a receive, or nothing will come.
    deaf: bool,
}

#[derive(PartialEq, Eq)]
enum By {
    /// It starts or lingers: the shard is told once at a time.
    Shard,
    /// It runs.
    Group,
    /// Nobody ever again.
    Nobody,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            state: Mutex::new(State {
                by: By::Shard,
                listed: false,
                wants_room: false,
                deaf: false,
            }),
            wants_room: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        }
    }

    pub(super) fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Acquire)
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }
}

impl Connection {
    /// The group watches from now on.
    pub(super) fn watch_by_group(self: &Arc<Self>, bound: &Bound) -> sys::Result<()> {
        let mut state = self.watch.state.lock();
        if state.by != By::Shard {
            return Ok(());
        }
        self.shard.unwatch(self.line.reads());
        bound.group.join(self.clone());
        state.by = By::Group;
        self.apply(bound, &mut state)
    }

    /// The shard watches again: the connection lingers, and whoever had the group may have gone.
    pub(super) fn watch_by_shard(&self, room: bool) {
        let interest = Interest {
            read: true,
            write: room,
            oneshot: true,
        };
        let mut state = self.watch.state.lock();
        match (&state.by, self.bound.get()) {
            (By::Nobody, _) => {}
            (By::Group, Some(bound)) => {
                bound.group.leave(self);
                state.by = By::Shard;
                // If it cannot be watched, it ends when its time is over.
                let _ = self.shard.watch(self.line.reads(), self.token, interest);
            }
            _ => drop(self.shard.arm(self.line.reads(), self.token, interest)),
        }
    }

    pub(super) fn watch_no_more(&self) {
        let mut state = self.watch.state.lock();
        match (&state.by, self.bound.get()) {
            (By::Nobody, _) => return,
            (By::Group, Some(bound)) => bound.group.leave(self),
            _ => self.shard.unwatch(self.line.reads()),
        }
        state.by = By::Nobody;
    }

    /// Waits for room to write, or no more; true if that is news.
    pub(super) fn want_room(&self, bound: &Bound, wanted: bool) -> bool {
        if self.watch.wants_room.load(Ordering::Acquire) == wanted && !wanted {
            return false;
        }
        let mut state = self.watch.state.lock();
        if state.wants_room == wanted {
            return false;
        }
        state.wants_room = wanted;
        self.watch.wants_room.store(wanted, Ordering::Release);
        let _ = self.apply(bound, &mut state);
        true
    }

    /// Watches for input, or not: what cannot be read must not wake anybody. True if that is news.
    pub(super) fn listen(&self, bound: &Bound, wanted: bool) -> bool {
        if self.watch.deaf.load(Ordering::SeqCst) != wanted {
            return false;
        }
        let mut state = self.watch.state.lock();
        if state.deaf != wanted {
            return false;
        }
        state.deaf = !wanted;
        self.watch.deaf.store(!wanted, Ordering::SeqCst);
        let _ = self.apply(bound, &mut state);
        true
    }

    fn apply(&self, bound: &Bound, state: &mut State) -> sys::Result<()> {
        if state.by != By::Group {
            return Ok(());
        }
        let interest = Interest {
            read: !state.deaf,
            write: state.wants_room,
            oneshot: false,
        };
        if interest.read || interest.write {
            bound.group.watch(self, interest, state.listed)?;
            state.listed = true;
        } else if state.listed {
            // The system would go on telling of a broken connection, although that is no news.
            bound.group.set_aside(self);
            state.listed = false;
        }
        Ok(())
    }
}
