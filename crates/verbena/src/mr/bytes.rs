//! Zeroed memory: from the allocator if it is short, in its own pages if it is long, or a mapping that can be shared with another
//! process (V1). The kernel allocates the pages of long memory when they are first used.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

use verbena_mem::{Mapping, Pages};

use crate::error::Error;

/// Regions begin on a page boundary.
const PAGE: usize = 4096;
const _: () = assert!(PAGE <= u16::MAX as usize, "less than a page fits `lead`");
/// The alignment of the allocation itself.
const ALLOC_ALIGN: usize = align_of::<u64>();
/// From this length on, memory is mapped and not taken from the allocator, which overwrites freed memory with zeroes: mapped pages
/// are allocated when they are first used.
const MMAP_THRESHOLD: usize = 256 << 10;

/// A mapping that another process can map as well (V1).
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    /// The address of the first byte in requests: not its location, if another process had it before.
    pub(super) request_addr: u64,
}

/// Memory that is not registered.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// Bytes from the beginning of the allocation to the first page boundary.
    pub(super) lead: u16,
    /// The mapping, if it is not an allocation.
    pub(super) mapped: Option<Arc<Mapped>>,
}

// SAFETY: `Bytes` owns the allocation and never dereferences `start`; `drop` frees it in whichever thread holds it last.
unsafe impl Send for Bytes {}
// SAFETY: `Bytes` has no methods on `&self`, and `start` is only copied by its readers.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// Zeroed bytes that begin on a page boundary.
    ///
    /// Short ones are allocated with the usual alignment: the allocator would write zeroes to one with a larger alignment even if it is fresh.
    pub(super) fn allocate(len: usize) -> Result<Bytes, Error> {
        let none = Error::Allocation { len };
        if len >= MMAP_THRESHOLD {
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
        // SAFETY: the layout has a size of at least one page.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(none)?;
        let lead = base.as_ptr().align_offset(PAGE);
        Ok(Bytes {
            // SAFETY: `lead` is less than a page, and the allocation is a page longer than needed.
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
            mapped: Some(Arc::new(mapped)),
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // `Mapping` unmaps itself.
        if self.mapped.is_none() && self.len >= MMAP_THRESHOLD {
            // SAFETY: pages of this length, from `Pages::into_raw` in `allocate`; not used any more, as below.
            drop(unsafe { Pages::from_raw(self.start, self.len) });
        } else if let (None, Some(layout)) = (&self.mapped, layout(self.len)) {
            // SAFETY: allocated in `allocate` with this layout, `lead` bytes before `start`; `Block` has deregistered the bytes before it
            // drops this, and leaks it otherwise.
            unsafe { dealloc(self.start.as_ptr().sub(usize::from(self.lead)), layout) };
        }
    }
}

/// The layout of a short allocation: a page longer than needed, with the usual alignment.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1).checked_add(PAGE)?, ALLOC_ALIGN).ok()
}

/// The address of the first byte in requests: its location, unless another process had it before.
pub(super) fn request_addr(start: NonNull<u8>, mapped: &Option<Arc<Mapped>>) -> u64 {
    match mapped {
        None => start.as_ptr() as u64,
        Some(mapped) => mapped.request_addr,
    }
}
