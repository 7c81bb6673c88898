//! The ends of the notification pipeline: whoever waits for completions, and the inbox of everything else that happens.
//! It promises that a notice is never lost: an inbox keeps events until they are taken, and its channel is readable meanwhile.
//! It refuses to decide who is told; queues and the core do.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::Mutex;
use verbena_nic::Event;

use crate::sys::{self, Channel};

/// Is told that an armed queue has a completion. Called without any lock, on whatever thread noticed.
pub trait Notify: Send + Sync {
    /// Once per arming.
    fn notify(&self);

    /// The adapter has ended: what waits for a notification now, or later, must not wait.
    fn end(&self) {
        self.notify();
    }
}

impl<F: Fn() + Send + Sync> Notify for F {
    fn notify(&self) {
        self();
    }
}

impl Notify for Channel {
    fn notify(&self) {
        self.ring();
    }

    fn end(&self) {
        self.ring_for_good();
    }
}

/// Events that nobody has asked for yet.
#[derive(Debug)]
pub struct Inbox {
    waiting: Mutex<VecDeque<Event>>,
    channel: Channel,
    /// The process it was made in, by the forks that lie before it.
    forks: u64,
}

impl Inbox {
    pub(crate) fn new() -> Result<Inbox, sys::Error> {
        Ok(Inbox {
            waiting: Mutex::default(),
            channel: Channel::new()?,
            forks: sys::forks(),
        })
    }

    pub(crate) fn put(&self, event: Event) {
        self.waiting.lock().push_back(event);
        self.channel.ring();
    }

    /// Every wait for an event ends from now on, although nothing came.
    pub(crate) fn end(&self) {
        self.channel.ring_for_good();
    }

    /// The oldest event, if one waits.
    pub fn try_take(&self) -> Option<Event> {
        if sys::forks_since() != self.forks {
            return None;
        }
        let event = self.waiting.lock().pop_front()?;
        // Its ring is there already, so this does not wait.
        let _ = self.channel.take();
        Some(event)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
