//! Operations on slices that the program borrows, without a copy, for the duration of a call.
//! No byte of a slice is accessed after [`Connection::scope`] returns, whatever was leaked, cancelled or panicked inside: that function
//! deregisters every slice before it returns, and waits for the operations unless its closure panicked.
//!
//! Why this is sound: a slice is borrowed for `'scope`, which ends when [`Connection::scope`] returns, and that
//! function deregisters it before, in its own frame, which safe code cannot bypass. Deregistering waits for accesses under
//! way. Nothing depends on the destructor of a value that the program holds.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::Access;
use verbena_nic::SendOp;

use super::{MrGuard, TemporaryMr};
use crate::connection::Connection;
use crate::endpoint::Received;
use crate::error::Error;
use crate::ops::{OpId, OpMemory, OpOutput, OpRequest};
use crate::pending::{Finish, Pending};
use crate::remote::RemoteMemory;
use crate::shared::Shared;

/// A scope for operations on borrowed slices; made by [`Connection::scope`].
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
/// let memory = device.memory(64, verbena::Access::ALL)?;
/// let (there, text) = (memory.remote().slice(0, 5)?, String::from("hello"));
/// let mut back = [0; 5];
/// client.scope(|scope| {
///     scope.write(text.as_bytes(), &there).wait()?;
///     let (result, bytes) = scope.read(&mut back, &there).wait();
///     assert_eq!(bytes, b"hello");
///     result
/// })?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    connection: &'env Connection,
    /// The registered slices and their operations.
    registrations: Mutex<Vec<(Option<OpId>, Arc<TemporaryMr>)>>,
    /// Invariant lifetimes, as in `std::thread::scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Connection {
    /// Runs operations on slices that the program borrows, without copying them. Returns when all operations have ended.
    ///
    /// If `what` panics, the slices are deregistered at once, and operations under way fail, and with them the connection.
    /// An operation whose handle was dropped or leaked is waited for like the others; a receive without a message
    /// ends when the connection does.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let mut received = [0; 64];
    /// let len = std::thread::scope(|threads| {
    ///     threads.spawn(|| client.scope(|scope| scope.send(b"from the stack").wait()));
    ///     server.scope(|scope| scope.recv(&mut received).wait().0.map(|r| r.len))
    /// })?;
    /// assert_eq!(&received[..len], b"from the stack");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    ///
    /// A borrowed slice cannot be used meanwhile:
    ///
    /// ```compile_fail
    /// # fn uses(client: &verbena::Connection) {
    /// let mut bytes = [0; 64];
    /// client.scope(|scope| {
    ///     let receiving = scope.recv(&mut bytes);
    ///     bytes[0] = 1;
    ///     receiving.wait();
    /// });
    /// # }
    /// ```
    ///
    /// and it must outlive the call:
    ///
    /// ```compile_fail
    /// # fn uses(client: &verbena::Connection) {
    /// client.scope(|scope| {
    ///     let mut bytes = [0; 64];
    ///     scope.recv(&mut bytes);
    /// });
    /// # }
    /// ```
    pub fn scope<'env, R>(
        &'env self,
        what: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        let scope = Scope {
            connection: self,
            registrations: Mutex::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        // In this frame, so that it runs whatever `what` does.
        let mut taking_back = DeregisterOnDrop {
            registrations: &scope.registrations,
            shared: &self.endpoint.shared,
            all_finished: false,
        };
        let result = what(&scope);
        let begun: Vec<OpId> = scope
            .registrations
            .lock()
            .iter()
            .filter_map(|(id, _)| *id)
            .collect();
        for id in begun {
            let over = |ops: &mut crate::ops::Ops| ops.is_finished(id).then_some(());
            self.endpoint.shared.sleep(None, over);
        }
        taking_back.all_finished = true;
        drop(taking_back);
        result
    }
}

/// Deregisters the remaining slices.
struct DeregisterOnDrop<'a> {
    registrations: &'a Mutex<Vec<(Option<OpId>, Arc<TemporaryMr>)>>,
    shared: &'a Shared,
    /// All operations have ended.
    all_finished: bool,
}

