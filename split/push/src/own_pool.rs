//! A pool of ours that the peer writes to or sends into, and the state of each of its elements. An element belongs to the peer or
//! to the program, never to both, and each arrival is accepted once. The pool's memory and the messages about it are handled elsewhere.

use std::collections::VecDeque;

use verbena_split_wire::push::{Pool, Range};

use crate::error::Violation;
use crate::window::Grant;

#[cfg(test)]
mod tests;

/// The state of an element of our pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnElementState {
    /// The peer may write to it.
    Lent,
    /// A packet is in it; the program has it.
    Held,
    /// The program gave it back; the peer has not been told yet.
    Returning,
}

/// An event of an element of our pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnElementEvent {
    /// A packet was indicated.
    Arrive,
    /// The program gives it back.
    GiveBack,
    /// The peer is told.
    Update,
}

impl OwnElementState {
    /// The element after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: OwnElementEvent) -> Option<OwnElementState> {
        match (self, event) {
            (OwnElementState::Lent, OwnElementEvent::Arrive) => Some(OwnElementState::Held),
            (OwnElementState::Held, OwnElementEvent::GiveBack) => Some(OwnElementState::Returning),
            (OwnElementState::Returning, OwnElementEvent::Update) => Some(OwnElementState::Lent),
            _ => None,
        }
    }
}

/// The state of a pool of ours (P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnPoolState {
    /// In use.
    Lent,
    /// The peer was asked to stop using it.
    Recalled,
    /// The peer has stopped; packets in flight are awaited.
    Draining,
    /// The peer has stopped and nothing is in flight; only the program may still hold elements.
    Free,
}

/// An event of a pool of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnPoolEvent {
    /// The program recalls it.
    Recall,
    /// The peer has stopped, on our request or on its own.
    Stopped,
    /// Nothing is in flight any more.
    Drained,
}

impl OwnPoolState {
    /// The pool after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: OwnPoolEvent) -> Option<OwnPoolState> {
        match (self, event) {
            (OwnPoolState::Lent, OwnPoolEvent::Recall) => Some(OwnPoolState::Recalled),
            (OwnPoolState::Lent | OwnPoolState::Recalled, OwnPoolEvent::Stopped) => {
                Some(OwnPoolState::Draining)
            }
            (OwnPoolState::Draining, OwnPoolEvent::Drained) => Some(OwnPoolState::Free),
            // Both sides asked at the same time: the second answer changes nothing.
            (OwnPoolState::Draining, OwnPoolEvent::Stopped) => Some(OwnPoolState::Draining),
            (OwnPoolState::Free, OwnPoolEvent::Stopped) => Some(OwnPoolState::Free),
            _ => None,
        }
    }
}

/// Elements that justify an update message, unless a quarter of the pool is fewer.
const MIN_UPDATE: u32 = 8;

/// Receive descriptors in the order in which packets consume them (A, C).
#[derive(Debug)]
pub(crate) struct Posted {
    queue: VecDeque<u32>,
    grant: Grant,
    /// How many packets the peer announced as sent, and the announcement at the last `give_up`.
    announced: Option<u32>,
    previously_announced: Option<u32>,
}

/// A pool of ours.
#[derive(Debug)]
pub(crate) struct OwnPool {
    pool: Pool,
    elements: Vec<OwnElementState>,
    state: OwnPoolState,
    lent: u32,
    held: u32,
    /// Elements in state `Returning` that the peer is to be told of, in the order in which they were given back.
    returning: Vec<u32>,
    posted: Option<Posted>,
}

