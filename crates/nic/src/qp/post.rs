//! Posting: a request is checked, copied and queued for the thread that runs the connection.
//! A rejected request changes nothing, and a request posted to a failed queue pair flushes at once. Work starts later, when the
//! stream has room.

use verbena_events::event::Outbox;
use verbena_wire::Srqn;

use super::inner::Inner;
use super::wqe::{Progress, Wqe};
use super::{Qp, QpInit};
use crate::receive::{self, Receive};
use crate::state::{QpState, QpType};
use crate::trace::{self, TraceEvent};
use crate::wc::Status;
use crate::wr::{Data, Flags, ReceiveWr, SendOp, SendWr};

/// Why a request cannot be posted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The state does not allow it.
    #[error("a queue pair in {0:?} takes no such request")]
    State(QpState),
    /// The queue is full.
    #[error("the queue is full with {0} requests")]
    Full(usize),
    /// Too many scatter or gather elements.
    #[error("{got} scatter/gather elements, at most {limit}")]
    TooManySges {
        /// Elements given.
        got: usize,
        /// Elements allowed.
        limit: usize,
    },
    /// The data is longer than a message can be, an atomic's is not eight bytes, or a request without data has some.
    #[error("data of this length does not fit the request")]
    Length,
    /// Too much inline data, or inline data where none is allowed.
    #[error("{got} bytes inline, at most {limit}")]
    Inline {
        /// Bytes given.
        got: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Receives of a queue pair with a shared receive queue and sends of a channel are posted to the shared queue.
    #[error("requests are posted to the shared queue, not to the queue pair")]
    Shared,
    /// Requests of an XRC initiator name a shared receive queue of the peer; an XRC target sends none, and neither has receives of its own.
    #[error("not a request for a queue pair of this type (XRC)")]
    Xrc,
    /// V6: the shared send queue has no such channel, or has detached it.
    #[error("no channel {0} is attached to the shared send queue")]
    Channel(u32),
    /// A fault for tests: the error number that the program is to get.
    #[error("errno {0} (injected by verbena faults)")]
    Injected(i32),
}

/// A list of send requests was posted in part: those before number `posted`, which is the one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} of the list was not posted: {source}")]
pub struct PostSendError {
    /// Requests posted, and the index of the one that failed.
    pub posted: usize,
    /// Why it failed.
    pub source: PostError,
}

/// A list of receives was posted in part: those before number `posted`, which is the one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("receive {posted} of the list was not posted: {source}")]
pub struct PostRecvError<E: core::error::Error + 'static = PostError> {
    /// Receives posted, and the index of the one that failed.
    pub posted: usize,
    /// Why it failed.
    pub source: E,
}

impl From<receive::PostError> for PostError {
    fn from(error: receive::PostError) -> PostError {
        match error {
            receive::PostError::Full(depth) => PostError::Full(depth),
            receive::PostError::TooManySges { got, limit } => PostError::TooManySges { got, limit },
        }
    }
}

impl Qp {
    /// Adds a request to the send queue and does what can be done without sending.
    pub fn post_send(&self, wr: &SendWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        self.queue_send(wr)?;
        self.ring_doorbell(out);
        Ok(())
    }

