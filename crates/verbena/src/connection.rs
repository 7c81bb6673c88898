//! The high layer: a connection whose operations take a buffer and give it back.
//! It promises that a handle's bounds, rights and alignment are checked before anything is sent, that operations of one
//! kind run in the order in which they were begun, and that dropping the connection ends them all with their buffers
//! returned. It refuses to block: every call begins something and returns a [`Pending`].

use core::fmt;
use core::net::SocketAddr;
use std::sync::Arc;

use verbena_mem::Access;
use verbena_nic::SendOp;
use verbena_nic::qp::Enabled;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::device::Device;
use crate::error::Error;
use crate::mr::Buf;
use crate::ops::{Ask, Gain};
use crate::pending::{Finish, Pending};
use crate::remote::{Remote, RemoteMemory};
use crate::shared::Shared;

/// A result and the buffer of the operation, which comes back whatever the result is.
pub type Returned<T> = (Result<T, Error>, Buf);

/// What a receive brought, besides the bytes in its buffer.
///
/// ```
/// let received = verbena::Received { len: 5, immediate: Some(7) };
/// # assert_eq!(received.len, 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the message; those of a write with immediate data are in the memory that it wrote, not in the buffer.
    pub len: usize,
    /// The peer's immediate data.
    pub immediate: Option<u32>,
}

