//! Memory of our own that another process can map as well (V1): a memfd, mapped shared, whose size nobody can change.
//! It promises that all of it stays readable and writable as long as this lives, whatever a process that shares it does:
//! a file that could be made shorter is refused, since touching what it lost would end us. It refuses references, as all memory
//! that others may write, and to be private in a forked child: parent and child share it, too.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::refusal::Unfit;

/// What keeps the size as it is: neither shorter nor longer, and these seals are the last.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The file system of memfds with pages of the usual size. One with huge pages may run out of them at any touch, which ends us.
const TMPFS: u64 = 0x0102_1994;

/// Memory that processes share, mapped here.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    memfd: Memfd,
}

// SAFETY: the bytes are reached by raw copies and processor atomics only, from any thread, as registered memory always is.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` zero bytes in a file of their own.
    pub fn new(len: usize) -> Result<Mapping, Unfit> {
        let memfd = Memfd::new()?;
        // Nothing cannot be mapped, so the least is a byte.
        ftruncate(&memfd, len.max(1) as u64).map_err(system("ftruncate"))?;
        fcntl_add_seals(&memfd, SEALS).map_err(system("fcntl F_ADD_SEALS"))?;
        Mapping::of(memfd, len)
    }

    /// The first `len` bytes of a file that another process made, wherever there is room for them.
    pub fn adopt(fd: OwnedFd, len: usize) -> Result<Mapping, Unfit> {
        let memfd = Memfd::from(fd);
        let size = memfd.size()?;
        if len as u64 > size {
            let len = len as u64;
            return Err(Unfit::Short { size, len });
        }
        Mapping::of(memfd, len)
    }

    /// All of a file that another process made.
    pub fn adopt_all(fd: OwnedFd) -> Result<Mapping, Unfit> {
        let memfd = Memfd::from(fd);
        let len = usize::try_from(memfd.size()?);
        Mapping::of(memfd, len.unwrap_or(usize::MAX))
    }

    /// Maps a file whose size cannot change and is at least `len`.
    fn of(memfd: Memfd, len: usize) -> Result<Mapping, Unfit> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping wherever the kernel likes, which nobody else knows.
        let start = unsafe { mmap(core::ptr::null_mut(), len.max(1), rights, flags, &memfd, 0) };
        let start = start.map_err(system("mmap"))?;
        // The kernel never maps the first page for one who does not name it.
        let start = NonNull::new(start.cast()).ok_or(Unfit::System {
            call: "mmap",
            errno: Errno::NOMEM.raw_os_error(),
        })?;
        Ok(Mapping { start, len, memfd })
    }

    /// Its first byte, which begins a page.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file, for another process to map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length; whoever could reach it held us, and nobody does.
        let gone = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// Private zero bytes of our own in pages of their own. None is taken before it is touched, and all go back at the end.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: as for `Mapping`.
unsafe impl Send for Pages {}
// SAFETY: as for `Mapping`.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Result<Pages, Unfit> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping wherever the kernel likes, which nobody else knows.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), len.max(1), rights, flags) };
        let start = start.map_err(system("mmap"))?;
        // As above: never the first page.
        let start = NonNull::new(start.cast()).ok_or(Unfit::System {
            call: "mmap",
            errno: Errno::NOMEM.raw_os_error(),
        })?;
        Ok(Pages { start, len })
    }

    /// Its first byte, which begins a page.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Leaves the pages to the caller; [`from_raw`](Pages::from_raw) takes them back.
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// Pages that were left to the caller.
    ///
    /// # Safety
    /// `start` came from [`into_raw`](Pages::into_raw) of pages of this length, and is given back once.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Pages {
        Pages { start, len }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever could reach it held us, and nobody does.
        let gone = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// The file. It is closed by the bare system call: the C library's is a point of cancellation, and memory may be freed under locks.
#[derive(Debug)]
struct Memfd(ManuallyDrop<OwnedFd>);

impl Memfd {
    fn new() -> Result<Memfd, Unfit> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let make = |flags| memfd_create("verbena", flags);
        let fd = match make(flags | MemfdFlags::NOEXEC_SEAL) {
            // A kernel before 6.3 does not know that a file may be nothing to execute; later ones may insist on it.
            Err(Errno::INVAL) => make(flags),
            answer => answer,
        };
        Ok(Memfd::from(fd.map_err(system("memfd_create"))?))
    }

    /// Its size, which is known to stay.
    fn size(&self) -> Result<u64, Unfit> {
        let has = match fcntl_get_seals(self) {
            Ok(has) => has,
            // What is no memory has no seals.
            Err(Errno::INVAL) => return Err(Unfit::NotMemory),
            Err(errno) => return Err(system("fcntl F_GET_SEALS")(errno)),
        };
        if !has.contains(SEALS) {
            let (has, needs) = (has.bits(), SEALS.bits());
            return Err(Unfit::Unsealed { has, needs });
        }
        let of = fstatfs(self).map_err(system("fstatfs"))?;
        if of.f_type as u64 != TMPFS {
            return Err(Unfit::NotMemory);
        }
        // After the seals were seen, lest it be cut in between.
        let size = fstat(self).map_err(system("fstat"))?.st_size;
        Ok(u64::try_from(size).unwrap_or(0))
    }
}

impl From<OwnedFd> for Memfd {
    fn from(fd: OwnedFd) -> Memfd {
        Memfd(ManuallyDrop::new(fd))
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        // SAFETY: taken once, because this is the end of `self`.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: the number was ours alone, and nobody can have borrowed it beyond our end.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

/// Names the call in what it was refused with.
fn system(call: &'static str) -> impl Fn(Errno) -> Unfit {
    move |errno| Unfit::System {
        call,
        errno: errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests;
