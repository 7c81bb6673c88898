//! Posting: a request is judged, copied and queued.
//! It promises that a refused request changes nothing, and that a request posted to a failed queue pair flushes at once.
//! It refuses to start work; that happens when the stream has room.

use super::inner::Inner;
use super::wqe::{Progress, Wqe};
use super::{Qp, QpInit};
use crate::event::Outbox;
use crate::receive;
use crate::state::QpState;
use crate::wc::Status;
use crate::wr::{Data, ReceiveWr, SendOp, SendWr};

/// Why a request cannot be posted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The state does not allow it.
    #[error("a queue pair in {0:?} takes no such request")]
    State(QpState),
    /// The queue is full.
    #[error("the queue is full with {0} requests")]
    Full(usize),
    /// Too many pieces, or too few.
    #[error("{got} pieces, at most {limit}")]
    Pieces {
        /// Pieces given.
        got: usize,
        /// Pieces allowed.
        limit: usize,
    },
    /// The data is longer than a message can be, or an atomic's is not eight bytes.
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
    /// A queue pair with a shared receive queue has none of its own.
    #[error("receives are posted to the shared queue")]
    Shared,
}

impl From<receive::PostError> for PostError {
    fn from(error: receive::PostError) -> PostError {
        match error {
            receive::PostError::Full(depth) => PostError::Full(depth),
            receive::PostError::Pieces { got, limit } => PostError::Pieces { got, limit },
        }
    }
}

impl Qp {
    /// Adds a request to the send queue.
    pub fn post_send(&self, wr: &SendWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let mut inner = self.inner.lock();
        inner.post_send(&self.init, wr)?;
        inner.settle(&self.init, out);
        Ok(())
    }

    /// Adds a receive.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Shared);
        }
        let mut inner = self.inner.lock();
        if !inner.state.takes_receives() {
            return Err(PostError::State(inner.state));
        }
        inner.receives.post(wr)?;
        if inner.state.flushes() {
            inner.flush_receives(&self.init, out);
        } else {
            inner.receive_is_there(&self.init, out);
        }
        Ok(())
    }

    /// The shared receive queue has one for us, as it promised.
    pub fn receive_ready(&self, out: &mut Outbox) {
        self.inner.lock().receive_is_there(&self.init, out);
    }
}

impl Inner {
    fn post_send(&mut self, init: &QpInit, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::State(self.state));
        }
        if self.sends.len() >= init.limits.sends {
            return Err(PostError::Full(init.limits.sends));
        }
        let len = check_data(init, wr)?;
        let mut wqe = Wqe::new(wr, len);
        if self.state.flushes() {
            wqe.progress = Progress::Done(Status::WrFlushErr);
        }
        self.sends.push_back(wqe);
        self.drained = false;
        Ok(())
    }
}

fn check_data(init: &QpInit, wr: &SendWr<'_>) -> Result<u32, PostError> {
    match wr.data {
        Data::Gather(sges) => {
            let (got, limit) = (sges.len(), init.limits.pieces);
            if got > limit {
                return Err(PostError::Pieces { got, limit });
            }
        }
        Data::Inline(bytes) => {
            let got = bytes.len();
            let limit = if wr.op.takes_inline() {
                init.limits.inline
            } else {
                0
            };
            if got > limit || !wr.op.takes_inline() {
                return Err(PostError::Inline { got, limit });
            }
        }
    }
    let len = wr.data.len().ok_or(PostError::Length)?;
    let atomic = matches!(wr.op, SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. });
    let room_for_immediate = len.checked_add(8).is_some();
    if (atomic && len != 8) || (wr.op.is_local() && len != 0) || !room_for_immediate {
        return Err(PostError::Length);
    }
    Ok(len)
}
