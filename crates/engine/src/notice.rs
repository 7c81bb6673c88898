//! The ends of the notification pipeline: whoever waits for completions, and the inbox of everything else that happens.
//! An inbox keeps events until they are taken, and its channel is readable meanwhile; what finds it full is counted and told.
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

/// Events that wait to be read at most. Peers cause them, and a program need not read them.
const MOST: usize = 1 << 16;

/// Events that nobody has asked for yet.
#[derive(Debug)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    channel: Channel,
    /// The process it was made in, by the forks that lie before it.
    forks: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Events that found no room behind those; they have one ring together.
    missed: u32,
}

impl Waiting {
    /// The event that tells of those.
    fn take_missed(&mut self) -> Option<Event> {
        let count = core::mem::take(&mut self.missed);
        (count > 0).then_some(Event::Missed { count })
    }
}

impl Inbox {
    pub(crate) fn new() -> Result<Inbox, sys::Error> {
        Ok(Inbox {
            waiting: Mutex::default(),
            channel: Channel::new()?,
            forks: sys::forks(),
        })
    }

    /// Keeps an event; if there is no room for it, [`Event::Missed`] takes its place.
    pub(crate) fn put(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        let news = if waiting.events.len() < MOST {
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

    /// Every wait for an event ends from now on, although nothing came.
    pub(crate) fn end(&self) {
        self.channel.ring_for_good();
    }

    /// The oldest event, if one waits.
    pub fn try_take(&self) -> Option<Event> {
        if sys::forks_since() != self.forks {
            return None;
        }
        let event = {
            let mut waiting = self.waiting.lock();
            let oldest = waiting.events.pop_front();
            oldest.or_else(|| waiting.take_missed())?
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_events_are_bounded_and_counted() {
        let inbox = Inbox::new().unwrap();
        let event = |qp| Event::QpFatal { qp };
        let most = MOST as u32;
        for round in 0..2 {
            (0..most + 100).for_each(|qp| inbox.put(event(qp)));
            assert!(inbox.waiting.lock().events.len() <= MOST);
            for qp in 0..most {
                assert_eq!(inbox.try_take(), Some(event(qp)), "round {round}");
            }
            assert_eq!(inbox.try_take(), Some(Event::Missed { count: 100 }));
            assert_eq!(inbox.try_take(), None);
        }
        // What comes after the gap is behind it.
        (0..=most).for_each(|qp| inbox.put(event(qp)));
        inbox.try_take();
        inbox.try_take();
        inbox.put(event(7));
        let rest: Vec<_> = core::iter::from_fn(|| inbox.try_take()).collect();
        let end = [Event::Missed { count: 1 }, event(7)];
        assert!(rest.ends_with(&end) && rest.len() == MOST);
        assert!(!inbox.channel.try_take(), "no ring is left");
    }
}
