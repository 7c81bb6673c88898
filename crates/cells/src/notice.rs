//! What a port tells its consumer about connections; completions tell the rest.
//! Each notice is told once, and no peer can make more of them wait than there are work queue pairs and requests.
//! It refuses to know what the consumer does about it.

use std::collections::VecDeque;

use verbena_wire::cell::{Body, Cell, Ending, PacketSeq, RejectReason, Way};
use verbena_wire::number::Qpn;

use crate::descriptor::Peer;

/// A request for a connection that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a channel is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The peer ended it, or says that there is none.
    Peer(Ending),
    /// The peer does not answer any more.
    Silent,
    /// The peer had no receive for too long.
    Busy,
    /// The peer asked for the same packet too often.
    Damaged,
    /// The peer's memory refused a packet of ours.
    Refused,
    /// Our own memory refused a descriptor.
    Memory,
    /// A completion queue lost entries.
    Overflow,
}

/// Something happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Somebody wants to connect: [`accept`](crate::Port::accept) or [`reject`](crate::Port::reject).
    Request {
        /// Its name until then.
        ticket: Ticket,
        /// The listener it came to.
        listener: Qpn,
        /// Who asks.
        from: Peer,
        /// What they say.
        private: Vec<u8>,
    },
    /// A work queue pair that asked is connected.
    Connected {
        /// The work queue pair.
        wqp: Qpn,
        /// To whom.
        peer: Peer,
        /// What they say.
        private: Vec<u8>,
    },
    /// A work queue pair that asked was rejected; it may ask again.
    Rejected {
        /// The work queue pair.
        wqp: Qpn,
        /// Why.
        reason: RejectReason,
        /// What they say.
        private: Vec<u8>,
    },
    /// Nobody answered; it may ask again.
    Unanswered {
        /// The work queue pair.
        wqp: Qpn,
    },
    /// A channel is no more: everything posted has been flushed.
    Ended {
        /// The work queue pair.
        wqp: Qpn,
        /// Why.
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
    /// What is answered, why, and what the consumer says about it.
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

/// What work queue pairs leave for their port.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) strays: VecDeque<Stray>,
    pub(crate) limit: usize,
    pub(crate) lost: u64,
}

impl Effects {
    /// Leaves an answer, unless the same one waits already or too many do.
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
