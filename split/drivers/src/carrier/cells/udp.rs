//! Cells in UDP datagrams: many cells in each, and many datagrams per message where the system supports it. Cells are accepted only from
//! the address of their port: a listener learns it from a connection request with a valid cookie, and a dialler's socket is connected to
//! the unit. Errors about single datagrams do not end the carrier.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use verbena::unstable::access::AccessList;
use verbena_lan::{Datagrams, Inbox, SendOutcome, max_unfragmented};
use verbena_split_wire::cell::PortAddress;

use super::cookie_filter::CookieFilter;
use super::datagram::{Datagram, PeerAddr, ReceiveStats};
use super::options::CellOptions;
use super::routes::{Learnt, Routes};
use crate::carrier::{CarrierError, Result};

/// Messages per receive call.
const BUFFERS: usize = 8;
/// A payload that fits every path: the minimum MTU of IPv6 (RFC 8200, 5) without headers.
const MIN_PATH_PAYLOAD: usize = 1280 - 40 - 8;
/// The offset of a cell's source port.
const SOURCE_PORT: core::ops::Range<usize> = 10..16;

/// The peers.
#[derive(Debug)]
enum Peers {
    /// The unit, and the longest datagram to it.
    Unit(SocketAddr, usize),
    /// Those that requested a connection.
    Learnt(Routes),
}

/// The socket.
#[derive(Debug)]
pub(super) struct Udp {
    socket: Datagrams,
    local: SocketAddr,
    inbox: Inbox,
    peers: Peers,
    /// The sources that are admitted; `None`: all.
    access: Option<AccessList>,
    /// The configured limit of a datagram, whatever the path allows.
    max_datagram: usize,
}

fn refused(call: &'static str) -> impl Fn(std::io::Error) -> CarrierError {
    move |error| CarrierError::System { call, error }
}

impl Udp {
    pub(super) fn listen(local: SocketAddr, options: &CellOptions) -> Result<Udp> {
        let socket = Datagrams::bind(local).map_err(|error| CarrierError::Address {
            address: local.to_string(),
            why: error.to_string(),
        })?;
        let routes = Routes::new(options.pairs.saturating_mul(2));
        Udp::new(socket, Peers::Learnt(routes), options)
    }

    pub(super) fn dial(unit: SocketAddr, options: &CellOptions) -> Result<Udp> {
        let no = |error: std::io::Error| CarrierError::Address {
            address: unit.to_string(),
            why: error.to_string(),
        };
        let socket = Datagrams::connect(unit).map_err(no)?;
        let room = max_unfragmented(unit).map_err(no)?;
        Udp::new(socket, Peers::Unit(unit, room), options)
    }

    fn new(socket: Datagrams, peers: Peers, options: &CellOptions) -> Result<Udp> {
        socket.set_buffer_sizes(options.receive_buffer, options.send_buffer);
        socket.set_gso(options.gso);
        Ok(Udp {
            local: socket.local_addr().map_err(refused("getsockname"))?,
            inbox: socket.inbox(BUFFERS),
            max_datagram: options.datagram.unwrap_or(usize::MAX),
            socket,
            peers,
            access: None,
        })
    }

