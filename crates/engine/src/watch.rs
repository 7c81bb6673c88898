//! The readiness that a group member's socket is watched for: input, and room to write.
//! The interest and the epoll call change together under a lock, so that what is watched is what was requested last. A caller checks
//! again after a change, since the condition may have changed before.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::group::{Group, Member};
use crate::sys::{self, Interest};

/// Which poller watches the socket, and for what.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    /// Copies of the fields in the state, read without the lock when nothing would change.
    wants_room: AtomicBool,
    deaf: AtomicBool,
}

/// The authoritative state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) by: By,
    /// The socket is in the group's poller.
    listed: bool,
    /// Room to write is awaited.
    wants_room: bool,
    /// Input is not awaited: a message waits for a receive, or no input can come.
    deaf: bool,
}

/// Which poller watches the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The shard, with one-shot interest: the connection is starting or lingering.
    Shard,
    /// The group: the connection is running.
    Group,
    /// None any more.
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

    /// Locks the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Acquire)
    }

    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }

    /// Sets whether room to write is awaited; true if that changed.
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

    /// Sets whether input is awaited: input that cannot be read must not wake a thread. True if that changed.
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
    /// Applies the interest to the group's poller, if that watches the socket.
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
            // Removed, since epoll would keep reporting a broken connection.
            group.set_aside(member);
            self.listed = false;
        }
        Ok(())
    }
}
