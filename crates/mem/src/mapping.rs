//! Memory of the adapter that another process can map as well (V1): a memfd, mapped shared, sealed against changes of its size; private
//! pages; and the pages behind the null translation.
//! All of it stays readable and writable as long as the [`Mapping`] lives, whatever another process does: a file that could be
//! truncated is not accepted, since an access beyond its end raises SIGBUS. A forked child shares the memory with its parent.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::refusal::SharedMemoryError;
use crate::span::Span;

/// The size can be neither reduced nor increased, and no seal can be added.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The file system of memfds with pages of the usual size. With huge pages any first access may find none left, which raises SIGBUS.
const TMPFS: u64 = 0x0102_1994;

/// Memory shared between processes, mapped into this one.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    memfd: Memfd,
}

// SAFETY: the mapping belongs to no thread, and its bytes are accessed by raw copies and processor atomics only.
unsafe impl Send for Mapping {}
// SAFETY: address, length and descriptor are fixed, and `Mapping` has no method that accesses the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` zero bytes in a new file.
    pub fn new(len: usize) -> Result<Mapping, SharedMemoryError> {
        let memfd = Memfd::new()?;
        // A mapping of zero bytes is an error (EINVAL).
        ftruncate(&memfd, len.max(1) as u64).map_err(system("ftruncate"))?;
        fcntl_add_seals(&memfd, SEALS).map_err(system("fcntl F_ADD_SEALS"))?;
        Mapping::of(memfd, len)
    }

    /// The first `len` bytes of a file of another process, mapped at any address.
    pub fn adopt(fd: OwnedFd, len: usize) -> Result<Mapping, SharedMemoryError> {
        let memfd = Memfd::from(fd);
        let size = memfd.size()?;
        if len as u64 > size {
            let len = len as u64;
            return Err(SharedMemoryError::TooShort { size, len });
        }
        Mapping::of(memfd, len)
    }

    /// The same, to read only; the descriptor is closed.
    pub(crate) fn adopt_to_read(fd: OwnedFd, len: usize) -> Result<Pages, SharedMemoryError> {
        let memfd = Memfd::from(fd);
        let size = memfd.size()?;
        if len as u64 > size {
            let len = len as u64;
            return Err(SharedMemoryError::TooShort { size, len });
        }
        let mapping = Mapping::with_rights(memfd, len, ProtFlags::READ)?;
        Ok(mapping.into_pages())
    }

    /// All of a file of another process.
    pub fn adopt_all(fd: OwnedFd) -> Result<Mapping, SharedMemoryError> {
        let memfd = Memfd::from(fd);
        let len = usize::try_from(memfd.size()?);
        Mapping::of(memfd, len.unwrap_or(usize::MAX))
    }

    /// Maps a file whose size cannot change and is at least `len`.
    fn of(memfd: Memfd, len: usize) -> Result<Mapping, SharedMemoryError> {
        Mapping::with_rights(memfd, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn with_rights(
        memfd: Memfd,
        len: usize,
        rights: ProtFlags,
    ) -> Result<Mapping, SharedMemoryError> {
        let flags = MapFlags::SHARED;
        // SAFETY: the kernel chooses unused addresses for this mapping of `memfd`, since `MAP_FIXED` is not set: no existing memory changes.
        let start = unsafe { mmap(core::ptr::null_mut(), len.max(1), rights, flags, &memfd, 0) };
        let start = start.map_err(system("mmap"))?;
        // The kernel maps nothing at address 0 unless asked to.
        let start = NonNull::new(start.cast()).ok_or(SharedMemoryError::System {
            call: "mmap",
            errno: Errno::NOMEM.raw_os_error(),
        })?;
        Ok(Mapping { start, len, memfd })
    }

    /// Its first byte, at the start of a page.
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

    /// The same memory without its file, whose descriptor is closed.
    pub fn into_pages(self) -> Pages {
        let mapping = ManuallyDrop::new(self);
        // SAFETY: `mapping` is not used or dropped after this, so that the descriptor is closed once.
        drop(unsafe { core::ptr::read(&raw const mapping.memfd) });
        Pages {
            start: mapping.start,
            len: mapping.len,
        }
    }

    /// The file, for another process to map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length and unmapped only here. Users of the address hold this mapping, and it is being dropped.
        let gone = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// Bytes in pages of their own, zero at first: private ones, or those of a [`Mapping`] without its descriptor. A page is allocated when it
/// is first written, and all are unmapped when this is dropped.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to no thread, and their users copy the bytes by address.
unsafe impl Send for Pages {}
// SAFETY: address and length are fixed, and `Pages` has no method that accesses the bytes.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Result<Pages, SharedMemoryError> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no existing memory changes.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), len.max(1), rights, flags) };
        let start = start.map_err(system("mmap"))?;
        // As in `Mapping::of`: never at address 0.
        let start = NonNull::new(start.cast()).ok_or(SharedMemoryError::System {
            call: "mmap",
            errno: Errno::NOMEM.raw_os_error(),
        })?;
        Ok(Pages { start, len })
    }

    /// Its first byte, at the start of a page.
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

    /// Gives up ownership of the pages; [`from_raw`](Pages::from_raw) takes it back.
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// Takes back pages of [`into_raw`](Pages::into_raw).
    ///
    /// # Safety
    /// `start` came from [`into_raw`](Pages::into_raw) of pages of this length, and is passed here once.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Pages {
        Pages { start, len }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length and unmapped only here. Users of the address hold these pages, and they are being dropped.
        let gone = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// The pages of the null translation: zeros that are only read, and pages that are only written. One of each is enough for a process,
/// and they are never freed. Unwritten pages of the system share one page of zeros, so the former occupy none.
#[derive(Debug)]
pub(crate) struct NullPages {
    zeros: Pages,
    discarded: Pages,
}

impl NullPages {
    /// The longest run: longer accesses consist of several.
    const LEN: usize = 1 << 20;

    pub(crate) fn get() -> Result<&'static NullPages, SharedMemoryError> {
        static PAGES: OnceLock<NullPages> = OnceLock::new();
        if let Some(pages) = PAGES.get() {
            return Ok(pages);
        }
        let pages = NullPages {
            zeros: Pages::new(NullPages::LEN)?,
            discarded: Pages::new(NullPages::LEN)?,
        };
        Ok(PAGES.get_or_init(|| pages))
    }

    /// A run of at most `len` bytes.
    pub(crate) fn span(&self, len: u64, write: bool) -> Span {
        let pages = if write { &self.discarded } else { &self.zeros };
        let len = usize::try_from(len).map_or(NullPages::LEN, |len| len.min(NullPages::LEN));
        Span::new(pages.start().as_ptr(), len)
    }
}

