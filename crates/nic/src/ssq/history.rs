//! What a shared send queue tells of itself: counters, and what became of its last requests (V6).
//! All of it is plain data, made when somebody asks. It promises one moment for everything in one answer.
//! It refuses to be kept per channel: memory for it grows with the queue, not with the channels.

use verbena_mem::Pd;

use super::SsqLimits;
use crate::wc::{Status, WcOp};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Its turn has not come.
    Waiting,
    /// Its channel has it.
    Given,
    /// It has ended; its completion comes when all before it have.
    Ended(Status),
    /// It has ended and completed.
    Completed(Status),
}

/// A request of a shared send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its place in the order of posting, from 0.
    pub number: u64,
    /// Its channel.
    pub channel: u32,
    /// The consumer's own number.
    pub id: u64,
    /// What it was.
    pub op: WcOp,
    /// Bytes.
    pub len: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What a shared send queue, or one of its channels, has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SsqCounters {
    /// Requests that were posted.
    pub posted: u64,
    /// Requests that were given to their channel.
    pub given: u64,
    /// Requests that have completed, well or not.
    pub completed: u64,
    /// Requests that have completed otherwise than asked.
    pub failed: u64,
    /// Bytes of requests that have completed as asked.
    pub bytes: u64,
    /// Times that a channel was failed because it held up others for too long.
    pub stalls: u64,
}

/// What a query of a shared send queue answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SsqInfo {
    /// Its domain.
    pub pd: Pd,
    /// How much it holds.
    pub limits: SsqLimits,
    /// Requests that have not completed.
    pub waiting: usize,
    /// Its channels.
    pub channels: u32,
    /// What it has done.
    pub counters: SsqCounters,
}

/// What a query of one channel answers.
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
    /// What it has done.
    pub counters: SsqCounters,
}
