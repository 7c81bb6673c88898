//! Why a ring moves no bytes. A [`Violation`] says which word of the shared memory cannot have been written by an honest peer, with the
//! numbers that show it; it is final for the handle that found it.

use thiserror::Error;

/// A word that the peer wrote and no honest peer writes. Positions count the bytes of all records since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The consumer's position is before an earlier one of its own, or behind what was written.
    #[error("the consumer's position {head} is not between {from} and {to}")]
    HeadOutOfRange {
        /// What it wrote.
        head: u64,
        /// Its last valid position.
        from: u64,
        /// The end of the last record.
        to: u64,
    },
    /// The consumer's position is not that of a record.
    #[error("the consumer's position {head} is not a multiple of 8")]
    HeadNotAligned {
        /// What it wrote.
        head: u64,
    },
    /// A header word of no known kind, or with bits set that no kind has.
    #[error("the record at {at} has the unknown header {word:#018x}")]
    UnknownHeader {
        /// The record's position.
        at: u64,
        /// Its header word.
        word: u64,
    },
    /// A record of bytes with more than fit into the ring, or none.
    #[error("the record at {at} has {len} bytes, of {most} at most")]
    Length {
        /// The record's position.
        at: u64,
        /// Bytes that it claims.
        len: u64,
        /// Most bytes of one record in this ring.
        most: u64,
    },
    /// A record that names no range of addresses.
    #[error("the record at {at} names {len} bytes at address {address:#x}")]
    Range {
        /// The record's position.
        at: u64,
        /// The address that it names.
        address: u64,
        /// Bytes there.
        len: u64,
    },
}

/// Why a call moved no bytes, apart from an empty or full ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingError {
    /// The peer broke the rules of the ring. Every further call returns the same.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// Memory of the caller is not mapped any more. Nothing was written to the ring or taken from it.
    #[error("memory of a work request is not mapped any more")]
    Unmapped,
    /// The consumer reads no further record, or the producer itself has ended the stream.
    #[error("the ring is closed")]
    Closed,
    /// The caller named no range of addresses.
    #[error("{len} bytes at address {address:#x} are no range of addresses")]
    InvalidRange {
        /// The address.
        address: u64,
        /// Bytes there.
        len: u64,
    },
}

impl From<verbena_mem::Unmapped> for RingError {
    fn from(_: verbena_mem::Unmapped) -> RingError {
        RingError::Unmapped
    }
}
