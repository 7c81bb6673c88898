//! One page-aligned allocation or shared mapping, registered as long as it lives.
//! No access by the adapter or a peer outlasts it, and its bytes are initialized from the start. Its users ([`Buf`](super::Buf),
//! [`Memory`](super::Memory)) decide how the program may access the bytes.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_engine::ControlQueue;
use verbena_mem::{Access, Att, Mapping, Misuse, Region, RegionExport, Tpt, vectored};
use verbena_wire::{Stag, To};

use super::bytes::{Bytes, Mapped, request_addr};
use crate::device::Domain;
use crate::error::Error;
use crate::registering::Registering;

/// Registered memory that this crate allocated. Operations under way hold many of these, so it is kept small.
#[derive(Debug)]
pub(crate) struct Block {
    domain: Arc<Domain>,
    stag: Stag,
    access: Access,
    /// As in [`Bytes`], like the next three fields.
    lead: u16,
    start: NonNull<u8>,
    len: usize,
    mapped: Option<Arc<Mapped>>,
    /// False if the bytes are shared (M5): then `Memory` holds them, and has deregistered the block before it is dropped.
    owns_bytes: bool,
}

// SAFETY: the block owns its allocation; `Block` accesses the bytes by raw copies and processor atomics only, or by slices, whose
// exclusiveness is the safety contract of `Block::slice` and `Block::slice_mut`.
unsafe impl Send for Block {}
// SAFETY: the methods on `&self` make no references to the bytes, except `slice`, whose caller guarantees that they are not written meanwhile.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Block, Error> {
        Block::allocate(domain, len, access, false)
    }

    /// A block whose registration is invalidated by the first message that ends in it (M9).
    pub(crate) fn one_touch(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<Block, Error> {
        Block::allocate(domain, len, access, true)
    }

    /// A block in a shared mapping, which can be handed over to another process (V1).
    pub(crate) fn shared(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Block, Error> {
        domain.function()?;
        let mapping = Mapping::new(len).map_err(misuse)?;
        let at = mapping.start().as_ptr() as u64;
        let mapped = Mapped {
            mapping,
            request_addr: at,
        };
        Block::register(domain, mapped.into(), None, (access, false))
    }

    /// A block that another process handed over (V1), with its memory, its STag and the addresses that requests and peers use.
    pub(crate) fn adopt(
        domain: &Arc<Domain>,
        fd: OwnedFd,
        export: RegionExport,
    ) -> Result<Block, Error> {
        let too_long = |_| Error::TooLong {
            len: export.len,
            limit: usize::MAX as u64,
        };
        let len = usize::try_from(export.len).map_err(too_long)?;
        let mapping = Mapping::adopt(fd, len).map_err(misuse)?;
        let at = export.start.get();
        let mapped = Mapped {
            mapping,
            request_addr: at,
        };
        let (stag, access) = (export.stag, export.access);
        Block::register(domain, mapped.into(), Some(stag), (access, false))
    }

    /// What another process needs to adopt it (V1), and the descriptor of the memory. Fails for private memory, and if other windows are
    /// bound to it than the `windows` that are handed over with it.
    pub(crate) fn export_region(
        &self,
        windows: u32,
    ) -> Result<(RegionExport, BorrowedFd<'_>), Error> {
        let private = || misuse(Misuse::NotShared(self.stag));
        let mapped = self.mapped.as_ref().ok_or_else(private)?;
        let tpt = self.domain.function()?.tpt();
        let export = tpt.export_region_with_windows(self.stag, windows);
        Ok((export.map_err(misuse)?, mapped.mapping.fd()))
    }

    fn allocate(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        one_touch: bool,
    ) -> Result<Block, Error> {
        domain.function()?;
        Block::register(domain, Bytes::allocate(len)?, None, (access, one_touch))
    }

    /// Registers memory at once, with the given STag if it had one before.
    fn register(
        domain: &Arc<Domain>,
        bytes: Bytes,
        stag: Option<Stag>,
        (access, one_touch): (Access, bool),
    ) -> Result<Block, Error> {
        let (block, ()) = Block::with_registration(domain, bytes, access, |region| {
            let region = Region {
                one_touch,
                ..region
            };
            let function = domain.function()?;
            let register = |tpt: &Tpt| {
                // SAFETY: `bytes` is mapped and writable, and `Block::drop` frees it only after it was deregistered; `Block` makes no
                // references to it except under the contract of `slice`, so that peers may write it.
                unsafe {
                    match stag {
                        None => tpt.register_unprobed(region),
                        Some(stag) => tpt.register_at(stag, region),
                    }
                }
            };
            Ok((function.register_with(domain.pd, register)?, ()))
        })?;
        Ok(block)
    }

    /// A block that is registered in the background, by this control queue pair if one is given; its STag is known at once (V5).
    pub(crate) fn new_async(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        control: Option<(&ControlQueue, u64)>,
    ) -> Result<(Block, Registering), Error> {
        domain.function()?;
        Block::with_registration(domain, Bytes::allocate(len)?, access, |region| {
            // SAFETY: `region` is the block's allocation, which is mapped and writable; a block that is dropped before the registration completes removes the reserved
            // entry first.
            Registering::begin(domain, control, |tpt| unsafe { tpt.reserve(region.into()) })
        })
    }

    /// A block of the same bytes, registered on the same translation entries with its own domain and rights (M5). The caller holds the
    /// bytes, and ends both blocks with [`end_shared`](Block::end_shared).
    pub(crate) fn share(&self, domain: &Arc<Domain>, access: Access) -> Result<Block, Error> {
        if !Arc::ptr_eq(&self.domain.device, &domain.device) {
            return Err(Error::Foreign);
        }
        let start = To::new(self.request_addr());
        let function = domain.function()?;
        let stag = function.register_shared(self.stag, start, domain.pd, access)?;
        Ok(self.shared_as(domain, stag, access))
    }

    /// The same as a request of a control queue pair; the STag is known at once (V5).
    pub(crate) fn share_queued(
        &self,
        domain: &Arc<Domain>,
        access: Access,
        control: (&ControlQueue, u64),
    ) -> Result<(Block, Registering), Error> {
        if !Arc::ptr_eq(&self.domain.device, &domain.device) {
            return Err(Error::Foreign);
        }
        domain.function()?;
        let terms = (To::new(self.request_addr()), access);
        let (stag, registering) = Registering::share(domain, control, self.stag, terms)?;
        Ok((self.shared_as(domain, stag, access), registering))
    }

    fn shared_as(&self, domain: &Arc<Domain>, stag: Stag, access: Access) -> Block {
        Block {
            domain: domain.clone(),
            stag,
            access,
            lead: self.lead,
            start: self.start,
            len: self.len,
            mapped: self.mapped.clone(),
            owns_bytes: false,
        }
    }

    /// The bytes as an owner of the allocation; of several, only one may be dropped.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes {
            start: self.start,
            len: self.len,
            lead: self.lead,
            mapped: self.mapped.clone(),
        }
    }

    fn with_registration<R>(
        domain: &Arc<Domain>,
        bytes: Bytes,
        access: Access,
        register: impl FnOnce(Region) -> Result<(Stag, R), Error>,
    ) -> Result<(Block, R), Error> {
        let region = Region {
            att: Att::direct(bytes.start.as_ptr(), bytes.len as u64),
            start: To::new(request_addr(bytes.start, &bytes.mapped)),
            pd: domain.pd,
            access,
            one_touch: false,
        };
        // If this fails no entry refers to the memory, and `bytes` frees it.
        let (stag, more) = register(region)?;
        let mut bytes = ManuallyDrop::new(bytes);
        let block = Block {
            domain: domain.clone(),
            stag,
            access,
            lead: bytes.lead,
            start: bytes.start,
            len: bytes.len,
            mapped: bytes.mapped.take(),
            owns_bytes: true,
        };
        Ok((block, more))
    }

    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// The address of its first byte in requests, which differs from its location after a handover.
    pub(crate) fn request_addr(&self) -> u64 {
        request_addr(self.start, &self.mapped)
    }

    /// The location of its first byte in this process.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it belongs to this domain.
    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    pub(crate) fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let bounds = Error::OutOfBounds {
            offset: offset as u64,
            len: len as u64,
            limit: self.len as u64,
        };
        fits.then_some(()).ok_or(bounds)
    }

    /// Copies `bytes` to `offset`.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: `check` keeps the range inside the allocation, which lives as long as `self`. `bytes` does not overlap it: a
        // slice of it exists only under the contract of `slice`, which excludes writes.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }

    /// Copies from `offset` to `into`.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len())?;
        // SAFETY: `check` keeps the range inside the allocation, which lives as long as `self`; `into` is an exclusive reference, so it does not overlap it.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    /// Reads from a descriptor into `head` and then to `offset`.
    pub(crate) fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        (offset, len): (usize, usize),
    ) -> Result<io::Result<usize>, Error> {
        self.check(offset, len)?;
        // SAFETY: `check` keeps the range inside the allocation, which lives as long as `self`; the kernel writes to it without a reference.
        Ok(unsafe { vectored::read(fd, head, self.start.as_ptr().add(offset), len) })
    }

    /// Writes `head` and then bytes from `offset` to a descriptor.
    pub(crate) fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        (offset, len): (usize, usize),
    ) -> Result<io::Result<usize>, Error> {
        self.check(offset, len)?;
        // SAFETY: `check` keeps the range inside the allocation, which lives as long as `self`; the kernel reads it without a reference.
        Ok(unsafe { vectored::write(fd, head, self.start.as_ptr().add(offset), len) })
    }

    /// Calls `what` with the word at `offset` as an atomic.
    pub(crate) fn with_atomic<R>(
        &self,
        offset: usize,
        what: impl FnOnce(&AtomicU64, Ordering) -> R,
    ) -> Result<R, Error> {
        self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            let at = offset as u64;
            return Err(Error::Unaligned { at, align: 8 });
        }
        // SAFETY: inside the allocation and aligned, since the block begins on a page; all other accesses to the word are processor
        // atomics, or bulk copies that may tear as documented (M15).
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) };
        Ok(what(word, Ordering::SeqCst))
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// The bytes are not written while the slice exists: the region grants no remote access and no work on it is outstanding.
    pub(super) unsafe fn slice(&self, len: usize) -> &[u8] {
        // SAFETY: the bytes are initialized by the allocation and live as long as `self`; the caller guarantees that they are not written
        // while the slice exists.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), len.min(self.len)) }
    }

    /// The bytes as a mutable slice.
    ///
    /// # Safety
    /// The bytes are neither read nor written by others while the slice exists, as for [`slice`](Block::slice).
    pub(super) unsafe fn slice_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: the bytes are initialized and live as long as `self`; the caller guarantees that no peer and no request accesses them,
        // and `&mut self` excludes other slices of this block.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), len.min(self.len)) }
    }
}

impl Block {
    /// Deregisters it; false if the table may still refer to the memory.
    fn deregister(&self) -> bool {
        // Windows bound to it are deallocated with it: peers must not reach freed memory.
        match self.domain.function() {
            Ok(function) => match function.deregister_with_windows(self.stag) {
                Ok(()) => true,
                // Registration in the background failed: no entry ever referred to the memory.
                Err(verbena_nic::Error::Memory(Misuse::Stag(_))) => true,
                Err(_) => false,
            },
            // A forked child: the adapter does not run here.
            Err(_) => true,
        }
    }

    /// Deregisters a block whose bytes are shared, and gives its use of them up (M5).
    pub(super) fn end_shared(&mut self, bytes: Arc<Bytes>) {
        self.owns_bytes = false;
        if !self.deregister() {
            core::mem::forget(bytes);
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.owns_bytes {
            return;
        }
        let gone = self.deregister();
        let bytes = self.bytes();
        if gone {
            // No access is running and none will begin.
            drop(bytes);
        } else {
            core::mem::forget(bytes);
        }
    }
}

fn misuse(misuse: impl Into<Misuse>) -> Error {
    verbena_nic::Error::Memory(misuse.into()).into()
}

#[cfg(test)]
mod tests;
