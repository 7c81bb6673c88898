//! A connection request and its answer.
//! It is answered once; one that is dropped without an answer is rejected.

use core::fmt;
use core::net::SocketAddr;
use std::sync::Arc;

use verbena_engine::Incoming;

use crate::connect::Connecting;
use crate::depths::Depths;
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::promise::{Promise, QpConnecting};
use crate::qp::Qp;

/// A connection request to be answered. If it is dropped, it is rejected.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// let connecting = device.connector(b"who I am").connect(listener.local_addr()?);
/// let request = listener.next().wait()?;
/// println!("{} says {:?}", request.peer_addr(), request.private_data());
/// request.reject(b"not today");
/// # assert!(connecting.wait().is_err());
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct ConnectRequest {
    pub(super) incoming: Incoming,
    pub(super) device: Device,
}

impl ConnectRequest {
    /// The peer's address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// assert!(listener.next().wait()?.peer_addr().ip().is_loopback());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.incoming.peer_addr()
    }

    /// The local address that the peer connected to.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let request = listener.next().wait()?;
    /// assert_eq!(request.local_addr()?, listener.local_addr()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.incoming.local_addr()?)
    }

    /// The read depths to be agreed: inbound reads and atomics, at most what the peer asks for, and outbound ones, at most what it serves.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let (inbound, outbound) = listener.next().wait()?.read_depths();
    /// # assert!(inbound > 0 && outbound > 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_depths(&self) -> (u16, u16) {
        self.incoming.depths()
    }

    /// Accepts with a queue pair of the low layer. `done` is called when the connection is established or has failed, on the thread
    /// that noticed, and must not block.
    ///
    /// ```
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// let told = |answer: Result<Vec<u8>, verbena::Error>| println!("{answer:?}");
    /// listener.next().wait()?.accept_with_callback(&qp, b"welcome", told)?;
    /// # connecting.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_with_callback(
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
    /// let connecting = device.connector(b"hello").connect(listener.local_addr()?);
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
    /// let connecting = device.connect(listener.local_addr()?);
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
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let endpoint = device.endpoint(Depths { recvs: 1024, ..Depths::default() })?;
    /// let first = endpoint.recv(device.buffer(64)?);
    /// let connection = listener.next().wait()?.accept_with(endpoint, b"welcome").wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_with(self, endpoint: Endpoint, private_data: &[u8]) -> Connecting {
        if !Arc::ptr_eq(
            &endpoint.shared.device.internal_domain,
            &self.device.internal_domain,
        ) {
            return Connecting::failed(Error::Foreign);
        }
        let peer = self.peer_addr();
        let shared = &endpoint.shared;
        let joined = shared.with_qp(|qp| accept_incoming(self.incoming, qp, private_data));
        match joined.unwrap_or(Err(verbena_engine::Error::Closed.into())) {
            Ok(joining) => Connecting::in_progress(endpoint, peer, joining),
            Err(error) => Connecting::failed(error),
        }
    }

    /// Accepts with a queue pair of the low layer.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// let cq = device.cq(64)?;
    /// let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// listener.next().wait()?.accept_on(&qp, b"")?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept_on(self, qp: &Qp, private_data: &[u8]) -> Result<QpConnecting, Error> {
        accept_incoming(self.incoming, &qp.0.qp, private_data)
    }

    /// Rejects, with private data for the peer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local_addr()?);
    /// listener.next().wait()?.reject(b"we are full");
    /// assert!(connecting.wait().is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn reject(self, private_data: &[u8]) {
        self.incoming.reject(private_data);
    }
}

fn accept_incoming(
    incoming: Incoming,
    qp: &verbena_engine::QueuePair,
    private_data: &[u8],
) -> Result<QpConnecting, Error> {
    let (promise, joining) = Promise::new();
    incoming.accept(qp, private_data, move |result| {
        promise.fulfill(result.map_err(Error::from));
    })?;
    Ok(joining)
}

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectRequest")
            .field(&self.peer_addr())
            .finish()
    }
}
