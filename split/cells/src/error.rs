//! Errors of the consumer's calls, with the numbers. A failed call has changed nothing. Faults of peers are counted and never returned
//! here; the status of a request is in its completion.

use verbena_wire::number::Qpn;

use crate::state::State;

/// A misuse, or a limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error("invalid {what} in the configuration")]
    Config {
        /// The invalid value.
        what: &'static str,
    },
    /// No such work queue pair, listener or request.
    #[error("no work queue pair, listener or request {0:#x}")]
    Unknown(u64),
    /// The number is in use.
    #[error("number {0} is in use")]
    InUse(Qpn),
    /// The limit is reached.
    #[error("all {0} are in use")]
    Full(usize),
    /// The call is not allowed in this state.
    #[error("not allowed in state {0:?}")]
    State(State),
    /// The descriptor lacks an address segment, or has one that does not suit its channel or operation.
    #[error("the address segment does not fit the operation and its channel")]
    Address,
    /// Too many data segments.
    #[error("{got} data segments, at most {limit}")]
    Segments {
        /// Segments given.
        got: usize,
        /// Segments allowed.
        limit: usize,
    },
    /// Too much inline data.
    #[error("{got} bytes inline, at most {limit}")]
    Inline {
        /// Bytes given.
        got: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The packet is longer than the port's limit, or than one cell on a connectionless channel (P2).
    #[error("a packet of {got} bytes, at most {limit} here")]
    Length {
        /// Bytes given; those beyond 2^32 − 1 count as that.
        got: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The call is not for channels of this kind.
    #[error("not allowed on a channel of this kind")]
    Kind,
    /// Too much private data.
    #[error("{0} bytes of private data exceed the limit")]
    Private(usize),
}
