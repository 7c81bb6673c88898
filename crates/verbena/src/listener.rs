//! Listening: connection requests and the program's answers, for both layers.
//! A request is returned to one caller, and is rejected if dropped without an answer.
//! Only the program accepts requests.

mod bound;
mod request;

pub use bound::BoundListener;
pub use request::ConnectRequest;

use core::fmt;
use core::net::SocketAddr;
use core::task::{Poll, Waker};
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use verbena_engine::{Listening, Notify};

use crate::connect::Connecting;
use crate::connection::Connection;
use crate::device::{Device, resolve};
use crate::error::Error;

/// A listener. Its descriptor is readable while requests wait.
///
/// ```
/// let device = verbena::Device::open()?;
/// let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.connect(listener.local_addr()?);
/// let connection = listener.accept().wait()?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Listener {
    listening: Listening,
    waiters: Arc<Waiters>,
    device: Device,
}

/// Tasks that are stored at a time.
const MAX_WAKERS: usize = 1024;

/// The threads and tasks that wait for the next request.
#[derive(Default)]
struct Waiters {
    state: Mutex<(u64, Vec<Waker>)>,
    arrived: Condvar,
}

impl Waiters {
    /// Has a task woken by the next request, once however often it polls. Tasks that have ended in the meantime may be among the stored
    /// ones, so a full list is woken and emptied.
    fn store(&self, waker: &Waker) {
        let full = {
            let wakers = &mut self.state.lock().1;
            if wakers.iter().any(|stored| stored.will_wake(waker)) {
                return;
            }
            let full = if wakers.len() < MAX_WAKERS {
                Vec::new()
            } else {
                core::mem::take(wakers)
            };
            wakers.push(waker.clone());
            full
        };
        full.into_iter().for_each(Waker::wake);
    }

    /// Wakes them when a request arrives.
    fn notify(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.0 += 1;
            core::mem::take(&mut state.1)
        };
        self.arrived.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Wakes the waiters, and then calls the program's callback.
struct RequestNotify {
    waiters: Arc<Waiters>,
    notify: Arc<dyn Notify>,
}

impl Notify for RequestNotify {
    fn notify(&self) {
        self.waiters.notify();
        self.notify.notify();
    }

    fn end(&self) {
        self.waiters.notify();
        self.notify.end();
    }
}

impl Listener {
    /// At most this many requests wait for an answer; more are rejected.
    pub(crate) const BACKLOG: usize = 128;

    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<Listener, Error> {
        BoundListener::new(device, at)?.listen(Listener::BACKLOG)
    }

    fn from_listening(device: Device, listening: Listening) -> Listener {
        let waiting = Arc::<Waiters>::default();
        let waker = waiting.clone();
        listening.set_notify(Some(Arc::new(move || waker.notify())));
        Listener {
            listening,
            waiters: waiting,
            device,
        }
    }

    /// Calls `notify` for every request that arrives, on the thread that received it, so it must not block. It replaces an earlier one.
    /// Callers waiting in [`next`](Listener::next) or [`accept`](Listener::accept) are woken as well, and one caller gets the request.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// listener.on_request(std::sync::Arc::new(|| println!("a connection request")));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn on_request(&self, notify: Arc<dyn Notify>) {
        let waiters = self.waiters.clone();
        let both = RequestNotify { waiters, notify };
        self.listening.set_notify(Some(Arc::new(both)));
    }

