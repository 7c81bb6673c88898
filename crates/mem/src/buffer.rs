//! Memory that the adapter owns: allocated, registered and freed together, so that using it needs no `unsafe`.
//! It promises that the memory lives at least as long as any access to it, whatever its owner does.
//! It refuses references: the owner copies in and out like everybody else.

use std::sync::Arc;

use verbena_wire::{Stag, To};

use crate::access::Access;
use crate::att::Att;
use crate::entry::Pd;
use crate::refusal::Misuse;
use crate::tpt::{Region, Tpt};

/// Registered memory of our own.
#[derive(Debug)]
pub struct Buffer {
    tpt: Arc<Tpt>,
    stag: Stag,
    bytes: *mut [u8],
}

// SAFETY: the bytes are reached by raw copies only, from any thread, as registered memory always is.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `len` zero bytes and registers them; users name them by their real addresses.
    pub fn new(tpt: &Arc<Tpt>, len: usize, pd: Pd, access: Access) -> Result<Buffer, Misuse> {
        let bytes = Box::into_raw(vec![0_u8; len].into_boxed_slice());
        let start = bytes.cast::<u8>();
        let region = Region {
            att: Att::direct(start, len as u64),
            start: To::new(start as u64),
            pd,
            access,
            one_touch: false,
        };
        // SAFETY: the allocation is ours and is freed only after `deregister` has succeeded.
        match unsafe { tpt.register(region) } {
            Ok(stag) => Ok(Buffer {
                tpt: tpt.clone(),
                stag,
                bytes,
            }),
            Err(misuse) => {
                // SAFETY: made by `into_raw` above and known to nobody else.
                drop(unsafe { Box::from_raw(bytes) });
                Err(misuse)
            }
        }
    }

    /// Its STag.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The address of its first byte, as requests name it.
    pub fn at(&self) -> u64 {
        self.bytes.cast::<u8>() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
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
                let to = self.bytes.cast::<u8>().add(offset);
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
            let from = self.bytes.cast::<u8>().add(offset);
            core::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), len);
        }
        copy
    }

    fn fits(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // While windows are bound to it, peers may reach it: then the memory is given up rather than freed.
        if self.tpt.deregister(self.stag).is_ok() {
            // SAFETY: made by `into_raw` in `new`; no entry names it any more and no grant is left.
            drop(unsafe { Box::from_raw(self.bytes) });
        }
    }
}

#[cfg(test)]
mod tests;
