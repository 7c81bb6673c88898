//! What a session asks of its carrier and reports to its program, in the order in which it must be done. An output names payload
//! by packet number or by pool and element and never contains its bytes.

use core::fmt;

use verbena_split_wire::push::{Envelope, Operation, Pool, Status};
use verbena_wire::{Stag, To};

/// Bytes before the packet in a SendData message.
pub const SEND_DATA_HEAD: usize = Envelope::LEN + 4;

/// A channel of the service connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Channel 0: messages. The only one of arrangement C.
    Control,
    /// Channel 1: packets.
    Data,
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Channel::Control => "control",
            Channel::Data => "data",
        })
    }
}

/// The number of a packet passed to [`send`](crate::Session::send); the program keeps its bytes until [`Event::Sent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet(pub u64);

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A request to the carrier, or an event for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// For the carrier: send this message on the control channel.
    Send(Vec<u8>),
    /// For the carrier (C): send a message of `head` and the packet's bytes on the control channel; report it
    /// [written](crate::Session::handle_written).
    SendData {
        /// The packet.
        packet: Packet,
        /// The bytes before the packet's.
        head: [u8; SEND_DATA_HEAD],
        /// Bytes of the packet.
        len: u32,
    },
    /// For the carrier (A): send the packet bare on the data channel; report it written.
    SendPacket {
        /// The packet.
        packet: Packet,
        /// Bytes of the packet.
        len: u32,
    },
    /// For the carrier (B): RDMA write of the packet on the data channel; report it written.
    Write {
        /// The packet.
        packet: Packet,
        /// STag of the peer's memory.
        handle: Stag,
        /// Address of the first byte.
        at: To,
        /// The packet's bytes.
        len: u32,
        /// The transfer indication, if it fits (P7).
        immediate: Option<u32>,
    },
    /// For the carrier (A): post these elements of our pool as receive descriptors of the data channel, in this order.
    Post {
        /// Our pool.
        pool: u32,
        /// The first element.
        first: u32,
        /// Number of elements.
        count: u32,
    },
    /// For the carrier (C): copy data of the message just handled into an element of our pool.
    Store {
        /// Our pool.
        pool: u32,
        /// The element.
        element: u32,
        /// Offset of the data in the message.
        from: usize,
        /// Bytes of the data.
        len: u32,
    },
    /// For the carrier (A): remove the pool's descriptors from the data channel's receive queue.
    Withdraw {
        /// Our pool.
        pool: u32,
    },
    /// For the program.
    Event(Event),
}

/// An event for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet is in an element of our pool; the program has the element until it
    /// [gives it back](crate::Session::give_back).
    Arrived {
        /// Our pool.
        pool: u32,
        /// The element.
        element: u32,
        /// Bytes stored.
        len: u32,
    },
    /// The carrier is done with a packet; the program may reuse its bytes.
    Sent {
        /// The packet.
        packet: Packet,
    },
    /// A packet that was refused as [`Full`](crate::Refused::Full) may be tried again.
    RoomAvailable,
    /// The peer advertised a pool.
    PoolLent(Pool),
    /// A pool of the peer is gone: the peer recalled it, or we released it.
    PoolClosed {
        /// The peer's pool.
        pool: u32,
    },
    /// The peer has stopped using our pool: its memory may be freed.
    PoolFreed {
        /// Our pool.
        pool: u32,
    },
    /// The peer asks for more elements; [`advertise`](crate::Session::advertise) is the only answer, and optional.
    PoolRequested {
        /// Number of elements.
        count: u32,
        /// Bytes of each.
        size: u32,
    },
    /// The peer sent a configuration request; it must be [answered](crate::Session::reply).
    Request {
        /// Identifies the request in the answer.
        context: u64,
        /// The operation.
        operation: Operation,
        /// Arguments of the operation.
        data: Vec<u8>,
    },
    /// The answer to our request.
    Reply {
        /// The request.
        context: u64,
        /// The operation.
        operation: Operation,
        /// The outcome.
        status: Status,
        /// Results of the operation.
        data: Vec<u8>,
    },
    /// The peer answered that it does not support one of our messages.
    Unsupported {
        /// Its transaction.
        context: u64,
    },
}