    /// Its local address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.listen("127.0.0.1:0")?.local_addr()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listening.local_addr()?)
    }

    /// Waits for the next request, which the caller inspects and answers.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connector(b"secret").connect(listener.local_addr()?);
    /// let request = listener.next().wait()?;
    /// if request.private_data() == b"secret" {
    ///     let connection = request.accept(b"welcome").wait()?;
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn next(&self) -> NextRequest<'_> {
        NextRequest(self)
    }

    /// Waits for the next request and accepts it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let connection = listener.accept().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(&self) -> Accepting<'_> {
        Accepting {
            listener: self,
            connecting: None,
        }
    }

    /// Accepts no new connections until [`resume`](Listener::resume); they wait in the kernel's backlog. Requests of connections accepted
    /// before are still returned; see [`is_idle`](Listener::is_idle).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// listener.pause();
    /// let connecting = device.connect(listener.local_addr()?);
    /// assert!(listener.is_idle(), "it was not taken");
    /// listener.resume();
    /// listener.accept().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn pause(&self) {
        self.listening.pause();
    }

    /// Accepts new connections again.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// listener.pause();
    /// listener.resume();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn resume(&self) {
        self.listening.resume();
    }

    /// Whether no accepted connection is in startup or waits for an answer. A paused listener can then be handed over (V1).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert!(device.listen("127.0.0.1:0")?.is_idle());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        self.listening.is_drained()
    }

    /// A duplicate of its socket, for another process.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Error> {
        Ok(self.listening.duplicate()?)
    }

    /// Closes it without affecting the process that listens there now.
    pub(crate) fn close_handed_over(self) {
        self.listening.close_handed_over();
    }

    /// Takes the oldest waiting request, if there is one.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// assert!(listener.try_next()?.is_none());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn try_next(&self) -> Result<Option<ConnectRequest>, Error> {
        let incoming = self.listening.try_next()?;
        Ok(incoming.map(|incoming| ConnectRequest {
            incoming,
            device: self.device.clone(),
        }))
    }

    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "only tasks poll"))]
    fn poll(&self, waker: &Waker) -> Poll<Result<ConnectRequest, Error>> {
        // Checked after the waker is stored: a request that arrives in between is found here or wakes the task.
        self.waiters.store(waker);
        match self.try_next().transpose() {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        }
    }
}

impl Device {
    /// Listens at this address; port 0 picks a free port. Fails if the address is in use or not local.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// println!("at {}", listener.local_addr()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(&self, at: impl ToSocketAddrs + fmt::Debug) -> Result<Listener, Error> {
        Listener::new(self.clone(), resolve(at)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listening.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// Waits for the next request of a listener. With the feature `async` it is a future.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// println!("{} asks", listener.next().wait()?.peer_addr());
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait for it or await it"]
pub struct NextRequest<'a>(&'a Listener);

impl NextRequest<'_> {
    /// Blocks until there is a request.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let request = listener.next().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<ConnectRequest, Error> {
        let waiting = &self.0.waiters;
        loop {
            let seen = waiting.state.lock().0;
            if let Some(request) = self.0.try_next()? {
                return Ok(request);
            }
            let mut state = waiting.state.lock();
            if state.0 == seen {
                waiting.arrived.wait(&mut state);
            }
        }
    }
}

/// Waits for the next connection of a listener. With the feature `async` it is a future.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// let connection = listener.accept().wait()?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait for it or await it"]
pub struct Accepting<'a> {
    listener: &'a Listener,
    #[cfg_attr(
        not(feature = "async"),
        expect(dead_code, reason = "only tasks stop half-way")
    )]
    connecting: Option<Connecting>,
}

impl Accepting<'_> {
    /// Blocks until a connection is established. Fails if the startup with this peer fails; the listener can be used again.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let connection = listener.accept().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<Connection, Error> {
        self.listener.next().wait()?.accept(b"").wait()
    }
}

#[cfg(feature = "async")]
mod tasks {
    //! The same as futures. A task stores its waker before it checks for a request, so none is missed.

    use core::pin::Pin;
    use core::task::{Context, Poll};

    use super::{Accepting, ConnectRequest, NextRequest};
    use crate::connection::Connection;
    use crate::error::Error;

    impl Future for NextRequest<'_> {
        type Output = Result<ConnectRequest, Error>;

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            self.0.poll(cx.waker())
        }
    }

    impl Future for Accepting<'_> {
        type Output = Result<Connection, Error>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            if self.connecting.is_none() {
                match self.listener.poll(cx.waker()) {
                    Poll::Ready(Ok(request)) => self.connecting = Some(request.accept(b"")),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            match &mut self.connecting {
                Some(connecting) => connecting.poll(cx.waker()),
                None => Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn stored_wakers_are_bounded() {
        let waiting = Waiters::default();
        let tasks: Vec<Arc<Task>> = (0..3 * MAX_WAKERS).map(|_| Arc::default()).collect();
        for task in &tasks {
            let waker = Waker::from(task.clone());
            (0..3).for_each(|_| waiting.store(&waker));
            assert!(waiting.state.lock().1.len() <= MAX_WAKERS);
        }
        waiting.notify();
        let woken = |task: &Arc<Task>| task.0.load(Ordering::Relaxed);
        assert!(tasks.iter().all(|task| woken(task) == 1), "each once");
    }
}
