//! The shared receive queue that the requests to an XRC target are for: as named last, and as selected by the last request.
//! The two differ while requests are discarded, and until the next one begins. Queue pairs of other types have neither.

use std::sync::Arc;

use verbena_wire::Srqn;

use super::QpInit;
use super::relay_state::Relay;

/// The queue that requests are for.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    /// As the initiator named it last.
    pub(super) named: Option<Srqn>,
    /// The queue of the last request; `None` if it was destroyed since.
    pub(super) selected: Option<Srqn>,
    /// The parts of the queue pair with the queue of the last request. They stay when that queue is destroyed: answers to its requests may
    /// still need its memory.
    pub(super) parts: Option<Arc<QpInit>>,
    /// The conversation with the process of the queue of the last request, if it is another one.
    pub(super) relay: Option<Box<Relay>>,
    /// Conversations with other processes, in which no message is being received.
    pub(super) idle: Vec<Relay>,
}

impl TargetState {
    /// The parts for the last request: those of its queue, or the queue pair's own.
    #[inline]
    pub(super) fn parts_or<'a>(&'a self, init: &'a QpInit) -> &'a QpInit {
        self.parts.as_deref().unwrap_or(init)
    }
}
