//! Bytes that the adapter allocates or maps, apart from their registration. They are freed with the last holder: a buffer, or a
//! translation to them.

use crate::mapping::{Mapping, Pages};

/// An allocation or a mapping, held by its buffer and by every entry that translates to it: windows and further registrations
/// of it may outlive the buffer.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: *mut [u8],
    backing: Backing,
}

/// What a [`Memory`] was allocated from.
#[derive(Debug)]
enum Backing {
    /// The allocator.
    Heap,
    /// A mapping that another process can map as well.
    Shared(Mapping),
    /// Pages that are allocated when they are first written.
    Sparse {
        /// Unmapped when this is dropped.
        _pages: Pages,
    },
}

// SAFETY: the pointer owns the bytes, which are accessed by raw copies only; no thread holds a reference to them.
unsafe impl Send for Memory {}
// SAFETY: address and length are fixed; threads that share them copy the bytes by address and make no reference to them.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn zeroed(len: usize) -> Memory {
        Memory {
            bytes: Box::into_raw(vec![0_u8; len].into_boxed_slice()),
            backing: Backing::Heap,
        }
    }

    pub(crate) fn mapped(mapping: Mapping) -> Memory {
        let start = mapping.start().as_ptr();
        Memory {
            bytes: core::ptr::slice_from_raw_parts_mut(start, mapping.len()),
            backing: Backing::Shared(mapping),
        }
    }

    pub(crate) fn sparse(pages: Pages) -> Memory {
        let start = pages.start().as_ptr();
        Memory {
            bytes: core::ptr::slice_from_raw_parts_mut(start, pages.len()),
            backing: Backing::Sparse { _pages: pages },
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.bytes.cast::<u8>()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The mapping, if another process can map it as well.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        match &self.backing {
            Backing::Shared(mapping) => Some(mapping),
            Backing::Heap | Backing::Sparse { .. } => None,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The other kinds unmap themselves.
        if matches!(self.backing, Backing::Heap) {
            // SAFETY: made by `into_raw` in `zeroed` and freed only here; every pointer to it is held together with an `Arc` of this,
            // and the last was dropped.
            drop(unsafe { Box::from_raw(self.bytes) });
        }
    }
}
