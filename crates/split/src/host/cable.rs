//! The interface of a host, shared by its queues. Its carrier is on only while frames can pass on every queue, and all queues are
//! connected to the same unit, so that no flow is lost or misdirected, whichever queue the kernel puts it on. A TAP of another driver is
//! not opened (see `claim`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbena_lan::{Queue, Tap};

use super::HostError;
use super::reached::{Reached, Stray};
use crate::claim::claim;
use crate::lane::Lane;
use crate::status::Desk;
use crate::welcome::Welcome;

/// An interface that all queues of a host's driver share.
#[derive(Debug)]
pub struct Cable {
    tap: Tap,
    /// Status sockets of queues that have no driver yet.
    desks: Mutex<BTreeMap<u8, Desk>>,
    plugs: Mutex<Plugs>,
    reached: Mutex<Reached>,
}

/// The queues on which frames can pass, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Plugs {
    up: u32,
}

impl Plugs {
    /// Sets a queue up or down; true if all are up.
    fn set(&mut self, lane: Lane, up: bool) -> bool {
        let bit = 1 << lane.queue();
        self.up = if up { self.up | bit } else { self.up & !bit };
        self.up.count_ones() == u32::from(lane.of())
    }
}

impl Cable {
    /// Creates an interface with this name or pattern and number of queues.
    pub fn lay(name: &str, queues: u8) -> Result<Cable, HostError> {
        let (tap, desks) = claim::<HostError>("host", name, queues)?;
        Ok(Cable {
            tap,
            desks: Mutex::new((0..).zip(desks).collect()),
            plugs: Mutex::default(),
            reached: Mutex::default(),
        })
    }

    /// The status socket of a queue.
    pub(super) fn desk(&self, lane: Lane) -> Result<Desk, HostError> {
        match held(&self.desks).remove(&lane.queue()) {
            Some(desk) => Ok(desk),
            // Its former driver has ended; if not, this fails.
            None => Ok(Desk::open(
                &lane.desk("host", &self.tap.interface().name()?),
            )?),
        }
    }

    /// The interface.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// One of its queues.
    pub(super) fn queue(&self, lane: Lane) -> Option<&Queue> {
        self.tap.queues().get(usize::from(lane.queue()))
    }

    /// Sets whether frames can pass on a queue.
    pub(super) fn set(&self, lane: Lane, up: bool) -> verbena_lan::Result<()> {
        let mut plugs = held(&self.plugs);
        let all = plugs.set(lane, up);
        // The lock is still held, so that the carrier follows the last state.
        self.tap.set_carrier(all)
    }

    /// A queue was connected to a unit with this private data; fails if other queues are connected to another unit.
    pub(super) fn come(&self, lane: Lane, said: &[u8]) -> core::result::Result<(), Stray> {
        held(&self.reached).come(lane, Welcome::parse(said))
    }

    /// A queue is no longer connected; [`set`](Cable::set) was called before.
    pub(super) fn go(&self, lane: Lane) {
        held(&self.reached).go(lane);
    }

    /// Whether this queue must dial again because of the others.
    pub(super) fn is_called(&self, lane: Lane) -> bool {
        held(&self.reached).is_called(lane)
    }
}

/// Ignores poisoning: no operation under these locks leaves a partial update.
fn held<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carrier_is_on_while_all_queues_are_up() {
        for of in 1..=crate::lane::MOST_QUEUES {
            let lanes: Vec<Lane> = Lane::all(of).collect();
            let (last, others) = lanes.split_last().unwrap();
            let mut plugs = Plugs::default();
            for lane in others {
                assert!(!plugs.set(*lane, true));
                assert!(!plugs.set(*lane, true), "said twice");
            }
            assert!(plugs.set(*last, true));
            for lane in &lanes {
                assert!(!plugs.set(*lane, false), "{lane}");
                assert!(!plugs.set(*lane, false), "{lane}");
                assert!(plugs.set(*lane, true), "{lane}");
            }
        }
    }
}
