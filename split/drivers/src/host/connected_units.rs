//! The unit that each queue of a host is connected to. All queues that are connected at a time are connected to the same unit, since
//! frames would otherwise appear on different LANs. If a queue reaches another unit [`MAX_MISMATCHES`] times in a row, the connected queues must
//! dial again.

use std::collections::BTreeMap;

use crate::lane::Lane;
use crate::welcome::Welcome;

/// Times in a row that a queue reaches another unit before the connected queues must leave theirs. A name that resolves to two units
/// alternately leads to the right one sooner; one that now resolves to another unit never does.
const MAX_MISMATCHES: u32 = 6;

/// A queue reached another unit than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{lane} reached another unit than {other}: the unit was restarted, or its name resolves to several units and must resolve to one"
)]
pub(super) struct UnitMismatch {
    lane: Lane,
    other: Lane,
}

/// The units of the queues.
#[derive(Debug, Default)]
pub(super) struct ConnectedUnits {
    /// Connected queues, and their units; `None` is a unit that sent no welcome, and differs from those that did.
    units: BTreeMap<u8, Option<Welcome>>,
    /// Times in a row that each queue reached another unit.
    mismatches: BTreeMap<u8, u32>,
    /// Queues that must dial again, a bit each.
    redial: u32,
}

impl ConnectedUnits {
    /// Records that a queue is connected to a unit; fails if other queues are connected to another one.
    pub(super) fn add(&mut self, lane: Lane, unit: Option<Welcome>) -> Result<(), UnitMismatch> {
        let mut others = self.units.iter().filter(|(at, _)| **at != lane.queue());
        let apart = others.find(|(_, there)| **there != unit);
        let other = apart.and_then(|(at, _)| Lane::new(*at, lane.queue_count()).ok());
        let Some(other) = other else {
            self.units.insert(lane.queue(), unit);
            self.mismatches.remove(&lane.queue());
            return Ok(());
        };
        let strays = self.mismatches.entry(lane.queue()).or_default();
        *strays += 1;
        if *strays >= MAX_MISMATCHES {
            *strays = 0;
            let bits = self.units.keys().map(|at| 1 << at);
            self.redial |= bits.fold(0, |all, bit: u32| all | bit);
        }
        Err(UnitMismatch { lane, other })
    }

    /// A queue is no longer connected.
    pub(super) fn remove(&mut self, lane: Lane) {
        self.units.remove(&lane.queue());
        self.redial &= !(1 << lane.queue());
    }

    /// Whether a queue must leave its unit.
    pub(super) fn must_redial(&self, lane: Lane) -> bool {
        self.redial & 1 << lane.queue() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<Welcome> = Some(Welcome(1));
    const B: Option<Welcome> = Some(Welcome(2));

    fn lanes<const N: usize>() -> [Lane; N] {
        core::array::from_fn(|at| Lane::new(at as u8, N as u8).unwrap())
    }

    #[test]
    fn queues_must_reach_the_same_unit() {
        for (here, there) in [(A, B), (A, None), (None, A)] {
            let [first, second, third] = lanes();
            let mut reached = ConnectedUnits::default();
            assert!(reached.add(second, here).is_ok());
            // The second channel of the queue.
            assert!(reached.add(second, here).is_ok());
            let stray = reached.add(first, there).unwrap_err();
            let said = stray.to_string();
            let expected = "queue 1 of 3 reached another unit than queue 2 of 3";
            assert!(said.starts_with(expected), "{said}");
            reached.remove(first);
            assert!(reached.add(third, here).is_ok());
            assert!(reached.add(first, here).is_ok());
        }
    }

    /// The unit was restarted: a queue that reaches the new one waits for those that have not noticed.
    #[test]
    fn last_queue_releases_the_unit() {
        let [first, second] = lanes();
        let mut reached = ConnectedUnits::default();
        for lane in [first, second] {
            reached.add(lane, A).unwrap();
        }
        reached.remove(first);
        reached.add(first, B).unwrap_err();
        reached.remove(first);
        reached.remove(second);
        reached.add(first, B).unwrap();
        reached.add(second, B).unwrap();
        assert!(!reached.must_redial(first) && !reached.must_redial(second));
    }

    /// The name resolves to another unit from now on, and the old one still runs: the queues connected there must dial again.
    #[test]
    fn repeated_strays_make_other_queues_redial() {
        let [first, second, third] = lanes();
        let mut reached = ConnectedUnits::default();
        reached.add(first, A).unwrap();
        reached.add(second, A).unwrap();
        for round in 0..2 {
            for times in 1..=MAX_MISMATCHES {
                assert!(!reached.must_redial(first) && !reached.must_redial(second));
                reached.add(third, B).unwrap_err();
                assert!(!reached.must_redial(third), "round {round}, {times}");
                reached.remove(third);
            }
            assert!(reached.must_redial(first) && reached.must_redial(second));
            // Each must leave once, whichever unit it reaches then.
            for lane in [first, second] {
                reached.remove(lane);
                reached.add(lane, A).unwrap();
                assert!(!reached.must_redial(lane));
            }
        }
        // Only attempts in a row count.
        for _ in 1..MAX_MISMATCHES {
            reached.add(third, B).unwrap_err();
        }
        reached.add(third, A).unwrap();
        reached.remove(third);
        reached.add(third, B).unwrap_err();
        assert!(!reached.must_redial(first));
    }
}
