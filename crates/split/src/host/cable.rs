//! The interface of a host, and its cable: plugged in while frames can pass on every queue.
//! It promises that programs see a link only while no flow would get lost or astray, whichever queue the kernel puts it on, and
//! that the interface of another driver is not touched. It refuses to know why a queue is up or down.

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
    /// Of queues that nobody drives yet.
    desks: Mutex<BTreeMap<u8, Desk>>,
    plugs: Mutex<Plugs>,
    reached: Mutex<Reached>,
}

/// Which queues frames can pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Plugs {
    up: u32,
}

impl Plugs {
    /// A queue is up or down from now on; true if all are up.
    fn set(&mut self, lane: Lane, up: bool) -> bool {
        let bit = 1 << lane.queue();
        self.up = if up { self.up | bit } else { self.up & !bit };
        self.up.count_ones() == u32::from(lane.of())
    }
}

impl Cable {
    /// Creates an interface with this name or pattern and so many queues.
    pub fn lay(name: &str, queues: u8) -> Result<Cable, HostError> {
        let (tap, desks) = claim::<HostError>("host", name, queues)?;
        Ok(Cable {
            tap,
            desks: Mutex::new((0..).zip(desks).collect()),
            plugs: Mutex::default(),
            reached: Mutex::default(),
        })
    }

    /// Where a queue tells how it stands.
    pub(super) fn desk(&self, lane: Lane) -> Result<Desk, HostError> {
        match held(&self.desks).remove(&lane.queue()) {
            Some(desk) => Ok(desk),
            // Who drove it has ended, or says so.
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

    /// Frames can pass on a queue, or no longer.
    pub(super) fn set(&self, lane: Lane, up: bool) -> verbena_lan::Result<()> {
        let mut plugs = held(&self.plugs);
        let all = plugs.set(lane, up);
        // Still held, so that the last word is about the last state.
        self.tap.set_carrier(all)
    }

    /// A queue is connected to a unit that said this, which all others must be connected to.
    pub(super) fn come(&self, lane: Lane, said: &[u8]) -> core::result::Result<(), Stray> {
        held(&self.reached).come(lane, Welcome::parse(said))
    }

    /// A queue is not connected any more, and [`set`](Cable::set) said already that frames cannot pass.
    pub(super) fn go(&self, lane: Lane) {
        held(&self.reached).go(lane);
    }

    /// The other queues need this one to dial again.
    pub(super) fn is_called(&self, lane: Lane) -> bool {
        held(&self.reached).is_called(lane)
    }
}

/// Whoever panicked while it was held left nothing half done.
fn held<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_all_to_be_up_and_one_to_be_down() {
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
