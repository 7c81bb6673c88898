//! Connecting as the initiator: [`Connector`] holds the options, [`Connecting`] is the connection attempt.
//! Dropping a [`Connecting`] gives the attempt up and closes its queue pair; the peer's private data is kept for the [`Connection`].
//! A failed attempt is not retried: the caller decides.

use core::fmt;
use core::net::SocketAddr;
use core::task::{Poll, Waker};
use std::net::ToSocketAddrs;

use crate::connection::Connection;
use crate::depths::Depths;
use crate::device::{Device, resolve};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::promise::{Promise, QpConnecting};

/// Options of a connection attempt; made by [`Device::connector`].
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.connector(b"hello").depth(1024).connect(listener.local_addr()?);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    device: Device,
    private_data: Vec<u8>,
    depths: Depths,
}

impl Connector {
    pub(crate) fn new(device: Device, private_data: &[u8]) -> Connector {
        Connector {
            device,
            private_data: private_data.to_vec(),
            depths: Depths::default(),
        }
    }

    /// How many operations of each direction are posted at once; more wait in a queue. The default is 128.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let dial = device.connector(b"").depth(16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn depth(mut self, depth: usize) -> Connector {
        self.depths = Depths {
            sends: depth,
            recvs: depth,
            ..self.depths
        };
        self
    }

    /// Sets all depths individually.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let few_reads = verbena::Depths { ord: Some(1), ..verbena::Depths::default() };
    /// let dial = device.connector(b"").depths(few_reads);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn depths(mut self, depths: Depths) -> Connector {
        self.depths = depths;
        self
    }

    /// Connects to the listener at this address. All errors are reported by [`Connecting::wait`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connector(b"").connect(listener.local_addr()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(&self, to: impl ToSocketAddrs + fmt::Debug) -> Connecting {
        match self.device.endpoint(self.depths) {
            Ok(endpoint) => endpoint.connect(to, &self.private_data),
            Err(error) => Connecting::failed(error),
        }
    }
}

impl Device {
    /// Connects to the listener at this address. All errors are reported by [`Connecting::wait`].
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local_addr()?);
    /// let theirs = listener.accept().wait()?;
    /// let ours = connecting.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(&self, to: impl ToSocketAddrs + fmt::Debug) -> Connecting {
        self.connector(b"").connect(to)
    }

    /// Prepares a connection with private data for the listener and other options.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connector(b"it is me").connect(listener.local_addr()?);
    /// let request = listener.next().wait()?;
    /// assert_eq!(request.private_data(), b"it is me");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connector(&self, private_data: &[u8]) -> Connector {
        Connector::new(self.clone(), private_data)
    }
}

impl Endpoint {
    /// Connects to the listener at this address, with private data for it. All errors are reported by [`Connecting::wait`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let endpoint = device.endpoint(verbena::Depths::default())?;
    /// let connecting = endpoint.connect(listener.local_addr()?, b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(self, to: impl ToSocketAddrs + fmt::Debug, private_data: &[u8]) -> Connecting {
        let dial = || {
            let peer = resolve(to)?;
            let (promise, joining) = Promise::new();
            let done = move |result: Result<_, verbena_engine::Error>| {
                promise.fulfill(result.map_err(Error::from));
            };
            let shared = &self.shared;
            let dialled = shared.with_qp(|qp| qp.connect(peer, private_data, done));
            dialled.unwrap_or(Err(verbena_engine::Error::Closed))?;
            Ok((peer, joining))
        };
        match dial() {
            Ok((peer, joining)) => Connecting::in_progress(self, peer, joining),
            Err(error) => Connecting::failed(error),
        }
    }
}

/// A connection attempt under way. With the feature `async` it is a future.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.connect(listener.local_addr()?);
/// let theirs = listener.accept().wait()?;
/// let ours = connecting.wait()?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[must_use = "dropping it abandons the connection"]
pub struct Connecting(State);

enum State {
    Failed(Error),
    InProgress {
        endpoint: Endpoint,
        peer: SocketAddr,
        joining: QpConnecting,
    },
    Taken,
}

impl Connecting {
    pub(crate) fn in_progress(
        endpoint: Endpoint,
        peer: SocketAddr,
        joining: QpConnecting,
    ) -> Connecting {
        Connecting(State::InProgress {
            endpoint,
            peer,
            joining,
        })
    }

    pub(crate) fn failed(error: Error) -> Connecting {
        Connecting(State::Failed(error))
    }

    /// Waits until both sides have completed the startup. Fails if the address cannot be resolved or reached, or if the peer rejects.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let refused = device.connect("127.0.0.1:1").wait().unwrap_err();
    /// assert_eq!(refused.fault(), verbena::Fault::Peer);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<Connection, Error> {
        match self.0 {
            State::Failed(error) => Err(error),
            State::InProgress {
                endpoint,
                peer,
                joining,
            } => Ok(Connection::new(endpoint, peer, joining.wait()?)),
            State::Taken => Err(verbena_engine::Error::Closed.into()),
        }
    }

    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "only tasks poll"))]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<Connection, Error>> {
        let answer = match &self.0 {
            State::InProgress { joining, .. } => match joining.poll(waker) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => return Poll::Pending,
            },
            _ => None,
        };
        Poll::Ready(
            match (core::mem::replace(&mut self.0, State::Taken), answer) {
                (State::InProgress { endpoint, peer, .. }, Some(answer)) => {
                    answer.map(|said| Connection::new(endpoint, peer, said))
                }
                (State::Failed(error), _) => Err(error),
                _ => Err(verbena_engine::Error::Closed.into()),
            },
        )
    }
}

#[cfg(feature = "async")]
impl Future for Connecting {
    type Output = Result<Connection, Error>;

    fn poll(
        mut self: core::pin::Pin<&mut Self>,
        cx: &mut core::task::Context<'_>,
    ) -> Poll<Self::Output> {
        Connecting::poll(&mut self, cx.waker())
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").finish_non_exhaustive()
    }
}
