//! Operations straight from and into slices that the program borrows, for the length of a call.
//! It promises that no byte of a slice is touched after the call, whatever was forgotten, cancelled or panicked inside: the
//! call itself takes everything back before it returns. It refuses to outlive its operations: it waits for them.
//!
//! Why this is sound: a lent slice is borrowed for `'scope`, which ends when [`Connection::scope`] returns, and that
//! function deregisters it before, in its own frame, which no safe code can leave out. Deregistering waits for whoever is
//! at work in the memory. Nothing depends on a destructor of something that the program holds.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::Access;
use verbena_nic::SendOp;

use super::{Lent, Loan};
use crate::connection::{Connection, Received};
use crate::error::Error;
use crate::ops::{Ask, Gain, Id, Kept};
use crate::pending::{Finish, Pending};
use crate::remote::RemoteMemory;
use crate::shared::Shared;

/// A scope of operations on borrowed slices; made by [`Connection::scope`].
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local()?);
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
    /// What was lent, and the operation it was lent to.
    lent: Mutex<Vec<(Option<Id>, Arc<Lent>)>>,
    /// As in `std::thread::scope`: the lifetimes must be exactly these.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Connection {
    /// Runs operations on slices that the program borrows, without copying them. Returns when all of them have ended.
    ///
    /// If `what` panics, the slices are taken back at once, and operations under way fail, and with them the connection.
    /// An operation that was begun in it and forgotten is waited for like the others; a receive that no message comes for
    /// ends when the connection does.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
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
    /// What is lent cannot be used meanwhile:
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
    /// and nothing that lives shorter than the call can be lent:
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
            lent: Mutex::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        // In this frame, so that it happens whatever `what` does.
        let mut taking_back = TakeBack {
            lent: &scope.lent,
            shared: &self.end.shared,
            all_over: false,
        };
        let result = what(&scope);
        let begun: Vec<Id> = scope.lent.lock().iter().filter_map(|(id, _)| *id).collect();
        for id in begun {
            let over = |ops: &mut crate::ops::Ops| ops.is_over(id).then_some(());
            self.end.shared.sleep(None, over);
        }
        taking_back.all_over = true;
        drop(taking_back);
        result
    }
}

