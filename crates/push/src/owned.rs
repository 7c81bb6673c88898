//! A pool of ours that the peer writes to or sends into, and what is known of each of its elements.
//! It promises that an element is the peer's or the program's, never both, and that an arrival is believed once.
//! It refuses to know its memory, and the messages that speak of it.

use std::collections::VecDeque;

use verbena_wire::push::{Pool, Range};

use crate::error::Violation;
use crate::window::Grant;

#[cfg(test)]
mod tests;

/// Who has an element of our pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The peer may write to it.
    Lent,
    /// A packet lies in it: the program's.
    Held,
    /// The program gave it back; the peer does not know yet.
    Returning,
}

/// What happens to an element of our pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldEvent {
    /// A packet was indicated.
    Arrive,
    /// The program is done with it.
    GiveBack,
    /// The peer is told.
    Update,
}

impl Hold {
    /// The element after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: HoldEvent) -> Option<Hold> {
        match (self, event) {
            (Hold::Lent, HoldEvent::Arrive) => Some(Hold::Held),
            (Hold::Held, HoldEvent::GiveBack) => Some(Hold::Returning),
            (Hold::Returning, HoldEvent::Update) => Some(Hold::Lent),
            _ => None,
        }
    }
}

/// How far a pool of ours is from being freed (P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tenure {
    /// In use.
    Lent,
    /// We asked the peer to stop.
    Recalled,
    /// The peer has stopped; packets on their way are waited for.
    Draining,
    /// The peer is done with it; only the program may still hold elements.
    Free,
}

/// What happens to a pool of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TenureEvent {
    /// The program wants it back.
    Recall,
    /// The peer has stopped, as we asked, or by itself.
    Stopped,
    /// Nothing is on its way any more.
    Drained,
}

impl Tenure {
    /// The pool after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: TenureEvent) -> Option<Tenure> {
        match (self, event) {
            (Tenure::Lent, TenureEvent::Recall) => Some(Tenure::Recalled),
            (Tenure::Lent | Tenure::Recalled, TenureEvent::Stopped) => Some(Tenure::Draining),
            (Tenure::Draining, TenureEvent::Drained) => Some(Tenure::Free),
            // Both sides asked at once: the second answer changes nothing.
            (Tenure::Draining, TenureEvent::Stopped) => Some(Tenure::Draining),
            (Tenure::Free, TenureEvent::Stopped) => Some(Tenure::Free),
            _ => None,
        }
    }
}

/// So many elements are worth a message.
const SOME: u32 = 8;

/// Descriptors in the order in which packets fall into them (A, C).
#[derive(Debug)]
pub(crate) struct Posted {
    queue: VecDeque<u32>,
    grant: Grant,
    /// How many the peer said it has sent, and how many it had said when we looked for missing ones last.
    announced: Option<u32>,
    aged: Option<u32>,
}

/// A pool of ours.
#[derive(Debug)]
pub(crate) struct Owned {
    pool: Pool,
    holds: Vec<Hold>,
    tenure: Tenure,
    lent: u32,
    held: u32,
    /// Elements that are returning, in the order in which they were given back.
    returning: Vec<u32>,
    posted: Option<Posted>,
}

