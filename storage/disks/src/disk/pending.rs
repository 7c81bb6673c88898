//! The result of a disk's request, to block on or to await with any executor. The buffer is returned with the result, once, also after a
//! cancellation. Dropping a [`Pending`] does not cancel: the request continues and keeps its buffer, so that no write is left half done.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Buffer;
use super::driver::RequestQueue;
use crate::error::Error;

/// The result of a request, and its buffer.
pub type RequestResult = (Result<(), Error>, Buffer);

/// An outstanding request.
#[derive(Debug)]
#[must_use = "its buffer comes back here"]
pub struct Pending {
    shared: Arc<Shared>,
    queue: Arc<RequestQueue>,
    ticket: u64,
}

/// The sender of the result.
#[derive(Debug)]
pub(super) struct Promise(Arc<Shared>, Option<Buffer>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<RequestResult>,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn pair(buffer: Buffer, door: &Arc<RequestQueue>, ticket: u64) -> (Pending, Promise) {
    let shared = Arc::new(Shared::default());
    let pending = Pending {
        shared: shared.clone(),
        queue: door.clone(),
        ticket,
    };
    (pending, Promise(shared, Some(buffer)))
}

impl Promise {
    /// Completes the request.
    pub(super) fn fulfil(mut self, result: Result<(), Error>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<(), Error>) {
        let Some(buffer) = self.1.take() else {
            return;
        };
        let mut state = self.0.state();
        state.result = Some((result, buffer));
        let waker = state.waker.take();
        drop(state);
        self.0.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Promise {
    /// Dropped without a result: completes it as lost.
    fn drop(&mut self) {
        self.end(Err(Error::Lost("the disk was closed".to_owned())));
    }
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
