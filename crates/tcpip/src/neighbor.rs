//! Which Ethernet address an IP address of the link has: a bounded cache for ARP and neighbour discovery.
//! An address is learned from the answer to a question that was asked, or from a question that is answered anyway. A fresh entry is not
//! changed by anything else, and entries in use are asked about again by unicast (RFC 4861, 7.3) before they are forgotten.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use verbena_stream::Time;

use crate::frame::Mac;

/// Addresses that are remembered; the one used longest ago is forgotten first.
pub const MAX_NEIGHBORS: usize = 512;
/// An answer is believed for this time.
const FRESH: Duration = Duration::from_secs(30);
/// Between questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Questions without an answer, after which the address is unreachable.
const QUESTIONS: u32 = 3;
/// An address that gave no answer is not asked about for this time.
const UNREACHABLE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
struct Neighbor {
    mac: Option<Mac>,
    /// When the address was learned.
    confirmed: Time,
    used: Time,
    asked: u32,
    /// The next question, or when an unreachable address is forgotten.
    again: Option<Time>,
}

/// The answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    Known(Mac),
    /// A question is under way.
    Pending,
    /// Nothing has answered.
    Unreachable,
}

/// A question to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) address: IpAddr,
    /// Where it was last; every station is asked where this is `None`.
    pub(crate) mac: Option<Mac>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Neighbors {
    entries: BTreeMap<IpAddr, Neighbor>,
    has_failed: bool,
}

