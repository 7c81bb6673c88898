//! Receiving: `rrecv` and the calls like it. Bytes that were received are returned even if a signal or an error follows them.
//! Urgent data and the error queue are not supported, and there is no control data.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use verbena_rsocket::Flags;

use super::cancel;
use super::pieces::{entries, in_turn};
use super::table::{Entry, Socket};
use super::{address, buffer, checked, size_result, table};
use crate::caller::arg_mut;
use crate::errno::Errno;

fn flags(flags: c_int) -> Result<Flags, Errno> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Err(Errno::NOSUPP);
    }
    let rows = [
        (libc::MSG_DONTWAIT, Flags::DONT_WAIT),
        (libc::MSG_PEEK, Flags::PEEK),
        (libc::MSG_WAITALL, Flags::WAIT_ALL),
    ];
    let set = rows.into_iter().filter(|(bit, _)| flags & bit != 0);
    Ok(set.fold(Flags::default(), |all, (_, flag)| all | flag))
}

/// Receives bytes.
///
/// # Safety
/// There is room for `len` bytes at `buf`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    how: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        // SAFETY: the caller guarantees that `len` bytes at `buf` are valid for writes.
        Entry::Stream(own) => Ok(own.stream.recv(unsafe { buffer(buf, len) }?, flags(how)?)?),
        Entry::Datagram => checked(pass_on!(cancel::recv(socket, buf, len, how))),
    }))
}

/// Receives bytes, and writes the peer's address.
///
/// # Safety
/// There is room for `len` bytes at `buf`; the other pointers are null or valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    how: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the caller guarantees that `len` bytes at `buf` are valid for writes.
            let n = own.stream.recv(unsafe { buffer(buf, len) }?, flags(how)?)?;
            if let Ok(peer) = own.stream.peer_addr() {
                // SAFETY: the caller guarantees that `addrlen` is null or valid, and that `addr` is null or has room for `*addrlen` bytes.
                unsafe { address::write(peer, own.family, addr, addrlen) }?;
            }
            Ok(n)
        }
        Entry::Datagram => checked(pass_on!(cancel::recvfrom(
            socket, buf, len, how, addr, addrlen
        ))),
    }))
}

/// Receives bytes.
///
/// # Safety
/// There is room for `len` bytes at `buf`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rread(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: the caller guarantees room for `len` bytes at `buf`.
    unsafe { verbena_rrecv(socket, buf, len, 0) }
}

/// Receives into several buffers.
///
/// # Safety
/// `iov` points to `iovcnt` entries, each of which describes memory that is valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rreadv(
    socket: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let pieces = usize::try_from(iovcnt).map_err(|_| Errno::INVAL)?;
            // SAFETY: the caller guarantees `iovcnt` entries at `iov`, each with room for its length.
            unsafe { recv_all(&own, iov, pieces, Flags::default()) }
        }
        Entry::Datagram => checked(pass_on!(cancel::readv(socket, iov, iovcnt))),
    }))
}

/// Receives into several buffers; there is no control data.
///
/// # Safety
/// `msg` and all memory that it describes are valid during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rrecvmsg(
    socket: c_int,
    msg: *mut msghdr,
    how: c_int,
) -> isize {
    size_result(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let msg = arg_mut!(msg).ok_or(Errno(libc::EFAULT))?;
            // SAFETY: the caller guarantees `msg_iovlen` entries at `msg_iov`, each with room for its length.
            let n = unsafe { recv_all(&own, msg.msg_iov, msg.msg_iovlen, flags(how)?) }?;
            (msg.msg_namelen, msg.msg_controllen, msg.msg_flags) = (0, 0, 0);
            Ok(n)
        }
        Entry::Datagram => checked(pass_on!(cancel::recvmsg(socket, msg, how))),
    }))
}

/// # Safety
/// `iov` points to `pieces` entries, each of which describes memory that is valid during the call.
unsafe fn recv_all(
    own: &Socket,
    iov: *const iovec,
    pieces: usize,
    mut flags: Flags,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees `pieces` entries at `iov`.
    let iov = unsafe { entries(iov, pieces) }?;
    if pieces > 1 && flags.contains(Flags::PEEK) {
        // Every buffer would get the same bytes.
        return Err(Errno::NOSUPP);
    }
    in_turn(iov.iter().filter(|piece| piece.iov_len > 0), |piece| {
        // SAFETY: the caller guarantees that `piece.iov_len` bytes at `piece.iov_base` are valid for writes.
        let into = unsafe { buffer(piece.iov_base, piece.iov_len) }?;
        let n = own.stream.recv(into, flags)?;
        if !flags.contains(Flags::WAIT_ALL) {
            flags = flags | Flags::DONT_WAIT;
        }
        Ok((n, into.len()))
    })
}