/// A connection. All calls take `&self`, so threads and tasks can share it.
///
/// Operations begin at once, in order; beyond the connection's depth they wait in line. When it is dropped, unfinished
/// operations end with [`Error::Closed`]; [`close`](Connection::close) waits for those that send.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local()?);
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
    shared: Arc<Shared>,
    peer: SocketAddr,
    private_data: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, peer: SocketAddr, private_data: Vec<u8>) -> Connection {
        Connection {
            shared,
            peer,
            private_data,
        }
    }

    /// The device it belongs to, for buffers and memory.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let buf = client.device().buffer(4096)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Who is at the other end.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// assert_eq!(client.peer(), listener.local()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the peer said when it connected or accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local()?);
    /// let server = listener.next().wait()?.accept(b"welcome").wait()?;
    /// assert_eq!(connecting.wait()?.private_data(), b"welcome");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer ended the connection. Messages that came before can still be received.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// assert!(!client.has_peer_left());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn has_peer_left(&self) -> bool {
        self.shared.has_peer_left()
    }

    /// Says what the peer may do through this connection; everything that the memory's rights allow if nothing is said.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// use verbena::low::Enabled;
    /// server.enable(Enabled { write: false, ..Enabled::default() });
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn enable(&self, enabled: Enabled) {
        self.shared.with_qp(|qp| qp.enable(enabled));
    }

    /// Sends the buffer's bytes as one message. It is done when the peer has received it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let receiving = server.recv(device.buffer(64)?);
    /// let (result, buf) = client.send(device.buffer_from(b"hello")?).wait();
    /// result?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send(&self, buf: Buf) -> Pending<Returned<()>> {
        let (invalidate, immediate) = (None, None);
        let op = SendOp::Send {
            invalidate,
            immediate,
        };
        self.outgoing(op, buf)
    }

    /// The same, with a word of immediate data beside it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = server.recv(device.buffer(64)?);
    /// client.send_imm(device.buffer_from(b"hello")?, 7).wait().0?;
    /// assert_eq!(receiving.wait().0?.immediate, Some(7));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send_imm(&self, buf: Buf, immediate: u32) -> Pending<Returned<()>> {
        let op = SendOp::Send {
            invalidate: None,
            immediate: Some(immediate),
        };
        self.outgoing(op, buf)
    }

    /// Receives the next message: its bytes are the returned buffer's.
    ///
    /// If an earlier `recv` was dropped before its message came, this one takes its place: the message comes back in
    /// the buffer that the earlier call gave, and this call's is freed.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let sending = client.send(device.buffer_from(b"hello")?);
    /// let (received, buf) = server.recv(device.buffer(64)?).wait();
    /// assert_eq!((received?.len, &buf[..]), (5, &b"hello"[..]));
    /// # sending.wait().0?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn recv(&self, buf: Buf) -> Pending<Returned<Received>> {
        if let Some(id) = self.shared.claim() {
            drop(buf);
            return Pending::under(self.shared.clone(), id, received);
        }
        let limit = self.longest();
        let sge = buf.sge(buf.capacity().min(limit));
        self.begin(Ask { op: None, sge }, buf, received)
    }

    /// Writes the buffer's bytes to the beginning of the peer's memory. It is done when they are there.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// client.write(device.buffer_from(b"there")?, &memory.remote().slice(8, 16)?).wait().0?;
    /// assert_eq!(memory.get::<[u8; 5]>(8)?, *b"there");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write(&self, buf: Buf, to: &RemoteMemory) -> Pending<Returned<()>> {
        self.write_with(buf, to, None)
    }

    /// The same, and a receive of the peer's is told the word and how many bytes there are.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let receiving = server.recv(device.buffer(0)?);
    /// client.write_imm(device.buffer_from(b"there")?, &memory.remote(), 9).wait().0?;
    /// let received = receiving.wait().0?;
    /// assert_eq!((received.len, received.immediate), (5, Some(9)));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_imm(&self, buf: Buf, to: &RemoteMemory, word: u32) -> Pending<Returned<()>> {
        self.write_with(buf, to, Some(word))
    }

    fn write_with(&self, buf: Buf, to: &RemoteMemory, word: Option<u32>) -> Pending<Returned<()>> {
        if let Err(error) = to.check(buf.len(), Access::REMOTE_WRITE) {
            return Pending::ended((Err(error), buf));
        }
        let op = SendOp::Write {
            remote: to.place(),
            immediate: word,
        };
        self.outgoing(op, buf)
    }

    /// Reads all of the peer's memory that the handle names into the buffer, whose length it sets.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// memory.write_at(8, b"there")?;
    /// let (result, buf) = client.read(device.buffer(64)?, &memory.remote().slice(8, 5)?).wait();
    /// result?;
    /// assert_eq!(&buf[..], b"there");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read(&self, mut buf: Buf, from: &RemoteMemory) -> Pending<Returned<()>> {
        let len = usize::try_from(from.len()).unwrap_or(usize::MAX);
        let allowed = from.check(len, Access::REMOTE_READ);
        if let Err(error) = allowed.and_then(|()| buf.set_len(len)) {
            return Pending::ended((Err(error), buf));
        }
        let op = SendOp::Read {
            remote: from.place(),
            local_invalidate: None,
        };
        self.outgoing(op, buf)
    }

    /// Reads a value of the peer's.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// memory.put(8, &[1_u32, 2])?;
    /// let there = memory.remote_value::<[u32; 2]>(8)?;
    /// assert_eq!(client.read_value(&there).wait()?, [1, 2]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_value<T: FromBytes>(&self, from: &Remote<T>) -> Pending<Result<T, Error>> {
        let memory = from.memory();
        let len = size_of::<T>();
        if let Err(error) = memory.check(len, Access::REMOTE_READ) {
            return Pending::ended(Err(error));
        }
        let op = SendOp::Read {
            remote: memory.place(),
            local_invalidate: None,
        };
        match self.device().buffer(len).and_then(|mut buf| {
            buf.set_len(len)?;
            Ok(buf)
        }) {
            Ok(buf) => {
                let sge = buf.sge(len);
                self.begin_plain(Ask { op: Some(op), sge }, buf, value::<T>)
            }
            Err(error) => Pending::ended(Err(error)),
        }
    }

    /// Writes a value to the peer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// client.write_value(&memory.remote_value(8)?, &7_u32).wait()?;
    /// assert_eq!(memory.get::<u32>(8)?, 7);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_value<T: IntoBytes + Immutable>(
        &self,
        to: &Remote<T>,
        value: &T,
    ) -> Pending<Result<(), Error>> {
        let memory = to.memory();
        let buf = memory
            .check(size_of::<T>(), Access::REMOTE_WRITE)
            .and_then(|()| self.device().buffer_from(value.as_bytes()));
        let op = SendOp::Write {
            remote: memory.place(),
            immediate: None,
        };
        match buf {
            Ok(buf) => {
                let sge = buf.sge(buf.len());
                let forget: Finish<_> = |_, end, _| end.map(drop);
                self.begin_plain(Ask { op: Some(op), sge }, buf, forget)
            }
            Err(error) => Pending::ended(Err(error)),
        }
    }

    /// Adds to a word of the peer's, and says what it was before. Atomic against everything else that is.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let counter = memory.remote_value(8)?;
    /// assert_eq!(client.fetch_add(&counter, 5).wait()?, 0);
    /// assert_eq!(client.fetch_add(&counter, 1).wait()?, 5);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn fetch_add(&self, word: &Remote<u64>, add: u64) -> Pending<Result<u64, Error>> {
        let op = SendOp::FetchAdd {
            remote: word.memory().place(),
            add,
            mask: 0,
        };
        self.atomic(word, op)
    }

    /// Sets a word of the peer's to `new` if it is `expected`, and says what it was before.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let lock = memory.remote_value(8)?;
    /// assert_eq!(client.compare_swap(&lock, 0, 1).wait()?, 0, "now it is ours");
    /// assert_eq!(client.compare_swap(&lock, 0, 2).wait()?, 1, "it was taken");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn compare_swap(
        &self,
        word: &Remote<u64>,
        expected: u64,
        new: u64,
    ) -> Pending<Result<u64, Error>> {
        let op = SendOp::CmpSwap {
            remote: word.memory().place(),
            compare: expected,
            compare_mask: u64::MAX,
            swap: new,
            swap_mask: u64::MAX,
        };
        self.atomic(word, op)
    }

    /// Waits until everything that was begun to be sent, written or read has ended, then closes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = server.recv(device.buffer(64)?);
    /// drop(client.send(device.buffer_from(b"the last word")?));
    /// client.close();
    /// assert_eq!(&receiving.wait().1[..], b"the last word");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn close(self) {
        let idle = |ops: &mut crate::ops::Ops| (ops.sends() == 0).then_some(());
        self.shared.sleep(None, idle);
    }

    /// The longest message.
    fn longest(&self) -> usize {
        self.device().attributes().message as usize
    }

    fn outgoing(&self, op: SendOp, buf: Buf) -> Pending<Returned<()>> {
        let (len, limit) = (buf.len(), self.longest());
        if len > limit {
            let (len, limit) = (len as u64, limit as u64);
            return Pending::ended((Err(Error::TooLong { len, limit }), buf));
        }
        let sge = buf.sge(len);
        let returned: Finish<_> = |_, end, buf| (end.map(drop), buf);
        self.begin(Ask { op: Some(op), sge }, buf, returned)
    }

    fn begin<T>(&self, ask: Ask, buf: Buf, finish: Finish<Returned<T>>) -> Pending<Returned<T>> {
        if !buf.is_in(&self.device().hidden) {
            return Pending::ended((Err(Error::Foreign), buf));
        }
        match self.shared.begin(ask, buf) {
            Ok(id) => Pending::under(self.shared.clone(), id, finish),
            Err((error, buf)) => Pending::ended((Err(error), buf)),
        }
    }

    fn begin_plain<T>(
        &self,
        ask: Ask,
        buf: Buf,
        finish: Finish<Result<T, Error>>,
    ) -> Pending<Result<T, Error>> {
        match self.shared.begin(ask, buf) {
            Ok(id) => Pending::under(self.shared.clone(), id, finish),
            Err((error, _)) => Pending::ended(Err(error)),
        }
    }

    fn atomic(&self, word: &Remote<u64>, op: SendOp) -> Pending<Result<u64, Error>> {
        let answer = word.check_atomic().and_then(|()| self.shared.word());
        match answer {
            Ok(buf) => {
                let sge = buf.sge(8);
                self.begin_plain(Ask { op: Some(op), sge }, buf, original)
            }
            Err(error) => Pending::ended(Err(error)),
        }
    }
}

/// The message's length becomes the buffer's.
fn received(_: &Shared, end: Result<Gain, Error>, mut buf: Buf) -> Returned<Received> {
    let result = end.map(|gain| {
        let len = gain.len as usize;
        let _ = buf.set_len((gain.placed as usize).min(buf.capacity()));
        Received {
            len,
            immediate: gain.immediate,
        }
    });
    (result, buf)
}

/// The word before an atomic.
fn original(shared: &Shared, end: Result<Gain, Error>, mut buf: Buf) -> Result<u64, Error> {
    let before = end.and_then(|_| {
        buf.set_len(8)?;
        let mut word = [0; 8];
        word.copy_from_slice(&buf);
        Ok(u64::from_ne_bytes(word))
    });
    shared.keep_word(buf);
    before
}

fn value<T: FromBytes>(_: &Shared, end: Result<Gain, Error>, buf: Buf) -> Result<T, Error> {
    end?;
    let (len, limit) = (size_of::<T>() as u64, buf.len() as u64);
    T::read_from_bytes(&buf).map_err(|_| Error::TooLong { len, limit })
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
