//! Cells in Ethernet frames: the port's address is the interface's, and a frame's source address is the port of its cells. Only frames to
//! this station with [`ETHERTYPE`] are received. Peers must be on the same network.

use std::os::fd::{AsFd, BorrowedFd};

use verbena_lan::{EtherSocket, Inbox, Mac, SendOutcome};
use verbena_split_wire::cell::PortAddress;

use super::cookie_filter::CookieFilter;
use super::datagram::{Datagram, PeerAddr, ReceiveStats};
use super::options::CellOptions;
use crate::carrier::Result;

/// The type of the frames: IEEE 802's Local Experimental Ethertype 1.
pub const ETHERTYPE: u16 = 0x88b5;

/// Frames per call.
const BUFFERS: usize = 64;

/// A socket of an interface.
#[derive(Debug)]
pub(super) struct Ethernet {
    socket: EtherSocket,
    inbox: Inbox,
    max_datagram: usize,
    unit: Option<PortAddress>,
}

impl Ethernet {
    pub(super) fn open(
        interface: &str,
        unit: Option<Mac>,
        options: &CellOptions,
    ) -> Result<Ethernet> {
        let socket = EtherSocket::open(interface, ETHERTYPE)?;
        socket.set_buffer_sizes(options.receive_buffer, options.send_buffer);
        Ok(Ethernet {
            inbox: socket.inbox(BUFFERS)?,
            max_datagram: socket.max_datagram()?,
            unit: unit.map(|mac| PortAddress(mac.octets())),
            socket,
        })
    }

    pub(super) fn mac(&self) -> Mac {
        self.socket.mac()
    }

    pub(super) fn max_datagram(&self) -> usize {
        self.max_datagram
    }

    pub(super) fn unit(&self) -> Option<PortAddress> {
        self.unit
    }

    pub(super) fn receive(
        &mut self,
        mut gate: Option<&mut CookieFilter>,
        mut take: impl FnMut(PortAddress, bool, &[u8]),
    ) -> Result<ReceiveStats> {
        let came = self.socket.receive(&mut self.inbox)?;
        let mut passed = ReceiveStats {
            more: came == self.inbox.buffers(),
            ..ReceiveStats::default()
        };
        for (from, datagram) in self.inbox.frames() {
            let port = PortAddress(from.octets());
            // A dialler takes frames of the unit only.
            if self.unit.is_some_and(|unit| unit != port) {
                continue;
            }
            passed.datagrams += 1;
            let place = PeerAddr::Ethernet(from);
            let judge = |gate: &mut &mut CookieFilter| gate.check(place, port, datagram);
            let proven = gate.as_mut().is_some_and(judge);
            take(port, proven, datagram);
        }
        passed.dropped = (came as u64).saturating_sub(passed.datagrams);
        Ok(passed)
    }

    pub(super) fn send(&self, datagrams: &[Datagram]) -> Result<SendOutcome> {
        let get = |at: usize| match datagrams.get(at) {
            Some(Datagram {
                addr: PeerAddr::Ethernet(mac),
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
