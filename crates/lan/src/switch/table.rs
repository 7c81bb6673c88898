//! Which address is behind which port.
//! It promises that a port holds at most its share, that an owned address neither moves nor grows old, and that a search
//! for old entries happens at most once in a while. It refuses to know what ports are.

use core::time::Duration;
use std::collections::HashMap;

use super::PortId;
use crate::mac::Mac;

/// A full port's old entries are looked for no more often than this: looking costs as much as the table is long.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct Entry {
    port: PortId,
    /// When it was heard of; none: it is owned.
    heard: Option<Duration>,
}

/// What came of learning an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learnt {
    /// It is behind the port, now or since before.
    Known,
    /// Another port owns it, or has it and is not to lose it to this one.
    Owned,
    /// The port has its share.
    Full,
}

#[derive(Debug)]
pub(super) struct Table {
    entries: HashMap<Mac, Entry>,
    /// How many were learnt from each port.
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

    /// The port owns the address from now on; if another does, that one's name.
    pub(super) fn claim(&mut self, port: PortId, mac: Mac) -> Result<(), PortId> {
        if let Some(entry) = self.entries.get(&mac).copied() {
            match entry.heard {
                None if entry.port != port => return Err(entry.port),
                None => {}
                // Who merely was heard with it has no right to it.
                Some(_) => self.give_back(entry.port),
            }
        }
        self.entries.insert(mac, Entry { port, heard: None });
        Ok(())
    }

    /// A frame came from `port` with this source address. `moves`: the address may have moved there from another port that was
    /// heard with it a while ago.
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
                // It has moved: its place there is free, here it needs one.
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

    /// The port is gone, or starts anew.
    pub(super) fn leave(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
        self.shares.remove(&port);
    }

    /// The port starts anew with one address of its own.
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
