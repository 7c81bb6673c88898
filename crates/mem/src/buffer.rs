//! Memory that the adapter owns: allocated, registered and freed together, so that using it needs no `unsafe`.
//! It is freed after the last entry that translates to it, even if its [`Buffer`] is dropped before. Bytes are copied in and
//! out: peers may write them at any time, so no reference to them is made.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_wire::{Stag, To};

use crate::access::Access;
use crate::att::Att;
use crate::entry::Pd;
use crate::mapping::{Mapping, Pages};
use crate::memory::Memory;
use crate::refusal::Misuse;
use crate::tpt::{Draft, Layout, Region, RegionExport, Reserved, Ticket, Tpt};
use crate::vectored;

/// Registered memory of the adapter.
#[derive(Debug)]
pub struct Buffer {
    tpt: Arc<Tpt>,
    stag: Stag,
    /// The STag is deregistered when this is dropped.
    owns_stag: bool,
    /// The address of its first byte in requests: its real address in the process that allocated the memory, and the same number in a
    /// process that took it over.
    at: u64,
    memory: Arc<Memory>,
}

impl Buffer {
    /// Allocates `len` zero bytes and registers them under their real addresses.
    pub fn new(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        Buffer::register(tpt, len, pd, access, false)
    }

    /// The same, in pages that the system allocates when they are first written, and frees with the buffer: for memory of
    /// which a peer decides how much is used. If the system has no page left for such a write, it may end the process.
    pub fn sparse(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        let memory = Memory::sparse(Pages::new(len)?);
        let at = memory.start() as u64;
        Buffer::install(tpt, memory, (at, None), (pd, access, false))
    }

    /// The same as [`new`](Buffer::new), and the registration is invalidated by the first message of a peer that ends in it (M9).
    pub fn one_touch(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        Buffer::register(tpt, len, pd, access, true)
    }

    /// Zero bytes that another process can map and take over (V1), registered.
    pub fn shared(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        let memory = Memory::mapped(Mapping::new(len)?);
        let at = memory.start() as u64;
        Buffer::install(tpt, memory, (at, None), (pd, access, false))
    }

    /// What another process needs to take it over (V1), and the descriptor of the memory.
    ///
    /// Fails if the memory is not [shared](Buffer::shared), if its registration is pending, one-touch or not the buffer's own,
    /// and while windows are bound to it.
    pub fn export_region(&self) -> Result<(RegionExport, BorrowedFd<'_>), Misuse> {
        let Some(mapping) = self.memory.mapping() else {
            return Err(Misuse::NotShared(self.stag));
        };
        Ok((self.tpt.export_region(self.stag)?, mapping.fd()))
    }

    /// Takes over the memory of another process (V1): mapped at any address, registered under the STag and the addresses that
    /// peers and requests use.
    pub fn adopt(
        tpt: &Arc<Tpt>,
        fd: OwnedFd,
        export: RegionExport,
        pd: Pd,
    ) -> Result<Buffer, Misuse> {
        let RegionExport {
            stag,
            start,
            len,
            access,
        } = export;
        let len = usize::try_from(len).map_err(|_| Misuse::Range {
            start: start.get(),
            len,
        })?;
        let memory = Memory::mapped(Mapping::adopt(fd, len)?);
        let name = (start.get(), Some(stag));
        Buffer::install(tpt, memory, name, (pd, access, false))
    }

    fn register(
        tpt: &Arc<Tpt>,
        len: usize,
        pd: Pd,
        access: Access,
        one_touch: bool,
    ) -> Result<Buffer, Misuse> {
        let memory = Memory::zeroed(len);
        let at = memory.start() as u64;
        Buffer::install(tpt, memory, (at, None), (pd, access, one_touch))
    }

    /// Registers memory of the adapter at the address `at`, under this STag or a new one.
    fn install(
        tpt: &Arc<Tpt>,
        memory: Memory,
        (at, stag): (u64, Option<Stag>),
        (pd, access, one_touch): (Pd, Access, bool),
    ) -> Result<Buffer, Misuse> {
        let memory = Arc::new(memory);
        let region = Region {
            att: Att::owned(memory.clone()),
            start: To::new(at),
            pd,
            access,
            one_touch,
        };
        // SAFETY: `memory` is mapped and writable, and every entry that translates to it holds an `Arc` of it, so that it stays so
        // until the entry is removed.
        let stag = unsafe {
            match stag {
                None => tpt.register_unprobed(region),
                Some(stag) => tpt.register_at(stag, region),
            }
        }?;
        Ok(Buffer {
            tpt: tpt.clone(),
            stag,
            owns_stag: true,
            at,
            memory,
        })
    }

