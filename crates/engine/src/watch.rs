//! What the socket of a group's member is watched for: input, and room to write.
//! It promises that what is watched is what was asked for last, whoever asked at the same time: the wish and the system
//! call are one step. It refuses to know whether a wish is still true; whoever has one looks again after it was granted.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::group::{Group, Member};
use crate::sys::{self, Interest};

/// Who watches, and for what.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    /// The same as in the state, for those who would change nothing.
    wants_room: AtomicBool,
    deaf: AtomicBool,
}

/// The truth about it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) by: By,
    /// The socket is among the group's.
    listed: bool,
    /// Room to write is waited for.
    wants_room: bool,
    /// Input is not waited for: a message waits for a receive, or nothing will come.
    deaf: bool,
}

/// Who watches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It starts or lingers: the shard is told once at a time.
    Shard,
    /// It runs.
    Group,
    /// Nobody ever again.
    Nobody,
}

impl Watch {
    pub(crate) fn new(by: By) -> Watch {
        Watch {
            state: Mutex::new(State {
                by,
                listed: false,
                wants_room: false,
                deaf: false,
            }),
            wants_room: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        }
    }

    /// Nobody else changes it meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Acquire)
    }

    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }

    /// Waits for room to write, or no more; true if that is news.
    pub(crate) fn want_room(&self, group: &Group, member: &dyn Member, wanted: bool) -> bool {
        if self.wants_room() == wanted && !wanted {
            return false;
        }
        let mut state = self.state.lock();
        if state.wants_room == wanted {
            return false;
        }
        state.wants_room = wanted;
        self.wants_room.store(wanted, Ordering::Release);
        let _ = state.apply(group, member);
        true
    }

    /// Watches for input, or not: what cannot be read must not wake anybody. True if that is news.
    pub(crate) fn listen(&self, group: &Group, member: &dyn Member, wanted: bool) -> bool {
        if self.is_deaf() != wanted {
            return false;
        }
        let mut state = self.state.lock();
        if state.deaf != wanted {
            return false;
        }
        state.deaf = !wanted;
        self.deaf.store(!wanted, Ordering::SeqCst);
        let _ = state.apply(group, member);
        true
    }
}

impl State {
    /// Has the group watch for what is wished, if it is the group that watches.
    pub(crate) fn apply(&mut self, group: &Group, member: &dyn Member) -> sys::Result<()> {
        if self.by != By::Group {
            return Ok(());
        }
        let interest = Interest {
            read: !self.deaf,
            write: self.wants_room,
            oneshot: false,
        };
        if interest.read || interest.write {
            group.watch(member, interest, self.listed)?;
            self.listed = true;
        } else if self.listed {
            // The system would go on telling of a broken connection, although that is no news.
            group.set_aside(member);
            self.listed = false;
        }
        Ok(())
    }
}
