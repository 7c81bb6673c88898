//! The switch's address table. A port learns at most its share of addresses, an owned address neither moves nor expires, and a scan
//! for expired entries that a full share triggers happens at most once in `SCAN_INTERVAL`.

use core::time::Duration;
use std::collections::HashMap;

use super::PortId;
use crate::mac::Mac;

/// Shortest interval between scans for expired entries when a port's share is full; a scan is linear in the table.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct Entry {
    port: PortId,
    /// When a frame last came from it; `None`: it is owned.
    last_seen: Option<Duration>,
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
    learnt_counts: HashMap<PortId, usize>,
    age: Duration,
    last_scan: Option<Duration>,
}

impl Table {
    pub(super) fn new(age: Duration) -> Table {
        Table {
            entries: HashMap::new(),
            learnt_counts: HashMap::new(),
            age,
            last_scan: None,
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
            match entry.last_seen {
                None if entry.port != port => return Err(entry.port),
                None => {}
                // Having sent from the address gives no claim to it.
                Some(_) => self.decrement(entry.port),
            }
        }
        self.entries.insert(
            mac,
            Entry {
                port,
                last_seen: None,
            },
        );
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
        let seen = Some(now);
        let age = self.age;
        if let Some(entry) = self.entries.get_mut(&mac) {
            match entry.last_seen {
                None if entry.port == port => return Learnt::Known,
                None => return Learnt::Owned,
                Some(_) if entry.port == port => {
                    entry.last_seen = seen;
                    return Learnt::Known;
                }
                Some(_) if !moves && is_fresh(entry, age, now) => return Learnt::Owned,
                // It moves, and needs a free place in this port's share.
                Some(_) => {}
            }
        }
        if self.learnt_count(port) >= most {
            if self
                .last_scan
                .is_none_or(|last| now >= last + SCAN_INTERVAL)
            {
                self.expire(now);
            }
            if self.learnt_count(port) >= most {
                return Learnt::Full;
            }
        }
        if let Some(before) = self.entries.insert(
            mac,
            Entry {
                port,
                last_seen: seen,
            },
        ) {
            self.decrement(before.port);
        }
        *self.learnt_counts.entry(port).or_default() += 1;
        Learnt::Known
    }

    fn learnt_count(&self, port: PortId) -> usize {
        self.learnt_counts.get(&port).copied().unwrap_or(0)
    }

    fn decrement(&mut self, port: PortId) {
        if let Some(share) = self.learnt_counts.get_mut(&port) {
            *share = share.saturating_sub(1);
        }
    }

    /// Removes all addresses of the port, learnt and owned.
    pub(super) fn remove_port(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
        self.learnt_counts.remove(&port);
    }

    /// Removes all addresses of the port but this one, which it owns.
    pub(super) fn remove_all_but(&mut self, port: PortId, own: Mac) {
        let stays = |mac: &Mac, entry: &mut Entry| entry.port != port || *mac == own;
        self.entries.retain(stays);
        self.learnt_counts.remove(&port);
    }

    pub(super) fn expire(&mut self, now: Duration) {
        self.last_scan = Some(now);
        let (age, shares) = (self.age, &mut self.learnt_counts);
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
        .last_seen
        .is_none_or(|last_seen| now.saturating_sub(last_seen) < age)
}
