//! Listening: requests that come, and the program's answers, for either layer.
//! It promises that a request is shown to one taker, and that one that is dropped without an answer is refused.
//! It refuses to accept on the program's behalf.

use core::fmt;
use core::net::SocketAddr;
use core::task::{Poll, Waker};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use verbena_engine::{Incoming, Listening, Notify, Reservation};

use crate::connect::Connecting;
use crate::connection::Connection;
use crate::device::Device;
use crate::endpoint::{Depths, Endpoint};
use crate::error::Error;
use crate::promise::{Joining, Promise};
use crate::qp::Qp;

/// Requests that wait for an answer, at most; more are turned away.
const BACKLOG: usize = 128;

/// A listening address. Its descriptor is readable while requests wait.
///
/// ```
/// let device = verbena::Device::open()?;
/// let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.connect(listener.local()?);
/// let connection = listener.accept().wait()?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Listener {
    listening: Listening,
    waiting: Arc<Waiting>,
    device: Device,
}

/// Who waits for the next request.
#[derive(Default)]
struct Waiting {
    state: Mutex<(u64, Vec<Waker>)>,
    told: Condvar,
}

impl Waiting {
    /// A request came.
    fn tell(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.0 += 1;
            core::mem::take(&mut state.1)
        };
        self.told.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Listener {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<Listener, Error> {
        Berth::new(device, at)?.listen(BACKLOG)
    }

    fn around(device: Device, listening: Listening) -> Listener {
        let waiting = Arc::<Waiting>::default();
        let told = waiting.clone();
        listening.listen(Some(Arc::new(move || told.tell())));
        Listener {
            listening,
            waiting,
            device,
        }
    }

    /// Tells `notify` of every request that begins to wait, on whatever thread noticed: it must not wait itself. Whoever
    /// waits by [`next`](Listener::next) or [`accept`](Listener::accept) is told nothing any more.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// listener.on_request(std::sync::Arc::new(|| println!("somebody comes")));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn on_request(&self, notify: Arc<dyn Notify>) {
        self.listening.listen(Some(notify));
    }

    /// Where it listens.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.listen("127.0.0.1:0")?.local()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.listening.local()?)
    }

    /// The next request, to be looked at and answered.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.dial(b"secret").connect(listener.local()?);
    /// let request = listener.next().wait()?;
    /// if request.private_data() == b"secret" {
    ///     let connection = request.accept(b"welcome").wait()?;
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn next(&self) -> Next<'_> {
        Next(self)
    }

    /// The next request, accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let connection = listener.accept().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(&self) -> Accepting<'_> {
        Accepting {
            listener: self,
            connecting: None,
        }
    }

    /// The oldest request that waits, if one does.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// assert!(listener.try_next()?.is_none());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn try_next(&self) -> Result<Option<Request>, Error> {
        let incoming = self.listening.try_next()?;
        Ok(incoming.map(|incoming| Request {
            incoming,
            device: self.device.clone(),
        }))
    }

    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "only tasks poll"))]
    fn poll(&self, waker: &Waker) -> Poll<Result<Request, Error>> {
        // Looked at after the waker is known: who comes in between is found or wakes.
        self.waiting.state.lock().1.push(waker.clone());
        match self.try_next().transpose() {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        }
    }
}

/// An address to listen at later; whoever dials it before is refused.
///
/// ```
/// # let device = verbena::Device::open()?;
/// let berth = device.berth("127.0.0.1:0")?;
/// println!("will be at {}", berth.local()?);
/// let listener = berth.listen(16)?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct Berth {
    reserved: Reservation,
    device: Device,
}

impl Berth {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<Berth, Error> {
        let reserved = device.inner().engine.reserve(at)?;
        Ok(Berth { reserved, device })
    }

    /// Where it is.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.berth("127.0.0.1:0")?.local()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.reserved.local()?)
    }

    /// Listens; at most `backlog` requests wait for an answer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.berth("127.0.0.1:0")?.listen(16)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(self, backlog: usize) -> Result<Listener, Error> {
        let listening = self.reserved.listen(backlog)?;
        Ok(Listener::around(self.device, listening))
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

/// The next request of a listener. With the feature `async` it is a future.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local()?);
/// println!("{} asks", listener.next().wait()?.peer());
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "wait for it or await it"]
pub struct Next<'a>(&'a Listener);

impl Next<'_> {
    /// Waits for it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let request = listener.next().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<Request, Error> {
        let waiting = &self.0.waiting;
        loop {
            let seen = waiting.state.lock().0;
            if let Some(request) = self.0.try_next()? {
                return Ok(request);
            }
            let mut state = waiting.state.lock();
            if state.0 == seen {
                waiting.told.wait(&mut state);
            }
        }
    }
}