/// A descriptor closed by the system call itself: `close` of the C library is a cancellation point, and memory may be freed under locks.
#[derive(Debug)]
struct Memfd(ManuallyDrop<OwnedFd>);

impl Memfd {
    fn new() -> Result<Memfd, SharedMemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let make = |flags| memfd_create("verbena", flags);
        let fd = match make(flags | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 do not know MFD_NOEXEC_SEAL; later ones may require it (sysctl vm.memfd_noexec).
            Err(Errno::INVAL) => make(flags),
            answer => answer,
        };
        Ok(Memfd::from(fd.map_err(system("memfd_create"))?))
    }

    /// Its size, after a check that it cannot change.
    fn size(&self) -> Result<u64, SharedMemoryError> {
        let has = match fcntl_get_seals(self) {
            Ok(has) => has,
            // EINVAL: the file does not support seals.
            Err(Errno::INVAL) => return Err(SharedMemoryError::NotMemfd),
            Err(errno) => return Err(system("fcntl F_GET_SEALS")(errno)),
        };
        if !has.contains(SEALS) {
            let (has, needs) = (has.bits(), SEALS.bits());
            return Err(SharedMemoryError::Unsealed { has, needs });
        }
        let of = fstatfs(self).map_err(system("fstatfs"))?;
        if of.f_type as u64 != TMPFS {
            return Err(SharedMemoryError::NotMemfd);
        }
        // After the check of the seals: before it, the file could still have been truncated.
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
        // SAFETY: called once, since `self.0` is not used after drop.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: `fd` is an open descriptor that this owned alone; borrows of it end before `self` is dropped.
        unsafe { rustix::io::close(fd.into_raw_fd()) };
    }
}

/// Maps an error of this system call.
fn system(call: &'static str) -> impl Fn(Errno) -> SharedMemoryError {
    move |errno| SharedMemoryError::System {
        call,
        errno: errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests;
