//! A queue between one producer and one consumer that needs no lock: a chain of small chunks and one counter.
//! Values keep their order, none is lost or leaked whichever end is dropped first, and nothing is allocated while the consumer keeps
//! pace. The length is not limited here: the code that pushes counts.
//!
//! The producer writes a slot and then publishes the count of all pushes; the consumer reads that count and then the slot.
//! So a push costs one release store and a pop at most one acquire load. An empty queue owns no chunk before its first push.
//!
//! Only the end of a chunk needs a handshake, because either side may reach it first. It is decided by a compare-and-exchange of the
//! chunk's `next`: the producer, if the chunk is full, stores another chunk; the consumer, if it has emptied the chunk, stores the
//! chunk itself, which both then use again from its beginning. A chunk that the consumer leaves is kept for the producer, one at most.
//! All of it is modelled with loom in `ring/tests.rs`.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use crate::primitives::{Arc, AtomicPtr, AtomicUsize, Ordering, UnsafeCell};

/// Slots per chunk: a power of two. Few, because thousands of queues are idle with one chunk each.
const SLOTS: usize = if cfg!(loom) { 2 } else { 16 };

/// An empty queue: the end that pushes and the end that pops.
pub fn ring<T: Send>() -> (Producer<T>, Consumer<T>) {
    let shared = Arc::new(Shared {
        pushed: AtomicUsize::new(0),
        spare: AtomicPtr::new(null_mut()),
        start: UnsafeCell::new(ReadPosition {
            chunk: null_mut(),
            popped: 0,
        }),
    });
    let producer = Producer {
        shared: shared.clone(),
        chunk: null_mut(),
        pushed: 0,
    };
    let consumer = Consumer {
        shared,
        position: ReadPosition {
            chunk: null_mut(),
            popped: 0,
        },
        seen: 0,
    };
    (producer, consumer)
}

struct Chunk<T> {
    slots: [UnsafeCell<MaybeUninit<T>>; SLOTS],
    /// The following chunk: null while undecided, another chunk, or this one again.
    next: AtomicPtr<Chunk<T>>,
    /// Lets loom notice a chunk that is not freed.
    #[cfg(loom)]
    _life: loom::alloc::Track<()>,
}

impl<T> Chunk<T> {
    fn allocate() -> *mut Chunk<T> {
        Box::into_raw(Box::new(Chunk {
            slots: core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
            next: AtomicPtr::new(null_mut()),
            #[cfg(loom)]
            _life: loom::alloc::Track::new(()),
        }))
    }

    /// Frees a chunk; values in its slots are not dropped.
    ///
    /// # Safety
    ///
    /// `chunk` came from `allocate`, and no other pointer to it is used after this call.
    unsafe fn free(chunk: *mut Chunk<T>) {
        // SAFETY: `chunk` came from `Box::into_raw` in `allocate` and is not used elsewhere, as the caller guarantees.
        drop(unsafe { Box::from_raw(chunk) });
    }

    /// Moves the value out of a slot.
    ///
    /// # Safety
    ///
    /// The slot holds a value, the producer's write of it happened before, and the slot is not read again before the next write.
    unsafe fn take(&self, slot: usize) -> T {
        self.slots[slot].with(|slot| {
            // SAFETY: the slot holds a value whose write happened before and that is not read again, as the caller guarantees.
            unsafe { (*slot).assume_init_read() }
        })
    }
}

/// The consumer's position: the next value to be popped is in this chunk, at `popped` modulo its slots.
struct ReadPosition<T> {
    /// Null before the first push.
    chunk: *mut Chunk<T>,
    popped: usize,
}

// Not derived: `T` need not be `Clone`.
impl<T> Clone for ReadPosition<T> {
    fn clone(&self) -> ReadPosition<T> {
        *self
    }
}

impl<T> Copy for ReadPosition<T> {}

struct Shared<T> {
    /// Pushes so far. A thread that has loaded a count may use all slots and links that were written before it was stored.
    pushed: AtomicUsize,
    /// An emptied chunk for the next allocation.
    spare: AtomicPtr<Chunk<T>>,
    /// The consumer's start, written by the first push; when the consumer is dropped, its position then.
    start: UnsafeCell<ReadPosition<T>>,
}

