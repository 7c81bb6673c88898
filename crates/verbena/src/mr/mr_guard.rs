//! A slice that an operation of a scope fills.
//! The slice is returned only after it was deregistered. If a [`MrGuard`] is leaked, its scope deregisters the slice.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::TemporaryMr;
use crate::error::Error;
use crate::pending::Pending;

/// A slice that an operation of a [`Scope`](super::Scope) fills; it is returned with the result.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let connecting = device.connect(listener.local_addr()?);
/// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
/// let memory = device.memory(64, verbena::Access::ALL)?;
/// let (mut one, mut other) = ([0; 8], [0; 8]);
/// client.scope(|scope| {
///     // Both at once.
///     let first = scope.read(&mut one, &memory.remote().slice(0, 8)?);
///     let second = scope.read(&mut other, &memory.remote().slice(8, 8)?);
///     first.wait().0?;
///     second.wait().0
/// })?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[must_use = "it holds the result of the operation and its slice"]
pub struct MrGuard<'scope, T> {
    slice: Slice<'scope>,
    registration: Option<Arc<TemporaryMr>>,
    pending: Pending<Result<T, Error>>,
}

/// The slice as a pointer: there must be no reference while the adapter may write it.
struct Slice<'scope> {
    start: *mut u8,
    len: usize,
    marker: PhantomData<&'scope mut [u8]>,
}

impl<'scope, T> MrGuard<'scope, T> {
    /// # Safety
    /// `start` and `len` are a slice that is borrowed mutably for `'scope` and accessed only through `lent`.
    pub(super) unsafe fn new(
        start: *mut u8,
        len: usize,
        lent: Arc<TemporaryMr>,
        pending: Pending<Result<T, Error>>,
    ) -> MrGuard<'scope, T> {
        let of = PhantomData;
        MrGuard {
            slice: Slice {
                start,
                len,
                marker: of,
            },
            registration: Some(lent),
            pending,
        }
    }

    /// The operation failed before the slice was registered.
    pub(super) fn failed(slice: &'scope mut [u8], error: Error) -> MrGuard<'scope, T> {
        let (start, len, of) = (slice.as_mut_ptr(), slice.len(), PhantomData);
        MrGuard {
            slice: Slice {
                start,
                len,
                marker: of,
            },
            registration: None,
            pending: Pending::finished(Err(error)),
        }
    }

    /// Waits until the operation has ended, and returns the slice with the result.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let memory = device.memory(8, verbena::Access::ALL)?;
    /// let mut bytes = [7; 8];
    /// client.scope(|scope| {
    ///     let (result, bytes) = scope.read(&mut bytes, &memory.remote()).wait();
    ///     bytes[0] = 1;
    ///     result
    /// })?;
    /// assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> (Result<T, Error>, &'scope mut [u8]) {
        let result = self.pending.wait();
        (result, release_slice(self.slice, self.registration))
    }

    /// Waits at most for `limit`. If the operation has not ended, returns the loan to wait again; the scope waits for it in any
    /// case.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.listen("127.0.0.1:0")?;
    /// # let connecting = device.connect(listener.local_addr()?);
    /// # let (server, client) = (listener.accept().wait()?, connecting.wait()?);
    /// let mut bytes = [0; 8];
    /// client.scope(|scope| {
    ///     let receiving = scope.recv(&mut bytes);
    ///     assert!(receiving.wait_for(Duration::from_millis(1)).is_err(), "no message");
    ///     drop(server);
    /// });
    /// # Ok::<(), verbena::Error>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "the end of a wait, or the loan")]
    pub fn wait_for(
        self,
        limit: Duration,
    ) -> Result<(Result<T, Error>, &'scope mut [u8]), MrGuard<'scope, T>> {
        let MrGuard {
            slice,
            registration: lent,
            pending,
        } = self;
        match pending.wait_for(limit) {
            Ok(result) => Ok((result, release_slice(slice, lent))),
            Err(pending) => Err(MrGuard {
                slice,
                registration: lent,
                pending,
            }),
        }
    }
}

/// Deregisters the slice, then returns it.
#[expect(clippy::needless_pass_by_value, reason = "the slice is given out once")]
fn release_slice<'scope>(slice: Slice<'scope>, lent: Option<Arc<TemporaryMr>>) -> &'scope mut [u8] {
    if let Some(lent) = lent {
        lent.deregister();
    }
    // SAFETY: borrowed mutably for `'scope`, and deregistered above, so the adapter does not access it; `Slice` is consumed, so this is
    // the only reference.
    unsafe { core::slice::from_raw_parts_mut(slice.start, slice.len) }
}

impl<T> fmt::Debug for MrGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MrGuard").field(&self.pending).finish()
    }
}
