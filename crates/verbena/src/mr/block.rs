//! One allocation, or one mapping that a successor can have as well, aligned to pages, registered as long as it lives.
//! It promises that no access by the adapter or a peer outlives it, and that its bytes are initialised from the start.
//! It refuses to decide who may look at the bytes in which way; its users do.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_mem::{Access, Att, Estate, Mapping, Misuse, Region, Tpt, vectored};
use verbena_wire::{Stag, To};

use super::bytes::{Bytes, Mapped, name};
use crate::device::Domain;
use crate::error::Error;
use crate::registering::Registering;

/// Memory of ours, registered. Operations that are under way hold many of these: it is kept small.
#[derive(Debug)]
pub(crate) struct Block {
    domain: Arc<Domain>,
    stag: Stag,
    access: Access,
    /// As of [`Bytes`], and so are the next three.
    lead: u16,
    start: NonNull<u8>,
    len: usize,
    mapped: Option<Box<Mapped>>,
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
        let mapping = Mapping::new(len).map_err(nic)?;
        let at = mapping.start().as_ptr() as u64;
        let mapped = Mapped { mapping, at };
        Block::registered(domain, mapped.into(), None, (access, false))
    }

    /// A block that another process had (V1): its memory, its STag, and the addresses that requests and peers know.
    pub(crate) fn adopt(domain: &Arc<Domain>, fd: OwnedFd, estate: Estate) -> Result<Block, Error> {
        let too_long = |_| Error::TooLong {
            len: estate.len,
            limit: usize::MAX as u64,
        };
        let len = usize::try_from(estate.len).map_err(too_long)?;
        let mapping = Mapping::adopt(fd, len).map_err(nic)?;
        let at = estate.start.get();
        let mapped = Mapped { mapping, at };
        let (stag, access) = (estate.stag, estate.access);
        Block::registered(domain, mapped.into(), Some(stag), (access, false))
    }

    /// What a successor needs to take it over (V1), and the memory itself.
    pub(crate) fn estate(&self) -> Result<(Estate, BorrowedFd<'_>), Error> {
        let private = || nic(Misuse::Private(self.stag));
        let mapped = self.mapped.as_ref().ok_or_else(private)?;
        let estate = self.domain.function()?.tpt().estate(self.stag);
        Ok((estate.map_err(nic)?, mapped.mapping.fd()))
    }

    fn now(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
        one_touch: bool,
    ) -> Result<Block, Error> {
        domain.function()?;
        Block::registered(domain, Bytes::allocate(len)?, None, (access, one_touch))
    }

    /// Registers memory at once, under this STag if it had one.
    fn registered(
        domain: &Arc<Domain>,
        bytes: Bytes,
        stag: Option<Stag>,
        (access, one_touch): (Access, bool),
    ) -> Result<Block, Error> {
        let (block, ()) = Block::make(domain, bytes, access, |region| {
            let region = Region {
                one_touch,
                ..region
            };
            let function = domain.function()?;
            let register = |tpt: &Tpt| {
                // SAFETY: the memory is ours, mapped and writable, and is freed only after it was deregistered; every user of a
                // block allows for others that write it.
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

    /// A block that is registered later; its STag is known at once (V5).
    pub(crate) fn later(
        domain: &Arc<Domain>,
        len: usize,
        access: Access,
    ) -> Result<(Block, Registering), Error> {
        domain.function()?;
        Block::make(domain, Bytes::allocate(len)?, access, |region| {
            // SAFETY: as in `registered`; a block that is dropped before takes its promised entry away first.
            Registering::begin(domain, |tpt| unsafe { tpt.reserve(region.into()) })
        })
    }

    fn make<R>(
        domain: &Arc<Domain>,
        bytes: Bytes,
        access: Access,
        register: impl FnOnce(Region) -> Result<(Stag, R), Error>,
    ) -> Result<(Block, R), Error> {
        let region = Region {
            att: Att::direct(bytes.start.as_ptr(), bytes.len as u64),
            start: To::new(name(bytes.start, &bytes.mapped)),
            pd: domain.pd,
            access,
            one_touch: false,
        };
        // If it is refused the memory is known to nobody, and goes.
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
        name(self.start, &self.mapped)
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

    /// Reads from a descriptor into `head` and then in here.
    pub(crate) fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        (offset, len): (usize, usize),
    ) -> Result<io::Result<usize>, Error> {
        self.check(offset, len)?;
        // SAFETY: as in `write`; the system writes to it, and makes no reference either.
        Ok(unsafe { vectored::read(fd, head, self.start.as_ptr().add(offset), len) })
    }

    /// Writes `head` and then bytes from here to a descriptor.
    pub(crate) fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        (offset, len): (usize, usize),
    ) -> Result<io::Result<usize>, Error> {
        self.check(offset, len)?;
        // SAFETY: as in `write`.
        Ok(unsafe { vectored::write(fd, head, self.start.as_ptr().add(offset), len) })
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
        let bytes = Bytes {
            start: self.start,
            len: self.len,
            lead: self.lead,
            mapped: self.mapped.take(),
        };
        if gone {
            // No access is running and none will begin.
            drop(bytes);
        } else {
            core::mem::forget(bytes);
        }
    }
}

fn nic(misuse: impl Into<Misuse>) -> Error {
    verbena_nic::Error::Memory(misuse.into()).into()
}

#[cfg(test)]
mod tests;
