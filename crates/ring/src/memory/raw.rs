//! Memory by address: pages that the caller has mapped, or the heap.
//! Bytes are copied by the functions of `verbena-mem`, which survive that the program's side of a copy is unmapped; the ring's side is
//! mapped as long as its owner lives.

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use verbena_mem::{Pages, Sources, Targets, Unmapped};

use super::{AtomicU64, Ordering};
use crate::layout::{DATA, Layout};

/// The memory of one ring, for one of its sides.
pub struct RingMemory {
    start: NonNull<u8>,
    /// A power of two.
    capacity: usize,
    /// Keeps the memory mapped.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory belongs to `_owner`, which may be dropped by any thread, and nothing in it is tied to a thread.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Two rings, one for each direction, in pages that another process maps as well; the pages themselves if they are too short
    /// ([`Layout::pair_len`]).
    pub fn pair(pages: Pages, layout: Layout) -> Result<(RingMemory, RingMemory), Pages> {
        if pages.len() < layout.pair_len() {
            return Err(pages);
        }
        let first = pages.start();
        let owner = Arc::new(pages);
        // SAFETY: both rings end within `pair_len` bytes, and `Pages` are as long: they begin at a page and stay mapped until `owner` is
        // dropped. They belong to no other object, so that the two memories are the only ones that access them in this process.
        Ok(unsafe {
            let second = first.add(layout.pair_len() / 2);
            (
                RingMemory::from_raw(first, layout, owner.clone()),
                RingMemory::from_raw(second, layout, owner),
            )
        })
    }

    /// # Safety
    /// `start` is aligned to eight bytes. The memory is `layout.memory_len()` bytes long and can be read and written until `owner` is
    /// dropped. In this process, it is accessed by at most one producer and one consumer made from it, or by atomics; no other
    /// reference to it exists.
    unsafe fn from_raw(
        start: NonNull<u8>,
        layout: Layout,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> RingMemory {
        debug_assert!(start.addr().get().is_multiple_of(8));
        RingMemory {
            start,
            capacity: layout.capacity(),
            _owner: owner,
        }
    }

    /// Bytes for records.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// A word of the header, by one of the offsets in [`crate::layout`].
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < DATA && offset.is_multiple_of(8));
        // SAFETY: `offset` is a constant before `DATA`, so the word lies in the memory that `_owner` keeps mapped, and is aligned since
        // `start` is. All accesses to it by this process are atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The word among the records at a position that is a multiple of eight.
    #[inline]
    pub(crate) fn slot(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8));
        let offset = DATA + (self.offset(at) & !7);
        // SAFETY: `offset` is aligned and less than `DATA + capacity`, so the word lies in the memory that `_owner` keeps mapped. Bytes
        // of payload at the same place are copied by address only while the other side of this process does not access them.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn offset(&self, at: u64) -> usize {
        at as usize & (self.capacity - 1)
    }

    /// Copies `len` bytes of `sources` behind the first `skip` to the position `at`. There are as many, and `len` is less than the capacity.
    #[inline]
    pub(crate) fn copy_in(
        &self,
        at: u64,
        sources: &Sources<'_>,
        skip: usize,
        len: usize,
    ) -> Result<(), Unmapped> {
        let offset = self.offset(at);
        let first = len.min(self.capacity - offset);
        // SAFETY: `first` bytes from `offset` on end within the data area, and so do at most `capacity` bytes from its beginning; `_owner`
        // keeps it mapped, and no reference to it is made. The sources are memory of the program or of this process, not of the ring.
        unsafe {
            let data = self.start.as_ptr().add(DATA);
            sources.copy_at(skip, data.add(offset), first)?;
            if first < len {
                let rest = (len - first).min(self.capacity);
                sources.copy_at(skip + first, data, rest)?;
            }
        }
        Ok(())
    }

    /// Copies `len` bytes at the position `at` to `targets` behind their first `skip`. There is room, and `len` is less than the capacity.
    #[inline]
    pub(crate) fn copy_out(
        &self,
        at: u64,
        targets: &mut Targets<'_>,
        skip: usize,
        len: usize,
    ) -> Result<(), Unmapped> {
        let offset = self.offset(at);
        let first = len.min(self.capacity - offset);
        // SAFETY: both pieces lie within the data area, which `_owner` keeps mapped: the first ends at most `capacity` bytes behind its
        // beginning, the second is no longer than `capacity`. The targets are memory of the program or of this process, not of the ring.
        unsafe {
            let data = self.start.as_ptr().add(DATA);
            targets.fill_from(skip, data.add(offset), first)?;
            if first < len {
                let rest = (len - first).min(self.capacity);
                targets.fill_from(skip + first, data, rest)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory")
            .field("start", &self.start)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// The words of a ring on the heap, as the other process has them: every one can be read and written.
#[derive(Debug, Clone)]
pub struct SharedWords {
    words: Arc<Box<[AtomicU64]>>,
    layout: Layout,
}

impl SharedWords {
    pub(crate) fn new(layout: Layout) -> SharedWords {
        let words = (0..layout.memory_len() / 8).map(|_| AtomicU64::new(0));
        SharedWords {
            words: Arc::new(words.collect()),
            layout,
        }
    }

    pub(crate) fn memory(&self) -> RingMemory {
        let start = NonNull::from(&**self.words).cast();
        // SAFETY: the words are aligned, `memory_len` bytes long, and live until the last `Arc` of them is dropped. `on_heap` makes one
        // producer and one consumer, and all other accesses are atomic.
        unsafe { RingMemory::from_raw(start, self.layout, self.words.clone()) }
    }

    /// The word at a byte offset in the memory, which is rounded down to a multiple of eight; 0 behind the end.
    pub fn load(&self, offset: usize) -> u64 {
        let word = self.words.get(offset / 8);
        word.map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// Writes the word at a byte offset, rounded down to a multiple of eight; nothing behind the end.
    pub fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.words.get(offset / 8) {
            word.store(value, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
