//! Notices about connections, from a port to its consumer; everything else is reported by completions. A connection attempt of a work
//! queue pair yields at most two, and requests that wait are limited, so that a peer cannot make notices pile up.

use std::collections::VecDeque;

use verbena_split_wire::cell::{Body, Cell, CellRoute, DisconnectReason, PacketSeq, RejectReason};
use verbena_wire::number::Qpn;

use crate::descriptor::Peer;

/// Identifies a request for a connection that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The peer ended it, or reports that it has no such channel.
    Peer(DisconnectReason),
    /// The peer does not answer.
    PeerTimeout,
    /// The peer had no receive for too long.
    NoReceive,
    /// The peer asked for the same packet too often.
    TooManyNaks,
    /// The peer's memory refused a packet.
    Refused,
    /// The memory of a descriptor of this side refused access.
    LocalMemory,
    /// A completion queue lost entries.
    Overflow,
}

/// A change of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A peer requests a connection: call [`accept`](crate::Port::accept) or [`reject`](crate::Port::reject).
    Request {
        /// Identifies it until then.
        ticket: Ticket,
        /// The listener.
        listener: Qpn,
        /// The peer.
        from: Peer,
        /// The peer's private data.
        private: Vec<u8>,
    },
    /// A Connect of this work queue pair was accepted.
    Connected {
        /// The work queue pair.
        wqp: Qpn,
        /// The peer.
        peer: Peer,
        /// The peer's private data.
        private: Vec<u8>,
    },
    /// A Connect of this work queue pair was rejected; it may connect again.
    Rejected {
        /// The work queue pair.
        wqp: Qpn,
        /// The reason.
        reason: RejectReason,
        /// The peer's private data.
        private: Vec<u8>,
    },
    /// A Connect was not answered; the work queue pair may connect again.
    Unanswered {
        /// The work queue pair.
        wqp: Qpn,
    },
    /// A channel has ended: everything posted was flushed.
    Ended {
        /// The work queue pair.
        wqp: Qpn,
        /// The cause.
        reason: EndReason,
    },
}

/// An answer that belongs to no work queue pair, or to one that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StrayAnswer {
    pub(crate) way: CellRoute,
    pub(crate) packet: PacketSeq,
    pub(crate) body: StrayBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StrayBody {
    Disconnect(DisconnectReason),
    /// Number of the Connect, reason, and the consumer's private data.
    Reject(PacketSeq, RejectReason, Vec<u8>),
}

impl StrayAnswer {
    pub(crate) fn cell(&self) -> Cell<'_> {
        let body = match &self.body {
            StrayBody::Disconnect(ending) => Body::Disconnect(*ending),
            StrayBody::Reject(echo, reason, private) => Body::Reject {
                echo: *echo,
                reason: *reason,
                private,
            },
        };
        Cell {
            route: self.way,
            connected: true,
            packet: self.packet,
            body,
        }
    }
}

/// Output of work queue pairs that their port handles.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) strays: VecDeque<StrayAnswer>,
    pub(crate) limit: usize,
    pub(crate) lost: u64,
}

impl Effects {
    /// Queues an answer, unless the same one is queued already or the limit is reached.
    pub(crate) fn queue_stray(&mut self, stray: StrayAnswer) {
        if self.strays.contains(&stray) {
            return;
        }
        if self.strays.len() >= self.limit {
            self.lost += 1;
            return;
        }
        self.strays.push_back(stray);
    }
}
