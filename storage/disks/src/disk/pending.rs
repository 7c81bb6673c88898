//! The result of a disk's request, to block on or to await with any executor. The buffer is returned with the result, once, also after a
//! cancellation. Dropping a [`Pending`] does not cancel: the request continues and keeps its buffer, so that no write is left half done.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::{Arc, PoisonError};

use super::Buffer;
use super::driver::RequestQueue;
use super::promise::{Promise, RequestResult, Shared};

/// An outstanding request.
#[derive(Debug)]
#[must_use = "its buffer comes back here"]
pub struct Pending {
    shared: Arc<Shared>,
    queue: Arc<RequestQueue>,
    ticket: u64,
}

pub(super) fn pair(
    buffer: Buffer,
    listener: &Arc<RequestQueue>,
    ticket: u64,
) -> (Pending, Promise) {
    let (promise, shared) = Promise::new(buffer);
    let pending = Pending {
        shared,
        queue: listener.clone(),
        ticket,
    };
    (pending, promise)
}

impl Pending {
    /// Requests its cancellation; the request still has to be waited for or awaited, and returns its buffer. It ends with its own result if
    /// that came first, otherwise with [`Failure::Cancelled`](crate::Failure::Cancelled), and then it may have been executed unless it was
    /// not sent. If the target does not abort it within [`Options::silence`](crate::session::Options::silence), the session reconnects.
    pub fn cancel(&self) {
        self.queue.cancel(self.ticket);
    }

    /// Blocks until it has completed.
    pub fn wait(self) -> RequestResult {
        let mut state = self.shared.state();
        loop {
            if let Some(returned) = state.result.take() {
                return returned;
            }
            let waited = self.shared.done.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = RequestResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RequestResult> {
        let mut state = self.shared.state();
        if let Some(returned) = state.result.take() {
            return Poll::Ready(returned);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
