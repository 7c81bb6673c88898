//! Cells in Ethernet frames: the port's address is the interface's, and a frame's source address is the port of its cells. Only frames to
//! this station with [`ETHERTYPE`] are received. Peers must be on the same network.

use std::os::fd::{AsFd, BorrowedFd};

use verbena_lan::{Ether, Inbox, Mac, Sent};
use verbena_wire::cell::PortAddress;

use super::gate::Gate;
use super::line::{Passed, Place};
use super::options::CellOptions;
use super::outgoing::Datagram;
use crate::carrier::Result;

/// The type of the frames: IEEE 802's Local Experimental Ethertype 1.
pub const ETHERTYPE: u16 = 0x88b5;

/// Frames per call.
const ROOMS: usize = 64;

/// A socket of an interface.
#[derive(Debug)]
pub(super) struct Ethernet {
    socket: Ether,
    inbox: Inbox,
    room: usize,
    unit: Option<PortAddress>,
}

impl Ethernet {
    pub(super) fn open(
        interface: &str,
        unit: Option<Mac>,
        options: &CellOptions,
    ) -> Result<Ethernet> {
        let socket = Ether::open(interface, ETHERTYPE)?;
        socket.widen(options.receive_room, options.send_room);
        Ok(Ethernet {
            inbox: socket.inbox(ROOMS)?,
            room: socket.room()?,
            unit: unit.map(|mac| PortAddress(mac.octets())),
            socket,
        })
    }

    pub(super) fn mac(&self) -> Mac {
        self.socket.mac()
    }

    pub(super) fn room(&self) -> usize {
        self.room
    }

    pub(super) fn unit(&self) -> Option<PortAddress> {
        self.unit
    }

    pub(super) fn receive(
        &mut self,
        mut gate: Option<&mut Gate>,
        mut take: impl FnMut(PortAddress, bool, &[u8]),
    ) -> Result<Passed> {
        let came = self.socket.receive(&mut self.inbox)?;
        let mut passed = Passed {
            more: came == self.inbox.rooms(),
            ..Passed::default()
        };
        for (from, datagram) in self.inbox.frames() {
            let port = PortAddress(from.octets());
            // A dialler takes frames of the unit only.
            if self.unit.is_some_and(|unit| unit != port) {
                continue;
            }
            passed.datagrams += 1;
            let place = Place::Ethernet(from);
            let judge = |gate: &mut &mut Gate| gate.judge(place, port, datagram);
            let proven = gate.as_mut().is_some_and(judge);
            take(port, proven, datagram);
        }
        passed.strangers = (came as u64).saturating_sub(passed.datagrams);
        Ok(passed)
    }

    pub(super) fn send(&self, datagrams: &[Datagram]) -> Result<Sent> {
        let get = |at: usize| match datagrams.get(at) {
            Some(Datagram {
                place: Place::Ethernet(mac),
                bytes,
                ..
            }) => (*mac, bytes.as_slice()),
            // `at` is within bounds, and all datagrams are for Ethernet.
            _ => (Mac::BROADCAST, &[][..]),
        };
        Ok(self.socket.send(datagrams.len(), get)?)
    }
}

impl AsFd for Ethernet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
