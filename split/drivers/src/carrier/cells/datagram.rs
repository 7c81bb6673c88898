//! Datagrams that carry cells, whatever the socket: their destination, their bytes, and the result of receiving a batch of them.
//! No socket is used here: `udp` and `ethernet` send and receive.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use verbena_lan::Mac;
use verbena_split_wire::cell::PortAddress;

use crate::carrier::Source;

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

/// One datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) port: PortAddress,
    pub(super) addr: PeerAddr,
    pub(super) bytes: Vec<u8>,
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
