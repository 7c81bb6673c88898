//! Why a call of the consumer's is refused. Each says with which numbers; nothing has changed.
//! It promises to be the consumer's own fault: what peers do wrong is counted, never returned here.
//! It refuses to know statuses of completions.

use verbena_wire::number::Qpn;

use crate::state::State;

/// A call that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The port cannot be made so.
    #[error("this {what} cannot work")]
    Config {
        /// What is wrong.
        what: &'static str,
    },
    /// No such work queue pair, listener or request.
    #[error("no work queue pair, listener or request {0:#x}")]
    Unknown(u64),
    /// The number is taken.
    #[error("number {0} is taken")]
    Taken(Qpn),
    /// As many as the limit allows.
    #[error("all {0} are in use")]
    Full(usize),
    /// Not in this state.
    #[error("not in state {0:?}")]
    State(State),
    /// The descriptor lacks an address segment, or has one that its channel or operation does not take.
    #[error("the address segment does not fit the operation and its channel")]
    Address,
    /// More data segments than the work queue takes.
    #[error("{got} data segments, at most {limit}")]
    Pieces {
        /// Segments given.
        got: usize,
        /// Segments allowed.
        limit: usize,
    },
    /// More inline data than the work queue takes.
    #[error("{got} bytes inline, at most {limit}")]
    Inline {
        /// Bytes given.
        got: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The packet is longer than a port, or a single cell on a connectionless channel, carries (P2).
    #[error("a packet of {got} bytes, at most {limit} here")]
    Length {
        /// Bytes given; those beyond 2^32 − 1 count as that.
        got: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The channel is not of the kind that this is for.
    #[error("a channel of another kind")]
    Kind,
    /// Private data beyond what a cell takes.
    #[error("{0} bytes of private data")]
    Private(usize),
}
