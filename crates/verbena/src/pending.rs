//! An operation under way: a thread can wait for it, a task can await it, and it can be polled or dropped.
//! The buffer is returned with the result, on success and on failure. Dropping it is sound at any time and does not cancel: the
//! operation takes place, and its result is discarded.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::mr::Buf;
use crate::ops::{OpId, OpMemory, OpOutput};
use crate::shared::{OpResult, Shared};

/// Converts the result of an operation and what was kept for it; `None` if the operation was begun with another kind of memory.
pub(crate) type Finish<T> = fn(&Shared, Result<OpOutput, Error>, OpMemory) -> Option<T>;

/// A result and the buffer of the operation, which is returned on success and on failure.
pub type BufResult<T> = (Result<T, Error>, Buf);

/// An operation under way. With the feature `async` it is a future.
///
/// Dropping it does not cancel the operation; its buffer is freed when the adapter is done with it. A message that
/// arrives for a dropped `recv` is not lost: the next `recv` returns it.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
/// // Ten at once, then all of their ends.
/// let pending: Vec<_> = (0..10)
///     .map(|i| Ok(client.send(device.buffer_from(&[i])?)))
///     .collect::<Result<_, verbena::Error>>()?;
/// for i in 0..10 {
///     let (result, buf) = server.recv(device.buffer(8)?).wait();
///     result?;
///     assert_eq!(&buf[..], [i]);
/// }
/// for one in pending {
///     one.wait().0?;
/// }
/// # Ok::<(), verbena::Error>(())
/// ```
#[must_use = "it holds the result of the operation and its buffer"]
pub struct Pending<T>(State<T>);

enum State<T> {
    /// Ended before anything was posted.
    Finished(T),
    InFlight {
        shared: Arc<Shared>,
        id: OpId,
        finish: Finish<T>,
    },
    /// Its result was taken.
    Taken,
}

// No field is pinned.
impl<T> Unpin for Pending<T> {}

impl<T> Pending<T> {
    pub(crate) fn finished(end: T) -> Pending<T> {
        Pending(State::Finished(end))
    }

    /// Failed before anything was posted, with the result of its [`Finish`].
    pub(crate) fn rejected(end: Option<T>) -> Pending<T> {
        Pending(end.map_or(State::Taken, State::Finished))
    }

    pub(crate) fn id(&self) -> Option<OpId> {
        match &self.0 {
            State::InFlight { id, .. } => Some(*id),
            _ => None,
        }
    }

    pub(crate) fn in_flight(shared: Arc<Shared>, id: OpId, finish: Finish<T>) -> Pending<T> {
        Pending(State::InFlight { shared, id, finish })
    }

    /// Waits until the operation has ended.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(8, verbena::Access::ALL)?;
    /// let before = client.fetch_add(&memory.remote_value(0)?, 1).wait()?;
    /// # assert_eq!(before, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> T {
        match self.wait_until(None) {
            Ok(end) => end,
            // Without a time limit it returns with a result only.
            Err(again) => again.wait(),
        }
    }

    /// Waits at most for `limit`; returns the operation, to wait again, if it has not ended by then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = client.recv(device.buffer(64)?);
    /// let Err(receiving) = receiving.wait_for(Duration::from_millis(1)) else {
    ///     unreachable!("no message");
    /// };
    /// # drop(receiving);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait_for(self, limit: Duration) -> Result<T, Pending<T>> {
        // A limit beyond the clock's range is none.
        self.wait_until(Instant::now().checked_add(limit))
    }

    fn wait_until(mut self, until: Option<Instant>) -> Result<T, Pending<T>> {
        match &self.0 {
            State::InFlight { shared, id, .. } => match shared.clone().wait(*id, until) {
                Some(end) => self.finish(end).ok_or(self),
                None => Err(self),
            },
            _ => self.take_ready().ok_or(self),
        }
    }

    /// The result if the operation has ended, else the operation itself. Does not block.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = client.recv(device.buffer(64)?);
    /// assert!(receiving.try_wait().is_err(), "no message");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn try_wait(mut self) -> Result<T, Pending<T>> {
        match &self.0 {
            State::InFlight { shared, id, .. } => match shared.clone().try_take(*id) {
                Some(end) => self.finish(end).ok_or(self),
                None => Err(self),
            },
            _ => self.take_ready().ok_or(self),
        }
    }

    fn take_ready(&mut self) -> Option<T> {
        // As with every future: polling again after the end is a bug, which must not become an endless wait.
        assert!(!matches!(self.0, State::Taken), "polled after it was ready");
        match core::mem::replace(&mut self.0, State::Taken) {
            State::Finished(end) => Some(end),
            other => {
                self.0 = other;
                None
            }
        }
    }

    fn finish(&mut self, (result, kept): OpResult) -> Option<T> {
        match core::mem::replace(&mut self.0, State::Taken) {
            State::InFlight { shared, finish, .. } => finish(&shared, result, kept),
            _ => None,
        }
    }
}

#[cfg(feature = "async")]
impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(
        mut self: core::pin::Pin<&mut Self>,
        cx: &mut core::task::Context<'_>,
    ) -> core::task::Poll<T> {
        use core::task::Poll;
        let this = &mut *self;
        let end = match &this.0 {
            State::InFlight { shared, id, .. } => match shared.poll(*id, cx.waker()) {
                Poll::Ready(end) => this.finish(end),
                Poll::Pending => None,
            },
            _ => this.take_ready(),
        };
        end.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let State::InFlight { shared, id, .. } = &self.0 {
            shared.abandon(*id);
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Finished(_) => "ended",
            State::InFlight { .. } => "under way",
            State::Taken => "taken",
        };
        f.debug_tuple("Pending").field(&state).finish()
    }
}
