//! A queue between one producer and one consumer that needs no lock: a chain of small chunks and one counter.
//! It promises order, that nothing is lost or leaked whichever end goes first, and no allocation while the two keep pace.
//! It refuses to know limits: whoever pushes counts.
//!
//! The producer writes a slot and then publishes the count of all pushes; the consumer reads that count and then the slot.
//! So a push costs one release store and a pop at most one acquire load. An empty queue owns no chunk before its first push.
//!
//! Only the end of a chunk needs a handshake, because either side may be there first. The chunk's `next` decides: the
//! producer, who finds it full, names another chunk; the consumer, who has emptied it, names the chunk itself, which
//! both then use again from its beginning. A chunk that the consumer leaves behind is kept for the producer, one at most.
//! All of it is modelled with loom in `ring/tests.rs`.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use crate::sync::{Arc, AtomicPtr, AtomicUsize, Ordering, UnsafeCell};

/// Slots per chunk: a power of two. Few, because thousands of queues are idle with one chunk each.
const SLOTS: usize = if cfg!(loom) { 2 } else { 16 };

/// An empty queue: the end that pushes and the end that pops.
pub(crate) fn ring<T: Send>() -> (Producer<T>, Consumer<T>) {
    let shared = Arc::new(Shared {
        pushed: AtomicUsize::new(0),
        spare: AtomicPtr::new(null_mut()),
        start: UnsafeCell::new(Place {
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
        place: Place {
            chunk: null_mut(),
            popped: 0,
        },
        seen: 0,
    };
    (producer, consumer)
}

struct Chunk<T> {
    slots: [UnsafeCell<MaybeUninit<T>>; SLOTS],
    /// What follows: null while nobody knows, another chunk, or this one again.
    next: AtomicPtr<Chunk<T>>,
    /// Lets a model notice a chunk that nobody frees.
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

    /// Frees a chunk; what its slots hold is not dropped.
    ///
    /// # Safety
    ///
    /// It came from `allocate`, and nobody else knows it any more.
    unsafe fn free(chunk: *mut Chunk<T>) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(chunk) });
    }

    /// Moves the value out of a slot.
    ///
    /// # Safety
    ///
    /// The slot holds a value, the producer's writing of it happened before, and nobody reads it again.
    unsafe fn take(&self, slot: usize) -> T {
        self.slots[slot].with(|slot| {
            // SAFETY: as the caller promises.
            unsafe { (*slot).assume_init_read() }
        })
    }
}

/// Where the consumer is: the next value to be popped is in this chunk, at `popped` modulo its slots.
struct Place<T> {
    /// Null before the first push.
    chunk: *mut Chunk<T>,
    popped: usize,
}

// By hand, because a place can be copied whatever the values are.
impl<T> Clone for Place<T> {
    fn clone(&self) -> Place<T> {
        *self
    }
}

impl<T> Copy for Place<T> {}

struct Shared<T> {
    /// Pushes so far. Whoever has seen a count may use all slots and links that were written before it.
    pushed: AtomicUsize,
    /// An emptied chunk for the next time one is needed.
    spare: AtomicPtr<Chunk<T>>,
    /// Where the consumer begins, written by the first push, and then where it left off, written as it goes.
    start: UnsafeCell<Place<T>>,
}

// SAFETY: `start` is written by the producer before its first count is published, read by the consumer after it has
// seen that, and otherwise touched only by a consumer that goes and by the last owner of all.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the values may go to another thread, and the chunks are owned by the queue alone.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// A chunk that nobody uses, with nothing behind it.
    fn fresh(&self) -> *mut Chunk<T> {
        // Acquire: whoever gave it away is done with it.
        let spare = self.spare.swap(null_mut(), Ordering::Acquire);
        if spare.is_null() {
            Chunk::allocate()
        } else {
            spare
        }
    }

    /// Keeps a chunk for `fresh`, in place of the one that is there.
    ///
    /// # Safety
    ///
    /// It came from `allocate`, its slots hold nothing, and only the caller knows it.
    unsafe fn keep(&self, chunk: *mut Chunk<T>) {
        // SAFETY: the chunk is the caller's alone until the exchange.
        unsafe { &*chunk }.next.store(null_mut(), Ordering::Relaxed);
        // Release: we are done with it. Acquire: so is whoever kept the other, which we free.
        let other = self.spare.swap(chunk, Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: it was kept under the same promise, and the exchange made it ours.
            unsafe { Chunk::free(other) };
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone, and their going happened before: everything here is ours alone.
        let pushed = self.pushed.load(Ordering::Relaxed);
        let Place {
            mut chunk,
            mut popped,
        } = self.start.with_mut(|start| {
            // SAFETY: nobody else is left.
            unsafe { *start }
        });
        while !chunk.is_null() {
            // SAFETY: chunks from the consumer's place on are alive until we free them, below.
            let here = unsafe { &*chunk };
            let mut slot = popped % SLOTS;
            while popped != pushed && slot < SLOTS {
                // SAFETY: it was pushed and not popped.
                drop(unsafe { here.take(slot) });
                popped = popped.wrapping_add(1);
                slot += 1;
            }
            let next = here.next.load(Ordering::Relaxed);
            // SAFETY: nobody else is left.
            unsafe { Chunk::free(chunk) };
            chunk = if next == chunk { null_mut() } else { next };
        }
        let spare = self.spare.load(Ordering::Relaxed);
        if !spare.is_null() {
            // SAFETY: nobody else is left, and a spare chunk holds nothing.
            unsafe { Chunk::free(spare) };
        }
    }
}

