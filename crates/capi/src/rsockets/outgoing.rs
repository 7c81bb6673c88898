//! Sending: `rsend` and its kin.
//! It promises what went, even if a signal or an error came behind it. It refuses urgent data, and raises no `SIGPIPE`.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use verbena_rsocket::Flags;

use super::cancel;
use super::table::{Entry, Socket};
use super::{bytes, checked, count, table};
use crate::errno::Errno;

/// Pieces that are together no longer than this leave as one message.
const TOGETHER: usize = 64 << 10;

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
/// `buf` begins `len` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    how: c_int,
) -> isize {
    count(table::get(socket).and_then(|entry| match entry {
        // SAFETY: the program's word.
        Entry::Stream(own) => Ok(own.stream.send(unsafe { bytes(buf, len) }?, flags(how)?)?),
        // SAFETY: the program's word, to the C library.
        Entry::Datagram => checked(unsafe { cancel::send(socket, buf, len, how) }),
    }))
}

/// Sends bytes to an address; a stream has its own.
///
/// # Safety
/// `buf` begins `len` bytes, `addr` is null or begins `addrlen`.
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
        // SAFETY: the program's word, to the C library.
        Ok(Entry::Datagram) => unsafe { cancel::sendto(socket, buf, len, how, addr, addrlen) },
        // SAFETY: the program's word.
        _ => unsafe { verbena_rsend(socket, buf, len, how) },
    }
}

/// Sends bytes.
///
/// # Safety
/// `buf` begins `len` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rwrite(
    socket: c_int,
    buf: *const c_void,
    len: usize,
) -> isize {
    // SAFETY: the program's word.
    unsafe { verbena_rsend(socket, buf, len, 0) }
}

/// Sends several pieces.
///
/// # Safety
/// `iov` begins `iovcnt` pieces, which are the program's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rwritev(
    socket: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> isize {
    count(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            let pieces = usize::try_from(iovcnt).map_err(|_| Errno::INVAL)?;
            // SAFETY: the program's word.
            unsafe { send_all(&own, iov, pieces, Flags::default()) }
        }
        // SAFETY: the program's word, to the C library.
        Entry::Datagram => checked(unsafe { cancel::writev(socket, iov, iovcnt) }),
    }))
}

/// Sends several pieces; a stream has neither addresses nor control data.
///
/// # Safety
/// `msg` and all it names are the program's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_rsendmsg(
    socket: c_int,
    msg: *const msghdr,
    how: c_int,
) -> isize {
    count(table::get(socket).and_then(|entry| match entry {
        Entry::Stream(own) => {
            // SAFETY: the program's word.
            let msg = unsafe { msg.as_ref() }.ok_or(Errno(libc::EFAULT))?;
            // SAFETY: the program's word.
            unsafe { send_all(&own, msg.msg_iov, msg.msg_iovlen, flags(how)?) }
        }
        // SAFETY: the program's word, to the C library.
        Entry::Datagram => checked(unsafe { cancel::sendmsg(socket, msg, how) }),
    }))
}

/// # Safety
/// `iov` begins `pieces` pieces, which are the program's.
unsafe fn send_all(
    own: &Socket,
    iov: *const iovec,
    pieces: usize,
    flags: Flags,
) -> Result<usize, Errno> {
    if pieces > libc::UIO_MAXIOV as usize {
        return Err(Errno::INVAL);
    }
    if pieces == 0 {
        return Ok(own.stream.send(&[], flags)?);
    }
    if iov.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the program's word.
    let iov = unsafe { core::slice::from_raw_parts(iov, pieces) };
    // SAFETY: the program's word.
    let all = iov
        .iter()
        .map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) });
    let all = all.collect::<Result<Vec<&[u8]>, Errno>>()?;
    let len: usize = all.iter().map(|piece| piece.len()).sum();
    if all.len() > 1 && len <= TOGETHER {
        return Ok(own.stream.send(&all.concat(), flags)?);
    }
    let mut done = 0;
    for piece in all {
        match own.stream.send(piece, flags) {
            Ok(n) if n < piece.len() => return Ok(done + n),
            Ok(n) => done += n,
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
