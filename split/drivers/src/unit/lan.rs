//! The LAN port of a unit: an existing interface, or a TAP that the unit creates. Both have the same calls, and a TAP of another unit is
//! not opened (see `claim`). Where frames come from and go to is decided by the switch.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_lan::{
    Batch, BatchReadOutcome, Interface, Offloads, Port, Queue, Tap, VNET_HDR_LEN, Vnet,
    WriteOutcome,
};

use super::UnitError;
use crate::claim::claim;
use crate::lane::Lane;
use crate::status::StatusSocket;

/// Receive buffer of the socket in bytes: room for a burst that is longer than one turn reads.
const RECEIVE_BUFFER: usize = 16 << 20;

/// The LAN port of one queue of a unit.
#[derive(Debug)]
pub enum LanPort {
    /// An existing interface.
    Interface(Port),
    /// A TAP of the unit.
    Tap(TapQueue),
}

/// A queue of a TAP that several threads share.
#[derive(Debug)]
pub struct TapQueue {
    tap: Arc<Tap>,
    at: usize,
    /// Until the unit takes it.
    status_socket: Option<StatusSocket>,
}

impl TapQueue {
    pub(super) fn queue(&self) -> Option<&Queue> {
        self.tap.queues().get(self.at)
    }
}

impl LanPort {
    /// Opens an existing interface in promiscuous mode: hosts have addresses that are not its own. One port per queue.
    pub fn interface_named(name: &str, queues: u8) -> verbena_lan::Result<Vec<LanPort>> {
        let ports = Port::open_several(name, true, usize::from(queues))?;
        let widened = ports.into_iter().map(|port| {
            port.set_receive_buffer(RECEIVE_BUFFER);
            LanPort::Interface(port)
        });
        Ok(widened.collect())
    }

    /// Creates a TAP with carrier on, and all offloads; setting it up is left to the administrator. One port per queue.
    pub fn tap_named(name: &str, queues: u8) -> Result<Vec<LanPort>, UnitError> {
        let (tap, status_sockets) = claim::<UnitError>("unit", name, queues)?;
        tap.set_offloads(Offloads::ALL)?;
        tap.set_carrier(true)?;
        let tap = Arc::new(tap);
        let each = status_sockets.into_iter().enumerate().map(|(at, socket)| {
            let (tap, socket) = (Arc::clone(&tap), Some(socket));
            LanPort::Tap(TapQueue {
                tap,
                at,
                status_socket: socket,
            })
        });
        Ok(each.collect())
    }

    /// The status socket of its queue.
    pub(super) fn status_socket(&mut self, lane: Lane) -> Result<StatusSocket, UnitError> {
        let early = match self {
            LanPort::Interface(_) => None,
            LanPort::Tap(tap) => tap.status_socket.take(),
        };
        match early {
            Some(socket) => Ok(socket),
            None => Ok(StatusSocket::open(
                &lane.socket_name("unit", &self.interface().name()?),
            )?),
        }
    }

    /// The interface's settings and state.
    pub fn interface(&self) -> &Interface {
        match self {
            LanPort::Interface(port) => port.interface(),
            LanPort::Tap(tap) => tap.tap.interface(),
        }
    }

    pub(super) fn read(&self, batch: &mut Batch) -> verbena_lan::Result<BatchReadOutcome> {
        match self {
            LanPort::Interface(port) => port.read(batch),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.read(batch),
                None => Ok(BatchReadOutcome::default()),
            },
        }
    }

    pub(super) fn write_frame(
        &self,
        vnet: &Vnet,
        frame: &[u8],
    ) -> verbena_lan::Result<WriteOutcome> {
        match self {
            LanPort::Interface(port) => port.write_frame(vnet, frame),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.write_frame(vnet, frame),
                None => Ok(WriteOutcome::Refused),
            },
        }
    }

    pub(super) fn write_frame_with(
        &self,
        vnet: &Vnet,
        write: impl FnMut(BorrowedFd<'_>, &[u8; VNET_HDR_LEN]) -> std::io::Result<usize>,
    ) -> verbena_lan::Result<WriteOutcome> {
        match self {
            LanPort::Interface(port) => port.write_frame_with(vnet, write),
            LanPort::Tap(tap) => match tap.queue() {
                Some(queue) => queue.write_frame_with(vnet, write),
                None => Ok(WriteOutcome::Refused),
            },
        }
    }

    /// The interface is up and has carrier.
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
                // A TAP has at least one queue; the descriptor only has to be one that is never readable.
                None => tap.tap.interface().as_fd(),
            },
        }
    }
}
