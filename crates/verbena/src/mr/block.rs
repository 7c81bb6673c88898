//! One allocation, aligned to pages, registered as long as it lives.
//! It promises that no access by the adapter or a peer outlives it, and that its bytes are initialised from the start.
//! It refuses to decide who may look at the bytes in which way; its users do.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_mem::{Access, Att, Misuse, Region};
use verbena_wire::{Stag, To};

use crate::device::Domain;
use crate::error::Error;
use crate::registering::Registering;

/// Regions begin on a page, so that nothing else shares one with them.
const PAGE: usize = 4096;
/// What every allocation is aligned to.
const USUAL: usize = align_of::<u64>();

/// Memory of ours, registered.
#[derive(Debug)]
pub(crate) struct Block {
    domain: Arc<Domain>,
    stag: Stag,
    access: Access,
    start: NonNull<u8>,
    len: usize,
    /// What was allocated, which may begin before the first page.
    base: NonNull<u8>,
}

/// How a block of this length is allocated: a page longer, and aligned as everything is.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1).checked_add(PAGE)?, USUAL).ok()
}

/// Zeroed bytes, of which the first one begins a page, and their allocation.
///
/// A long allocation with more than the usual alignment would be written over with zeroes on the spot; one with the usual
/// alignment comes as untouched pages from the system, which costs nothing until somebody needs them.
fn allocate(len: usize) -> Option<(NonNull<u8>, NonNull<u8>)> {
    // SAFETY: the layout is not empty.
    let base = NonNull::new(unsafe { alloc_zeroed(layout(len)?) })?;
    let to_page = base.as_ptr().align_offset(PAGE);
    // SAFETY: less than a page ahead, and the allocation is a page longer than needed.
    let start = unsafe { base.add(to_page) };
    Some((start, base))
}

/// Gives an allocation back.
///
/// # Safety
/// `base` was returned by [`allocate`] for this length, and nobody uses the bytes any more.
unsafe fn free(base: NonNull<u8>, len: usize) {
    if let Some(layout) = layout(len) {
        // SAFETY: allocated with this layout, says the caller.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}

// SAFETY: the block owns its allocation; the bytes are reached by raw copies, by processor atomics, or by whoever can
// prove to be alone (see `Block::slice`).
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Block, Error> {
        Block::now(domain, len, access, false)
    }

    /// A block whose registration dies with the first message that ends in it (M9).
    pub(crate) fn one_touch(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<Block, Error> {
        Block::now(domain, len, access, true)
    }

    fn now(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        one_touch: bool,
    ) -> Result<Block, Error> {
        let (block, ()) = Block::make(domain, len, access, |region| {
            let region = Region {
                one_touch,
                ..region
            };
            let function = domain.function()?;
            // SAFETY: the allocation is ours and is freed only after it was deregistered; that others write it is what
            // everybody who uses a block reckons with.
            let registered =
                function.register_with(domain.pd, |tpt| unsafe { tpt.register(region) });
            Ok((registered?, ()))
        })?;
        Ok(block)
    }

    /// A block that is registered later; its STag is known at once (V5).
    pub(crate) fn later(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<(Block, Registering), Error> {
        Block::make(domain, len, access, |region| {
            // SAFETY: as in `new`; a block that is dropped before takes its promised entry away first.
            Registering::begin(domain, |tpt| unsafe { tpt.reserve(region.into()) })
        })
    }

    fn make<R>(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        register: impl FnOnce(Region) -> Result<(Stag, R), Error>,
    ) -> Result<(Block, R), Error> {
        let too_long = Error::Allocation { len };
        domain.function()?;
        let (start, base) = allocate(len).ok_or(too_long)?;
        let at = start.as_ptr();
        let region = Region {
            att: Att::direct(at, len as u64),
            start: To::new(at as u64),
            pd: domain.pd,
            access,
            one_touch: false,
        };
        match register(region) {
            Ok((stag, more)) => {
                let domain = domain.clone();
                let block = Block {
                    domain,
                    stag,
                    access,
                    start,
                    len,
                    base,
                };
                Ok((block, more))
            }
            Err(error) => {
                // SAFETY: allocated above and known to nobody else.
                unsafe { free(base, len) };
                Err(error)
            }
        }
    }

    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn at(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Belongs to this domain.
    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    pub(crate) fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let bounds = Error::Bounds {
            offset: offset as u64,
            len: len as u64,
            limit: self.len as u64,
        };
        fits.then_some(()).ok_or(bounds)
    }

    /// Copies in.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        // SAFETY: inside the allocation, which lives as long as we do; nobody has a reference into it while it is
        // shared, so `bytes` lies elsewhere.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }

    /// Copies out.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len())?;
        // SAFETY: as in `write`.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    /// Does something atomic with the word at `offset`.
    pub(crate) fn word<R>(
        &self,
        offset: usize,
        what: impl FnOnce(&AtomicU64, Ordering) -> R,
    ) -> Result<R, Error> {
        self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            let at = offset as u64;
            return Err(Error::Unaligned { at, align: 8 });
        }
        // SAFETY: inside the allocation and aligned, since the block begins on a page; whoever else touches the word
        // does so by processor atomics, or by bulk copies that may tear as documented (M15).
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) };
        Ok(what(word, Ordering::SeqCst))
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// Until the slice ends nobody writes them: the region grants peers nothing and no work on it is outstanding.
    pub(super) unsafe fn slice(&self, len: usize) -> &[u8] {
        // SAFETY: initialised when it was allocated, alive as long as we are; the rest is the caller's promise.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), len.min(self.len)) }
    }

    /// The bytes themselves, to change.
    ///
    /// # Safety
    /// Until the slice ends nobody else reads or writes them, as for [`slice`](Block::slice).
    pub(super) unsafe fn slice_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: as in `slice`; `&mut self` keeps our own side out.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), len.min(self.len)) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Windows that are bound to it are taken away with it: peers must not reach what is freed.
        let gone = match self.domain.function() {
            Ok(function) => match function.deregister_with_windows(self.stag) {
                Ok(()) => true,
                // Its registration was done later, and failed: no entry ever named the memory.
                Err(verbena_nic::Error::Memory(Misuse::Stag(_))) => true,
                Err(_) => false,
            },
            // A forked child: the adapter does not run here.
            Err(_) => true,
        };
        if gone {
            // SAFETY: allocated for this length; no access is running and none will begin.
            unsafe { free(self.base, self.len) };
        }
    }
}

#[cfg(test)]
mod tests;