/// The end that pushes.
pub(crate) struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// The chunk of the last push; null before the first.
    chunk: *mut Chunk<T>,
    pushed: usize,
}

// SAFETY: the pointer is to a chunk of the queue, which `shared` keeps alive; nothing is tied to a thread.
unsafe impl<T: Send> Send for Producer<T> {}

impl<T> Producer<T> {
    /// Adds a value behind all others.
    pub(crate) fn push(&mut self, value: T) {
        let slot = self.pushed % SLOTS;
        if slot == 0 {
            self.turn();
        }
        // SAFETY: `turn` chose the chunk, and the consumer leaves it alone until it has emptied it, this slot included.
        let chunk = unsafe { &*self.chunk };
        chunk.slots[slot].with_mut(|slot| {
            // SAFETY: the consumer does not look here before it has seen the count that we publish below; what the
            // slot held before it has moved out, as `turn` saw.
            unsafe { (*slot).write(value) };
        });
        self.pushed = self.pushed.wrapping_add(1);
        self.shared.pushed.store(self.pushed, Ordering::Release);
    }

    /// Goes to a chunk whose slots are all free: the first, the same again, or another.
    #[cold]
    fn turn(&mut self) {
        let full = self.chunk;
        if full.is_null() {
            self.chunk = Chunk::allocate();
            let begin = Place {
                chunk: self.chunk,
                popped: 0,
            };
            self.shared.start.with_mut(|start| {
                // SAFETY: the consumer does not look here before it has seen a count, and none is published yet;
                // nor does it write here as it goes, as long as it has no chunk.
                unsafe { *start = begin };
            });
            return;
        }
        // SAFETY: the consumer gives a chunk away only after it has found another behind it, and that we say below.
        let next = unsafe { &(*full).next };
        // Acquire, here and where the exchange fails: the consumer has moved everything out of the slots.
        if next.load(Ordering::Acquire).is_null() {
            let fresh = self.shared.fresh();
            // Release: the chunk is as new before the consumer comes there.
            let swap =
                next.compare_exchange(null_mut(), fresh, Ordering::Release, Ordering::Acquire);
            if swap.is_ok() {
                // From here on the old chunk is the consumer's.
                self.chunk = fresh;
                return;
            }
            // SAFETY: it is ours from `fresh`, and we have told nobody.
            unsafe { self.shared.keep(fresh) };
        }
        // The consumer was quicker, and waits at the beginning of this chunk. It looks at `next` again only behind
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
pub(crate) struct Consumer<T> {
    shared: Arc<Shared<T>>,
    place: Place<T>,
    /// The producer's count when we last looked: up to there we need not look again.
    seen: usize,
}

// SAFETY: as for the producer.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T> Consumer<T> {
    /// Takes the oldest value.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.place.popped == self.seen && !self.look() {
            return None;
        }
        let slot = self.place.popped % SLOTS;
        // SAFETY: a count beyond `popped` was seen, so there is a chunk, and we leave it only in `turn`.
        let chunk = unsafe { &*self.place.chunk };
        // SAFETY: the count that we saw was published after the value was written, and `popped` moves past it.
        let value = unsafe { chunk.take(slot) };
        self.place.popped = self.place.popped.wrapping_add(1);
        if slot == SLOTS - 1 {
            self.turn();
        }
        Some(value)
    }

    /// Nothing waits. A push that happened before is always seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.place.popped == self.seen
            && self.place.popped == self.shared.pushed.load(Ordering::Acquire)
    }

    /// Looks for values that have come since; false if there are none.
    fn look(&mut self) -> bool {
        self.seen = self.shared.pushed.load(Ordering::Acquire);
        if self.place.popped == self.seen {
            return false;
        }
        if self.place.chunk.is_null() {
            self.place = self.shared.start.with(|start| {
                // SAFETY: the first push wrote it before the count that we have seen, and nobody has since.
                unsafe { *start }
            });
        }
        true
    }

    /// Leaves an emptied chunk for the one that follows, or stays if none does yet.
    #[cold]
    fn turn(&mut self) {
        let empty = self.place.chunk;
        // SAFETY: we are still on it, and the producer frees no chunk that it has pushed into.
        let next = unsafe { &(*empty).next };
        // Release: everything is moved out before the producer comes here again. Acquire: the next chunk is as new.
        let swap = next.compare_exchange(null_mut(), empty, Ordering::Release, Ordering::Acquire);
        if let Err(other) = swap {
            self.place.chunk = other;
            // SAFETY: the producer left it when it named the other, and we have moved everything out.
            unsafe { self.shared.keep(empty) };
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // Without a chunk we have seen no push, and `start` is still the producer's to write.
        if !self.place.chunk.is_null() {
            self.shared.start.with_mut(|start| {
                // SAFETY: the producer wrote it before the first count, which we have seen, and not since; whoever
                // drops the queue comes after us.
                unsafe { *start = self.place };
            });
        }
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("popped", &self.place.popped)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