impl Neighbors {
    /// Where frames for an address go; begins to ask if it is not known.
    pub(crate) fn lookup(&mut self, address: IpAddr, now: Time) -> Lookup {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.used = now;
            return match entry.mac {
                Some(mac) => {
                    let is_stale = now.since(entry.confirmed) >= FRESH;
                    if is_stale && entry.again.is_none() {
                        entry.asked = 0;
                        entry.again = Some(now);
                    }
                    Lookup::Known(mac)
                }
                None if entry.asked > QUESTIONS => Lookup::Unreachable,
                None => Lookup::Pending,
            };
        }
        self.make_room();
        let entry = Neighbor {
            mac: None,
            confirmed: now,
            used: now,
            asked: 0,
            again: Some(now),
        };
        self.entries.insert(address, entry);
        Lookup::Pending
    }

    fn make_room(&mut self) {
        if self.entries.len() < MAX_NEIGHBORS {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.entries.remove(&address);
        }
    }

    /// An answer; counts only where it was asked for, or confirms what is known. Returns whether the address became known.
    pub(crate) fn answered(&mut self, address: IpAddr, mac: Mac, now: Time) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else {
            return false;
        };
        let was_asked = entry.again.is_some() && entry.asked > 0;
        if mac.is_group() || !(was_asked || entry.mac == Some(mac)) {
            return false;
        }
        let is_new = entry.mac != Some(mac);
        entry.mac = Some(mac);
        entry.confirmed = now;
        entry.asked = 0;
        entry.again = None;
        is_new
    }

    /// A neighbour has asked for one of our addresses and will be answered.
    pub(crate) fn asked_us(&mut self, address: IpAddr, mac: Mac, now: Time) -> bool {
        if mac.is_group() {
            return false;
        }
        match self.entries.get_mut(&address) {
            Some(entry) => {
                let is_fresh = entry.mac.is_some() && now.since(entry.confirmed) < FRESH;
                if is_fresh && entry.mac != Some(mac) {
                    return false;
                }
                let is_new = entry.mac != Some(mac);
                entry.mac = Some(mac);
                entry.confirmed = now;
                entry.asked = 0;
                entry.again = None;
                is_new
            }
            None => {
                self.make_room();
                let entry = Neighbor {
                    mac: Some(mac),
                    confirmed: now,
                    used: now,
                    asked: 0,
                    again: None,
                };
                self.entries.insert(address, entry);
                true
            }
        }
    }

    /// The next question to send.
    pub(crate) fn question(&mut self, now: Time) -> Option<Question> {
        loop {
            let due = |entry: &Neighbor| entry.again.is_some_and(|at| at <= now);
            let (&address, entry) = self.entries.iter_mut().find(|(_, entry)| due(entry))?;
            entry.asked += 1;
            if entry.asked <= QUESTIONS {
                entry.again = Some(now + INTERVAL);
                return Some(Question {
                    address,
                    mac: entry.mac.filter(|_| entry.asked < QUESTIONS),
                });
            }
            let is_forgotten = entry.asked > QUESTIONS + 1;
            if is_forgotten {
                self.entries.remove(&address);
            } else {
                entry.mac = None;
                entry.again = Some(now + UNREACHABLE);
                self.has_failed = true;
            }
        }
    }

    /// Whether an address has become unreachable since the last call.
    pub(crate) fn has_failed(&mut self) -> bool {
        core::mem::take(&mut self.has_failed)
    }

    /// When the next question is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.entries.values().filter_map(|entry| entry.again).min()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const LIAR: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const START: Time = Time::from_nanos(1_000_000_000);

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number))
    }

    #[test]
    fn unasked_answer_is_not_learned() {
        let mut neighbors = Neighbors::default();
        assert!(!neighbors.answered(address(1), LIAR, START));
        assert_eq!(neighbors.lookup(address(1), START), Lookup::Pending);
        // Not asked on the wire yet.
        assert!(!neighbors.answered(address(1), LIAR, START));
        assert!(neighbors.question(START).is_some());
        assert!(neighbors.answered(address(1), A, START));
        assert!(!neighbors.answered(address(1), LIAR, START));
        assert!(!neighbors.asked_us(address(1), LIAR, START));
        assert_eq!(neighbors.lookup(address(1), START), Lookup::Known(A));
    }

    #[test]
    fn group_is_no_address_of_a_neighbor() {
        let mut neighbors = Neighbors::default();
        neighbors.lookup(address(1), START);
        neighbors.question(START);
        assert!(!neighbors.answered(address(1), Mac::BROADCAST, START));
        assert!(!neighbors.asked_us(address(2), Mac::BROADCAST, START));
    }

    #[test]
    fn questions_end_and_begin_again() {
        let mut neighbors = Neighbors::default();
        neighbors.lookup(address(1), START);
        let mut now = START;
        for _ in 0..QUESTIONS {
            assert!(neighbors.question(now).is_some());
            assert!(neighbors.question(now).is_none());
            now = neighbors.deadline().unwrap();
        }
        assert!(neighbors.question(now).is_none());
        assert_eq!(neighbors.lookup(address(1), now), Lookup::Unreachable);
        now = neighbors.deadline().unwrap();
        assert!(neighbors.question(now).is_none());
        assert_eq!(neighbors.lookup(address(1), now), Lookup::Pending);
    }

    #[test]
    fn stale_address_is_used_and_confirmed() {
        let mut neighbors = Neighbors::default();
        neighbors.asked_us(address(1), A, START);
        let later = START + FRESH;
        assert_eq!(neighbors.deadline(), None);
        assert_eq!(neighbors.lookup(address(1), later), Lookup::Known(A));
        let question = neighbors.question(later).unwrap();
        assert_eq!(question.mac, Some(A));
        assert!(!neighbors.answered(address(1), A, later));
        assert_eq!(neighbors.deadline(), None);
    }

    #[test]
    fn cache_is_bounded() {
        let mut neighbors = Neighbors::default();
        for number in 0..10_000 {
            let now = START + Duration::from_nanos(u64::from(number));
            neighbors.lookup(address(0), now);
            neighbors.asked_us(address(number), LIAR, now);
        }
        assert_eq!(neighbors.len(), MAX_NEIGHBORS);
        assert!(neighbors.entries.contains_key(&address(0)), "it is in use");
    }
}
