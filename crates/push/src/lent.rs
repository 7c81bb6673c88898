//! The peer's pools, which we write to or send into, and what is known of each of their elements.
//! They promise to give out an element once until the peer gave it back, always one that fits, and never of a pool that leaves.
//! They refuse to know packets, and the messages that speak of pools.

mod element;
mod lease;

pub use element::{Use, UseEvent};
pub use lease::{Lease, LeaseEvent};

use std::collections::{BTreeMap, BTreeSet};

use verbena_wire::To;
use verbena_wire::push::Pool;

use crate::window::Credit;

#[cfg(test)]
mod tests;

/// What is free of a pool.
#[derive(Debug)]
enum Stock {
    /// Elements of memory (B); the one that came back last is taken first, since it may still be in a cache.
    Elements { uses: Vec<Use>, free: Vec<u32> },
    /// Descriptors, counted (A, C).
    Counted(Credit),
}

/// A pool of the peer.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) pool: Pool,
    pub(crate) lease: Lease,
    stock: Stock,
    /// Transfers that are not at their end: writes under way, indications not sent.
    busy: u32,
}

impl Lent {
    fn new(pool: Pool, counts: bool) -> Lent {
        let stock = if counts {
            Stock::Counted(Credit::new(pool.count))
        } else {
            Stock::Elements {
                uses: vec![Use::Free; pool.count as usize],
                free: (0..pool.count).rev().collect(),
            }
        };
        Lent {
            pool,
            lease: Lease::Usable,
            stock,
            busy: 0,
        }
    }

