//! A connection before it is established: its queues exist, so receives can be posted before the peer can send.
//! Receives begun on it continue on the connection; if it is dropped instead, they end and return their buffers.
//! Only a [`Connection`](crate::Connection) can send.

use core::fmt;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use crate::connect::Connecting;
use crate::connection::{BufResult, Received, finish_recv};
use crate::device::{Device, resolve};
use crate::error::Error;
use crate::mr::Buf;
use crate::ops::{OpMemory, OpRequest};
use crate::pending::{Finish, Pending};
use crate::promise::Promise;
use crate::shared::Shared;

/// How many operations of a connection are posted at once; more wait in a queue.
///
/// ```
/// let depths = verbena::Depths { recvs: 1024, ..verbena::Depths::default() };
/// # assert_eq!(depths.sends, 128);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depths {
    /// Sends, writes, reads and atomics.
    pub sends: usize,
    /// Receives.
    pub recvs: usize,
    /// Inbound reads and atomics served at once (IRD); by default the device's setting.
    pub ird: Option<u16>,
    /// Outbound reads and atomics outstanding at once (ORD), reduced to what the peer serves; by default the device's setting.
    pub ord: Option<u16>,
}

impl Default for Depths {
    fn default() -> Depths {
        Depths {
            sends: 128,
            recvs: 128,
            ird: None,
            ord: None,
        }
    }
}

/// An unconnected endpoint; made by [`Device::endpoint`]. It connects, or is used to accept a request.
///
/// ```
/// use verbena::{Depths, Device};
/// let device = Device::open()?;
/// let listener = device.listen("127.0.0.1:0")?;
///
/// let ours = device.endpoint(Depths::default())?;
/// let first = ours.recv(device.buffer(64)?);
/// let connecting = ours.connect(listener.local_addr()?, b"");
///
/// let theirs = device.endpoint(Depths { sends: 16, ..Depths::default() })?;
/// let server = listener.next().wait()?.accept_with(theirs, b"").wait()?;
/// // A message that the server sends at once finds a receive.
/// let sending = server.send(device.buffer_from(b"welcome")?);
/// let client = connecting.wait()?;
/// assert_eq!(&first.wait().1[..], b"welcome");
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Endpoint {
    pub(crate) shared: Arc<Shared>,
}

impl Endpoint {
    pub(crate) fn new(device: &Device, depths: Depths) -> Result<Endpoint, Error> {
        let shared = Shared::new(device, depths)?;
        Ok(Endpoint { shared })
    }

    /// Receives a message once connected; see [`Connection::recv`](crate::Connection::recv).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let endpoint = device.endpoint(verbena::Depths::default())?;
    /// let receiving = endpoint.recv(device.buffer(64)?);
    /// drop(endpoint);
    /// let (result, buf) = receiving.wait();
    /// assert!(result.unwrap_err().is_closed());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn recv(&self, buf: Buf) -> Pending<BufResult<Received>> {
        if let Some(id) = self.shared.claim() {
            drop(buf);
            return Pending::in_flight(self.shared.clone(), id, finish_recv);
        }
        let limit = self.max_message_len();
        let sge = buf.sge(buf.capacity().min(limit));
        self.begin_buf(OpRequest { op: None, sge }, buf, finish_recv)
    }

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

    /// The longest message, in bytes.
    pub(crate) fn max_message_len(&self) -> usize {
        self.shared.device.attributes().message as usize
    }

    /// Begins an operation on a buffer of the program; fails with [`Error::Foreign`] if it is another device's.
    pub(crate) fn begin_buf<T>(
        &self,
        ask: OpRequest,
        buf: Buf,
        finish: Finish<BufResult<T>>,
    ) -> Pending<BufResult<T>> {
        if !buf.is_in(&self.shared.device.internal_domain) {
            return Pending::finished((Err(Error::Foreign), buf));
        }
        self.begin(ask, OpMemory::Buf(buf), finish)
    }

    /// Begins an operation; `kept` is returned when it ends.
    pub(crate) fn begin<T>(&self, ask: OpRequest, kept: OpMemory, finish: Finish<T>) -> Pending<T> {
        match self.shared.begin(ask, kept) {
            Ok(id) => Pending::in_flight(self.shared.clone(), id, finish),
            Err((error, kept)) => Pending::rejected(finish(&self.shared, Err(error), kept)),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Each `Pending` holds a reference to `shared`, so it is closed here, not when the last reference is dropped.
        self.shared.close();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}
