//! The switch's address table. A port learns at most its share of addresses, an owned address neither moves nor expires, and a scan
//! for expired entries that a full share triggers happens at most once in `SWEEP`.

use core::time::Duration;
use std::collections::HashMap;

use super::PortId;
use crate::mac::Mac;

/// Shortest interval between scans for expired entries when a port's share is full; a scan is linear in the table.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct Entry {
    port: PortId,
    /// When a frame last came from it; `None`: it is owned.
    heard: Option<Duration>,
}

/// The result of [`Table::learn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learnt {
    /// The address is behind the port.
    Known,
    /// Another port owns it, or was heard with it and it may not move to this one.
    Owned,
    /// The port's share is full.
    Full,
}

#[derive(Debug)]
pub(super) struct Table {
    entries: HashMap<Mac, Entry>,
    /// The number of addresses learnt from each port.
    shares: HashMap<PortId, usize>,
    age: Duration,
    swept: Option<Duration>,
}

impl Table {
    pub(super) fn new(age: Duration) -> Table {
        Table {
            entries: HashMap::new(),
            shares: HashMap::new(),
            age,
            swept: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn find(&self, mac: Mac, now: Duration) -> Option<PortId> {
        let entry = self.entries.get(&mac)?;
        is_fresh(entry, self.age, now).then_some(entry.port)
    }

    /// Makes the port the owner of the address; fails with the number of another port that owns it.
    pub(super) fn claim(&mut self, port: PortId, mac: Mac) -> Result<(), PortId> {
        if let Some(entry) = self.entries.get(&mac).copied() {
            match entry.heard {
                None if entry.port != port => return Err(entry.port),
                None => {}
                // Having sent from the address gives no claim to it.
                Some(_) => self.give_back(entry.port),
            }
        }
        self.entries.insert(mac, Entry { port, heard: None });
        Ok(())
    }

    /// A frame came from `port` with this source address. `moves`: a learnt address moves here from another port at once; otherwise only
    /// after its entry there has expired. `most` is the port's share.
    pub(super) fn learn(
        &mut self,
        port: PortId,
        mac: Mac,
        (most, moves): (usize, bool),
        now: Duration,
    ) -> Learnt {
        let heard = Some(now);
        let age = self.age;
        if let Some(entry) = self.entries.get_mut(&mac) {
            match entry.heard {
                None if entry.port == port => return Learnt::Known,
                None => return Learnt::Owned,
                Some(_) if entry.port == port => {
                    entry.heard = heard;
                    return Learnt::Known;
                }
                Some(_) if !moves && is_fresh(entry, age, now) => return Learnt::Owned,
                // It moves, and needs a free place in this port's share.
                Some(_) => {}
            }
        }
        if self.share(port) >= most {
            if self.swept.is_none_or(|last| now >= last + SWEEP) {
                self.expire(now);
            }
            if self.share(port) >= most {
                return Learnt::Full;
            }
        }
        if let Some(before) = self.entries.insert(mac, Entry { port, heard }) {
            self.give_back(before.port);
        }
        *self.shares.entry(port).or_default() += 1;
        Learnt::Known
    }

    fn share(&self, port: PortId) -> usize {
        self.shares.get(&port).copied().unwrap_or(0)
    }

    fn give_back(&mut self, port: PortId) {
        if let Some(share) = self.shares.get_mut(&port) {
            *share = share.saturating_sub(1);
        }
    }

    /// Removes all addresses of the port, learnt and owned.
    pub(super) fn leave(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
        self.shares.remove(&port);
    }

    /// Removes all addresses of the port but this one, which it owns.
    pub(super) fn leave_but(&mut self, port: PortId, own: Mac) {
        let stays = |mac: &Mac, entry: &mut Entry| entry.port != port || *mac == own;
        self.entries.retain(stays);
        self.shares.remove(&port);
    }

    pub(super) fn expire(&mut self, now: Duration) {
        self.swept = Some(now);
        let (age, shares) = (self.age, &mut self.shares);
        self.entries.retain(|_, entry| {
            let fresh = is_fresh(entry, age, now);
            if !fresh && let Some(share) = shares.get_mut(&entry.port) {
                *share = share.saturating_sub(1);
            }
            fresh
        });
    }
}

fn is_fresh(entry: &Entry, age: Duration, now: Duration) -> bool {
    entry
        .heard
        .is_none_or(|heard| now.saturating_sub(heard) < age)
}
