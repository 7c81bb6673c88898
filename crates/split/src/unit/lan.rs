//! The LAN side of a unit: an existing interface, or a TAP of its own.
//! It promises the same calls for both, and that the TAP of another unit is not touched.
//! It refuses to know where frames come from and go to.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_lan::{Batch, Interface, Offloads, Port, Put, Queue, Taken, Tap, VNET, Vnet};

use super::UnitError;
use crate::claim::claim;
use crate::lane::Lane;
use crate::status::Desk;

/// Bytes that may wait in the socket: a burst that one turn does not take.
const ROOM: usize = 16 << 20;

/// The LAN side of a unit's queue.
#[derive(Debug)]
pub enum LanPort {
    /// An interface that is there.
    Interface(Port),
    /// One of the unit's own.
    Tap(TapQueue),
}

/// A queue of a TAP that several threads share.
#[derive(Debug)]
pub struct TapQueue {
    tap: Arc<Tap>,
    at: usize,
    /// Until its unit has it.
    desk: Option<Desk>,
}

impl TapQueue {
    pub(super) fn queue(&self) -> Option<&Queue> {
        self.tap.queues().get(self.at)
    }
}

impl LanPort {
    /// Opens an interface that is there, promiscuously: hosts have addresses that are not its own. A port per queue.
    pub fn interface_named(name: &str, queues: u8) -> verbena_lan::Result<Vec<LanPort>> {
        let ports = Port::open_several(name, true, usize::from(queues))?;
        let widened = ports.into_iter().map(|port| {
            port.widen(ROOM);
            LanPort::Interface(port)
        });
        Ok(widened.collect())
    }

    /// Creates a TAP, with its cable in and leaving checksums and cutting to us; somebody else switches it on. A port per queue.
    pub fn tap_named(name: &str, queues: u8) -> Result<Vec<LanPort>, UnitError> {
        let (tap, desks) = claim::<UnitError>("unit", name, queues)?;
        tap.set_offloads(Offloads::ALL)?;
        tap.set_carrier(true)?;
        let tap = Arc::new(tap);
        let each = desks.into_iter().enumerate().map(|(at, desk)| {
            let (tap, desk) = (Arc::clone(&tap), Some(desk));
            LanPort::Tap(TapQueue { tap, at, desk })
        });
        Ok(each.collect())
    }

    /// Where its queue tells how it stands.
    pub(super) fn desk(&mut self, lane: Lane) -> Result<Desk, UnitError> {
        let early = match self {
            LanPort::Interface(_) => None,
            LanPort::Tap(tap) => tap.desk.take(),
        };
        match early {
            Some(desk) => Ok(desk),
            None => Ok(Desk::open(&lane.desk("unit", &self.interface().name()?))?),
        }
    }

    /// Its settings and state.
    pub fn interface(&self) -> &Interface {
        match self {
            LanPort::Interface(port) => port.interface(),
            LanPort::Tap(tap) => tap.tap.interface(),
        }
    }

    pub(super) fn read(&self, batch: &mut Batch) -> verbena_lan::Result<Taken> {
        match self {
            LanPort::Interface(port) => port.read(batch),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.read(batch),
                None => Ok(Taken::default()),
            },
        }
    }

    pub(super) fn put(&self, vnet: &Vnet, frame: &[u8]) -> verbena_lan::Result<Put> {
        match self {
            LanPort::Interface(port) => port.put(vnet, frame),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.put(vnet, frame),
                None => Ok(Put::Refused),
            },
        }
    }

    pub(super) fn put_by(
        &self,
        vnet: &Vnet,
        write: impl FnMut(BorrowedFd<'_>, &[u8; VNET]) -> std::io::Result<usize>,
    ) -> verbena_lan::Result<Put> {
        match self {
            LanPort::Interface(port) => port.put_by(vnet, write),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.put_by(vnet, write),
                None => Ok(Put::Refused),
            },
        }
    }

    /// It is up, and its cable leads somewhere.
    pub(super) fn is_up(&self) -> verbena_lan::Result<bool> {
        let link = self.interface().link()?;
        Ok(link.up && link.carrier)
    }
}

impl AsFd for LanPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LanPort::Interface(port) => port.as_fd(),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.as_fd(),
                // A TAP has at least one; anything that is never readable would do.
                None => tap.tap.interface().as_fd(),
            },
        }
    }
}
