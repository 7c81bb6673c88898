//! A request of a disk that is under way: a thread waits for it, a task awaits it, on any executor.
//! It promises the buffer back with the result, once, also of a request that is cancelled. It refuses to cancel by being dropped: a
//! request that nobody waits for goes on, and its buffer with it, since half of a write is worse than all of it.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Buffer;
use super::driver::Door;
use crate::error::Error;

/// How a request ended, and its buffer.
pub type Returned = (Result<(), Error>, Buffer);

/// A request under way.
#[derive(Debug)]
#[must_use = "its buffer comes back here"]
pub struct Pending {
    shared: Arc<Shared>,
    door: Arc<Door>,
    ticket: u64,
}

/// The other end.
#[derive(Debug)]
pub(super) struct Promise(Arc<Shared>, Option<Buffer>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Returned>,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn pair(buffer: Buffer, door: &Arc<Door>, ticket: u64) -> (Pending, Promise) {
    let shared = Arc::new(Shared::default());
    let pending = Pending {
        shared: shared.clone(),
        door: door.clone(),
        ticket,
    };
    (pending, Promise(shared, Some(buffer)))
}

impl Promise {
    /// It is done.
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
    /// Whoever had it went without a word.
    fn drop(&mut self) {
        self.end(Err(Error::Lost("the disk was closed".to_owned())));
    }
}

impl Pending {
    /// Asks for its end: it is still waited for or awaited, and its buffer comes back then. It ends as the disk ended it if that was sooner,
    /// else with [`Failure::Cancelled`](crate::Failure::Cancelled): then it may have happened or not, but for one that
    /// had not left. A target that does not abort it within the time for a sign of life loses its connection, which is made anew.
    pub fn cancel(&self) {
        self.door.cancel(self.ticket);
    }

    /// Waits until it is done.
    pub fn wait(self) -> Returned {
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
    type Output = Returned;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Returned> {
        let mut state = self.shared.state();
        if let Some(returned) = state.result.take() {
            return Poll::Ready(returned);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
