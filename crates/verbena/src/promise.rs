//! A one-shot result for a thread that waits or a task that awaits.
//! The waiter is woken once the result is there; a [`Promise`] that is dropped without one delivers an error.

use core::task::{Poll, Waker};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// The side that delivers; if it is dropped without a result, it delivers that the adapter is closed.
pub(crate) struct Promise<T = Vec<u8>>(Arc<Inner<T>>);

struct Inner<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

struct State<T> {
    result: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl Promise {
    pub(crate) fn new() -> (Promise, QpConnecting) {
        let (promise, answer) = Promise::pair();
        (promise, QpConnecting(answer))
    }
}

impl<T> Promise<T> {
    pub(crate) fn pair() -> (Promise<T>, PromiseReceiver<T>) {
        let inner = Arc::new(Inner {
            state: Mutex::new(State {
                result: None,
                waker: None,
            }),
            ready: Condvar::new(),
        });
        (Promise(inner.clone()), PromiseReceiver(inner))
    }

    pub(crate) fn fulfill(self, answer: Result<T, Error>) {
        self.0.set_result(answer);
    }
}

impl<T> Inner<T> {
    fn set_result(&self, answer: Result<T, Error>) {
        let waker = {
            let mut state = self.state.lock();
            state.result.get_or_insert(answer);
            state.waker.take()
        };
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        // Has no effect if a result was delivered.
        self.0.set_result(Err(verbena_engine::Error::Closed.into()));
    }
}

/// The side that waits.
pub(crate) struct PromiseReceiver<T>(Arc<Inner<T>>);

impl<T> PromiseReceiver<T> {
    pub(crate) fn wait(self) -> Result<T, Error> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(answer) = state.result.take() {
                return answer;
            }
            self.0.ready.wait(&mut state);
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        let mut state = self.0.state.lock();
        match state.result.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

/// A queue pair being connected; the result is the peer's private data. With the feature `async` it is a future.
///
/// ```
/// # use verbena::Device;
/// # use verbena::low::{Qp, QpOptions};
/// # let device = Device::open()?;
/// # let cq = device.cq(64)?;
/// # let [a, b] = [(), ()].map(|()| Qp::new(&device.pd().unwrap(), &cq, &cq, QpOptions::default()));
/// # let (a, b) = (a?, b?);
/// # let listener = device.listen("127.0.0.1:0")?;
/// let joining = a.connect(listener.local_addr()?, b"may I?")?;
/// listener.next().wait()?.accept_on(&b, b"you may")?.wait()?;
/// assert_eq!(joining.wait()?, b"you may");
/// # Ok::<(), verbena::Error>(())
/// ```
#[must_use = "the queue pair is connected only when this is ready"]
pub struct QpConnecting(PromiseReceiver<Vec<u8>>);

impl QpConnecting {
    /// Waits until the connection is established or has failed. Returns the peer's private data.
    ///
    /// ```no_run
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// let said = qp.connect(([127, 0, 0, 1], 4791).into(), b"")?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<Vec<u8>, Error> {
        self.0.wait()
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Vec<u8>, Error>> {
        self.0.poll(waker)
    }
}

#[cfg(feature = "async")]
impl Future for QpConnecting {
    type Output = Result<Vec<u8>, Error>;

    fn poll(
        self: core::pin::Pin<&mut Self>,
        cx: &mut core::task::Context<'_>,
    ) -> Poll<Self::Output> {
        QpConnecting::poll(&self, cx.waker())
    }
}

impl core::fmt::Debug for QpConnecting {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QpConnecting").finish_non_exhaustive()
    }
}
