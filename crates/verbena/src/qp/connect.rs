//! Connecting queue pairs by address, and ending connections.
//! Every attempt has one result, which is delivered asynchronously.

use core::net::{IpAddr, SocketAddr};

use super::Qp;
use crate::error::Error;
use crate::promise::{Promise, QpConnecting};

impl Qp {
    /// Connects to the listener at this address; the result is the listener's private data.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let joining = qp.connect(listener.local_addr()?, b"hello")?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(&self, to: SocketAddr, private_data: &[u8]) -> Result<QpConnecting, Error> {
        let (promise, joining) = Promise::new();
        let done = move |result: Result<_, verbena_engine::Error>| {
            promise.fulfill(result.map_err(Error::from));
        };
        self.0.qp.connect(to, private_data, done)?;
        Ok(joining)
    }

    /// Connects from a given local address, if any. `done` is called with the result, on the thread that noticed, and must
    /// not block.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let told = |answer: Result<Vec<u8>, verbena::Error>| println!("{answer:?}");
    /// qp.connect_from(None, listener.local_addr()?, b"hello", told)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let done =
            move |result: Result<_, verbena_engine::Error>| done(result.map_err(Error::from));
        Ok(self.0.qp.connect_from(from, to, private_data, done)?)
    }

    /// Ends its connection in order: what the stream still has to transmit is transmitted before it is closed, and outstanding work
    /// of this side is flushed. An error if it is not connected.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert!(qp.disconnect().unwrap_err().to_string().ends_with("has no connection"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn disconnect(&self) -> Result<(), Error> {
        Ok(self.0.qp.disconnect()?)
    }

    /// Whether the event of the end of its connection is still to come: over RoCEv2 the peer has to confirm it.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert!(!qp.awaits_disconnect());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn awaits_disconnect(&self) -> bool {
        self.0.qp.awaits_disconnect()
    }

    /// The local and the peer's address and port while it is connected.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.socket_addrs()?, None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn socket_addrs(&self) -> Result<Option<(SocketAddr, SocketAddr)>, Error> {
        let info = self.0.qp.query()?;
        Ok(info.local_addr.zip(info.peer_addr))
    }
}
