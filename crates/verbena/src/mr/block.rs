//! One allocation, or one mapping that a successor can have as well, aligned to pages, registered as long as it lives.
//! It promises that no access by the adapter or a peer outlives it, and that its bytes are initialised from the start.
//! It refuses to decide who may look at the bytes in which way; its users do.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_mem::{Access, Att, Estate, Mapping, Misuse, Region, Tpt};
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
    /// What requests and peers call its first byte.
    at: u64,
    /// Where that lies: elsewhere, if the memory was another process's before (V1).
    start: NonNull<u8>,
    len: usize,
    /// Freed when nobody can reach it any more.
    backing: ManuallyDrop<Backing>,
}

/// What the bytes lie in.
#[derive(Debug)]
enum Backing {
    /// What was allocated, which may begin before the first page.
    Allocated {
        base: NonNull<u8>,
        start: NonNull<u8>,
        len: usize,
    },
    /// A file that a successor can map as well (V1).
    Mapped(Mapping),
}

impl Backing {
    fn allocate(len: usize) -> Result<Backing, Error> {
        let (start, base) = allocate(len).ok_or(Error::Allocation { len })?;
        Ok(Backing::Allocated { base, start, len })
    }

    fn bytes(&self) -> (NonNull<u8>, usize) {
        match self {
            Backing::Allocated { start, len, .. } => (*start, *len),
            Backing::Mapped(mapping) => (mapping.start(), mapping.len()),
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Backing::Allocated { base, len, .. } = self {
            // SAFETY: allocated for this length; whoever drops this has seen to it that nobody uses the bytes.
            unsafe { free(*base, *len) };
        }
    }
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

    /// A block that a successor can take over (V1).
    pub(crate) fn shared(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Block, Error> {
        domain.function()?;
        let backing = Backing::Mapped(Mapping::new(len).map_err(nic)?);
        Block::registered(domain, backing, None, (access, false))
    }

    /// A block that another process had (V1): its memory, its STag, and the addresses that requests and peers know.
    pub(crate) fn adopt(domain: &Arc<Domain>, fd: OwnedFd, estate: Estate) -> Result<Block, Error> {
        let too_long = |_| Error::TooLong {
            len: estate.len,
            limit: usize::MAX as u64,
        };
        let len = usize::try_from(estate.len).map_err(too_long)?;
        let backing = Backing::Mapped(Mapping::adopt(fd, len).map_err(nic)?);
        Block::registered(domain, backing, Some(estate), (estate.access, false))
    }

    /// What a successor needs to take it over (V1), and the memory itself.
    pub(crate) fn estate(&self) -> Result<(Estate, BorrowedFd<'_>), Error> {
        let Backing::Mapped(mapping) = &*self.backing else {
            return Err(nic(Misuse::Private(self.stag)));
        };
        let estate = self.domain.function()?.tpt().estate(self.stag);
        Ok((estate.map_err(nic)?, mapping.fd()))
    }

    fn now(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        one_touch: bool,
    ) -> Result<Block, Error> {
        domain.function()?;
        Block::registered(domain, Backing::allocate(len)?, None, (access, one_touch))
    }

    /// Registers memory at once, under the names that it had, if it had any.
    fn registered(
        domain: &Arc<Domain>,
        backing: Backing,
        names: Option<Estate>,
        (access, one_touch): (Access, bool),
    ) -> Result<Block, Error> {
        let start = names.map(|estate| estate.start);
        let (block, ()) = Block::make(domain, backing, (start, access), |region| {
            let region = Region {
                one_touch,
                ..region
            };
            let function = domain.function()?;
            let register = |tpt: &Tpt| {
                // SAFETY: the memory is ours and is freed only after it was deregistered; that others write it is what
                // everybody who uses a block reckons with.
                unsafe {
                    match names {
                        None => tpt.register(region),
                        Some(estate) => tpt.register_at(estate.stag, region),
                    }
                }
            };
            Ok((function.register_with(domain.pd, register)?, ()))
        })?;
        Ok(block)
    }

    /// A block that is registered later; its STag is known at once (V5).
    pub(crate) fn later(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<(Block, Registering), Error> {
        domain.function()?;
        Block::make(domain, Backing::allocate(len)?, (None, access), |region| {
            // SAFETY: as in `registered`; a block that is dropped before takes its promised entry away first.
            Registering::begin(domain, |tpt| unsafe { tpt.reserve(region.into()) })
        })
    }

    fn make<R>(
        domain: &Arc<Domain>,
        backing: Backing,
        (name, access): (Option<To>, Access),
        register: impl FnOnce(Region) -> Result<(Stag, R), Error>,
    ) -> Result<(Block, R), Error> {
        let (start, len) = backing.bytes();
        let name = name.unwrap_or(To::new(start.as_ptr() as u64));
        let region = Region {
            att: Att::direct(start.as_ptr(), len as u64),
            start: name,
            pd: domain.pd,
            access,
            one_touch: false,
        };
        // Refused, the memory is known to nobody and goes with its backing.
        let (stag, more) = register(region)?;
        let block = Block {
            domain: domain.clone(),
            stag,
            access,
            at: name.get(),
            start,
            len,
            backing: ManuallyDrop::new(backing),
        };
        Ok((block, more))
    }

    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// What requests and peers call its first byte, which need not be where it lies.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Where its first byte lies.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
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
            // SAFETY: dropped once, because this is the end of `self`; no access is running and none will begin.
            unsafe { ManuallyDrop::drop(&mut self.backing) };
        }
    }
}

fn nic(misuse: impl Into<Misuse>) -> Error {
    verbena_nic::Error::Memory(misuse.into()).into()
}

#[cfg(test)]
mod tests;
