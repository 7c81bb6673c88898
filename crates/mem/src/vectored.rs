//! Reading from a descriptor into memory that others may use meanwhile, and writing from it: one system call, no copy of ours.
//! It promises that no reference to that memory is made: the system is given its address.
//! It refuses to know whose memory it is; whoever calls does.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads into `head` and, once that is full, into `len` bytes from `at`; bytes read in all.
///
/// # Safety
///
/// The memory must be there until this returns, and be written to by raw accesses only.
pub unsafe fn read(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    at: *mut u8,
    len: usize,
) -> io::Result<usize> {
    let pieces = [piece(head.as_mut_ptr(), head.len()), piece(at, len)];
    // SAFETY: `head` is borrowed until the call returns; the caller answers for the rest.
    counted(unsafe { libc::readv(fd.as_raw_fd(), pieces.as_ptr(), 2) })
}

/// Writes `head` and then `len` bytes from `at`; bytes written in all.
///
/// # Safety
///
/// The memory must be there until this returns.
pub unsafe fn write(
    fd: BorrowedFd<'_>,
    head: &[u8],
    at: *const u8,
    len: usize,
) -> io::Result<usize> {
    let pieces = [
        // The system only reads them.
        piece(head.as_ptr().cast_mut(), head.len()),
        piece(at.cast_mut(), len),
    ];
    // SAFETY: `head` is borrowed until the call returns; the caller answers for the rest.
    counted(unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr(), 2) })
}

fn piece(at: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at.cast(),
        iov_len: len,
    }
}

fn counted(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