impl Drop for DeregisterOnDrop<'_> {
    fn drop(&mut self) {
        let mut all = self.registrations.lock();
        let is_under_way = |id: &Option<OpId>| id.is_none_or(|id| !self.shared.is_finished(id));
        if !self.all_finished && all.iter().any(|(id, _)| is_under_way(id)) {
            // A receive left in the queue would name memory that is gone, and later perhaps another region: the keys of STags wrap
            // around.
            self.shared.fail();
        }
        for (_, lent) in all.drain(..) {
            lent.deregister();
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Sends the bytes as one message; see [`Connection::send`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let receiving = server.recv(device.buffer(64)?);
    /// client.scope(|scope| scope.send(b"hello").wait())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send(&'scope self, bytes: &'scope [u8]) -> Pending<Result<(), Error>> {
        let (invalidate, immediate) = (None, None);
        self.begin_from(
            bytes,
            SendOp::Send {
                invalidate,
                immediate,
            },
        )
    }

    /// Writes the bytes to the beginning of the peer's memory; see [`Connection::write`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(64, verbena::Access::ALL)?;
    /// client.scope(|scope| scope.write(b"there", &memory.remote()).wait())?;
    /// assert_eq!(memory.get::<[u8; 5]>(0)?, *b"there");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn write(
        &'scope self,
        bytes: &'scope [u8],
        to: &RemoteMemory,
    ) -> Pending<Result<(), Error>> {
        if let Err(error) = to.check(bytes.len(), Access::REMOTE_WRITE) {
            return Pending::finished(Err(error));
        }
        let remote = to.remote_addr();
        let immediate = None;
        self.begin_from(bytes, SendOp::Write { remote, immediate })
    }

    /// Receives the next message into the slice; see [`Connection::recv`].
    ///
    /// If the loan is dropped, the message is still placed in the slice when it arrives. This receive does not take over a
    /// `recv` that was dropped earlier: the message of that one is returned by the next `recv`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let sending = client.send(device.buffer_from(b"hello")?);
    /// let mut bytes = [0; 64];
    /// server.scope(|scope| {
    ///     let (received, bytes) = scope.recv(&mut bytes).wait();
    ///     assert_eq!(&bytes[..received?.len], b"hello");
    ///     Ok::<(), verbena::Error>(())
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn recv(&'scope self, into: &'scope mut [u8]) -> MrGuard<'scope, Received> {
        let finish: Finish<_> = |_, end, _| Some(end.map(Received::from_output));
        self.begin_into(into, None, finish)
    }

    /// Reads all of the peer's memory that the handle names into the front of the slice; see [`Connection::read`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(4, verbena::Access::ALL)?;
    /// let mut bytes = [7; 8];
    /// client.scope(|scope| scope.read(&mut bytes, &memory.remote()).wait().0)?;
    /// assert_eq!(bytes, [0, 0, 0, 0, 7, 7, 7, 7]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read(&'scope self, into: &'scope mut [u8], from: &RemoteMemory) -> MrGuard<'scope, ()> {
        let (offset, len, limit) = (0, from.len(), into.len() as u64);
        let fits = usize::try_from(len).ok().filter(|len| *len <= into.len());
        let checked = fits
            .ok_or(Error::OutOfBounds { offset, len, limit })
            .and_then(|len| from.check(len, Access::REMOTE_READ).map(|()| len));
        let len = match checked {
            Ok(len) => len,
            Err(error) => return MrGuard::failed(into, error),
        };
        let op = SendOp::Read {
            remote: from.remote_addr(),
            local_invalidate: None,
        };
        self.begin_into(into, Some((op, len)), finish_slice_op)
    }

    fn begin_from(&'scope self, bytes: &'scope [u8], op: SendOp) -> Pending<Result<(), Error>> {
        let (start, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: borrowed for `'scope`, and deregistered by `Connection::scope` before that ends; only read, as the shared borrow allows.
        match unsafe { self.register_slice(start, len, Access::LOCAL_READ) } {
            Ok(lent) => {
                let ask = OpRequest {
                    op: Some(op),
                    sge: lent.sge(),
                };
                self.begin(ask, &lent, finish_slice_op)
            }
            Err(error) => Pending::finished(Err(error)),
        }
    }

    /// A receive, or a read of the given number of bytes.
    fn begin_into<T>(
        &'scope self,
        into: &'scope mut [u8],
        read: Option<(SendOp, usize)>,
        finish: Finish<Result<T, Error>>,
    ) -> MrGuard<'scope, T> {
        let (start, len) = (into.as_mut_ptr(), into.len());
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        // SAFETY: borrowed mutably for `'scope`, and deregistered by `Connection::scope` before that ends; `MrGuard` returns the slice only
        // after deregistering it.
        match unsafe { self.register_slice(start, len, access) } {
            Ok(lent) => {
                let mut sge = lent.sge();
                sge.len = read.map_or(sge.len, |(_, len)| len as u32);
                let op = read.map(|(op, _)| op);
                let pending = self.begin(OpRequest { op, sge }, &lent, finish);
                // SAFETY: `start` and `len` are `into`, borrowed for `'scope` and accessed only through `lent`.
                unsafe { MrGuard::new(start, len, lent, pending) }
            }
            Err(error) => MrGuard::failed(into, error),
        }
    }

    /// # Safety
    /// As for [`TemporaryMr::new`], until the scope has ended.
    unsafe fn register_slice(
        &self,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Arc<TemporaryMr>, Error> {
        let limit = self.connection.endpoint.max_message_len();
        if len > limit {
            let (len, limit) = (len as u64, limit as u64);
            return Err(Error::TooLong { len, limit });
        }
        let device = &self.connection.endpoint.shared.device;
        // SAFETY: this function has the same contract; `Connection::scope` deregisters the slice before the scope ends.
        let lent =
            Arc::new(unsafe { TemporaryMr::new(&device.internal_domain, start, len, access) }?);
        Ok(lent)
    }

    fn begin<T>(
        &self,
        ask: OpRequest,
        lent: &Arc<TemporaryMr>,
        finish: Finish<Result<T, Error>>,
    ) -> Pending<Result<T, Error>> {
        {
            let mut all = self.registrations.lock();
            if all.len() == all.capacity() {
                // The capacity doubles before the next pass, so each entry is checked about once.
                all.retain(|(_, lent)| lent.is_registered());
                let as_many = all.len();
                all.reserve(as_many);
            }
            // Recorded before a request can use it.
            all.push((None, lent.clone()));
        }
        let kept = OpMemory::Slice(lent.clone());
        // Without the lock: completing work may call the program's wakers.
        let pending = self.connection.endpoint.begin(ask, kept, finish);
        let mut all = self.registrations.lock();
        let ours = all
            .iter_mut()
            .rev()
            .find(|(_, other)| Arc::ptr_eq(other, lent));
        if let Some((id, _)) = ours {
            *id = pending.id();
        }
        pending
    }
}

fn finish_slice_op(
    _: &Shared,
    end: Result<OpOutput, Error>,
    kept: OpMemory,
) -> Option<Result<(), Error>> {
    if let OpMemory::Slice(lent) = kept {
        lent.deregister();
    }
    Some(end.map(drop))
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}
