//! Operations on parts of registered memory, in place and without a buffer.
//! The memory is kept registered until the operation has ended, and rights and bounds of both sides are checked before anything is
//! sent. Access is not exclusive: other operations and the program may use the same bytes meanwhile.

use verbena_mem::Access;
use verbena_nic::SendOp;

use super::Connection;
use crate::endpoint::Received;
use crate::error::Error;
use crate::mr::MrSlice;
use crate::ops::{OpMemory, OpRequest};
use crate::pending::{Finish, Pending};
use crate::remote::RemoteMemory;

impl Connection {
    /// Sends a part of memory as one message; see [`send`](Connection::send).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let receiving = server.recv(device.buffer(64)?);
    /// let memory = device.memory(4096, verbena::Access::LOCAL_WRITE)?;
    /// memory.write_at(1000, b"a record")?;
    /// client.send_from(&memory.slice(1000, 8)?).wait()?;
    /// # assert_eq!(&receiving.wait().1[..], b"a record");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send_from(&self, piece: &MrSlice) -> Pending<Result<(), Error>> {
        let (invalidate, immediate) = (None, None);
        let op = SendOp::Send {
            invalidate,
            immediate,
        };
        self.begin_slice_op(piece, op, piece.len())
    }

    /// Receives the next message into a part of memory; see [`recv`](Connection::recv).
    ///
    /// If the `Pending` is dropped, the message is still placed there when it arrives. This receive does not take over a `recv` that was
    /// dropped earlier: the message of that one is returned by the next `recv`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let sending = client.send(device.buffer_from(b"hello")?);
    /// let memory = device.memory(4096, verbena::Access::LOCAL_WRITE)?;
    /// let received = server.recv_into(&memory.slice(1000, 64)?).wait()?;
    /// assert_eq!(memory.get::<[u8; 5]>(1000)?, *b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn recv_into(&self, piece: &MrSlice) -> Pending<Result<Received, Error>> {
        if let Err(error) = self
            .check_slice(piece)
            .and_then(|()| piece.check_writable())
        {
            return Pending::finished(Err(error));
        }
        let finish: Finish<_> = |_, end, _| Some(end.map(Received::from_output));
        let (op, sge) = (None, piece.sge());
        let kept = OpMemory::Memory(piece.memory().clone());
        self.endpoint.begin(OpRequest { op, sge }, kept, finish)
    }

    /// Writes a part of memory to the beginning of the peer's; see [`write`](Connection::write).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let (ours, theirs) = (device.memory(64, verbena::Access::ALL)?, device.memory(64, verbena::Access::ALL)?);
    /// ours.put(8, &7_u64)?;
    /// client.write_from(&ours.slice(8, 8)?, &theirs.remote().slice(16, 8)?).wait()?;
    /// assert_eq!(theirs.get::<u64>(16)?, 7);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write_from(&self, piece: &MrSlice, to: &RemoteMemory) -> Pending<Result<(), Error>> {
        if let Err(error) = to.check(piece.len(), Access::REMOTE_WRITE) {
            return Pending::finished(Err(error));
        }
        let remote = to.remote_addr();
        let immediate = None;
        self.begin_slice_op(piece, SendOp::Write { remote, immediate }, piece.len())
    }

    /// Reads all of the peer's memory that the handle names into the front of a part of memory; see
    /// [`read`](Connection::read).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let (ours, theirs) = (device.memory(64, verbena::Access::ALL)?, device.memory(64, verbena::Access::ALL)?);
    /// theirs.put(16, &7_u64)?;
    /// client.read_into(&ours.slice(8, 56)?, &theirs.remote().slice(16, 8)?).wait()?;
    /// assert_eq!(ours.get::<u64>(8)?, 7);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read_into(&self, piece: &MrSlice, from: &RemoteMemory) -> Pending<Result<(), Error>> {
        let (offset, len, limit) = (0, from.len(), piece.len() as u64);
        let fits = usize::try_from(len).ok().filter(|len| *len <= piece.len());
        let checked = fits
            .ok_or(Error::OutOfBounds { offset, len, limit })
            .and_then(|len| from.check(len, Access::REMOTE_READ).map(|()| len))
            .and_then(|len| piece.check_writable().map(|()| len));
        match checked {
            Ok(len) => {
                let op = SendOp::Read {
                    remote: from.remote_addr(),
                    local_invalidate: None,
                };
                self.begin_slice_op(piece, op, len)
            }
            Err(error) => Pending::finished(Err(error)),
        }
    }

    /// An operation on the first `len` bytes of a piece.
    fn begin_slice_op(
        &self,
        piece: &MrSlice,
        op: SendOp,
        len: usize,
    ) -> Pending<Result<(), Error>> {
        if let Err(error) = self.check_slice(piece) {
            return Pending::finished(Err(error));
        }
        let mut sge = piece.sge();
        sge.len = len as u32;
        let finish: Finish<_> = |_, end, _| Some(end.map(drop));
        let kept = OpMemory::Memory(piece.memory().clone());
        self.endpoint
            .begin(OpRequest { op: Some(op), sge }, kept, finish)
    }

    fn check_slice(&self, piece: &MrSlice) -> Result<(), Error> {
        let (len, limit) = (piece.len(), self.endpoint.max_message_len());
        if !piece.memory().is_in(&self.device().internal_domain) {
            return Err(Error::Foreign);
        }
        if len > limit {
            let (len, limit) = (len as u64, limit as u64);
            return Err(Error::TooLong { len, limit });
        }
        Ok(())
    }
}
