//! Zeroed memory of our own: from the allocator if it is short, in pages of its own if it is long, or a mapping that a successor
//! can have as well (V1). Pages of long memory are taken from the system when they are first used.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

use verbena_mem::{Mapping, Pages};

use crate::error::Error;

/// Regions begin on a page, so that nothing else shares one with them.
const PAGE: usize = 4096;
const _: () = assert!(PAGE <= u16::MAX as usize, "less than a page fits `lead`");
/// What every allocation is aligned to.
const USUAL: usize = align_of::<u64>();
/// From here on, memory is mapped from the system and not taken from the allocator, which writes zeroes over what was freed
/// before: its pages are taken when they are first used.
const SPARSE: usize = 256 << 10;

/// A file that a successor can map as well (V1).
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    /// What requests and peers call the first byte: not where it lies, if it was another process's before.
    pub(super) at: u64,
}

/// Memory of ours, without a name.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// How far before the first page the allocation begins.
    pub(super) lead: u16,
    /// What it lies in if it is no allocation.
    pub(super) mapped: Option<Box<Mapped>>,
}

impl Bytes {
    /// Zeroed bytes, of which the first one begins a page.
    ///
    /// Short ones have the usual alignment: the allocator writes zeroes over an allocation with a larger one even if it is fresh.
    pub(super) fn allocate(len: usize) -> Result<Bytes, Error> {
        let none = Error::Allocation { len };
        if len >= SPARSE {
            return Ok(Bytes {
                start: Pages::new(len).map_err(|_| none)?.into_raw(),
                len,
                lead: 0,
                mapped: None,
            });
        }
        let Some(layout) = layout(len) else {
            return Err(none);
        };
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(none)?;
        let lead = base.as_ptr().align_offset(PAGE);
        Ok(Bytes {
            // SAFETY: less than a page ahead, and the allocation is a page longer than needed.
            start: unsafe { base.add(lead) },
            len,
            lead: lead as u16,
            mapped: None,
        })
    }
}

impl From<Mapped> for Bytes {
    fn from(mapped: Mapped) -> Bytes {
        Bytes {
            start: mapped.mapping.start(),
            len: mapped.mapping.len(),
            lead: 0,
            mapped: Some(Box::new(mapped)),
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // A mapping unmaps itself.
        if self.mapped.is_none() && self.len >= SPARSE {
            // SAFETY: pages of this length, made in `allocate` and left to us; not used any more, as below.
            drop(unsafe { Pages::from_raw(self.start, self.len) });
        } else if let (None, Some(layout)) = (&self.mapped, layout(self.len)) {
            // SAFETY: allocated with this layout so far before the start; the caller has deregistered the bytes, and uses them
            // no more.
            unsafe { dealloc(self.start.as_ptr().sub(usize::from(self.lead)), layout) };
        }
    }
}

/// How a block of this length is allocated: a page longer, and aligned as everything is.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1).checked_add(PAGE)?, USUAL).ok()
}

/// What requests and peers call the first byte: where it lies, unless it was another process's before.
pub(super) fn name(start: NonNull<u8>, mapped: &Option<Box<Mapped>>) -> u64 {
    match mapped {
        None => start.as_ptr() as u64,
        Some(mapped) => mapped.at,
    }
}
