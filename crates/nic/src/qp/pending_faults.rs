//! The state of faults that were injected into a queue pair and have not all happened (`inject.rs`).
//! Faults of send requests are in posting order; nothing here changes the queue pair.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use verbena_stream::Time;

use crate::wc::Status;

/// What happens to a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendFault {
    /// It is not executed, and completes with this status when those before it have ended.
    Fail(Status),
    /// Neither it nor those behind it begin before this time.
    HoldUntil(Time),
}

/// When messages are accepted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseUntil {
    /// After so many refusals.
    Count(u32),
    /// At this time.
    Time(Time),
}

/// Messages are refused at present.
#[derive(Debug)]
pub(super) struct Refusing {
    pub(super) until: RefuseUntil,
    /// When the peer is told that it may try again.
    pub(super) again: Option<Time>,
}

/// Faults of a queue pair that have been decided and not all happened.
#[derive(Debug, Default)]
pub(super) struct Injected {
    /// Numbers of requests, in posting order.
    pub(super) sends: VecDeque<(u64, SendFault)>,
    pub(super) refusing: Option<Refusing>,
}

impl Injected {
    /// When the next of them is over.
    #[cold]
    pub(super) fn deadline(&self) -> Option<Time> {
        let held = match self.sends.front() {
            Some((_, SendFault::HoldUntil(until))) => Some(*until),
            _ => None,
        };
        let refusing = self.refusing.as_ref();
        let again = refusing.and_then(|refusing| refusing.again);
        let end = refusing.and_then(|refusing| match refusing.until {
            RefuseUntil::Time(until) => Some(until),
            RefuseUntil::Count(_) => None,
        });
        held.into_iter().chain(again).chain(end).min()
    }
}
