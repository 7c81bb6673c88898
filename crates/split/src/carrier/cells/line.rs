//! The datagram socket of a carrier of cells: UDP or Ethernet. The sender of a datagram is determined before its cells are processed, and
//! no call blocks. Of the cells only the source port and connection requests are inspected.

use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use verbena_lan::{Mac, Sent};
use verbena_wire::cell::PortAddress;

use super::ethernet::Ethernet;
use super::gate::Gate;
use super::outgoing::Datagram;
use super::udp::Udp;
use crate::carrier::{Result, Source};

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Udp(SocketAddr),
    Ethernet(Mac),
}

impl Place {
    /// Its address, as cookies bind it.
    pub(super) fn source(self) -> Vec<u8> {
        match self {
            Place::Udp(place) => {
                let ip = match place.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                [&ip.octets()[..], &place.port().to_be_bytes()].concat()
            }
            Place::Ethernet(mac) => mac.octets().to_vec(),
        }
    }

    /// The source that limits count it for.
    pub(super) fn counts_for(self) -> Source {
        match self {
            Place::Udp(place) => Source::of(place.ip()),
            Place::Ethernet(mac) => Source::Mac(mac),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Udp(place) => place.fmt(f),
            Place::Ethernet(mac) => mac.fmt(f),
        }
    }
}

/// The result of receiving a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    /// Datagrams passed on.
    pub(super) datagrams: u64,
    /// Datagrams dropped: refused, unknown or too short.
    pub(super) strangers: u64,
    /// Requests with the port of another sender.
    pub(super) diverted: u64,
    /// More may wait.
    pub(super) more: bool,
}

/// The socket.
#[derive(Debug)]
pub(super) enum Line {
    Udp(Box<Udp>),
    Ethernet(Box<Ethernet>),
}

impl Line {
    /// Receives up to a batch, and passes each datagram on with the port that sent it, and whether its connection requests may be taken.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        gate: Option<&mut Gate>,
        take: impl FnMut(PortAddress, bool, &[u8]),
    ) -> Result<Passed> {
        match self {
            Line::Udp(udp) => udp.receive(now, gate, take),
            Line::Ethernet(ethernet) => ethernet.receive(gate, take),
        }
    }

    /// Sends datagrams, until the socket's buffer is full.
    pub(super) fn send(&self, datagrams: &[Datagram]) -> Result<Sent> {
        match self {
            Line::Udp(udp) => udp.send(datagrams),
            Line::Ethernet(ethernet) => ethernet.send(datagrams),
        }
    }

    /// The address of a port, if known.
    pub(super) fn place(&self, port: PortAddress) -> Option<Place> {
        match self {
            Line::Udp(udp) => udp.place(port).map(Place::Udp),
            Line::Ethernet(_) => Some(Place::Ethernet(Mac::new(port.0))),
        }
    }

    /// Bytes of the longest datagram to a port.
    pub(super) fn room(&self, port: PortAddress) -> usize {
        match self {
            Line::Udp(udp) => udp.room(port),
            Line::Ethernet(ethernet) => ethernet.room(),
        }
    }

    /// The port to request connections from, if this is a dialler.
    pub(super) fn unit(&self) -> Option<PortAddress> {
        match self {
            Line::Udp(udp) => udp.dials().then_some(PortAddress::WHOEVER),
            Line::Ethernet(ethernet) => ethernet.unit(),
        }
    }

    /// A request of this port waits for an answer.
    pub(super) fn asks(&mut self, port: PortAddress, until: Instant) {
        if let Line::Udp(udp) = self {
            udp.asks(port, until);
        }
    }

    /// No request of this port waits any more.
    pub(super) fn answered(&mut self, port: PortAddress) {
        if let Line::Udp(udp) = self {
            udp.answered(port);
        }
    }

    /// A pair was connected to this port, whose address is then fixed.
    pub(super) fn hold(&mut self, port: PortAddress) {
        if let Line::Udp(udp) = self {
            udp.hold(port);
        }
    }

    /// A pair to this port has ended.
    pub(super) fn release(&mut self, port: PortAddress) {
        if let Line::Udp(udp) = self {
            udp.release(port);
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Line::Udp(_) => "udp",
            Line::Ethernet(_) => "ethernet",
        }
    }

    pub(super) fn local(&self) -> String {
        match self {
            Line::Udp(udp) => udp.local().to_string(),
            Line::Ethernet(ethernet) => ethernet.mac().to_string(),
        }
    }

    /// A port, for messages.
    pub(super) fn describe(&self, port: PortAddress) -> String {
        match self.place(port) {
            Some(Place::Udp(place)) => format!("{place} (port {port})"),
            _ => port.to_string(),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Udp(udp) => udp.as_fd(),
            Line::Ethernet(ethernet) => ethernet.as_fd(),
        }
    }
}