impl OwnPool {
    /// `counts` if its elements are receive descriptors.
    pub(crate) fn new(pool: Pool, counts: bool) -> OwnPool {
        let posted = counts.then(|| Posted {
            queue: (0..pool.count).collect(),
            grant: Grant::new(pool.count),
            announced: None,
            previously_announced: None,
        });
        OwnPool {
            pool,
            elements: vec![OwnElementState::Lent; pool.count as usize],
            state: OwnPoolState::Lent,
            lent: pool.count,
            held: 0,
            returning: Vec::new(),
            posted,
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Elements that the peer may use.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    pub(crate) fn state(&self) -> OwnPoolState {
        self.state
    }

    pub(crate) fn advance(&mut self, event: OwnPoolEvent) -> bool {
        let next = self.state.next(event);
        self.state = next.unwrap_or(self.state);
        next.is_some()
    }

    /// Whether it can be forgotten: the peer is done with it and the program holds no element.
    pub(crate) fn is_finished(&self) -> bool {
        self.state == OwnPoolState::Free && self.held == 0
    }

    fn step(&mut self, element: u32, event: OwnElementEvent) -> Option<()> {
        let hold = self.elements.get_mut(element as usize)?;
        *hold = hold.next(event)?;
        Some(())
    }

    /// An element was indicated (B).
    pub(crate) fn arrive(&mut self, element: u32, length: u32) -> Result<(), Violation> {
        let pool = self.pool.reference;
        let size = self.pool.size;
        if self.state == OwnPoolState::Free {
            return Err(Violation::NotLent { pool, element });
        }
        if length > size && (element as usize) < self.elements.len() {
            return Err(Violation::Length {
                pool,
                element,
                length,
                size,
            });
        }
        self.step(element, OwnElementEvent::Arrive)
            .ok_or(Violation::NotLent { pool, element })?;
        self.lent -= 1;
        self.held += 1;
        Ok(())
    }

    /// The element that begins at an address.
    pub(crate) fn element_at(&self, at: u64) -> Option<u32> {
        let offset = at.checked_sub(self.pool.at.get())?;
        let size = u64::from(self.pool.size);
        if !offset.is_multiple_of(size) || offset / size >= u64::from(self.pool.count) {
            return None;
        }
        u32::try_from(offset / size).ok()
    }

    /// A packet consumed the next descriptor; returns its element.
    pub(crate) fn consume_descriptor(&mut self, length: u32) -> Result<u32, Violation> {
        let (pool, size) = (self.pool.reference, self.pool.size);
        let posted = self.posted.as_mut().ok_or(Violation::PacketOverrun)?;
        let front = posted.queue.front().copied();
        let element = front
            .filter(|_| self.state != OwnPoolState::Free)
            .ok_or(Violation::PacketOverrun)?;
        posted.queue.pop_front();
        if !posted.grant.receive() {
            // Given up for lost, or sent without credit: the carrier's descriptor is consumed, and so is ours.
            if self.state == OwnPoolState::Lent {
                posted.queue.push_back(element);
            }
            return Err(Violation::Late { pool, element });
        }
        self.step(element, OwnElementEvent::Arrive)
            .ok_or(Violation::NotLent { pool, element })?;
        self.lent -= 1;
        self.held += 1;
        if length > size {
            // The descriptor is consumed, but the program does not get the element.
            self.give_back(element);
            return Err(Violation::Length {
                pool,
                element,
                length,
                size,
            });
        }
        Ok(element)
    }

    /// The program gives an element back. `None` if the program did not have it; otherwise whether the element is lent again.
    pub(crate) fn give_back(&mut self, element: u32) -> Option<bool> {
        self.step(element, OwnElementEvent::GiveBack)?;
        self.held -= 1;
        let again = self.state == OwnPoolState::Lent;
        if again {
            self.returning.push(element);
            if let Some(posted) = &mut self.posted {
                posted.queue.push_back(element);
            }
        }
        Some(again)
    }

    /// This many packets of the peer are lost; returns how many can have been.
    pub(crate) fn count_lost(&mut self, count: u32) -> u32 {
        self.posted
            .as_mut()
            .map_or(0, |p| p.grant.count_lost(count))
    }

    /// The peer announces how many packets it had sent at that time; `Err` gives the possible range.
    pub(crate) fn announce(&mut self, number: u32) -> Result<(), (u32, u32)> {
        let Some(posted) = &mut self.posted else {
            return Err((0, 0));
        };
        if posted.grant.missing(number).is_none() {
            let from = posted.grant.received();
            if !posted.grant.is_passed(number) {
                return Err((from, from.wrapping_add(posted.grant.left())));
            }
            // Packets sent after the announcement arrived before it. But a peer that announces the same number again a refresh later has
            // sent nothing since: then our count is too high, because some packets arrived after we had given them up.
            if posted.previously_announced == Some(number) {
                posted.grant.correct(number, self.pool.count);
            }
        }
        posted.announced = Some(number);
        Ok(())
    }

    /// Gives up packets that were announced before the previous call and have not arrived; returns how many. Packets that were
    /// announced since then may still be in flight.
    pub(crate) fn give_up(&mut self) -> u32 {
        let Some(posted) = &mut self.posted else {
            return 0;
        };
        let missing = posted
            .previously_announced
            .and_then(|aged| posted.grant.missing(aged));
        posted.previously_announced = posted.announced;
        posted.grant.count_lost(missing.unwrap_or(0))
    }

    /// Packets that were announced and have not arrived.
    pub(crate) fn missing(&self) -> u32 {
        let posted = self.posted.as_ref();
        let missing = posted.and_then(|p| p.grant.missing(p.announced?));
        missing.unwrap_or(0)
    }

    /// Whether to tell the peer of returned elements: there are enough for a message, or the peer has none left.
    pub(crate) fn is_due(&self, hurry: bool) -> bool {
        // A recalled pool is not lent again.
        if self.state != OwnPoolState::Lent {
            return false;
        }
        let (owed, left) = match &self.posted {
            Some(posted) => (
                posted.grant.grantable(posted.queue.len() as u32),
                posted.grant.left(),
            ),
            None => (self.returning.len() as u32, self.lent),
        };
        // In batches: while the peer has other elements, a message for each would be waste. But not in large ones: elements that
        // are reused soon are still in the processor's cache.
        owed > 0 && (hurry || left == 0 || owed >= (self.pool.count / 4).min(MIN_UPDATE))
    }

    /// Appends the ranges to tell the peer, up to `most` in `out`, and marks their elements as lent.
    pub(crate) fn update(&mut self, most: usize, out: &mut Vec<Range>) {
        let pool = self.pool.reference;
        if let Some(posted) = &mut self.posted {
            if out.len() >= most {
                return;
            }
            let (first, count) = posted.grant.grant(posted.queue.len() as u32);
            out.push(Range { pool, first, count });
            let back = core::mem::take(&mut self.returning);
            back.iter().for_each(|e| self.relend(*e));
            return;
        }
        // Adjacent elements share a range.
        self.returning.sort_unstable();
        let mut taken = 0;
        for &element in &self.returning {
            let full = out.len() >= most;
            match out.last_mut() {
                Some(last) if last.pool == pool && last.first + last.count == element => {
                    last.count += 1;
                }
                _ if full => break,
                _ => out.push(Range {
                    pool,
                    first: element,
                    count: 1,
                }),
            }
            taken += 1;
        }
        let back: Vec<u32> = self.returning.drain(..taken).collect();
        back.iter().for_each(|e| self.relend(*e));
    }

    fn relend(&mut self, element: u32) {
        if self.step(element, OwnElementEvent::Update).is_some() {
            self.lent += 1;
        }
    }

    /// The current grant, to repeat it (A, C).
    pub(crate) fn current_grant(&self) -> Option<Range> {
        let (first, count) = self.posted.as_ref()?.grant.current();
        Some(Range {
            pool: self.pool.reference,
            first,
            count,
        })
    }

    /// Relations that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let of = |hold| self.elements.iter().filter(|h| **h == hold).count();
        assert_eq!(of(OwnElementState::Lent), self.lent as usize);
        assert_eq!(of(OwnElementState::Held), self.held as usize);
        assert!(self.returning.len() <= of(OwnElementState::Returning));
        if let Some(posted) = &self.posted {
            assert!(posted.grant.left() as usize <= posted.queue.len());
            assert!(posted.queue.len() <= self.elements.len());
        }
    }
}
