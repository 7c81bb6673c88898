//! A connection request and its answer.
//! It is answered once; one that is dropped without an answer is rejected.

use core::fmt;
use core::net::SocketAddr;
use std::sync::Arc;

use verbena_engine::Incoming;

use crate::connect::Connecting;
use crate::device::Device;
use crate::endpoint::{Depths, Endpoint};
use crate::error::Error;
use crate::promise::{Joining, Promise};
use crate::qp::Qp;

/// A connection request to be answered. If it is dropped, it is rejected.
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
    pub(super) incoming: Incoming,
    pub(super) device: Device,
}

impl Request {
    /// The peer's address.
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

    /// The local address that the peer connected to.
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

    /// The read depths to be agreed: inbound reads and atomics, at most what the peer asks for, and outbound ones, at most what it serves.
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

    /// Accepts with a queue pair of the low layer. `done` is called when the connection is established or has failed, on the thread
    /// that noticed, and must not block.
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

    /// The private data of the request.
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

    /// Accepts, with private data for the peer and default [`Depths`].
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

    /// Accepts with an endpoint that the program prepared, with its own depths and receives already posted. Fails with
    /// [`Error::Foreign`] if it is another device's.
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

    /// Accepts with a queue pair of the low layer.
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

    /// Rejects, with private data for the peer.
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
