//! Memory of another device's driver, named by the descriptor of a dmabuf. It is mapped into the process as long as it is registered.
//! A dmabuf whose driver does not let processes map it, as those of most GPUs, is `EOPNOTSUPP`, and so is a descriptor that is not open:
//! NCCL and UCX take any other number in answer to descriptor -1 for the ability to reach a GPU's memory, and then do without host memory.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::errno::Errno;

/// The file system of dmabufs (`DMA_BUF_MAGIC` of `linux/magic.h`).
const DMA_BUF: u64 = 0x444d_4142;

/// A part of a dmabuf, mapped into the process.
pub(super) struct Dmabuf {
    /// The start of the mapping, at a page.
    mapped: *mut c_void,
    mapped_len: usize,
    /// Where the part begins in the mapping.
    inside: usize,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for Dmabuf {}

impl Dmabuf {
    /// Maps `len` bytes at `offset`, for writing as well if `write`.
    pub(super) fn map(fd: c_int, offset: u64, len: usize, write: bool) -> Result<Dmabuf, Errno> {
        // SAFETY: zeros are valid for this struct of integers, which the call fills.
        let mut of: libc::statfs = unsafe { core::mem::zeroed() };
        // SAFETY: `of` is valid for writes during the call.
        if unsafe { libc::fstatfs(fd, &raw mut of) } != 0 {
            return Err(Errno::NOSUPP);
        }
        if of.f_type as u64 != DMA_BUF {
            return Err(Errno::INVAL);
        }
        Dmabuf::map_file(fd, offset, len, write)
    }

    /// The same for any file that can be mapped.
    fn map_file(fd: c_int, offset: u64, len: usize, write: bool) -> Result<Dmabuf, Errno> {
        // SAFETY: seeking changes only the file position, which mappings do not use; a dmabuf can be sought to its end for its size.
        let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
        let end = offset.checked_add(len as u64).ok_or(Errno::INVAL)?;
        if len == 0 || size < 0 || end > size as u64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a query without arguments in memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let inside = offset % page;
        let start = libc::off_t::try_from(offset - inside).map_err(|_| Errno::INVAL)?;
        let mapped_len = len.checked_add(inside as usize).ok_or(Errno::INVAL)?;
        let rights = if write {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no existing memory changes.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_len,
                rights,
                libc::MAP_SHARED,
                fd,
                start,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(match Errno::last() {
                // Opened for reading only, or no memory for the mapping.
                errno @ (Errno(libc::EACCES | libc::EPERM) | Errno::NOMEM) => errno,
                _ => Errno::NOSUPP,
            });
        }
        Ok(Dmabuf {
            mapped,
            mapped_len,
            inside: inside as usize,
        })
    }

    /// The address of its first byte.
    pub(super) fn start(&self) -> usize {
        self.mapped as usize + self.inside
    }
}

impl Drop for Dmabuf {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_file` with this length and unmapped only here; its region is deregistered before.
        unsafe { libc::munmap(self.mapped, self.mapped_len) };
    }
}

#[cfg(test)]
mod tests;
