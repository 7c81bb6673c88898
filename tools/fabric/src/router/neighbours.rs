//! The neighbour cache of a router: link addresses by interface and IP address, and packets that wait for one. Entries, questions without
//! an answer and packets that wait are limited. An answer is believed only if its question was asked.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use verbena_lan::Mac;

use crate::frame::Frame;

/// Limit on the entries.
pub(super) const ENTRIES: usize = 1024;
/// Limit on those for which no answer has come yet.
pub(super) const QUESTIONS: usize = 256;
/// Limit on the packets that wait for one answer.
pub(super) const WAITING: usize = 4;
const LIFETIME: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(1);
const TRIES: u8 = 3;

pub(super) type Key = (usize, IpAddr);

/// A packet that waits, with the interface at which it arrived.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) frame: Frame,
    pub(super) from: usize,
}

#[derive(Debug)]
enum Entry {
    Known {
        mac: Mac,
        until: Duration,
    },
    Asked {
        waiting: Vec<Waiting>,
        next: Duration,
        tries: u8,
    },
}

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    entries: BTreeMap<Key, Entry>,
    questions: usize,
}

/// The result of [`Neighbours::resolve`].
#[derive(Debug)]
pub(super) enum Resolved {
    Known(Mac, Frame),
    /// The packet waits, and the question has to be asked.
    Ask,
    /// The packet waits, or was dropped because others do.
    Wait,
    /// Too many questions have no answer.
    Full,
}

/// The result of [`Neighbours::due`].
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) ask: Vec<Key>,
    pub(super) failed: Vec<Waiting>,
}

impl Neighbours {
    pub(super) fn resolve(&mut self, key: Key, waiting: Waiting, now: Duration) -> Resolved {
        match self.entries.get_mut(&key) {
            Some(Entry::Known { mac, until }) if *until > now => {
                return Resolved::Known(*mac, waiting.frame);
            }
            Some(Entry::Asked { waiting: all, .. }) => {
                if all.len() < WAITING {
                    all.push(waiting);
                }
                return Resolved::Wait;
            }
            Some(Entry::Known { .. }) | None => {}
        }
        if self.questions >= QUESTIONS {
            return Resolved::Full;
        }
        self.make_room(&key);
        self.questions += 1;
        let entry = Entry::Asked {
            waiting: vec![waiting],
            next: now + RETRY,
            tries: 1,
        };
        self.entries.insert(key, entry);
        Resolved::Ask
    }

    /// Removes the entry that ends first, if there is no room for another one.
    fn make_room(&mut self, key: &Key) {
        if self.entries.len() < ENTRIES || self.entries.contains_key(key) {
            return;
        }
        let known = self.entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Known { until, .. } => Some((*until, *key)),
            Entry::Asked { .. } => None,
        });
        if let Some((_, oldest)) = known.min() {
            self.entries.remove(&oldest);
        }
    }

    /// Records a neighbour; returns the packets that waited for it, or `None` if the claim is not believed.
    pub(super) fn learn(
        &mut self,
        key: Key,
        mac: Mac,
        is_request: bool,
        now: Duration,
    ) -> Option<Vec<Waiting>> {
        match self.entries.get(&key) {
            Some(Entry::Asked { .. }) => {}
            Some(Entry::Known { mac: known, .. }) if *known == mac => {}
            _ if is_request => self.make_room(&key),
            _ => return None,
        }
        let until = now + LIFETIME;
        match self.entries.insert(key, Entry::Known { mac, until }) {
            Some(Entry::Asked { waiting, .. }) => {
                self.questions -= 1;
                Some(waiting)
            }
            _ => Some(Vec::new()),
        }
    }

    pub(super) fn forget(&mut self, interface: usize) {
        self.entries.retain(|(at, _), _| *at != interface);
        let asked = |entry: &&Entry| matches!(entry, Entry::Asked { .. });
        self.questions = self.entries.values().filter(asked).count();
    }

    pub(super) fn next_timer(&self) -> Option<Duration> {
        if self.questions == 0 {
            return None;
        }
        let times = self.entries.values().filter_map(|entry| match entry {
            Entry::Asked { next, .. } => Some(*next),
            Entry::Known { .. } => None,
        });
        times.min()
    }

    /// The questions to be asked again, and the packets whose questions got no answer.
    pub(super) fn due(&mut self, now: Duration) -> Due {
        let mut due = Due::default();
        let mut ended = Vec::new();
        for (key, entry) in &mut self.entries {
            if let Entry::Asked {
                waiting,
                next,
                tries,
            } = entry
                && *next <= now
            {
                if *tries >= TRIES {
                    due.failed.append(waiting);
                    ended.push(*key);
                } else {
                    *tries += 1;
                    *next = now + RETRY;
                    due.ask.push(*key);
                }
            }
        }
        for key in ended {
            self.entries.remove(&key);
            self.questions -= 1;
        }
        due
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
