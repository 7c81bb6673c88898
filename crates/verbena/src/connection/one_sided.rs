//! One-sided operations on the peer's memory: writes, reads, atomics and flushes.
//! The bounds and rights of the handle are checked before anything is sent; atomics allocate their own result buffer. The ordering is
//! that of the verbs: a write begun while a read is outstanding may take effect before it.

use verbena_mem::Access;
use verbena_nic::SendOp;
use verbena_wire::rdmap::FlushScope;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Connection;
use crate::error::Error;
use crate::mr::Buf;
use crate::ops::{OpMemory, OpOutput, OpRequest};
use crate::pending::{BufResult, Finish, Pending};
use crate::remote::{RemoteMemory, RemoteValue};
use crate::shared::Shared;

impl Connection {
    /// Writes the buffer's bytes to the beginning of the peer's memory. It completes when they have been placed. Fails with
    /// [`Error::MissingAccess`] or [`Error::OutOfBounds`] if the handle does not allow it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// client.write(device.buffer_from(b"there")?, &memory.remote().slice(8, 16)?).wait().0?;
    /// assert_eq!(memory.get::<[u8; 5]>(8)?, *b"there");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write(&self, buf: Buf, to: &RemoteMemory) -> Pending<BufResult<()>> {
        self.write_with(buf, to, None)
    }

    /// Like [`write`](Connection::write), and completes a receive of the peer with `word` as immediate data and the number of bytes.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let receiving = server.recv(device.buffer(0)?);
    /// client.write_imm(device.buffer_from(b"there")?, &memory.remote(), 9).wait().0?;
    /// let received = receiving.wait().0?;
    /// assert_eq!((received.len, received.immediate), (5, Some(9)));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_imm(&self, buf: Buf, to: &RemoteMemory, word: u32) -> Pending<BufResult<()>> {
        self.write_with(buf, to, Some(word))
    }

    fn write_with(&self, buf: Buf, to: &RemoteMemory, word: Option<u32>) -> Pending<BufResult<()>> {
        if let Err(error) = to.check(buf.len(), Access::REMOTE_WRITE) {
            return Pending::finished((Err(error), buf));
        }
        let op = SendOp::Write {
            remote: to.remote_addr(),
            immediate: word,
        };
        self.begin_send(op, buf)
    }

    /// Reads all of the peer's memory that the handle names into the buffer and sets the buffer's length.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// memory.write_at(8, b"there")?;
    /// let (result, buf) = client.read(device.buffer(64)?, &memory.remote().slice(8, 5)?).wait();
    /// result?;
    /// assert_eq!(&buf[..], b"there");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read(&self, mut buf: Buf, from: &RemoteMemory) -> Pending<BufResult<()>> {
        let len = usize::try_from(from.len()).unwrap_or(usize::MAX);
        let allowed = from.check(len, Access::REMOTE_READ);
        if let Err(error) = allowed.and_then(|()| buf.set_len(len)) {
            return Pending::finished((Err(error), buf));
        }
        let op = SendOp::Read {
            remote: from.remote_addr(),
            local_invalidate: None,
        };
        self.begin_send(op, buf)
    }

    /// Reads a value from the peer's memory.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// memory.put(8, &[1_u32, 2])?;
    /// let there = memory.remote_value::<[u32; 2]>(8)?;
    /// assert_eq!(client.read_value(&there).wait()?, [1, 2]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_value<T: FromBytes>(&self, from: &RemoteValue<T>) -> Pending<Result<T, Error>> {
        let memory = from.memory();
        let len = size_of::<T>();
        if let Err(error) = memory.check(len, Access::REMOTE_READ) {
            return Pending::finished(Err(error));
        }
        let op = SendOp::Read {
            remote: memory.remote_addr(),
            local_invalidate: None,
        };
        match self.device().buffer(len).and_then(|mut buf| {
            buf.set_len(len)?;
            Ok(buf)
        }) {
            Ok(buf) => {
                let sge = buf.sge(len);
                self.endpoint.begin(
                    OpRequest { op: Some(op), sge },
                    OpMemory::Buf(buf),
                    finish_read_value::<T>,
                )
            }
            Err(error) => Pending::finished(Err(error)),
        }
    }

    /// Writes a value to the peer's memory.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// client.write_value(&memory.remote_value(8)?, &7_u32).wait()?;
    /// assert_eq!(memory.get::<u32>(8)?, 7);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_value<T: IntoBytes + Immutable>(
        &self,
        to: &RemoteValue<T>,
        value: &T,
    ) -> Pending<Result<(), Error>> {
        let memory = to.memory();
        let buf = memory
            .check(size_of::<T>(), Access::REMOTE_WRITE)
            .and_then(|()| self.device().buffer_from(value.as_bytes()));
        let op = SendOp::Write {
            remote: memory.remote_addr(),
            immediate: None,
        };
        self.begin_consuming(op, buf)
    }

    /// Begins an operation whose buffer is not returned.
    fn begin_consuming(&self, op: SendOp, buf: Result<Buf, Error>) -> Pending<Result<(), Error>> {
        match buf {
            Ok(buf) => {
                let sge = buf.sge(buf.len());
                let forget: Finish<_> = |_, end, _| Some(end.map(drop));
                self.endpoint
                    .begin(OpRequest { op: Some(op), sge }, OpMemory::Buf(buf), forget)
            }
            Err(error) => Pending::finished(Err(error)),
        }
    }

    /// Adds to a 64-bit word in the peer's memory and returns its previous value. Atomic with respect to other atomic accesses.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let counter = memory.remote_value(8)?;
    /// assert_eq!(client.fetch_add(&counter, 5).wait()?, 0);
    /// assert_eq!(client.fetch_add(&counter, 1).wait()?, 5);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn fetch_add(&self, word: &RemoteValue<u64>, add: u64) -> Pending<Result<u64, Error>> {
        let op = SendOp::FetchAdd {
            remote: word.memory().remote_addr(),
            add,
            mask: 0,
        };
        self.atomic(word, op)
    }

    /// Sets a 64-bit word in the peer's memory to `new` if it equals `expected`; returns its previous value in either case.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let lock = memory.remote_value(8)?;
    /// assert_eq!(client.compare_swap(&lock, 0, 1).wait()?, 0, "now it is ours");
    /// assert_eq!(client.compare_swap(&lock, 0, 2).wait()?, 1, "it was taken");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn compare_swap(
        &self,
        word: &RemoteValue<u64>,
        expected: u64,
        new: u64,
    ) -> Pending<Result<u64, Error>> {
        let op = SendOp::CmpSwap {
            remote: word.memory().remote_addr(),
            compare: expected,
            compare_mask: u64::MAX,
            swap: new,
            swap_mask: u64::MAX,
        };
        self.atomic(word, op)
    }

    /// Writes a 64-bit word in the peer's memory, after all earlier operations of this connection and so that no reader sees a part of
    /// it. Unlike [`fetch_add`](Connection::fetch_add) it needs the right to write, and returns nothing. The peer must be Verbena
    /// (docs/extensions.md); with another one it fails.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// let record = client.write(device.buffer_from(b"record")?, &memory.remote().slice(8, 6)?);
    /// client.atomic_write(&memory.remote_value(0)?, 1).wait()?;
    /// assert_eq!(memory.get::<u64>(0)?, 1, "valid");
    /// assert_eq!(memory.get::<[u8; 6]>(8)?, *b"record", "because it came first");
    /// # record.wait().0?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn atomic_write(&self, word: &RemoteValue<u64>, value: u64) -> Pending<Result<(), Error>> {
        let buf = word
            .check_atomic(Access::REMOTE_WRITE)
            .and_then(|()| self.device().buffer_from(&value.to_ne_bytes()));
        let op = SendOp::AtomicWrite {
            remote: word.memory().remote_addr(),
        };
        self.begin_consuming(op, buf)
    }

    /// Completes when every earlier write of this connection to this memory is visible to all that accesses it. The peer's memory
    /// needs [`Access::REMOTE_FLUSH`], and the peer must be Verbena (docs/extensions.md). Nothing is written to disk.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// use verbena::Access;
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_FLUSH;
    /// let memory = device.memory(64, access)?;
    /// let written = client.write(device.buffer_from(b"record")?, &memory.remote());
    /// client.flush(&memory.remote()).wait()?;
    /// assert_eq!(memory.get::<[u8; 6]>(0)?, *b"record");
    /// # written.wait().0?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn flush(&self, memory: &RemoteMemory) -> Pending<Result<(), Error>> {
        let len = usize::try_from(memory.len()).unwrap_or(usize::MAX);
        let buf = memory
            .check(len, Access::REMOTE_FLUSH)
            .and_then(|()| self.device().buffer(0));
        let op = SendOp::Flush {
            remote: memory.remote_addr(),
            scope: FlushScope::Range { len: memory.len() },
        };
        self.begin_consuming(op, buf)
    }

    fn atomic(&self, word: &RemoteValue<u64>, op: SendOp) -> Pending<Result<u64, Error>> {
        let answer = word
            .check_atomic(Access::REMOTE_ATOMIC)
            .and_then(|()| self.endpoint.shared.take_atomic_buffer());
        match answer {
            Ok(buf) => {
                let sge = buf.sge(8);
                self.endpoint.begin(
                    OpRequest { op: Some(op), sge },
                    OpMemory::Buf(buf),
                    finish_atomic,
                )
            }
            Err(error) => Pending::finished(Err(error)),
        }
    }
}

/// The value of the word before the atomic operation.
fn finish_atomic(
    shared: &Shared,
    end: Result<OpOutput, Error>,
    kept: OpMemory,
) -> Option<Result<u64, Error>> {
    let mut buf = kept.buf()?;
    let before = end.and_then(|_| {
        buf.set_len(8)?;
        let mut word = [0; 8];
        word.copy_from_slice(&buf);
        Ok(u64::from_ne_bytes(word))
    });
    shared.recycle_atomic_buffer(buf);
    Some(before)
}

fn finish_read_value<T: FromBytes>(
    _: &Shared,
    end: Result<OpOutput, Error>,
    kept: OpMemory,
) -> Option<Result<T, Error>> {
    let buf = kept.buf()?;
    let (len, limit) = (size_of::<T>() as u64, buf.len() as u64);
    let wrong = |_| Error::TooLong { len, limit };
    Some(end.and_then(|_| T::read_from_bytes(&buf[..]).map_err(wrong)))
}