    pub(crate) fn free(&self) -> u32 {
        match &self.stock {
            Stock::Elements { free, .. } => free.len() as u32,
            Stock::Counted(credit) => credit.left(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Packets that have left so far, where they are counted. Those that the carrier is not done with do not count: a message may
    /// overtake them, and whoever is told of them would miss them.
    pub(crate) fn left(&self) -> Option<u32> {
        match &self.stock {
            Stock::Elements { .. } => None,
            Stock::Counted(credit) => Some(credit.sent().wrapping_sub(self.busy)),
        }
    }

    /// The first byte of an element; checked when the pool was taken in.
    pub(crate) fn address(&self, element: u32) -> To {
        let offset = u64::from(element) * u64::from(self.pool.size);
        self.pool.at.checked_add(offset).unwrap_or(self.pool.at)
    }

    /// Takes the next element; a counted one has no number of its own.
    fn take(&mut self) -> Option<u32> {
        let element = match &mut self.stock {
            Stock::Elements { free, .. } => free.pop()?,
            Stock::Counted(credit) => {
                (credit.left() > 0).then_some(())?;
                credit.spend();
                0
            }
        };
        self.busy += 1;
        Some(element)
    }

    /// Something happens to an element; `None` if it cannot.
    pub(crate) fn step(&mut self, element: u32, event: UseEvent) -> Option<Use> {
        let Stock::Elements { uses, free } = &mut self.stock else {
            // A counted element is forgotten when its packet has left.
            self.busy -= u32::from(event == UseEvent::Complete && self.busy > 0);
            return Some(Use::Used);
        };
        let slot = uses.get_mut(element as usize)?;
        let (before, after) = (*slot, slot.next(event)?);
        *slot = after;
        if before.is_busy() && !after.is_busy() {
            self.busy -= 1;
        }
        if after == Use::Free {
            free.push(element);
        }
        Some(after)
    }
}

/// Why no element was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    Full,
    TooLong { most: u32 },
}

/// All pools of the peer.
#[derive(Debug, Default)]
pub(crate) struct Lents {
    pools: BTreeMap<u32, Lent>,
    /// Usable pools with something free, by size: the smallest that fits is taken.
    ready: BTreeSet<(u32, u32)>,
    /// Usable pools, by size.
    usable: BTreeSet<(u32, u32)>,
    elements: u64,
    free: u64,
}

impl Lents {
    pub(crate) fn len(&self) -> usize {
        self.pools.len()
    }

    /// Elements of all pools.
    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// Free elements of all usable pools.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    pub(crate) fn get(&self, reference: u32) -> Option<&Lent> {
        self.pools.get(&reference)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lent> {
        self.pools.values()
    }

    /// Takes a pool in; the caller checked that there is none of this reference and that the limits allow it.
    pub(crate) fn insert(&mut self, pool: Pool, counts: bool) {
        self.elements += u64::from(pool.count);
        self.pools.insert(pool.reference, Lent::new(pool, counts));
        self.free += u64::from(pool.count);
        self.usable.insert((pool.size, pool.reference));
        self.ready.insert((pool.size, pool.reference));
    }

    pub(crate) fn remove(&mut self, reference: u32) {
        // Out of the books of usable pools first.
        self.change(reference, |lent| lent.lease = Lease::Gone);
        if let Some(lent) = self.pools.remove(&reference) {
            self.elements -= u64::from(lent.pool.count);
        }
    }

    /// Changes a pool and keeps the books about it.
    pub(crate) fn change<R>(
        &mut self,
        reference: u32,
        act: impl FnOnce(&mut Lent) -> R,
    ) -> Option<R> {
        let lent = self.pools.get_mut(&reference)?;
        let usable = |lent: &Lent| lent.lease == Lease::Usable;
        let before = if usable(lent) { lent.free() } else { 0 };
        let result = act(lent);
        let after = if usable(lent) { lent.free() } else { 0 };
        let key = (lent.pool.size, reference);
        if !usable(lent) {
            self.usable.remove(&key);
        }
        if before == 0 && after > 0 {
            self.ready.insert(key);
        }
        if after == 0 {
            self.ready.remove(&key);
        }
        self.free = self.free - u64::from(before) + u64::from(after);
        Some(result)
    }

    /// A packet of so many bytes would find an element.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.ready.range((len, 0)..).next().is_some()
    }

    /// Takes the next free element of the smallest size that fits: its pool and number.
    pub(crate) fn take(&mut self, len: u32) -> Result<(u32, u32), Shortage> {
        let Some(&(_, reference)) = self.ready.range((len, 0)..).next() else {
            let most = self.usable.last().map_or(0, |(size, _)| *size);
            let none = self.usable.range((len, 0)..).next().is_none();
            // Without any pool one may come; with pools, a longer one is another matter.
            return Err(if none && !self.usable.is_empty() {
                Shortage::TooLong { most }
            } else {
                Shortage::Full
            });
        };
        let element = self.change(reference, Lent::take).flatten();
        element
            .map(|element| (reference, element))
            .ok_or(Shortage::Full)
    }

    /// The peer gave an element back; `false` if it was not used.
    pub(crate) fn give_back(&mut self, reference: u32, element: u32) -> bool {
        let step = |lent: &mut Lent| lent.step(element, UseEvent::Return);
        self.change(reference, step).flatten().is_some()
    }

    /// The peer says up to which number we may send; `Err` gives the possible numbers.
    pub(crate) fn raise(&mut self, reference: u32, limit: u32) -> Result<u32, (u32, u32)> {
        let raise = |lent: &mut Lent| match &mut lent.stock {
            Stock::Counted(credit) => credit.raise(limit, lent.pool.count),
            Stock::Elements { .. } => Ok(0),
        };
        self.change(reference, raise).unwrap_or(Ok(0))
    }

    /// Sums that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let usable = || self.pools.values().filter(|l| l.lease == Lease::Usable);
        let free: u64 = usable().map(|l| u64::from(l.free())).sum();
        let elements: u64 = self.pools.values().map(|l| u64::from(l.pool.count)).sum();
        assert_eq!((self.free, self.elements), (free, elements));
        assert_eq!(self.usable.len(), usable().count());
        assert_eq!(self.ready.len(), usable().filter(|l| l.free() > 0).count());
    }
}
