//! What a session wants done and has to tell, in the order in which it must be done.
//! An output promises to name payload by packet number or by pool and element, never by its bytes.
//! It refuses to know how a carrier does it.

use core::fmt;

use verbena_wire::push::{Operation, Pool, Status};
use verbena_wire::{Stag, To};

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

/// The number of a packet that the program handed over; its bytes stay with the program until [`Event::Sent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet(pub u64);

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Something to do, or to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// For the carrier: send this message on the control channel.
    Send(Vec<u8>),
    /// For the carrier (C): send a message of `head` and the packet's bytes on the control channel; report it
    /// [written](crate::Session::handle_written).
    SendData {
        /// The packet.
        packet: Packet,
        /// What goes before its bytes.
        head: [u8; crate::session::SEND_DATA_HEAD],
        /// Its bytes.
        len: u32,
    },
    /// For the carrier (A): send the packet bare on the data channel; report it written.
    SendPacket {
        /// The packet.
        packet: Packet,
        /// Its bytes.
        len: u32,
    },
    /// For the carrier (B): RDMA write of the packet on the data channel; report it written.
    Write {
        /// The packet.
        packet: Packet,
        /// The peer's memory.
        handle: Stag,
        /// The first byte there.
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
        /// The first of them.
        first: u32,
        /// How many.
        count: u32,
    },
    /// For the carrier (C): copy data of the message just handled into an element of our pool.
    Keep {
        /// Our pool.
        pool: u32,
        /// The element.
        element: u32,
        /// Where the data begins in the message.
        from: usize,
        /// Its bytes.
        len: u32,
    },
    /// For the carrier (A): take the pool's descriptors out of the data channel's receive queue.
    Withdraw {
        /// Our pool.
        pool: u32,
    },
    /// For the program.
    Event(Event),
}

/// Something for the program to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet lies in an element of our pool, which is the program's until it
    /// [gives it back](crate::Session::give_back).
    Arrived {
        /// Our pool.
        pool: u32,
        /// The element.
        element: u32,
        /// Bytes stored.
        len: u32,
    },
    /// A packet has left and its bytes are the program's again.
    Sent {
        /// The packet.
        packet: Packet,
    },
    /// A packet that was refused as [`Full`](crate::Refused::Full) might go now.
    Room,
    /// The peer lent us a pool.
    PoolLent(Pool),
    /// A pool of the peer is gone: the peer recalled it, or we released it.
    PoolGone {
        /// The peer's pool.
        pool: u32,
    },
    /// Our pool will not be touched from outside again: its memory may be freed.
    PoolFreed {
        /// Our pool.
        pool: u32,
    },
    /// The peer asks for more elements; it needs no answer but [`advertise`](crate::Session::advertise).
    PoolWanted {
        /// How many.
        count: u32,
        /// Bytes of each.
        size: u32,
    },
    /// The peer asks the configuration service; must be [answered](crate::Session::reply).
    Asked {
        /// Names the request in the answer.
        context: u64,
        /// What for.
        operation: Operation,
        /// What the operation needs.
        data: Vec<u8>,
    },
    /// The answer to our request.
    Answered {
        /// The request.
        context: u64,
        /// The operation.
        operation: Operation,
        /// How it went.
        status: Status,
        /// What the operation gives.
        data: Vec<u8>,
    },
    /// The peer does not know one of our messages.
    NotUnderstood {
        /// Its transaction.
        context: u64,
    },
}
