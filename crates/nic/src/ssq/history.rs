//! Query results of a shared send queue: counters, and the state of its last requests (V6).
//! All of it is plain data, taken under one lock, so one result is of one moment. The history is kept per queue, not per channel: its
//! memory does not grow with the channels.

use verbena_mem::Pd;

use super::SsqLimits;
use crate::wc::{Status, WcOp};

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SsqOutcome {
    /// Not given to its channel yet.
    Waiting,
    /// Given to its channel.
    Given,
    /// Ended; it completes when all earlier ones have ended.
    Ended(Status),
    /// Ended and completed.
    Completed(Status),
}

/// A request of a shared send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its position in posting order, from 0.
    pub number: u64,
    /// Its channel.
    pub channel: u32,
    /// The program's id.
    pub id: u64,
    /// The operation.
    pub op: WcOp,
    /// Bytes.
    pub len: u32,
    /// Its state.
    pub outcome: SsqOutcome,
}

/// Counters of a shared send queue or of one of its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SsqCounters {
    /// Requests that were posted.
    pub posted: u64,
    /// Requests that were given to their channel.
    pub given: u64,
    /// Requests that have completed, successfully or not.
    pub completed: u64,
    /// Requests that have completed with an error.
    pub failed: u64,
    /// Bytes of requests that have completed successfully.
    pub bytes: u64,
    /// Times that a channel was failed because it held up others for too long.
    pub stalls: u64,
}

/// Result of a query of a shared send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SsqInfo {
    /// Its domain.
    pub pd: Pd,
    /// Its limits.
    pub limits: SsqLimits,
    /// Requests that have not completed.
    pub waiting: usize,
    /// Its channels.
    pub channels: u32,
    /// Its counters.
    pub counters: SsqCounters,
}

/// Result of a query of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelInfo {
    /// Requests may be posted for it.
    pub open: bool,
    /// Its requests that have not completed.
    pub waiting: usize,
    /// Those of them that it was given and that have not ended.
    pub given: usize,
    /// Most of those at once.
    pub window: usize,
    /// Its counters.
    pub counters: SsqCounters,
}
