//! What was done and what was refused, by cause (P3).
//! Every cell that is not placed adds to exactly one number; numbers only grow.
//! It refuses to react.

use verbena_wire::cell::NakReason;

/// Why a cell was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Its packet or cell came before its turn: something is missing.
    Gap,
    /// It came before, or its turn is over.
    Duplicate,
    /// No receive is posted, or its memory is not registered yet.
    NoBuffer,
    /// The memory handle is not valid for this work queue pair.
    Handle,
    /// It leaves the memory, its receive, its own packet's length, or the size of cells.
    Bounds,
    /// The memory may not be written by peers.
    Right,
    /// The packet's checksum is wrong.
    PacketCrc,
    /// A connectionless packet of more than one cell.
    Fragment,
    /// It belongs to no channel of this work queue pair: another peer, other attributes, or not connected.
    Channel,
    /// Our own receive could not be written, and the channel has failed.
    Receive,
}

impl Refused {
    /// What an acknowledged sender is told, if it is.
    pub(crate) fn nak(self) -> Option<NakReason> {
        match self {
            Refused::Gap => Some(NakReason::Gap),
            Refused::NoBuffer => Some(NakReason::NoBuffer),
            Refused::Handle => Some(NakReason::Handle),
            Refused::Bounds => Some(NakReason::Bounds),
            Refused::Right => Some(NakReason::Right),
            Refused::PacketCrc => Some(NakReason::Crc),
            Refused::Duplicate | Refused::Fragment | Refused::Channel | Refused::Receive => None,
        }
    }
}

/// What a work queue pair has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "one per cause, named as in `Refused`")]
pub struct Counters {
    /// Cells of packets that left, those sent again among them.
    pub cells_sent: u64,
    /// Packets completed without a failure.
    pub packets_sent: u64,
    /// Times that packets were sent again: after a Nak, or because nothing came.
    pub rewinds: u64,
    /// Cells that were placed.
    pub cells_placed: u64,
    /// Packets delivered: their last cell was placed.
    pub packets_placed: u64,
    /// Acknowledgements of what is not under way.
    pub stale_acks: u64,
    pub gap: u64,
    pub duplicate: u64,
    pub no_buffer: u64,
    pub handle: u64,
    pub bounds: u64,
    pub right: u64,
    pub packet_crc: u64,
    pub fragment: u64,
    pub channel: u64,
    pub receive: u64,
}

impl Counters {
    pub(crate) fn refuse(&mut self, why: Refused) {
        let number = match why {
            Refused::Gap => &mut self.gap,
            Refused::Duplicate => &mut self.duplicate,
            Refused::NoBuffer => &mut self.no_buffer,
            Refused::Handle => &mut self.handle,
            Refused::Bounds => &mut self.bounds,
            Refused::Right => &mut self.right,
            Refused::PacketCrc => &mut self.packet_crc,
            Refused::Fragment => &mut self.fragment,
            Refused::Channel => &mut self.channel,
            Refused::Receive => &mut self.receive,
        };
        *number += 1;
    }
}

/// What a port has done apart from its work queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Cells with a wrong checksum.
    pub cell_crc: u64,
    /// Cells that are none for another reason; whatever came behind them is lost.
    pub malformed: u64,
    /// Cells for another port.
    pub not_ours: u64,
    /// Cells that say another port sent them than did.
    pub not_theirs: u64,
    /// Cells for numbers that nobody has here.
    pub unknown: u64,
    /// Requests for connections that were rejected without asking: no listener, or too many wait.
    pub rejected: u64,
    /// Requests for connections of senders that have not proven their address.
    pub unproven: u64,
    /// Answers that found no room.
    pub answers_lost: u64,
}
