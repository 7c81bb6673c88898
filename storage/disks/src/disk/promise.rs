//! The two ends of a request's result: the driver's [`Promise`], and the state that the program's `Pending` waits for.
//! A promise ends once, with the buffer; one that is dropped ends with an error.

use core::task::Waker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Buffer;
use crate::error::Error;

/// The result of a request, and its buffer.
pub type RequestResult = (Result<(), Error>, Buffer);

/// The sender of the result.
#[derive(Debug)]
pub(super) struct Promise(Arc<Shared>, Option<Buffer>);

/// What both ends share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) done: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) result: Option<RequestResult>,
    pub(super) waker: Option<Waker>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promise {
    pub(super) fn new(buffer: Buffer) -> (Promise, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (Promise(shared.clone(), Some(buffer)), shared)
    }

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
