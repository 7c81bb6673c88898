//! Sending: `rsend` and the calls like it. The number of bytes sent is returned even if a signal or an error follows them.
//! Urgent data is not supported, and `SIGPIPE` is never raised.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use verbena_rsocket::Flags;

use super::cancel;
use super::pieces::{entries, in_turn};
use super::table::{Entry, Socket};
use super::{bytes, checked, size_result, table};
use crate::caller::arg_ref;
use crate::errno::Errno;

/// Buffers that are together no longer than this are sent as one message.
const MAX_COALESCED: usize = 64 << 10;

fn flags(flags: c_int) -> Result<Flags, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::NOSUPP);
    }
    let wait = flags & libc::MSG_DONTWAIT == 0;
    Ok(if wait {
        Flags::default()
    } else {
        Flags::DONT_WAIT
    })
}

/// Sends bytes.
///
/// # Safety
/// `buf` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    how: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        // SAFETY: the caller guarantees that `len` bytes at `buf` are valid for reads.
        Entry::Stream(own) => Ok(own.stream.send(unsafe { bytes(buf, len) }?, flags(how)?)?),
        Entry::Datagram => checked(pass_on!(cancel::send(socket, buf, len, how))),
    }))
}

/// Sends bytes to an address; a stream socket ignores the address.
///
/// # Safety
/// `buf` points to `len` bytes that are valid for reads, `addr` is null or points to `addrlen` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    how: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> isize {
    match table::get(socket) {
        Ok(Entry::Datagram) => pass_on!(cancel::sendto(socket, buf, len, how, addr, addrlen)),
        // SAFETY: the caller guarantees `len` bytes at `buf`.
        _ => unsafe { verbena_rsend(socket, buf, len, how) },
    }
}

/// Sends bytes.
///
/// # Safety
/// `buf` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rwrite(
    socket: c_int,
    buf: *const c_void,
    len: usize,
) -> isize {
    // SAFETY: the caller guarantees `len` bytes at `buf`.
    unsafe { verbena_rsend(socket, buf, len, 0) }
}

/// Sends several buffers.
///
/// # Safety
/// `iov` points to `iovcnt` entries, each of which describes memory that is valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rwritev(
    socket: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let pieces = usize::try_from(iovcnt).map_err(|_| Errno::INVAL)?;
            // SAFETY: the caller guarantees `iovcnt` entries at `iov`, each with the bytes of its length.
            unsafe { send_all(&own, iov, pieces, Flags::default()) }
        }
        Entry::Datagram => checked(pass_on!(cancel::writev(socket, iov, iovcnt))),
    }))
}

/// Sends several buffers; a stream socket ignores addresses and control data.
///
/// # Safety
/// `msg` and all memory that it describes are valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsendmsg(
    socket: c_int,
    msg: *const msghdr,
    how: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let msg = arg_ref!(msg).ok_or(Errno(libc::EFAULT))?;
            // SAFETY: the caller guarantees `msg_iovlen` entries at `msg_iov`, each with the bytes of its length.
            unsafe { send_all(&own, msg.msg_iov, msg.msg_iovlen, flags(how)?) }
        }
        Entry::Datagram => checked(pass_on!(cancel::sendmsg(socket, msg, how))),
    }))
}

/// # Safety
/// `iov` points to `pieces` entries, each of which describes memory that is valid during the call.
unsafe fn send_all(
    own: &Socket,
    iov: *const iovec,
    pieces: usize,
    flags: Flags,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees `pieces` entries at `iov`.
    let iov = unsafe { entries(iov, pieces) }?;
    if pieces == 0 {
        return Ok(own.stream.send(&[], flags)?);
    }
    // SAFETY: the caller guarantees the bytes of each entry's length at its base.
    let all = iov
        .iter()
        .map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) });
    let all = all.collect::<Result<Vec<&[u8]>, Errno>>()?;
    let len: usize = all.iter().map(|piece| piece.len()).sum();
    if all.len() > 1 && len <= MAX_COALESCED {
        return Ok(own.stream.send(&all.concat(), flags)?);
    }
    in_turn(all, |piece| {
        Ok((own.stream.send(piece, flags)?, piece.len()))
    })
}