/// Takes back whatever is still lent.
struct TakeBack<'a> {
    lent: &'a Mutex<Vec<(Option<Id>, Arc<Lent>)>>,
    shared: &'a Shared,
    /// Every operation was waited for.
    all_over: bool,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        let mut all = self.lent.lock();
        let is_under_way = |id: &Option<Id>| id.is_none_or(|id| !self.shared.is_over(id));
        if !self.all_over && all.iter().any(|(id, _)| is_under_way(id)) {
            // A receive that stayed in the queue would name memory that is gone, and one day perhaps somebody else's:
            // keys of STags come round.
            self.shared.fail();
        }
        for (_, lent) in all.drain(..) {
            lent.take_back();
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Sends the bytes as one message; see [`Connection::send`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// # let receiving = server.recv(device.buffer(64)?);
    /// client.scope(|scope| scope.send(b"hello").wait())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn send(&'scope self, bytes: &'scope [u8]) -> Pending<Result<(), Error>> {
        let (invalidate, immediate) = (None, None);
        self.lend_out(
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
    /// # let connecting = device.connect(listener.local()?);
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
            return Pending::ended(Err(error));
        }
        let remote = to.place();
        let immediate = None;
        self.lend_out(bytes, SendOp::Write { remote, immediate })
    }

    /// Receives the next message into the slice; see [`Connection::recv`].
    ///
    /// Dropping the loan does not undo it: the message, when it comes, goes to the slice. Nor does it take the place of a
    /// `recv` that was given up before: that one's message is for the next `recv`.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
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
    pub fn recv(&'scope self, into: &'scope mut [u8]) -> Loan<'scope, Received> {
        let finish: Finish<_> = |_, end, _| Some(end.map(Received::of));
        self.lend_in(into, None, finish)
    }

    /// Reads all of the peer's memory that the handle names into the front of the slice; see [`Connection::read`].
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(4, verbena::Access::ALL)?;
    /// let mut bytes = [7; 8];
    /// client.scope(|scope| scope.read(&mut bytes, &memory.remote()).wait().0)?;
    /// assert_eq!(bytes, [0, 0, 0, 0, 7, 7, 7, 7]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn read(&'scope self, into: &'scope mut [u8], from: &RemoteMemory) -> Loan<'scope, ()> {
        let (offset, len, limit) = (0, from.len(), into.len() as u64);
        let fits = usize::try_from(len).ok().filter(|len| *len <= into.len());
        let checked = fits
            .ok_or(Error::Bounds { offset, len, limit })
            .and_then(|len| from.check(len, Access::REMOTE_READ).map(|()| len));
        let len = match checked {
            Ok(len) => len,
            Err(error) => return Loan::refused(into, error),
        };
        let op = SendOp::Read {
            remote: from.place(),
            local_invalidate: None,
        };
        self.lend_in(into, Some((op, len)), ended)
    }

    fn lend_out(&'scope self, bytes: &'scope [u8], op: SendOp) -> Pending<Result<(), Error>> {
        let (start, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: borrowed until the scope ends, and taken back before; it is only read, as its borrowers may.
        match unsafe { self.lend(start, len, Access::LOCAL_READ) } {
            Ok(lent) => {
                let ask = Ask {
                    op: Some(op),
                    sge: lent.sge(),
                };
                self.begin(ask, &lent, ended)
            }
            Err(error) => Pending::ended(Err(error)),
        }
    }

    /// A receive, or a read of so many bytes.
    fn lend_in<T>(
        &'scope self,
        into: &'scope mut [u8],
        read: Option<(SendOp, usize)>,
        finish: Finish<Result<T, Error>>,
    ) -> Loan<'scope, T> {
        let (start, len) = (into.as_mut_ptr(), into.len());
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        // SAFETY: borrowed alone until the scope ends and taken back before; the loan gives the slice out again only
        // when it was taken back.
        match unsafe { self.lend(start, len, access) } {
            Ok(lent) => {
                let mut sge = lent.sge();
                sge.len = read.map_or(sge.len, |(_, len)| len as u32);
                let op = read.map(|(op, _)| op);
                let pending = self.begin(Ask { op, sge }, &lent, finish);
                // SAFETY: the slice that is borrowed, lent as this.
                unsafe { Loan::new(start, len, lent, pending) }
            }
            Err(error) => Loan::refused(into, error),
        }
    }

    /// # Safety
    /// As for [`Lent::new`], until the scope has ended.
    unsafe fn lend(&self, start: *mut u8, len: usize, access: Access) -> Result<Arc<Lent>, Error> {
        let limit = self.connection.end.longest();
        if len > limit {
            let (len, limit) = (len as u64, limit as u64);
            return Err(Error::TooLong { len, limit });
        }
        let device = &self.connection.end.shared.device;
        // SAFETY: the caller's promise.
        let lent = Arc::new(unsafe { Lent::new(&device.hidden, start, len, access) }?);
        Ok(lent)
    }

    fn begin<T>(
        &self,
        ask: Ask,
        lent: &Arc<Lent>,
        finish: Finish<Result<T, Error>>,
    ) -> Pending<Result<T, Error>> {
        {
            let mut all = self.lent.lock();
            if all.len() == all.capacity() {
                // As many again before the next look: each is looked at about once.
                all.retain(|(_, lent)| lent.is_out());
                let as_many = all.len();
                all.reserve(as_many);
            }
            // Entered before a request can reach it.
            all.push((None, lent.clone()));
        }
        let kept = Kept::Lent(lent.clone());
        // Without the lock: whoever completes on the way may call programs.
        let pending = self.connection.end.begin(ask, kept, finish);
        let mut all = self.lent.lock();
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

fn ended(_: &Shared, end: Result<Gain, Error>, kept: Kept) -> Option<Result<(), Error>> {
    if let Kept::Lent(lent) = kept {
        lent.take_back();
    }
    Some(end.map(drop))
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}
