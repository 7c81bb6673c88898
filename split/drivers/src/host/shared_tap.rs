//! The interface of a host, shared by its queues. Its carrier is on only while frames can pass on every queue, and all queues are
//! connected to the same unit, so that no flow is lost or misdirected, whichever queue the kernel puts it on. A TAP of another driver is
//! not opened (see `claim`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbena_lan::{Queue, Tap};

use super::HostError;
use super::connected_units::{ConnectedUnits, UnitMismatch};
use crate::claim::claim;
use crate::lane::Lane;
use crate::status::StatusSocket;
use crate::welcome::Welcome;

/// An interface that all queues of a host's driver share.
#[derive(Debug)]
pub struct SharedTap {
    tap: Tap,
    /// Status sockets of queues that have no driver yet.
    status_sockets: Mutex<BTreeMap<u8, StatusSocket>>,
    queues_up: Mutex<QueuesUp>,
    connected_units: Mutex<ConnectedUnits>,
}

/// The queues on which frames can pass, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QueuesUp {
    up: u32,
}

impl QueuesUp {
    /// Sets a queue up or down; true if all are up.
    fn set(&mut self, lane: Lane, up: bool) -> bool {
        let bit = 1 << lane.queue();
        self.up = if up { self.up | bit } else { self.up & !bit };
        self.up.count_ones() == u32::from(lane.queue_count())
    }
}

impl SharedTap {
    /// Creates an interface with this name or pattern and number of queues.
    pub fn create(name: &str, queues: u8) -> Result<SharedTap, HostError> {
        let (tap, sockets) = claim::<HostError>("host", name, queues)?;
        Ok(SharedTap {
            tap,
            status_sockets: Mutex::new((0..).zip(sockets).collect()),
            queues_up: Mutex::default(),
            connected_units: Mutex::default(),
        })
    }

    /// The status socket of a queue.
    pub(super) fn status_socket(&self, lane: Lane) -> Result<StatusSocket, HostError> {
        match lock(&self.status_sockets).remove(&lane.queue()) {
            Some(socket) => Ok(socket),
            // Its former driver has ended; if not, this fails.
            None => Ok(StatusSocket::open(
                &lane.socket_name("host", &self.tap.interface().name()?),
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
    pub(super) fn set_queue_up(&self, lane: Lane, up: bool) -> verbena_lan::Result<()> {
        let mut plugs = lock(&self.queues_up);
        let all = plugs.set(lane, up);
        // The lock is still held, so that the carrier follows the last state.
        self.tap.set_carrier(all)
    }

    /// A queue was connected to a unit with this private data; fails if other queues are connected to another unit.
    pub(super) fn add_connected(
        &self,
        lane: Lane,
        said: &[u8],
    ) -> core::result::Result<(), UnitMismatch> {
        lock(&self.connected_units).add(lane, Welcome::parse(said))
    }

    /// A queue is no longer connected; [`set`](SharedTap::set_queue_up) was called before.
    pub(super) fn remove_connected(&self, lane: Lane) {
        lock(&self.connected_units).remove(lane);
    }

    /// Whether this queue must dial again because of the others.
    pub(super) fn must_redial(&self, lane: Lane) -> bool {
        lock(&self.connected_units).must_redial(lane)
    }
}

/// Ignores poisoning: no operation under these locks leaves a partial update.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
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
            let mut plugs = QueuesUp::default();
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
