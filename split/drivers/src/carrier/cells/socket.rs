//! The datagram socket of a carrier of cells: UDP or Ethernet. The sender of a datagram is determined before its cells are processed, and
//! no call blocks. Of the cells only the source port and connection requests are inspected.

use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use verbena_lan::{Mac, SendOutcome};
use verbena_split_wire::cell::PortAddress;

use super::cookie_filter::CookieFilter;
use super::ethernet::Ethernet;
use super::outgoing::Datagram;
use super::udp::Udp;
use crate::carrier::{Result, Source};

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerAddr {
    Udp(SocketAddr),
    Ethernet(Mac),
}

impl PeerAddr {
    /// Its address, as cookies bind it.
    pub(super) fn cookie_bytes(self) -> Vec<u8> {
        match self {
            PeerAddr::Udp(place) => {
                let ip = match place.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                [&ip.octets()[..], &place.port().to_be_bytes()].concat()
            }
            PeerAddr::Ethernet(mac) => mac.octets().to_vec(),
        }
    }

    /// The source that limits count it for.
    pub(super) fn limit_source(self) -> Source {
        match self {
            PeerAddr::Udp(place) => Source::of(place.ip()),
            PeerAddr::Ethernet(mac) => Source::Mac(mac),
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddr::Udp(place) => place.fmt(f),
            PeerAddr::Ethernet(mac) => mac.fmt(f),
        }
    }
}

/// The result of receiving a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceiveStats {
    /// Datagrams passed on.
    pub(super) datagrams: u64,
    /// Datagrams dropped: refused, unknown or too short.
    pub(super) dropped: u64,
    /// Requests with the port of another sender.
    pub(super) spoofed: u64,
    /// More may wait.
    pub(super) more: bool,
}

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