    pub(super) fn set_access(&mut self, access: AccessList) {
        self.access = Some(access);
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn is_dialler(&self) -> bool {
        matches!(self.peers, Peers::Unit(..))
    }

    pub(super) fn peer_addr(&self, port: PortAddress) -> Option<SocketAddr> {
        match &self.peers {
            Peers::Unit(unit, _) => Some(*unit),
            Peers::Learnt(routes) => routes.get(port).map(|route| route.to),
        }
    }

    pub(super) fn max_datagram(&self, port: PortAddress) -> usize {
        let room = match &self.peers {
            Peers::Unit(_, room) => *room,
            Peers::Learnt(routes) => routes
                .get(port)
                .map_or(MIN_PATH_PAYLOAD, |route| route.max_datagram),
        };
        room.min(self.max_datagram)
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        mut gate: Option<&mut CookieFilter>,
        mut take: impl FnMut(PortAddress, bool, &[u8]),
    ) -> Result<ReceiveStats> {
        let came = self.socket.receive(&mut self.inbox);
        let came = came.map_err(refused("recvmmsg"))?;
        let mut passed = ReceiveStats {
            more: came == self.inbox.buffers(),
            ..ReceiveStats::default()
        };
        for (from, datagram) in self.inbox.datagrams() {
            let access = self.access.as_ref();
            if access.is_some_and(|access| !access.admits(from.ip())) {
                passed.dropped += 1;
                continue;
            }
            let Some(port) = sender(datagram) else {
                passed.dropped += 1;
                continue;
            };
            let judge =
                |gate: &mut &mut CookieFilter| gate.check(PeerAddr::Udp(from), port, datagram);
            let proven = gate.as_mut().is_some_and(judge);
            match self.peers.check(port, from, proven, now) {
                Ok(()) => {
                    passed.datagrams += 1;
                    take(port, proven, datagram);
                }
                Err(DropReason::Unknown) => passed.dropped += 1,
                Err(DropReason::Spoofed) => passed.spoofed += 1,
            }
        }
        Ok(passed)
    }

    pub(super) fn send(&self, datagrams: &[Datagram]) -> Result<SendOutcome> {
        let get = |at: usize| match datagrams.get(at) {
            Some(Datagram {
                addr: PeerAddr::Udp(to),
                bytes,
                ..
            }) => (*to, bytes.as_slice()),
            // `at` is within bounds, and all datagrams are for UDP.
            _ => (self.local, &[][..]),
        };
        let sent = self.socket.send(datagrams.len(), get);
        sent.map_err(refused("sendmmsg"))
    }

    pub(super) fn add_request(&mut self, port: PortAddress, until: Instant) {
        if let Peers::Learnt(routes) = &mut self.peers {
            routes.add_request(port, until);
        }
    }

    pub(super) fn remove_request(&mut self, port: PortAddress) {
        if let Peers::Learnt(routes) = &mut self.peers {
            routes.remove_request(port);
        }
    }

    pub(super) fn add_pair(&mut self, port: PortAddress) {
        if let Peers::Learnt(routes) = &mut self.peers {
            routes.add_pair(port);
        }
    }

    pub(super) fn remove_pair(&mut self, port: PortAddress) {
        if let Peers::Learnt(routes) = &mut self.peers {
            routes.remove_pair(port);
        }
    }
}

/// Why a datagram is dropped.
enum DropReason {
    /// The address is not that of a known port.
    Unknown,
    /// It is a request with the port of a peer that has another address.
    Spoofed,
}

impl Peers {
    /// Checks that a datagram from this address may be the port's.
    fn check(
        &mut self,
        port: PortAddress,
        from: SocketAddr,
        proven: bool,
        now: Instant,
    ) -> core::result::Result<(), DropReason> {
        let Peers::Learnt(routes) = self else {
            // A connected socket receives from its peer only.
            return Ok(());
        };
        if routes.get(port).is_some_and(|route| route.to == from) {
            return Ok(());
        }
        if !proven {
            return Err(DropReason::Unknown);
        }
        let room = || max_unfragmented(from).unwrap_or(MIN_PATH_PAYLOAD);
        match routes.learn(port, from, now, room) {
            Learnt::Current => Ok(()),
            Learnt::Conflict => Err(DropReason::Spoofed),
            Learnt::Full => Err(DropReason::Unknown),
        }
    }
}

/// The source port of the first cell. The channel adapter checks the other cells of the datagram against it.
fn sender(datagram: &[u8]) -> Option<PortAddress> {
    let bytes = datagram.get(SOURCE_PORT)?.first_chunk::<6>()?;
    Some(PortAddress(*bytes))
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
