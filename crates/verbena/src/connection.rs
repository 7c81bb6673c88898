//! The high layer: a connection whose operations take a buffer and return it.
//! Bounds, rights and alignment of a remote handle are checked before anything is sent, and operations of one direction are posted in
//! the order in which they were begun. No operation blocks: each returns a [`Pending`]. Dropping the connection ends them all and
//! returns their buffers.

mod one_sided;
mod slices;

use core::fmt;
use core::net::SocketAddr;

use verbena_nic::SendOp;
use verbena_nic::qp::QpAccessFlags;

use crate::device::Device;
use crate::endpoint::{Endpoint, Received};
use crate::error::Error;
use crate::mr::Buf;
use crate::ops::OpRequest;
use crate::pending::{BufResult, Finish, Pending};

/// A connection. All calls take `&self`, so threads and tasks can share it.
///
/// Operations begin at once, in order; beyond the connection's depth they wait in a queue. When the connection is dropped,
/// unfinished operations end with [`Error::Closed`]; [`close`](Connection::close) waits for sends, writes, reads and atomics.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// let server = listener.accept().wait()?;
/// let client = connecting.wait()?;
/// let (sent, buf) = {
///     let receiving = server.recv(device.buffer(64)?);
///     let sent = client.send(device.buffer_from(b"ping")?).wait();
///     assert_eq!(&receiving.wait().1[..], b"ping");
///     sent
/// };
/// sent?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Connection {
    /// Dropping it ends all operations.
    pub(crate) endpoint: Endpoint,
    peer: SocketAddr,
    private_data: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(end: Endpoint, peer: SocketAddr, private_data: Vec<u8>) -> Connection {
        Connection {
            endpoint: end,
            peer,
            private_data,
        }
    }

    /// The device it belongs to, for buffers and memory.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let buf = client.device().buffer(4096)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.endpoint.shared.device
    }

    /// The peer's address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// assert_eq!(client.peer_addr(), listener.local_addr()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The private data that the peer sent when it connected or accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local_addr()?);
    /// let server = listener.next().wait()?.accept(b"welcome").wait()?;
    /// assert_eq!(connecting.wait()?.private_data(), b"welcome");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Whether the peer has ended the connection. Messages that arrived before can still be received.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// assert!(!client.is_peer_disconnected());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_peer_disconnected(&self) -> bool {
        self.endpoint.shared.is_peer_disconnected()
    }

    /// Sets which operations the peer may perform through this connection; by default all that the memory's access rights allow.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// use verbena::low::QpAccessFlags;
    /// server.set_access_flags(QpAccessFlags { write: false, ..QpAccessFlags::default() });
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_access_flags(&self, enabled: QpAccessFlags) {
        self.endpoint
            .shared
            .with_qp(|qp| qp.set_access_flags(enabled));
    }

    /// Sends the buffer's bytes as one message. It completes when the peer has received it; fails with [`Error::TooLong`] if the
    /// message is longer than the device's limit.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let receiving = server.recv(device.buffer(64)?);
    /// let (result, buf) = client.send(device.buffer_from(b"hello")?).wait();
    /// result?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send(&self, buf: Buf) -> Pending<BufResult<()>> {
        let (invalidate, immediate) = (None, None);
        let op = SendOp::Send {
            invalidate,
            immediate,
        };
        self.begin_send(op, buf)
    }

    /// Like [`send`](Connection::send), with 32 bits of immediate data.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = server.recv(device.buffer(64)?);
    /// client.send_imm(device.buffer_from(b"hello")?, 7).wait().0?;
    /// assert_eq!(receiving.wait().0?.immediate, Some(7));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send_imm(&self, buf: Buf, immediate: u32) -> Pending<BufResult<()>> {
        let op = SendOp::Send {
            invalidate: None,
            immediate: Some(immediate),
        };
        self.begin_send(op, buf)
    }

    /// Receives the next message; the length of the returned buffer is that of the bytes placed in it.
    ///
    /// If an earlier `recv` was dropped before its message arrived, this call takes over that receive: the message is returned in
    /// the buffer of the earlier call, and the buffer of this call is freed.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let sending = client.send(device.buffer_from(b"hello")?);
    /// let (received, buf) = server.recv(device.buffer(64)?).wait();
    /// assert_eq!((received?.len, &buf[..]), (5, &b"hello"[..]));
    /// # sending.wait().0?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn recv(&self, buf: Buf) -> Pending<BufResult<Received>> {
        self.endpoint.recv(buf)
    }

    /// Waits until all sends, writes, reads and atomics that were begun have ended, then closes the connection.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = server.recv(device.buffer(64)?);
    /// drop(client.send(device.buffer_from(b"the last word")?));
    /// client.close();
    /// assert_eq!(&receiving.wait().1[..], b"the last word");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn close(self) {
        let idle = |ops: &mut crate::ops::Ops| (ops.pending_sends() == 0).then_some(());
        self.endpoint.shared.sleep(None, idle);
    }

    fn begin_send(&self, op: SendOp, buf: Buf) -> Pending<BufResult<()>> {
        let (len, limit) = (buf.len(), self.endpoint.max_message_len());
        if len > limit {
            let (len, limit) = (len as u64, limit as u64);
            return Pending::finished((Err(Error::TooLong { len, limit }), buf));
        }
        let sge = buf.sge(len);
        let returned: Finish<_> = |_, end, kept| Some((end.map(drop), kept.buf()?));
        self.endpoint
            .begin_buf(OpRequest { op: Some(op), sge }, buf, returned)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