impl Owned {
    /// `counts` if its elements are descriptors.
    pub(crate) fn new(pool: Pool, counts: bool) -> Owned {
        let posted = counts.then(|| Posted {
            queue: (0..pool.count).collect(),
            grant: Grant::new(pool.count),
            announced: None,
            aged: None,
        });
        Owned {
            pool,
            holds: vec![Hold::Lent; pool.count as usize],
            tenure: Tenure::Lent,
            lent: pool.count,
            held: 0,
            returning: Vec::new(),
            posted,
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn tenure(&self) -> Tenure {
        self.tenure
    }

    pub(crate) fn advance(&mut self, event: TenureEvent) -> bool {
        let next = self.tenure.next(event);
        self.tenure = next.unwrap_or(self.tenure);
        next.is_some()
    }

    /// Nothing but the program keeps it.
    pub(crate) fn is_over(&self) -> bool {
        self.tenure == Tenure::Free && self.held == 0
    }

    fn step(&mut self, element: u32, event: HoldEvent) -> Option<()> {
        let hold = self.holds.get_mut(element as usize)?;
        *hold = hold.next(event)?;
        Some(())
    }

    /// An element was indicated.
    pub(crate) fn arrive(&mut self, element: u32, length: u32) -> Result<(), Violation> {
        let pool = self.pool.reference;
        let size = self.pool.size;
        if self.tenure == Tenure::Free {
            return Err(Violation::NotLent { pool, element });
        }
        if length > size && (element as usize) < self.holds.len() {
            return Err(Violation::Length {
                pool,
                element,
                length,
                size,
            });
        }
        self.step(element, HoldEvent::Arrive)
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

    /// A packet fell into the descriptor that is next; returns its element.
    pub(crate) fn fall(&mut self, length: u32) -> Result<u32, Violation> {
        let (pool, size) = (self.pool.reference, self.pool.size);
        let posted = self.posted.as_mut().ok_or(Violation::PacketOverrun)?;
        let front = posted.queue.front().copied();
        let element = front
            .filter(|_| self.tenure != Tenure::Free)
            .ok_or(Violation::PacketOverrun)?;
        posted.queue.pop_front();
        if !posted.grant.receive() {
            // Given up for lost, or sent without credit: the carrier's descriptor is spent, and so is ours.
            if self.tenure == Tenure::Lent {
                posted.queue.push_back(element);
            }
            return Err(Violation::Late { pool, element });
        }
        self.step(element, HoldEvent::Arrive)
            .ok_or(Violation::NotLent { pool, element })?;
        self.lent -= 1;
        self.held += 1;
        if length > size {
            // The descriptor is spent, and nothing of it is the program's.
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

    /// The program is done with an element; `false` if it was not the program's. Tells whether it is lent again.
    pub(crate) fn give_back(&mut self, element: u32) -> Option<bool> {
        self.step(element, HoldEvent::GiveBack)?;
        self.held -= 1;
        let again = self.tenure == Tenure::Lent;
        if again {
            self.returning.push(element);
            if let Some(posted) = &mut self.posted {
                posted.queue.push_back(element);
            }
        }
        Some(again)
    }

    /// So many packets of the peer are lost; returns how many can be.
    pub(crate) fn lose(&mut self, count: u32) -> u32 {
        self.posted.as_mut().map_or(0, |p| p.grant.lose(count))
    }

    /// The peer says how many packets had left it when it said so; `Err` gives the numbers that are possible.
    pub(crate) fn announce(&mut self, number: u32) -> Result<(), (u32, u32)> {
        let Some(posted) = &mut self.posted else {
            return Err((0, 0));
        };
        if posted.grant.missing(number).is_none() {
            let from = posted.grant.received();
            if !posted.grant.is_passed(number) {
                return Err((from, from.wrapping_add(posted.grant.left())));
            }
            // Packets that left after it was composed were faster. But who says the same again a refresh later has sent nothing
            // since: then we counted too many, because some came after we had given them up.
            if posted.aged == Some(number) {
                posted.grant.correct(number, self.pool.count);
            }
        }
        posted.announced = Some(number);
        Ok(())
    }

    /// Gives up what was announced before this was called last and has not arrived; returns how many that are. What was announced
    /// since then may still be on its way.
    pub(crate) fn give_up(&mut self) -> u32 {
        let Some(posted) = &mut self.posted else {
            return 0;
        };
        let missing = posted.aged.and_then(|aged| posted.grant.missing(aged));
        posted.aged = posted.announced;
        posted.grant.lose(missing.unwrap_or(0))
    }

    /// How many packets were announced and have not arrived.
    pub(crate) fn missing(&self) -> u32 {
        let posted = self.posted.as_ref();
        let missing = posted.and_then(|p| p.grant.missing(p.announced?));
        missing.unwrap_or(0)
    }

    /// Elements to tell the peer of are enough to be worth a message, or the peer has none left.
    pub(crate) fn is_due(&self, hurry: bool) -> bool {
        // A pool that is leaving is not lent again.
        if self.tenure != Tenure::Lent {
            return false;
        }
        let (owed, left) = match &self.posted {
            Some(posted) => (
                posted.grant.owed(posted.queue.len() as u32),
                posted.grant.left(),
            ),
            None => (self.returning.len() as u32, self.lent),
        };
        // Some at a time: while the peer has others, a message for each would be waste. But not many: elements that are used
        // again soon are still in the processor's cache.
        owed > 0 && (hurry || left == 0 || owed >= (self.pool.count / 4).min(SOME))
    }

    /// Takes what the peer is told, as ranges; `most` of them.
    pub(crate) fn update(&mut self, most: usize, out: &mut Vec<Range>) {
        let pool = self.pool.reference;
        if let Some(posted) = &mut self.posted {
            if out.len() >= most {
                return;
            }
            let (first, count) = posted.grant.tell(posted.queue.len() as u32);
            out.push(Range { pool, first, count });
            let back = core::mem::take(&mut self.returning);
            back.iter().for_each(|e| self.relend(*e));
            return;
        }
        // Neighbours share a range.
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
        if self.step(element, HoldEvent::Update).is_some() {
            self.lent += 1;
        }
    }

    /// What was granted, to say it again (A, C).
    pub(crate) fn again(&self) -> Option<Range> {
        let (first, count) = self.posted.as_ref()?.grant.again();
        Some(Range {
            pool: self.pool.reference,
            first,
            count,
        })
    }

    /// Inequalities that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let of = |hold| self.holds.iter().filter(|h| **h == hold).count();
        assert_eq!(of(Hold::Lent), self.lent as usize);
        assert_eq!(of(Hold::Held), self.held as usize);
        assert!(self.returning.len() <= of(Hold::Returning));
        if let Some(posted) = &self.posted {
            assert!(posted.grant.left() as usize <= posted.queue.len());
            assert!(posted.queue.len() <= self.holds.len());
        }
    }
}
