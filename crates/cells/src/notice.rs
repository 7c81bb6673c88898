//! Notices about connections, from a port to its consumer; everything else is reported by completions. A connection attempt of a work
//! queue pair yields at most two, and requests that wait are limited, so that a peer cannot make notices pile up.

use std::collections::VecDeque;

use verbena_wire::cell::{Body, Cell, Ending, PacketSeq, RejectReason, Way};
use verbena_wire::number::Qpn;

use crate::descriptor::Peer;

/// Identifies a request for a connection that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The peer ended it, or reports that it has no such channel.
    Peer(Ending),
    /// The peer does not answer.
    Silent,
    /// The peer had no receive for too long.
    Busy,
    /// The peer asked for the same packet too often.
    Damaged,
    /// The peer's memory refused a packet.
    Refused,
    /// The memory of a descriptor of this side refused access.
    Memory,
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
        why: Why,
    },
}

/// An answer that belongs to no work queue pair, or to one that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stray {
    pub(crate) way: Way,
    pub(crate) packet: PacketSeq,
    pub(crate) says: Says,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Says {
    Disconnect(Ending),
    /// Number of the Connect, reason, and the consumer's private data.
    Reject(PacketSeq, RejectReason, Vec<u8>),
}

impl Stray {
    pub(crate) fn cell(&self) -> Cell<'_> {
        let body = match &self.says {
            Says::Disconnect(ending) => Body::Disconnect(*ending),
            Says::Reject(echo, reason, private) => Body::Reject {
                echo: *echo,
                reason: *reason,
                private,
            },
        };
        Cell {
            way: self.way,
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
    pub(crate) strays: VecDeque<Stray>,
    pub(crate) limit: usize,
    pub(crate) lost: u64,
}

impl Effects {
    /// Queues an answer, unless the same one is queued already or the limit is reached.
    pub(crate) fn stray(&mut self, stray: Stray) {
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
