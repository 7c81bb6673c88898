//! Permits of connections during their startup: how many there are at once, and which one ends when there are too many.
//!
//! Source addresses share them. When all are taken, the source with the most connections gives one up for the newcomer: the
//! oldest that has not sent its whole MPA Request yet, or was answered and is being closed. Only if it has none of these, and
//! more connections than the source of the newcomer, a request that waits for its answer is given up. So a source that opens
//! any number of connections displaces its own, and never keeps another source from its share.
//!
//! Invariants: the permits of all sources add up to `taken`, which is at most `limit` between calls; a source without a permit
//! is not in the table, so its size is bounded as well.

use core::cmp::Reverse;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use verbena_sync::locks::Mutex;

use crate::connection::Connection;
use crate::security::access::source_of;

/// Permits of all listeners of an engine.
pub(crate) struct Permits(Mutex<Table<Weak<Connection>>>);

impl Permits {
    pub(crate) fn new(limit: u32) -> Arc<Permits> {
        Arc::new(Permits(Mutex::new(Table::new(limit as usize))))
    }

    /// A permit for a new connection, and the connection that must end for it; none if the new one is refused.
    pub(crate) fn take(
        self: &Arc<Self>,
        peer: IpAddr,
    ) -> Option<(Permit, Option<Weak<Connection>>)> {
        let source = Source::of(peer);
        let (number, displaced) = self.0.lock().enter(source)?;
        let permit = Permit {
            permits: self.clone(),
            source,
            number,
        };
        Some((permit, displaced))
    }
}

/// One permit; given back when it is dropped.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    source: Source,
    number: u64,
}

impl Permit {
    /// Sets the connection that holds it, which may be displaced from now on.
    pub(crate) fn set_connection(&self, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        let mut table = self.permits.0.lock();
        table.wait_for_peer(self.source, self.number, Some(connection));
    }

    /// The request is complete: the program has to decide.
    pub(crate) fn set_awaiting_decision(&self) {
        let mut table = self.permits.0.lock();
        table.wait_for_program(self.source, self.number);
    }

    /// The request was answered, and the connection stays only until the peer closes.
    pub(crate) fn set_answered(&self) {
        let mut table = self.permits.0.lock();
        table.wait_for_peer(self.source, self.number, None);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.0.lock().leave(self.source, self.number);
    }
}

/// The unit of the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Source(IpAddr);

impl Source {
    fn of(peer: IpAddr) -> Source {
        Source(source_of(peer))
    }
}

/// All permits, by source. `T` is a connection.
struct Table<T> {
    limit: usize,
    taken: usize,
    next: u64,
    sources: HashMap<Source, Share<T>>,
    /// Every source by [`Share::rank`]: the last one gives up a permit.
    ranked: BTreeSet<(Rank, Source)>,
}

/// More permits rank higher; of equal numbers, the source with the oldest permit that can be displaced.
type Rank = (usize, Reverse<u64>);

/// The permits of one source, each by its number, which grows with time.
struct Share<T> {
    /// Without a connection yet.
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

impl<T> Table<T> {
    fn new(limit: usize) -> Table<T> {
        Table {
            limit,
            taken: 0,
            next: 0,
            sources: HashMap::new(),
            ranked: BTreeSet::new(),
        }
    }

    /// Changes the permits of one source and updates `taken` and `ranked`.
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

    /// Adds a permit; also returns what is displaced for it. None if nothing can be displaced.
    fn enter(&mut self, source: Source) -> Option<(u64, Option<T>)> {
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

    /// Removes the permit that is displaced for a new connection from `source`, whose permit is counted already.
    fn displace(&mut self, source: Source) -> Option<T> {
        let (_, largest) = *self.ranked.last()?;
        let share = self.sources.get(&largest)?;
        let newcomers = self.sources.get(&source).map_or(0, Share::len);
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

    /// The connection waits for the peer; `connection` if it is not known yet.
    fn wait_for_peer(&mut self, source: Source, number: u64, connection: Option<T>) {
        self.change(source, |share| {
            let known = share.awaiting_program.remove(&number);
            let new = connection.filter(|_| share.entering.remove(&number));
            // A displaced permit is not added again.
            if let Some(one) = known.or(new) {
                share.awaiting_peer.insert(number, one);
            }
        });
    }

    /// The connection waits for the program.
    fn wait_for_program(&mut self, source: Source, number: u64) {
        self.change(source, |share| {
            if let Some(one) = share.awaiting_peer.remove(&number) {
                share.awaiting_program.insert(number, one);
            }
        });
    }

    fn leave(&mut self, source: Source, number: u64) {
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
