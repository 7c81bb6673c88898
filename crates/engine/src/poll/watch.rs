//! The readiness that a group member's socket is watched for: input, and room to write.
//! The interest and the epoll call change together under a lock, so that what is watched is what was requested last. A caller checks
//! again after a change, since the condition may have changed before.

use verbena_sync::atomic::{AtomicBool, Ordering};

use verbena_sync::locks::{Mutex, MutexGuard};

use crate::poll::group::{Group, Member};
use crate::sys::{self, Interest};

/// Which poller watches the socket, and for what.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    /// Copies of the fields in the state, read without the lock when nothing would change.
    wants_room: AtomicBool,
    read_disabled: AtomicBool,
}

/// The authoritative state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) watched_by: WatchedBy,
    /// The socket is in the group's poller.
    in_poller: bool,
    /// Room to write is awaited.
    wants_room: bool,
    /// The poller watches for it.
    watches_room: bool,
    /// Input is not awaited: a message waits for a receive, or no input can come.
    read_disabled: bool,
}

/// Which poller watches the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchedBy {
    /// The shard, with one-shot interest: the connection is starting or lingering.
    Shard,
    /// The group: the connection is running.
    Group,
    /// None any more.
    None,
}

impl Watch {
    pub(crate) fn new(by: WatchedBy) -> Watch {
        Watch {
            state: Mutex::new(State {
                watched_by: by,
                in_poller: false,
                wants_room: false,
                watches_room: false,
                read_disabled: false,
            }),
            wants_room: AtomicBool::new(false),
            read_disabled: AtomicBool::new(false),
        }
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room.load(Ordering::Acquire)
    }

    pub(crate) fn is_read_disabled(&self) -> bool {
        self.read_disabled.load(Ordering::SeqCst)
    }

    /// Sets whether room to write is awaited; true if that changed.
    pub(crate) fn want_room(&self, group: &Group, member: &dyn Member, wanted: bool) -> bool {
        if self.wants_room() == wanted && !wanted {
            return false;
        }
        let mut state = self.state.lock();
        if state.wants_room == wanted {
            if wanted && state.watches_room && !member.watches_room() {
                // It does not wait for its socket any more.
                let _ = state.apply(group, member);
            }
            return false;
        }
        state.wants_room = wanted;
        self.wants_room.store(wanted, Ordering::Release);
        let _ = state.apply(group, member);
        true
    }

    /// Sets whether input is awaited: input that cannot be read must not wake a thread. True if that changed.
    pub(crate) fn want_input(&self, group: &Group, member: &dyn Member, wanted: bool) -> bool {
        if self.is_read_disabled() != wanted {
            return false;
        }
        let mut state = self.state.lock();
        if state.read_disabled != wanted {
            return false;
        }
        state.read_disabled = !wanted;
        self.read_disabled.store(!wanted, Ordering::SeqCst);
        let _ = state.apply(group, member);
        true
    }
}

impl State {
    /// Applies the interest to the group's poller, if that watches the socket.
    pub(crate) fn apply(&mut self, group: &Group, member: &dyn Member) -> sys::Result<()> {
        if self.watched_by != WatchedBy::Group {
            return Ok(());
        }
        let interest = Interest {
            read: !self.read_disabled,
            write: self.wants_room && member.watches_room(),
            oneshot: false,
        };
        self.watches_room = interest.write;
        if interest.read || interest.write {
            group.watch(member, interest, self.in_poller)?;
            self.in_poller = true;
        } else if self.in_poller {
            // Removed, since epoll would keep reporting a broken connection.
            group.unwatch(member);
            self.in_poller = false;
        }
        Ok(())
    }
}
