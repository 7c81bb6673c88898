//! A connection before it is established: its queues exist, so receives can be posted before the peer can send.
//! Receives begun on it continue on the connection; if it is dropped instead, they end and return their buffers.
//! Only a [`Connection`](crate::Connection) can send.

use core::fmt;
use std::sync::Arc;

use crate::depths::Depths;
use crate::device::Device;
use crate::error::Error;
use crate::mr::Buf;
use crate::ops::{OpMemory, OpOutput, OpRequest};
use crate::pending::{BufResult, Finish, Pending};
use crate::shared::Shared;

/// The result of a receive, besides the bytes in its buffer.
///
/// ```
/// let received = verbena::Received { len: 5, immediate: Some(7) };
/// # assert_eq!(received.len, 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Length of the message in bytes; the payload of a write with immediate data is in the memory that it wrote, not in the buffer.
    pub len: usize,
    /// The peer's immediate data.
    pub immediate: Option<u32>,
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

impl Device {
    /// Creates an unconnected endpoint: receives can be posted to it before it connects or is accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let endpoint = device.endpoint(verbena::Depths::default())?;
    /// let first = endpoint.recv(device.buffer(4096)?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn endpoint(&self, depths: Depths) -> Result<Endpoint, Error> {
        Endpoint::new(self, depths)
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

impl Received {
    pub(crate) fn from_output(gain: OpOutput) -> Received {
        Received {
            len: gain.len as usize,
            immediate: gain.immediate,
        }
    }
}

/// Sets the buffer's length to the bytes placed in it.
fn finish_recv(
    _: &Shared,
    end: Result<OpOutput, Error>,
    kept: OpMemory,
) -> Option<BufResult<Received>> {
    let mut buf = kept.buf()?;
    let result = end.map(|gain| {
        let _ = buf.set_len((gain.placed as usize).min(buf.capacity()));
        Received::from_output(gain)
    });
    Some((result, buf))
}