/// A request that waits for an answer; dropped without one, it is refused.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.dial(b"who I am").connect(listener.local()?);
/// let request = listener.next().wait()?;
/// println!("{} says {:?}", request.peer(), request.private_data());
/// request.reject(b"not today");
/// # assert!(connecting.wait().is_err());
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Request {
    incoming: Incoming,
    device: Device,
}

impl Request {
    /// Who asks.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// assert!(listener.next().wait()?.peer().ip().is_loopback());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer(&self) -> SocketAddr {
        self.incoming.peer()
    }

    /// The address of ours that it dialled.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let request = listener.next().wait()?;
    /// assert_eq!(request.local()?, listener.local()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.incoming.local()?)
    }

    /// Reads and atomics at once that it wants of us, and those that it serves.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let (inbound, outbound) = listener.next().wait()?.depths();
    /// # assert!(inbound > 0 && outbound > 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn depths(&self) -> (u16, u16) {
        self.incoming.depths()
    }

    /// Says yes: the connection is this queue pair's. `done` is told when it is, on whatever thread noticed: it must not
    /// wait.
    ///
    /// ```
    /// # use verbena::{Qp, QpOptions};
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// let told = |answer: Result<Vec<u8>, verbena::Error>| println!("{answer:?}");
    /// listener.next().wait()?.accept_telling(&qp, b"welcome", told)?;
    /// # connecting.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_telling(
        self,
        qp: &Qp,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let done =
            move |result: Result<_, verbena_engine::Error>| done(result.map_err(Error::from));
        Ok(self.incoming.accept(&qp.0.qp, private_data, done)?)
    }

    /// What it said with its request.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.dial(b"hello").connect(listener.local()?);
    /// assert_eq!(listener.next().wait()?.private_data(), b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn private_data(&self) -> &[u8] {
        self.incoming.private_data()
    }

    /// Says yes, with private data that the peer sees.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local()?);
    /// let theirs = listener.next().wait()?.accept(b"welcome").wait()?;
    /// assert_eq!(connecting.wait()?.private_data(), b"welcome");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(self, private_data: &[u8]) -> Connecting {
        match self.device.endpoint(Depths::default()) {
            Ok(endpoint) => self.accept_with(endpoint, private_data),
            Err(error) => Connecting::failed(error),
        }
    }

    /// Says yes with an endpoint of the program's own making: its depths, and receives that wait for the peer's first
    /// words.
    ///
    /// ```
    /// use verbena::Depths;
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let endpoint = device.endpoint(Depths { recvs: 1024, ..Depths::default() })?;
    /// let first = endpoint.recv(device.buffer(64)?);
    /// let connection = listener.next().wait()?.accept_with(endpoint, b"welcome").wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_with(self, endpoint: Endpoint, private_data: &[u8]) -> Connecting {
        if !Arc::ptr_eq(&endpoint.shared.device.hidden, &self.device.hidden) {
            return Connecting::failed(Error::Foreign);
        }
        let peer = self.peer();
        let shared = &endpoint.shared;
        let joined = shared.with_qp(|qp| join(self.incoming, qp, private_data));
        match joined.unwrap_or(Err(verbena_engine::Error::Closed.into())) {
            Ok(joining) => Connecting::going(endpoint, peer, joining),
            Err(error) => Connecting::failed(error),
        }
    }

    /// Says yes on behalf of a queue pair of the low layer.
    ///
    /// ```
    /// # use verbena::{Device, Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let cq = device.cq(64)?;
    /// let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// listener.next().wait()?.accept_on(&qp, b"")?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_on(self, qp: &Qp, private_data: &[u8]) -> Result<Joining, Error> {
        join(self.incoming, &qp.0.qp, private_data)
    }

    /// Says no, with private data that the peer sees.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local()?);
    /// listener.next().wait()?.reject(b"we are full");
    /// assert!(connecting.wait().is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn reject(self, private_data: &[u8]) {
        self.incoming.reject(private_data);
    }
}

fn join(
    incoming: Incoming,
    qp: &verbena_engine::QueuePair,
    private_data: &[u8],
) -> Result<Joining, Error> {
    let (promise, joining) = Promise::new();
    incoming.accept(qp, private_data, move |result| {
        promise.keep(result.map_err(Error::from));
    })?;
    Ok(joining)
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.peer()).finish()
    }
}

/// The next connection of a listener. With the feature `async` it is a future.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local()?);
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
    /// Waits for it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// let connection = listener.accept().wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<Connection, Error> {
        self.listener.next().wait()?.accept(b"").wait()
    }
}

#[cfg(feature = "async")]
mod tasks {
    //! The same for tasks. It promises what waiting does. It refuses a thread.

    use core::pin::Pin;
    use core::task::{Context, Poll};

    use super::{Accepting, Next, Request};
    use crate::connection::Connection;
    use crate::error::Error;

    impl Future for Next<'_> {
        type Output = Result<Request, Error>;

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
