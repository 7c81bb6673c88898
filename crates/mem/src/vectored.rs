//! `readv` and `writev` with one buffer in memory that other threads may access concurrently: one system call, no copy.
//! No reference to that memory is made; the system call is given its address.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads into `head` and, once that is full, into `len` bytes at `at`; returns the bytes read in all.
///
/// # Safety
///
/// `at` is valid for writes of `len` bytes until this returns, and no reference to them exists.
pub unsafe fn read(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    at: *mut u8,
    len: usize,
) -> io::Result<usize> {
    let pieces = [iovec(head.as_mut_ptr(), head.len()), iovec(at, len)];
    // SAFETY: `head` is borrowed until the call returns; the caller guarantees that `len` bytes at `at` are valid for writes until then.
    io_result(unsafe { libc::readv(fd.as_raw_fd(), pieces.as_ptr(), 2) })
}

/// Writes `head` and then `len` bytes from `at`; returns the bytes written in all.
///
/// # Safety
///
/// `at` is valid for reads of `len` bytes until this returns.
pub unsafe fn write(
    fd: BorrowedFd<'_>,
    head: &[u8],
    at: *const u8,
    len: usize,
) -> io::Result<usize> {
    let pieces = [
        // `writev` only reads them.
        iovec(head.as_ptr().cast_mut(), head.len()),
        iovec(at.cast_mut(), len),
    ];
    // SAFETY: `head` is borrowed until the call returns; the caller guarantees that `len` bytes at `at` are valid for reads until then.
    io_result(unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr(), 2) })
}

fn iovec(at: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at.cast(),
        iov_len: len,
    }
}

fn io_result(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
