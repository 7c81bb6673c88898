//! Shares of a limited number of places between source addresses: which one is given up for a newcomer when all are taken.
//!
//! The source with the most places gives one up: the oldest that waits for its peer. Only if it has none of these, and more places
//! than the source of the newcomer, one that waits for the program is given up. So a source that takes any number of places displaces
//! its own, and never keeps another source from its share.
//!
//! Invariants: the places of all sources add up to `taken`, which is at most `limit` between calls; a source without a place
//! is not in the table, so its size is bounded as well.

use core::cmp::Reverse;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::security::source::source_of;

/// The unit of the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(peer: IpAddr) -> Source {
        Source(source_of(peer))
    }
}

/// All places, by source. `T` is what has one.
pub(crate) struct Shares<T> {
    limit: usize,
    taken: usize,
    next: u64,
    sources: HashMap<Source, Share<T>>,
    /// Every source by [`Share::rank`]: the last one gives up a place.
    ranked: BTreeSet<(Rank, Source)>,
}

/// More places rank higher; of equal numbers, the source with the oldest place that can be displaced.
type Rank = (usize, Reverse<u64>);

/// The places of one source, each by its number, which grows with time.
struct Share<T> {
    /// Not known yet what has it.
    entering: BTreeSet<u64>,
    /// Waiting for the peer: its request is not complete, or it should close.
    awaiting_peer: BTreeMap<u64, T>,
    /// Waiting for the program: the request is not answered.
    awaiting_program: BTreeMap<u64, T>,
}

impl<T> Default for Share<T> {
    fn default() -> Self {
        Share {
            entering: BTreeSet::new(),
            awaiting_peer: BTreeMap::new(),
            awaiting_program: BTreeMap::new(),
        }
    }
}

impl<T> Share<T> {
    fn len(&self) -> usize {
        self.entering.len() + self.awaiting_peer.len() + self.awaiting_program.len()
    }

    fn rank(&self) -> Rank {
        let oldest = self.awaiting_peer.keys().next().copied();
        (self.len(), Reverse(oldest.unwrap_or(u64::MAX)))
    }
}

impl<T> Shares<T> {
    pub(crate) fn new(limit: usize) -> Shares<T> {
        Shares {
            limit,
            taken: 0,
            next: 0,
            sources: HashMap::new(),
            ranked: BTreeSet::new(),
        }
    }

    /// Changes the places of one source and updates `taken` and `ranked`.
    fn change<R>(&mut self, source: Source, change: impl FnOnce(&mut Share<T>) -> R) -> R {
        let share = self.sources.entry(source).or_default();
        let (before, rank) = (share.len(), share.rank());
        let result = change(share);
        let (after, new_rank) = (share.len(), share.rank());
        self.taken = self.taken + after - before;
        self.ranked.remove(&(rank, source));
        if after == 0 {
            self.sources.remove(&source);
        } else {
            self.ranked.insert((new_rank, source));
        }
        result
    }

    /// Adds a place; also returns what is displaced for it. None if nothing can be displaced.
    pub(crate) fn enter(&mut self, source: Source) -> Option<(u64, Option<T>)> {
        let number = self.next;
        self.next += 1;
        self.change(source, |share| share.entering.insert(number));
        if self.taken <= self.limit {
            return Some((number, None));
        }
        match self.displace(source) {
            Some(displaced) => Some((number, Some(displaced))),
            None => {
                self.leave(source, number);
                None
            }
        }
    }

    /// The places of a source.
    pub(crate) fn count(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, Share::len)
    }

    /// Removes what is displaced for a newcomer of `source`, whose place is counted already.
    fn displace(&mut self, source: Source) -> Option<T> {
        let (_, largest) = *self.ranked.last()?;
        let share = self.sources.get(&largest)?;
        let newcomers = self.count(source);
        let may_ask = share.len() <= newcomers;
        self.change(largest, |share| {
            let silent = share.awaiting_peer.pop_first();
            let oldest = silent.or_else(|| {
                let asks = (!may_ask).then_some(&mut share.awaiting_program);
                asks.and_then(BTreeMap::pop_first)
            });
            oldest.map(|(_, one)| one)
        })
    }

    /// It waits for the peer; `new` if it was not known yet.
    pub(crate) fn wait_for_peer(&mut self, source: Source, number: u64, new: Option<T>) {
        self.change(source, |share| {
            let known = share.awaiting_program.remove(&number);
            let new = new.filter(|_| share.entering.remove(&number));
            // What was displaced is not added again.
            if let Some(one) = known.or(new) {
                share.awaiting_peer.insert(number, one);
            }
        });
    }

    /// It waits for the program.
    pub(crate) fn wait_for_program(&mut self, source: Source, number: u64) {
        self.change(source, |share| {
            if let Some(one) = share.awaiting_peer.remove(&number) {
                share.awaiting_program.insert(number, one);
            }
        });
    }

    pub(crate) fn leave(&mut self, source: Source, number: u64) {
        let gone = self.change(source, |share| {
            share.entering.remove(&number);
            (
                share.awaiting_peer.remove(&number),
                share.awaiting_program.remove(&number),
            )
        });
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
