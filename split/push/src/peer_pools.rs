//! The peer's pools, which we write to or send into, and the state of each of their elements. An element is taken only while free,
//! only for a packet that fits, and never from a pool that is being recalled or released.

mod element;
mod state;

pub use element::{PeerElementEvent, PeerElementState};
pub use state::{PeerPoolEvent, PeerPoolState};

use std::collections::{BTreeMap, BTreeSet};

use verbena_split_wire::push::Pool;
use verbena_wire::To;

use crate::window::Credit;

#[cfg(test)]
mod tests;

/// The free elements of a pool.
#[derive(Debug)]
enum FreeElements {
    /// Elements of memory (B); the most recently returned is taken first, since it may still be in a cache.
    Elements {
        states: Vec<PeerElementState>,
        free: Vec<u32>,
    },
    /// Descriptors, counted (A, C).
    Counted(Credit),
}

/// A pool of the peer.
#[derive(Debug)]
pub(crate) struct PeerPool {
    pub(crate) pool: Pool,
    pub(crate) state: PeerPoolState,
    free_elements: FreeElements,
    /// Transfers that are not complete: writes in flight and indications not sent.
    busy: u32,
}

impl PeerPool {
    fn new(pool: Pool, counts: bool) -> PeerPool {
        let stock = if counts {
            FreeElements::Counted(Credit::new(pool.count))
        } else {
            FreeElements::Elements {
                states: vec![PeerElementState::Free; pool.count as usize],
                free: (0..pool.count).rev().collect(),
            }
        };
        PeerPool {
            pool,
            state: PeerPoolState::Usable,
            free_elements: stock,
            busy: 0,
        }
    }

    pub(crate) fn free(&self) -> u32 {
        match &self.free_elements {
            FreeElements::Elements { free, .. } => free.len() as u32,
            FreeElements::Counted(credit) => credit.left(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Packets that the carrier is done with so far, where packets are counted. Packets still in the carrier's queues are excluded: an
    /// announcement may overtake them, and the peer would count them as missing.
    pub(crate) fn packets_sent(&self) -> Option<u32> {
        match &self.free_elements {
            FreeElements::Elements { .. } => None,
            FreeElements::Counted(credit) => Some(credit.sent().wrapping_sub(self.busy)),
        }
    }

    /// The address of an element; it was checked when the pool was accepted that no element's address wraps.
    pub(crate) fn address(&self, element: u32) -> To {
        let offset = u64::from(element) * u64::from(self.pool.size);
        self.pool.at.checked_add(offset).unwrap_or(self.pool.at)
    }

    /// Takes the next element; a counted one has no number, and 0 is returned.
    fn take(&mut self) -> Option<u32> {
        let element = match &mut self.free_elements {
            FreeElements::Elements { free, .. } => free.pop()?,
            FreeElements::Counted(credit) => {
                (credit.left() > 0).then_some(())?;
                credit.spend();
                0
            }
        };
        self.busy += 1;
        Some(element)
    }

    /// Applies an event to an element; `None` if the event is impossible in its state.
    pub(crate) fn step(
        &mut self,
        element: u32,
        event: PeerElementEvent,
    ) -> Option<PeerElementState> {
        let FreeElements::Elements { states: uses, free } = &mut self.free_elements else {
            // Counted elements have no state; only the number in flight is kept.
            self.busy -= u32::from(event == PeerElementEvent::Complete && self.busy > 0);
            return Some(PeerElementState::Used);
        };
        let slot = uses.get_mut(element as usize)?;
        let (before, after) = (*slot, slot.next(event)?);
        *slot = after;
        if before.is_busy() && !after.is_busy() {
            self.busy -= 1;
        }
        if after == PeerElementState::Free {
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
pub(crate) struct PeerPools {
    pools: BTreeMap<u32, PeerPool>,
    /// Usable pools with a free element, by size: the smallest that fits is taken.
    ready: BTreeSet<(u32, u32)>,
    /// Usable pools, by size.
    usable: BTreeSet<(u32, u32)>,
    elements: u64,
    free: u64,
}

impl PeerPools {
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

    pub(crate) fn get(&self, reference: u32) -> Option<&PeerPool> {
        self.pools.get(&reference)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PeerPool> {
        self.pools.values()
    }

    /// Adds a pool; the caller has checked that the reference is new and the limits allow it.
    pub(crate) fn insert(&mut self, pool: Pool, counts: bool) {
        self.elements += u64::from(pool.count);
        self.pools
            .insert(pool.reference, PeerPool::new(pool, counts));
        self.free += u64::from(pool.count);
        self.usable.insert((pool.size, pool.reference));
        self.ready.insert((pool.size, pool.reference));
    }

    pub(crate) fn remove(&mut self, reference: u32) {
        // Removes it from the sets of usable pools.
        self.change(reference, |lent| lent.state = PeerPoolState::Closed);
        if let Some(lent) = self.pools.remove(&reference) {
            self.elements -= u64::from(lent.pool.count);
        }
    }

    /// Changes a pool and updates the sets and sums.
    pub(crate) fn change<R>(
        &mut self,
        reference: u32,
        act: impl FnOnce(&mut PeerPool) -> R,
    ) -> Option<R> {
        let lent = self.pools.get_mut(&reference)?;
        let usable = |lent: &PeerPool| lent.state == PeerPoolState::Usable;
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

    /// Whether there is a free element for a packet of this length.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.ready.range((len, 0)..).next().is_some()
    }

    /// Takes a free element from a pool with the smallest elements that fit; returns pool and element.
    pub(crate) fn take(&mut self, len: u32) -> Result<(u32, u32), Shortage> {
        let Some(&(_, reference)) = self.ready.range((len, 0)..).next() else {
            let most = self.usable.last().map_or(0, |(size, _)| *size);
            let none = self.usable.range((len, 0)..).next().is_none();
            // Without any pool the packet may fit one that comes; with pools it is too long for all of them.
            return Err(if none && !self.usable.is_empty() {
                Shortage::TooLong { most }
            } else {
                Shortage::Full
            });
        };
        let element = self.change(reference, PeerPool::take).flatten();
        element
            .map(|element| (reference, element))
            .ok_or(Shortage::Full)
    }

    /// The peer gave an element back; `false` if it was not in use.
    pub(crate) fn give_back(&mut self, reference: u32, element: u32) -> bool {
        let step = |lent: &mut PeerPool| lent.step(element, PeerElementEvent::Return);
        self.change(reference, step).flatten().is_some()
    }

    /// The peer grants sending up to this number; `Err` gives the possible range.
    pub(crate) fn raise(&mut self, reference: u32, limit: u32) -> Result<u32, (u32, u32)> {
        let raise = |lent: &mut PeerPool| match &mut lent.free_elements {
            FreeElements::Counted(credit) => credit.raise(limit, lent.pool.count),
            FreeElements::Elements { .. } => Ok(0),
        };
        self.change(reference, raise).unwrap_or(Ok(0))
    }

    /// Relations that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let usable = || {
            self.pools
                .values()
                .filter(|l| l.state == PeerPoolState::Usable)
        };
        let free: u64 = usable().map(|l| u64::from(l.free())).sum();
        let elements: u64 = self.pools.values().map(|l| u64::from(l.pool.count)).sum();
        assert_eq!((self.free, self.elements), (free, elements));
        assert_eq!(self.usable.len(), usable().count());
        assert_eq!(self.ready.len(), usable().filter(|l| l.free() > 0).count());
    }
}
