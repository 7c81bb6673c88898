//! The LAN side of a unit: an existing interface, or a TAP of its own.
//! It promises the same calls for both.
//! It refuses to know where frames come from and go to.

use std::os::fd::{AsFd, BorrowedFd};

use verbena_lan::{Batch, Interface, Offloads, Port, Put, Result, Taken, Tap, VNET, Vnet};

/// Bytes that may wait in the socket: a burst that one turn does not take.
const ROOM: usize = 16 << 20;

/// The LAN side.
#[derive(Debug)]
pub enum LanPort {
    /// An interface that is there.
    Interface(Port),
    /// One of the unit's own.
    Tap(Tap),
}

impl LanPort {
    /// Opens an interface that is there, promiscuously: hosts have addresses that are not its own.
    pub fn interface_named(name: &str) -> Result<LanPort> {
        let port = Port::open(name, true)?;
        port.widen(ROOM);
        Ok(LanPort::Interface(port))
    }

    /// Creates a TAP, with its cable in and leaving checksums and cutting to us; somebody else switches it on.
    pub fn tap_named(name: &str) -> Result<LanPort> {
        let tap = Tap::create(name, 1)?;
        tap.set_offloads(Offloads::ALL)?;
        tap.set_carrier(true)?;
        Ok(LanPort::Tap(tap))
    }

    /// Its settings and state.
    pub fn interface(&self) -> &Interface {
        match self {
            LanPort::Interface(port) => port.interface(),
            LanPort::Tap(tap) => tap.interface(),
        }
    }

    pub(super) fn read(&self, batch: &mut Batch) -> Result<Taken> {
        match self {
            LanPort::Interface(port) => port.read(batch),
            LanPort::Tap(tap) => match tap.queues().first() {
                Some(queue) => queue.read(batch),
                None => Ok(Taken::default()),
            },
        }
    }

    pub(super) fn put(&self, vnet: &Vnet, frame: &[u8]) -> Result<Put> {
        match self {
            LanPort::Interface(port) => port.put(vnet, frame),
            LanPort::Tap(tap) => match tap.queues().first() {
                Some(queue) => queue.put(vnet, frame),
                None => Ok(Put::Refused),
            },
        }
    }

    pub(super) fn put_by(
        &self,
        vnet: &Vnet,
        write: impl FnMut(BorrowedFd<'_>, &[u8; VNET]) -> std::io::Result<usize>,
    ) -> Result<Put> {
        match self {
            LanPort::Interface(port) => port.put_by(vnet, write),
            LanPort::Tap(tap) => match tap.queues().first() {
                Some(queue) => queue.put_by(vnet, write),
                None => Ok(Put::Refused),
            },
        }
    }

    /// It is up, and its cable leads somewhere.
    pub(super) fn is_up(&self) -> Result<bool> {
        let link = self.interface().link()?;
        Ok(link.up && link.carrier)
    }
}

impl AsFd for LanPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LanPort::Interface(port) => port.as_fd(),
            LanPort::Tap(tap) => match tap.queues().first() {
                Some(queue) => queue.as_fd(),
                // A TAP has at least one; anything that is never readable would do.
                None => tap.interface().as_fd(),
            },
        }
    }
}