// SAFETY: `start` is written by the producer before its first count is published and read by the consumer after it has
// loaded that count; otherwise it is accessed only by the consumer's `drop`, and by `Shared`'s `drop`, which has no other owner left.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the values are `Send`, and only the queue owns the chunks.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// An unused chunk whose `next` is null.
    fn fresh(&self) -> *mut Chunk<T> {
        // Acquire: accesses to it before `keep_spare` happened before.
        let spare = self.spare.swap(null_mut(), Ordering::Acquire);
        if spare.is_null() {
            Chunk::allocate()
        } else {
            spare
        }
    }

    /// Keeps a chunk for `fresh`, and frees the one kept before.
    ///
    /// # Safety
    ///
    /// `chunk` came from `allocate`, its slots hold no values, and only the caller has a pointer to it.
    unsafe fn keep_spare(&self, chunk: *mut Chunk<T>) {
        // SAFETY: `chunk` is valid, and only the caller accesses it until the swap below.
        unsafe { &*chunk }.next.store(null_mut(), Ordering::Relaxed);
        // Release: our accesses are done. Acquire: so are those of the thread that kept the other chunk, which is freed here.
        let other = self.spare.swap(chunk, Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: the chunk was kept by this function, under the same contract, and the swap made this thread its only owner.
            unsafe { Chunk::free(other) };
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends have been dropped, which happened before: nothing else accesses the chunks.
        let pushed = self.pushed.load(Ordering::Relaxed);
        let ReadPosition {
            mut chunk,
            mut popped,
        } = self.start.with_mut(|start| {
            // SAFETY: `self` is the last owner, so the cell is not accessed concurrently.
            unsafe { *start }
        });
        while !chunk.is_null() {
            // SAFETY: chunks from the consumer's position on are valid until they are freed below.
            let here = unsafe { &*chunk };
            let mut slot = popped % SLOTS;
            while popped != pushed && slot < SLOTS {
                // SAFETY: the slot lies between `popped` and `pushed`, so it holds a value, and `popped` moves past it.
                drop(unsafe { here.take(slot) });
                popped = popped.wrapping_add(1);
                slot += 1;
            }
            let next = here.next.load(Ordering::Relaxed);
            // SAFETY: both ends are gone, and `next` was read before; `chunk` is not used again.
            unsafe { Chunk::free(chunk) };
            chunk = if next == chunk { null_mut() } else { next };
        }
        let spare = self.spare.load(Ordering::Relaxed);
        if !spare.is_null() {
            // SAFETY: both ends are gone, and a spare chunk holds no values.
            unsafe { Chunk::free(spare) };
        }
    }
}

/// The end that pushes.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// The chunk of the last push; null before the first.
    chunk: *mut Chunk<T>,
    pushed: usize,
}

// SAFETY: `chunk` points to a chunk of the queue, which `shared` keeps alive; nothing is tied to a thread.
unsafe impl<T: Send> Send for Producer<T> {}

impl<T> Producer<T> {
    /// Appends a value.
    pub fn push(&mut self, value: T) {
        let slot = self.pushed % SLOTS;
        if slot == 0 {
            self.next_chunk();
        }
        // SAFETY: `next_chunk` set `chunk`, and the consumer does not give it away before it has popped all of its slots, this one included.
        let chunk = unsafe { &*self.chunk };
        chunk.slots[slot].with_mut(|slot| {
            // SAFETY: the consumer does not read this slot before it has loaded the count published below; the slot's
            // previous value has been moved out, as `next_chunk` observed.
            unsafe { (*slot).write(value) };
        });
        self.pushed = self.pushed.wrapping_add(1);
        self.shared.pushed.store(self.pushed, Ordering::Release);
    }

