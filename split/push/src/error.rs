//! Errors by their cause: the peer ([`Violation`]), the program ([`Misuse`]), or a shortage ([`Refused`]). Each carries the
//! numbers involved. The offending part changes nothing but counters, so that the program may continue the session.

use thiserror::Error;
use verbena_wire::Malformed;

use crate::output::{Channel, Packet};

/// A rule that the peer broke. The offending part was ignored and counted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the sentences say what the numbers are")]
pub enum Violation {
    #[error("peer: {0}")]
    Malformed(#[from] Malformed),
    #[error("peer: unexpected transfer on the {0} channel")]
    Channel(Channel),
    #[error("peer: a message beyond the window of {window} outstanding messages")]
    MessageOverrun { window: u32 },
    #[error("peer: a packet for which no receive descriptor was lent")]
    PacketOverrun,
    #[error(
        "peer: a packet without credit (late, or one too many) was placed in element {element} of pool {pool}"
    )]
    Late { pool: u32, element: u32 },
    #[error(
        "peer: pool {reference} of {count} elements of {size} bytes is invalid, or exists already"
    )]
    BadPool {
        reference: u32,
        count: u32,
        size: u32,
    },
    #[error("peer: pool {reference} of {count} elements exceeds the limits")]
    TooMuch { reference: u32, count: u32 },
    #[error("peer: message {function} names pool {reference}, which does not exist")]
    UnknownPool { function: u16, reference: u32 },
    #[error("peer: returned elements {first} + {count} of pool {pool}, which has {of}")]
    Range {
        pool: u32,
        first: u32,
        count: u32,
        of: u32,
    },
    #[error("peer: returned element {element} of pool {pool}, which was not used")]
    NotUsed { pool: u32, element: u32 },
    #[error("peer: wrote to element {element} of pool {pool}, which was not lent")]
    NotLent { pool: u32, element: u32 },
    #[error("peer: indicated address {at:#x} in pool {pool}, where no element begins")]
    Address { pool: u32, at: u64 },
    #[error("peer: {length} bytes in element {element} of pool {pool}, which has {size}")]
    Length {
        pool: u32,
        element: u32,
        length: u32,
        size: u32,
    },
    #[error("peer: number {got} of pool {pool} is not within {from} to {to}")]
    Number {
        pool: u32,
        got: u32,
        from: u32,
        to: u32,
    },
    #[error("peer: an answer to transaction {context:#x}, which is not open")]
    StrayReply { context: u64 },
    #[error("peer: more than {most} requests without waiting for answers")]
    TooManyRequests { most: u32 },
    #[error("{most} outputs wait: input is refused until they are polled")]
    Backlog { most: usize },
}

/// Keeps the first violation of several.
pub(crate) fn keep_first(first: &mut Result<(), Violation>, result: Result<(), Violation>) {
    if first.is_ok() {
        *first = result;
    }
}

/// A call that the program may not make.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the sentences say what the numbers are")]
pub enum Misuse {
    #[error("setting {field} is {got}, not within {least} to {most}")]
    Setting {
        field: &'static str,
        got: u32,
        least: u32,
        most: u32,
    },
    #[error("pool {reference} of {count} elements of {size} bytes cannot be advertised")]
    BadPool {
        reference: u32,
        count: u32,
        size: u32,
    },
    #[error("pool {reference} exists already")]
    PoolExists { reference: u32 },
    #[error("pool {reference} is beyond the limits of {pools} pools and {elements} elements")]
    TooMuch {
        reference: u32,
        pools: u32,
        elements: u32,
    },
    #[error("there is no pool {reference}, or it is being flushed")]
    UnknownPool { reference: u32 },
    #[error("element {element} of pool {pool} is not held by the program")]
    NotHeld { pool: u32, element: u32 },
    #[error("packet {packet} is not outstanding")]
    UnknownPacket { packet: Packet },
    #[error("no request with context {context:#x} waits for an answer")]
    UnknownRequest { context: u64 },
    #[error("{got} bytes of data, and a message holds at most {most}")]
    DataTooLong { got: usize, most: usize },
    #[error("{most} requests are outstanding, which is the limit")]
    TooManyRequests { most: u32 },
    #[error("{most} outputs wait: poll them first")]
    Backlog { most: usize },
}

/// Why a packet cannot be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the sentences say what the numbers are")]
pub enum Refused {
    #[error("no element is free for a packet of {len} bytes: wait until one is")]
    Full { len: u32 },
    #[error("a packet of {len} bytes, and the peer's elements hold at most {most}")]
    TooLong { len: u32, most: u32 },
    #[error("{most} outputs wait: poll them first")]
    Backlog { most: usize },
}
