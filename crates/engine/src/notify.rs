//! The ends of the notification pipeline: the [`Notify`] trait for completions, and the [`Inbox`] for all other events.
//! An inbox keeps up to 65536 events until they are taken, and its channel is readable meanwhile; further events are counted and
//! reported as [`Event::Missed`].

pub(crate) mod attach;
pub(crate) mod columns;
pub mod failure_log;
pub mod handler;
pub(crate) mod handler_api;
pub(crate) mod handler_threads;
pub(crate) mod interrupt_counters;
pub mod link;
pub(crate) mod local_server;
pub mod monitor;
pub(crate) mod packet_addresses;
pub(crate) mod pipeline;
pub(crate) mod signals;
pub(crate) mod steering_api;
pub(crate) mod ticker;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use verbena_nic::Event;
use verbena_sync::locks::Mutex;

use crate::sys::{self, Channel};

/// Notified that an armed queue has a completion. Called without any lock held, on any thread.
pub trait Notify: Send + Sync {
    /// Called once per arming.
    fn notify(&self);

    /// The adapter has ended: current and future waits for a notification must return.
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
        self.ring_forever();
    }
}

/// Limit of unread events. Peers cause them, and a program need not read them.
const MAX_EVENTS: usize = 1 << 16;

/// Events that the program has not read yet.
#[derive(Debug)]
pub struct Inbox {
    pending: Mutex<PendingEvents>,
    channel: Channel,
    /// The fork count of the process it was made in.
    forks: u64,
}

#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<Event>,
    /// Events that found no room behind those; they share one ring of the channel.
    missed: u32,
}

impl PendingEvents {
    /// The event that reports the missed ones, if any; resets the count.
    fn take_missed(&mut self) -> Option<Event> {
        let count = core::mem::take(&mut self.missed);
        (count > 0).then_some(Event::Missed { count })
    }
}

impl Inbox {
    pub(crate) fn new() -> Result<Inbox, sys::Error> {
        Ok(Inbox {
            pending: Mutex::default(),
            channel: Channel::new()?,
            forks: sys::watch_forks(),
        })
    }

    /// Appends an event; if there is no room, it is counted in [`Event::Missed`].
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.pending.lock();
        let news = if waiting.events.len() < MAX_EVENTS {
            let missed = waiting.take_missed();
            waiting.events.extend(missed);
            waiting.events.push_back(event);
            true
        } else {
            waiting.missed = waiting.missed.saturating_add(1);
            waiting.missed == 1
        };
        drop(waiting);
        if news {
            self.channel.ring();
        }
    }

    /// Ends every wait for an event from now on, although none came.
    pub(crate) fn end(&self) {
        self.channel.ring_forever();
    }

    /// The oldest event, if one waits.
    pub fn try_take(&self) -> Option<Event> {
        if sys::fork_count() != self.forks {
            return None;
        }
        let event = {
            let mut waiting = self.pending.lock();
            let oldest = waiting.events.pop_front();
            oldest.or_else(|| waiting.take_missed())?
        };
        // Its ring precedes it in the channel, so this does not block.
        let _ = self.channel.take();
        Some(event)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_events_are_bounded_and_counted() {
        let inbox = Inbox::new().unwrap();
        let event = |qp| Event::QpFatal { qp };
        let most = MAX_EVENTS as u32;
        for round in 0..2 {
            (0..most + 100).for_each(|qp| inbox.push(event(qp)));
            assert!(inbox.pending.lock().events.len() <= MAX_EVENTS);
            for qp in 0..most {
                assert_eq!(inbox.try_take(), Some(event(qp)), "round {round}");
            }
            assert_eq!(inbox.try_take(), Some(Event::Missed { count: 100 }));
            assert_eq!(inbox.try_take(), None);
        }
        // Events after the gap come behind it.
        (0..=most).for_each(|qp| inbox.push(event(qp)));
        inbox.try_take();
        inbox.try_take();
        inbox.push(event(7));
        let rest: Vec<_> = core::iter::from_fn(|| inbox.try_take()).collect();
        let end = [Event::Missed { count: 1 }, event(7)];
        assert!(rest.ends_with(&end) && rest.len() == MAX_EVENTS);
        assert!(!inbox.channel.try_take(), "no ring is left");
    }
}
