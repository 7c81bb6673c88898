//! The datagram socket of a carrier of cells: UDP or Ethernet. The sender of a datagram is determined before its cells are processed, and
//! no call blocks. Of the cells only the source port and connection requests are inspected.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use verbena_lan::{Mac, SendOutcome};
use verbena_split_wire::cell::PortAddress;

use super::cookie_filter::CookieFilter;
use super::datagram::{Datagram, PeerAddr, ReceiveStats};
use super::ethernet::Ethernet;
use super::udp::Udp;
use crate::carrier::Result;

/// The socket.
#[derive(Debug)]
pub(super) enum CellSocket {
    Udp(Box<Udp>),
    Ethernet(Box<Ethernet>),
}

impl CellSocket {
    /// Receives up to a batch, and passes each datagram on with the port that sent it, and whether its connection requests may be taken.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        gate: Option<&mut CookieFilter>,
        take: impl FnMut(PortAddress, bool, &[u8]),
    ) -> Result<ReceiveStats> {
        match self {
            CellSocket::Udp(udp) => udp.receive(now, gate, take),
            CellSocket::Ethernet(ethernet) => ethernet.receive(gate, take),
        }
    }

    /// Sends datagrams, until the socket's buffer is full.
    pub(super) fn send(&self, datagrams: &[Datagram]) -> Result<SendOutcome> {
        match self {
            CellSocket::Udp(udp) => udp.send(datagrams),
            CellSocket::Ethernet(ethernet) => ethernet.send(datagrams),
        }
    }

    /// The address of a port, if known.
    pub(super) fn peer_addr(&self, port: PortAddress) -> Option<PeerAddr> {
        match self {
            CellSocket::Udp(udp) => udp.peer_addr(port).map(PeerAddr::Udp),
            CellSocket::Ethernet(_) => Some(PeerAddr::Ethernet(Mac::new(port.0))),
        }
    }

    /// Bytes of the longest datagram to a port.
    pub(super) fn max_datagram(&self, port: PortAddress) -> usize {
        match self {
            CellSocket::Udp(udp) => udp.max_datagram(port),
            CellSocket::Ethernet(ethernet) => ethernet.max_datagram(),
        }
    }

    /// The port to request connections from, if this is a dialler.
    pub(super) fn unit(&self) -> Option<PortAddress> {
        match self {
            CellSocket::Udp(udp) => udp.is_dialler().then_some(PortAddress::ANY),
            CellSocket::Ethernet(ethernet) => ethernet.unit(),
        }
    }

    /// A request of this port waits for an answer.
    pub(super) fn add_request(&mut self, port: PortAddress, until: Instant) {
        if let CellSocket::Udp(udp) = self {
            udp.add_request(port, until);
        }
    }

    /// No request of this port waits any more.
    pub(super) fn remove_request(&mut self, port: PortAddress) {
        if let CellSocket::Udp(udp) = self {
            udp.remove_request(port);
        }
    }

    /// A pair was connected to this port, whose address is then fixed.
    pub(super) fn add_pair(&mut self, port: PortAddress) {
        if let CellSocket::Udp(udp) = self {
            udp.add_pair(port);
        }
    }

    /// A pair to this port has ended.
    pub(super) fn remove_pair(&mut self, port: PortAddress) {
        if let CellSocket::Udp(udp) = self {
            udp.remove_pair(port);
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            CellSocket::Udp(_) => "udp",
            CellSocket::Ethernet(_) => "ethernet",
        }
    }

    pub(super) fn local_addr(&self) -> String {
        match self {
            CellSocket::Udp(udp) => udp.local_addr().to_string(),
            CellSocket::Ethernet(ethernet) => ethernet.mac().to_string(),
        }
    }

    /// A port, for messages.
    pub(super) fn describe(&self, port: PortAddress) -> String {
        match self.peer_addr(port) {
            Some(PeerAddr::Udp(place)) => format!("{place} (port {port})"),
            _ => port.to_string(),
        }
    }
}

impl AsFd for CellSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            CellSocket::Udp(udp) => udp.as_fd(),
            CellSocket::Ethernet(ethernet) => ethernet.as_fd(),
        }
    }
}