    /// Allocates `len` zero bytes and reserves their registration (V5): the buffer's STag is known at once, and usable when the
    /// reserved entry is complete.
    pub fn pending(
        tpt: &Arc<Tpt>,
        len: usize,
        pd: Pd,
        access: Access,
    ) -> Result<(Buffer, Reserved), Misuse> {
        let (memory, draft) = draft(len, pd, access, false);
        // SAFETY: the draft's translation holds an `Arc` of the allocation, and so does the entry made of it.
        let reserved = unsafe { tpt.reserve(draft) }?;
        let buffer = Buffer {
            tpt: tpt.clone(),
            stag: reserved.stag(),
            owns_stag: true,
            at: memory.start() as u64,
            memory,
        };
        Ok((buffer, reserved))
    }

    /// Allocates `len` zero bytes and prepares their registration under an STag of the caller (M4). The caller frees the STag,
    /// which may be registered for other memory later.
    pub fn prepared(
        tpt: &Arc<Tpt>,
        stag: Stag,
        len: usize,
        (pd, access, one_touch): (Pd, Access, bool),
    ) -> Result<(Buffer, Ticket), Misuse> {
        let (memory, draft) = draft(len, pd, access, one_touch);
        // SAFETY: the draft's translation holds an `Arc` of the allocation, and so does the entry made of it.
        let ticket = unsafe { tpt.prepare(stag, draft) }?;
        let buffer = Buffer {
            tpt: tpt.clone(),
            stag,
            owns_stag: false,
            at: memory.start() as u64,
            memory,
        };
        Ok((buffer, ticket))
    }

    /// Its STag.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The address of its first byte in requests.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` in at `offset`; false, and nothing copied, if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let fits = self.fits(offset, bytes.len());
        if fits {
            // SAFETY: `fits` checked that the range is inside the allocation, which `self.memory` keeps alive; `bytes` does not
            // overlap it, because no reference into it is ever made.
            unsafe {
                let to = self.memory.start().add(offset);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        fits
    }

    /// A copy of `len` bytes at `offset`; empty if they do not fit.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        if !self.fits(offset, len) {
            return Vec::new();
        }
        let mut copy = vec![0; len];
        // SAFETY: `fits` checked that the range is inside the allocation, which `self.memory` keeps alive; `copy` is a new vector.
        unsafe {
            let from = self.memory.start().add(offset);
            core::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), len);
        }
        copy
    }

    /// Fills `into` with a copy of what is at `offset`; false, and nothing copied, if it reaches beyond the end.
    pub fn read_into(&self, offset: usize, into: &mut [u8]) -> bool {
        let fits = self.fits(offset, into.len());
        if fits {
            // SAFETY: `fits` checked that the range is inside the allocation, which `self.memory` keeps alive; `into` does not
            // overlap it, because no reference into it is ever made.
            unsafe {
                let from = self.memory.start().add(offset);
                core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
            }
        }
        fits
    }

    /// Reads from a descriptor into `head` and then into `len` bytes at `offset`, in one call and without a copy; returns the bytes in all.
    pub fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        if !self.fits(offset, len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `fits` checked that the range is inside the allocation, which `self.memory` keeps alive; no reference into it exists.
        unsafe { vectored::read(fd, head, self.memory.start().add(offset), len) }
    }

    /// Writes `head` and then `len` bytes from `offset` to a descriptor, in one call and without a copy; returns the bytes in all.
    pub fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        if !self.fits(offset, len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `fits` checked that the range is inside the allocation, which `self.memory` keeps alive.
        unsafe { vectored::write(fd, head, self.memory.start().add(offset), len) }
    }

    fn fits(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }
}

/// Allocates zero bytes, and a draft of their registration.
fn draft(len: usize, pd: Pd, access: Access, one_touch: bool) -> (Arc<Memory>, Draft) {
    let memory = Arc::new(Memory::zeroed(len));
    let draft = Draft {
        layout: Layout::Built(Att::owned(memory.clone())),
        start: To::new(memory.start() as u64),
        pd,
        access,
        one_touch,
    };
    (memory, draft)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Fails while windows are bound to it, through which peers may access it: then the entry keeps the memory.
        if self.owns_stag {
            let _ = self.tpt.deregister(self.stag);
        }
    }
}

#[cfg(test)]
mod tests;
