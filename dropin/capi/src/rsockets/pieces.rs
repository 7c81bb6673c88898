//! Several buffers of one call (`readv`, `sendmsg` and the calls like them). The array's length and address are checked before any byte
//! moves, and bytes that were transferred count even if an error follows them.

use libc::iovec;

use crate::errno::Errno;

/// The buffers at `iov`.
///
/// # Safety
/// `iov` is null or points to `count` entries that are valid for reads and not written during the call.
pub(super) unsafe fn entries<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    match iov {
        _ if count > libc::UIO_MAXIOV as usize => Err(Errno::INVAL),
        _ if count == 0 => Ok(&[]),
        iov if iov.is_null() => Err(Errno(libc::EFAULT)),
        // SAFETY: `iov` is not null, so the caller guarantees `count` entries.
        iov => Ok(unsafe { core::slice::from_raw_parts(iov, count) }),
    }
}

/// Transfers one buffer after the other until one is transferred in part only, or fails; the error counts if it is the first.
/// `transfer` returns the bytes that it transferred, and those that it was asked to.
pub(super) fn in_turn<T>(
    buffers: impl IntoIterator<Item = T>,
    mut transfer: impl FnMut(T) -> Result<(usize, usize), Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for buffer in buffers {
        match transfer(buffer) {
            Ok((n, len)) if n < len => return Ok(done + n),
            Ok((n, _)) => done += n,
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
