//! Memory that the adapter owns: allocated, registered and freed together, so that using it needs no `unsafe`.
//! It promises that the memory lives at least as long as any access to it, whatever its owner does.
//! It refuses references: the owner copies in and out like everybody else.

use std::sync::Arc;

use verbena_wire::{Stag, To};

use crate::access::Access;
use crate::att::Att;
use crate::entry::Pd;
use crate::refusal::Misuse;
use crate::tpt::{Draft, Layout, Region, Reserved, Ticket, Tpt};

/// Registered memory of our own.
#[derive(Debug)]
pub struct Buffer {
    tpt: Arc<Tpt>,
    stag: Stag,
    /// The STag goes when this does.
    owns_stag: bool,
    memory: Arc<Memory>,
}

/// An allocation that its owner and every entry that translates to it hold together: windows and further registrations
/// of it may outlive the owner.
#[derive(Debug)]
pub(crate) struct Memory(*mut [u8]);

// SAFETY: the bytes are reached by raw copies only, from any thread, as registered memory always is.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed(len: usize) -> Memory {
        Memory(Box::into_raw(vec![0_u8; len].into_boxed_slice()))
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.0.cast::<u8>()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `into_raw` in `zeroed`; whoever could reach it held it, and nobody does.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Buffer {
    /// Allocates `len` zero bytes and registers them; users name them by their real addresses.
    pub fn new(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        Buffer::register(tpt, len, pd, access, false)
    }

    /// The same, and the registration dies with the first message of a peer that ends in it (M9).
    pub fn one_touch(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        Buffer::register(tpt, len, pd, access, true)
    }

    fn register(
        tpt: &Arc<Tpt>,
        len: usize,
        pd: Pd,
        access: Access,
        one_touch: bool,
    ) -> Result<Buffer, Misuse> {
        let memory = Arc::new(Memory::zeroed(len));
        let region = Region {
            att: Att::owned(memory.clone()),
            start: To::new(memory.start() as u64),
            pd,
            access,
            one_touch,
        };
        // SAFETY: the allocation is ours, and every entry that translates to it holds it.
        let stag = unsafe { tpt.register(region) }?;
        Ok(Buffer {
            tpt: tpt.clone(),
            stag,
            owns_stag: true,
            memory,
        })
    }

    /// Allocates `len` zero bytes and promises their registration (V5): the buffer's STag can be told to anybody at once, and
    /// is good for accesses when the reserved entry is complete.
    pub fn pending(
        tpt: &Arc<Tpt>,
        len: usize,
        pd: Pd,
        access: Access,
    ) -> Result<(Buffer, Reserved), Misuse> {
        let (memory, draft) = draft(len, pd, access, false);
        // SAFETY: the allocation is ours, and whatever translates to it holds it.
        let reserved = unsafe { tpt.reserve(draft) }?;
        let buffer = Buffer {
            tpt: tpt.clone(),
            stag: reserved.stag(),
            owns_stag: true,
            memory,
        };
        Ok((buffer, reserved))
    }

    /// Allocates `len` zero bytes and prepares their registration under an STag of the caller's (M4), who frees the STag:
    /// it may stand for other memory later.
    pub fn prepared(
        tpt: &Arc<Tpt>,
        stag: Stag,
        len: usize,
        (pd, access, one_touch): (Pd, Access, bool),
    ) -> Result<(Buffer, Ticket), Misuse> {
        let (memory, draft) = draft(len, pd, access, one_touch);
        // SAFETY: the allocation is ours, and whatever translates to it holds it.
        let ticket = unsafe { tpt.prepare(stag, draft) }?;
        let buffer = Buffer {
            tpt: tpt.clone(),
            stag,
            owns_stag: false,
            memory,
        };
        Ok((buffer, ticket))
    }

    /// Its STag.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The address of its first byte, as requests name it.
    pub fn at(&self) -> u64 {
        self.memory.start() as u64
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
            // SAFETY: inside the allocation, which lives as long as we do; `bytes` is not part of it, because nobody
            // can have a reference into it.
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
        // SAFETY: inside the allocation, which lives as long as we do.
        unsafe {
            let from = self.memory.start().add(offset);
            core::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), len);
        }
        copy
    }

    fn fits(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }
}

/// Zero bytes of our own, and a registration of them to come.
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
        // Refused while windows are bound to it, through which peers may reach it: then the entry keeps the memory.
        if self.owns_stag {
            let _ = self.tpt.deregister(self.stag);
        }
    }
}

#[cfg(test)]
mod tests;
