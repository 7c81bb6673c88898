//! Counters of work queue pairs and ports, by cause (P3). Every cell that is not placed adds to exactly one counter, and counters only
//! grow.

use verbena_split_wire::cell::NakReason;

/// Why a cell was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// An earlier packet or cell is missing.
    Gap,
    /// It was received before, or a later packet has been.
    Duplicate,
    /// No receive is posted, or its memory is not registered yet.
    NoBuffer,
    /// The memory handle is not valid for this work queue pair.
    Handle,
    /// It exceeds the memory, the receive, its own packet's length, or the cell size.
    Bounds,
    /// The memory may not be written by peers.
    Right,
    /// The packet's checksum is wrong.
    PacketCrc,
    /// A connectionless packet of more than one cell.
    Fragment,
    /// It belongs to no channel of this work queue pair: another peer, other attributes, or not connected.
    Channel,
    /// The memory of a posted receive could not be written, and the channel has failed.
    Receive,
}

impl Refused {
    /// The Nak for an acknowledged sender, if there is one.
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

/// Counters of a work queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "one per cause, named as in `Refused`")]
pub struct Counters {
    /// Data cells sent, retransmissions included.
    pub cells_sent: u64,
    /// Packets completed successfully.
    pub packets_sent: u64,
    /// Retransmissions: after a Nak, or after a timeout.
    pub retransmissions: u64,
    /// Cells that were placed.
    pub cells_placed: u64,
    /// Packets delivered: their last cell was placed.
    pub packets_placed: u64,
    /// Acknowledgements of packets that are not in flight.
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

/// Counters of a port besides those of its work queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Cells with a wrong checksum.
    pub cell_crc: u64,
    /// Malformed cells; the rest of their datagram is lost.
    pub malformed: u64,
    /// Cells for another port.
    pub wrong_destination: u64,
    /// Cells whose source is not the port that the carrier received them from.
    pub wrong_source: u64,
    /// Cells for a number without a work queue pair.
    pub unknown: u64,
    /// Requests for connections that were rejected without the consumer: no listener, other attributes, or too many waiting.
    pub rejected: u64,
    /// Requests for connections of senders that have not returned a cookie.
    pub unproven: u64,
    /// Answers that were dropped because too many waited.
    pub answers_lost: u64,
}