    /// Moves on to a chunk whose slots are all free: the first, the same again, or another.
    #[cold]
    fn next_chunk(&mut self) {
        let full = self.chunk;
        if full.is_null() {
            self.chunk = Chunk::allocate();
            let begin = ReadPosition {
                chunk: self.chunk,
                popped: 0,
            };
            self.shared.start.with_mut(|start| {
                // SAFETY: the consumer does not read `start` before it has loaded a nonzero count, and none is published yet;
                // its `drop` does not write it as long as it has no chunk.
                unsafe { *start = begin };
            });
            return;
        }
        // SAFETY: the consumer gives a chunk away only after it has found another one in `next`, and that is stored below.
        let next = unsafe { &(*full).next };
        // Acquire, here and where the exchange fails: the consumer has moved everything out of the slots.
        if next.load(Ordering::Acquire).is_null() {
            let fresh = self.shared.fresh();
            // Release: the chunk's initialisation happens before the consumer uses it.
            let swap =
                next.compare_exchange(null_mut(), fresh, Ordering::Release, Ordering::Acquire);
            if swap.is_ok() {
                // From here on only the consumer uses the old chunk.
                self.chunk = fresh;
                return;
            }
            // SAFETY: `fresh` came from `Shared::fresh`, is empty, and was not published.
            unsafe { self.shared.keep_spare(fresh) };
        }
        // The consumer was first, and will continue at the beginning of this chunk. It loads `next` again only after
        // values that are still to be pushed.
        next.store(null_mut(), Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("pushed", &self.pushed)
            .finish_non_exhaustive()
    }
}

/// The end that pops.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    position: ReadPosition<T>,
    /// The producer's count as last loaded.
    seen: usize,
}

// SAFETY: `position.chunk` points to a chunk of the queue, which `shared` keeps alive; nothing is tied to a thread.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T> Consumer<T> {
    /// Takes the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        if self.position.popped == self.seen && !self.load_pushed() {
            return None;
        }
        let slot = self.position.popped % SLOTS;
        // SAFETY: a count beyond `popped` was loaded, so `chunk` is not null, and the consumer leaves it only in `next_chunk`.
        let chunk = unsafe { &*self.position.chunk };
        // SAFETY: the loaded count was published after the value was written, and `popped` moves past it.
        let value = unsafe { chunk.take(slot) };
        self.position.popped = self.position.popped.wrapping_add(1);
        if slot == SLOTS - 1 {
            self.next_chunk();
        }
        Some(value)
    }

    /// No value waits. A push that happened before is always seen.
    pub fn is_empty(&self) -> bool {
        self.position.popped == self.seen
            && self.position.popped == self.shared.pushed.load(Ordering::Acquire)
    }

    /// Loads the producer's count; false if there are no new values.
    fn load_pushed(&mut self) -> bool {
        self.seen = self.shared.pushed.load(Ordering::Acquire);
        if self.position.popped == self.seen {
            return false;
        }
        if self.position.chunk.is_null() {
            self.position = self.shared.start.with(|start| {
                // SAFETY: the first push wrote it before the count that was loaded, and it was not written since.
                unsafe { *start }
            });
        }
        true
    }

    /// Leaves an emptied chunk for the next one, or stays if there is none yet.
    #[cold]
    fn next_chunk(&mut self) {
        let empty = self.position.chunk;
        // SAFETY: the consumer has not left the chunk, and the producer frees no chunk that it has pushed into.
        let next = unsafe { &(*empty).next };
        // Release: everything is moved out before the producer reuses the chunk. Acquire: the next chunk is initialised.
        let swap = next.compare_exchange(null_mut(), empty, Ordering::Release, Ordering::Acquire);
        if let Err(other) = swap {
            self.position.chunk = other;
            // SAFETY: the producer left `empty` when it stored the other chunk, and all its values have been moved out.
            unsafe { self.shared.keep_spare(empty) };
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // Without a chunk this end has seen no push, and the producer may still write `start`.
        if !self.position.chunk.is_null() {
            self.shared.start.with_mut(|start| {
                // SAFETY: the producer wrote it only before the first count, which was loaded; `Shared`'s `drop` runs after this
                // one.
                unsafe { *start = self.position };
            });
        }
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("popped", &self.position.popped)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
