//! A connection of a fabric over either wire: a byte stream, or RoCEv2 packets.
//! What a fabric does with a connection is the same for both, except that only a byte stream tells its ends when it is lost.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_nic::Qp;
use verbena_stream::{Outcome, Time};

use super::connection::Connection;
use super::host::HostId;
use super::packet_connection::PacketConnection;
use crate::packet_link::PacketCounts;

/// A connection over one of the wires.
#[derive(Debug)]
pub(super) enum AnyConnection {
    Bytes(Box<Connection>),
    Packets(Box<PacketConnection>),
}

impl AnyConnection {
    /// One turn of one end at the current time; false when nothing moved.
    pub(super) fn turn(&mut self, side: usize, now: Time) -> bool {
        match self {
            AnyConnection::Bytes(bytes) => bytes.turn(side, now),
            AnyConnection::Packets(packets) => packets.turn(side, now),
        }
    }

    /// A run begins.
    pub(super) fn begin_run(&mut self) {
        if let AnyConnection::Packets(packets) = self {
            packets.begin_run();
        }
    }

    /// When something happens next; without `with_waiting` not counting repetitions for a receive that is not posted.
    pub(super) fn next_moment(&self, with_waiting: bool) -> Option<Time> {
        match self {
            AnyConnection::Bytes(bytes) => bytes.next_moment(),
            AnyConnection::Packets(packets) => packets.next_moment(with_waiting),
        }
    }

    /// Everything under way is lost, and what is sent later. The ends of a byte stream are told at once.
    pub(super) fn abort(&mut self) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.abort(),
            AnyConnection::Packets(packets) => packets.cut(),
        }
    }

    /// Ends the side of a host without telling its queue pair.
    pub(super) fn abandon(&mut self, host: HostId) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.abandon(host),
            AnyConnection::Packets(packets) => packets.abandon(host),
        }
    }

    /// A queue pair that was reset leaves the connection.
    pub(super) fn forget(&mut self, qp: &Arc<Qp>) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.forget(qp),
            AnyConnection::Packets(packets) => packets.forget(qp),
        }
    }

    /// Nothing arrives before `until`.
    pub(super) fn hold(&mut self, until: Time) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.hold(until),
            AnyConnection::Packets(packets) => packets.hold(until),
        }
    }

    /// The connection continues in another queue pair.
    pub(super) fn replace(&mut self, old: &Arc<Qp>, new: &Arc<Qp>) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.replace(old, new),
            AnyConnection::Packets(packets) => packets.replace(old, new),
        }
    }

    /// The host of an end, and the outbox of its calls.
    pub(super) fn take_outbox(&mut self, side: usize) -> (HostId, Outbox) {
        match self {
            AnyConnection::Bytes(bytes) => bytes.take_outbox(side),
            AnyConnection::Packets(packets) => packets.take_outbox(side),
        }
    }

    /// The outcome of the startup at an end; RoCEv2 packets have none.
    pub(super) fn outcome(&self, side: usize) -> Option<&Outcome> {
        match self {
            AnyConnection::Bytes(bytes) => bytes.ends[side].outcome.as_ref(),
            AnyConnection::Packets(_) => None,
        }
    }

    /// Whether both directions have ended.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            AnyConnection::Bytes(bytes) => bytes.is_closed(),
            AnyConnection::Packets(packets) => packets.is_cut(),
        }
    }

    /// The positions of flipped bits in the byte stream of each side, and how much it sent. Damaged packets are dropped, so there are none.
    pub(super) fn flips(&self) -> [(&[u64], u64); 2] {
        match self {
            AnyConnection::Bytes(bytes) => bytes.flips(),
            AnyConnection::Packets(_) => [(&[], 0); 2],
        }
    }

    /// Bytes sent in both directions.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            AnyConnection::Bytes(bytes) => bytes.bytes(),
            AnyConnection::Packets(packets) => packets.bytes(),
        }
    }

    /// What became of its packets.
    pub(super) fn packets(&self) -> PacketCounts {
        match self {
            AnyConnection::Bytes(_) => PacketCounts::default(),
            AnyConnection::Packets(packets) => packets.counts(),
        }
    }
}