    /// Adds a receive, and continues with a message that waits for it.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        if self.queue_receive(wr)? {
            self.ring_doorbell(out);
        }
        Ok(())
    }

    /// Queues a request for the thread that runs the connection, without blocking.
    ///
    /// After one or several of them the caller calls [`try_transmit`](Qp::try_transmit) or [`ring_doorbell`](Qp::ring_doorbell); otherwise they are
    /// found late.
    pub fn queue_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.queue_with_progress(wr, Progress::Waiting { part: 0 })
    }

    #[inline]
    pub(super) fn queue_with_progress(
        &self,
        wr: &SendWr<'_>,
        progress: Progress,
    ) -> Result<(), PostError> {
        let state = self.tails.status.state();
        if !state.takes_sends() {
            return Err(PostError::State(state));
        }
        let len = check_data(&self.init, wr)?;
        let depth = self.init.limits.sends;
        if trace::is_active() {
            return self.post_traced_now(wr, (len, progress), depth);
        }
        if self
            .tails
            .post_send(Wqe::with_progress(wr, len, progress), depth)
        {
            Ok(())
        } else {
            Err(self.no_room())
        }
    }

    #[cold]
    #[inline(never)]
    fn post_traced_now(
        &self,
        wr: &SendWr<'_>,
        (len, progress): (u32, Progress),
        depth: usize,
    ) -> Result<(), PostError> {
        let posted = self.post_traced(Wqe::with_progress(wr, len, progress), depth, wr);
        if posted { Ok(()) } else { Err(self.no_room()) }
    }

    /// Posts a request, and tells the observer of it.
    #[cold]
    #[inline(never)]
    fn post_traced(&self, wqe: Wqe, depth: usize, wr: &SendWr<'_>) -> bool {
        // Before another thread can execute it.
        let (at, len) = (self.init.observer.now(), wqe.len);
        let Some(number) = self.tails.post_send_numbered(wqe, depth) else {
            return false;
        };
        let event = TraceEvent::PostSend {
            qp: self.init.number,
            wc_qpn: self.init.wc_qpn,
            number,
            id: wr.id,
            op: wr.op.wc_op(),
            len,
            signaled: wr.flags.contains(Flags::SIGNALED),
        };
        self.init.observer.record_at(at, &event);
        true
    }

    /// The same for an XRC initiator: the request is for the peer's shared receive queue with this number.
    pub fn queue_send_to(&self, srqn: Srqn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.queue_to_with_progress(srqn, wr, Progress::Waiting { part: 0 })
    }

    pub(super) fn queue_to_with_progress(
        &self,
        srqn: Srqn,
        wr: &SendWr<'_>,
        progress: Progress,
    ) -> Result<(), PostError> {
        let state = self.tails.status.state();
        if self.init.qp_type != QpType::XrcSend {
            return Err(PostError::Xrc);
        }
        if !state.takes_sends() {
            return Err(PostError::State(state));
        }
        let len = check_data(&self.init, wr)?;
        let wqe = Wqe {
            srqn,
            flags: wr.flags | Flags::NAMES_SRQ,
            ..Wqe::with_progress(wr, len, progress)
        };
        let depth = self.init.xrc_sends;
        let posted = if trace::is_active() {
            self.post_traced(wqe, depth, wr)
        } else {
            self.tails.post_send(wqe, depth)
        };
        if posted {
            Ok(())
        } else {
            Err(PostError::Full(depth))
        }
    }

    /// V6: a channel of a shared send queue has no send queue of its own.
    #[cold]
    fn no_room(&self) -> PostError {
        match self.init.limits.sends {
            0 if self.init.qp_type.is_xrc() => PostError::Xrc,
            0 if self.init.send_cq.is_for_ssq() => PostError::Shared,
            depth => PostError::Full(depth),
        }
    }

    /// Queues a receive for the thread that runs the connection, without blocking. True if the connection needs it now: the caller
    /// then calls [`ring_doorbell`](Qp::ring_doorbell), and sends.
    pub fn queue_receive(&self, wr: &ReceiveWr<'_>) -> Result<bool, PostError> {
        self.queue_receive_with(wr, None)
    }

    #[inline]
    pub(super) fn queue_receive_with(
        &self,
        wr: &ReceiveWr<'_>,
        fault: Option<Status>,
    ) -> Result<bool, PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Shared);
        }
        let state = self.tails.status.state();
        if !state.takes_receives() {
            return Err(PostError::State(state));
        }
        let receive = Receive::new(wr, self.init.limits.max_sge)?;
        let receive = Receive { fault, ..receive };
        let depth = self.init.limits.receives;
        if trace::is_active() {
            self.trace_receive(wr);
        }
        if self.tails.post_receive(receive, depth) {
            Ok(self.tails.must_notify_receive())
        } else if self.init.qp_type.is_xrc() {
            Err(PostError::Xrc)
        } else {
            Err(PostError::Full(depth))
        }
    }

    /// Before it is posted: another thread may complete it at once.
    #[cold]
    #[inline(never)]
    fn trace_receive(&self, wr: &ReceiveWr<'_>) {
        let lens = wr.scatter.iter().map(|sge| sge.len);
        self.init.observer.record(&TraceEvent::PostReceive {
            qp: self.init.number,
            srq: 0,
            wc_qpn: self.init.wc_qpn,
            id: wr.id,
            len: lens.fold(0, u32::saturating_add),
        });
    }

    /// The shared receive queue has reserved a receive for this queue pair.
    pub fn receive_ready(&self, out: &mut Outbox) {
        self.run_locked(out, Inner::receive_posted);
    }
}

pub(super) fn check_data(init: &QpInit, wr: &SendWr<'_>) -> Result<u32, PostError> {
    match wr.data {
        Data::Gather(sges) => {
            let (got, limit) = (sges.len(), init.limits.max_sge);
            if got > limit {
                return Err(PostError::TooManySges { got, limit });
            }
        }
        Data::Inline(bytes) => {
            let got = bytes.len();
            let limit = match wr.op {
                // Part of its header, on every queue pair.
                SendOp::AtomicWrite { .. } => 8,
                op if op.takes_inline() => init.limits.inline,
                _ => 0,
            };
            if got > limit || !wr.op.takes_inline() {
                return Err(PostError::Inline { got, limit });
            }
        }
    }
    let len = wr.data.len().ok_or(PostError::Length)?;
    let fits = wr.op.fixed_len().is_none_or(|fixed| len == fixed);
    let room_for_immediate = len.checked_add(8).is_some();
    if !fits || !room_for_immediate {
        return Err(PostError::Length);
    }
    Ok(len)
}
