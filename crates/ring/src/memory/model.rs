//! The same memory for loom: every word is one of loom's atomics, payload included, whose accesses are relaxed.
//! So a consumer that reads payload without synchronization may see older bytes, as on a real processor, and a model finds it. A cell
//! beside each word is accessed with its payload, so that loom also reports a producer that overwrites bytes that may still be read.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use verbena_mem::{Sources, Targets, Unmapped};

use super::{AtomicU64, Ordering};
use crate::layout::{ASLEEP, CLOSED, HEAD, Layout, WAITS};

/// The memory of one ring, for one of its sides.
#[derive(Debug)]
pub struct RingMemory {
    words: Arc<Words>,
}

/// The words of a ring. Models access them through the two sides only.
#[derive(Debug)]
pub struct SharedWords {
    words: Arc<Words>,
}

#[derive(Debug)]
struct Words {
    /// Those of the offsets in `HEADER`.
    header: [AtomicU64; HEADER.len()],
    slots: Vec<AtomicU64>,
    /// One for each slot: copies of payload, which must not be concurrent.
    copies: Vec<UnsafeCell<()>>,
}

const HEADER: [usize; 4] = [HEAD, ASLEEP, CLOSED, WAITS];

impl SharedWords {
    pub(crate) fn new(layout: Layout) -> SharedWords {
        let slots = (0..layout.capacity() / 8).map(|_| AtomicU64::new(0));
        SharedWords {
            words: Arc::new(Words {
                header: core::array::from_fn(|_| AtomicU64::new(0)),
                slots: slots.collect(),
                copies: (0..layout.capacity() / 8)
                    .map(|_| UnsafeCell::new(()))
                    .collect(),
            }),
        }
    }

    pub(crate) fn memory(&self) -> RingMemory {
        RingMemory {
            words: self.words.clone(),
        }
    }
}

impl RingMemory {
    pub(crate) fn capacity(&self) -> usize {
        self.words.slots.len() * 8
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let at = HEADER.iter().position(|word| *word == offset);
        &self.words.header[at.unwrap_or(usize::MAX)]
    }

    pub(crate) fn slot(&self, at: u64) -> &AtomicU64 {
        &self.words.slots[at as usize / 8 % self.words.slots.len()]
    }

    fn copies(&self, word: u64) -> &UnsafeCell<()> {
        &self.words.copies[word as usize % self.words.copies.len()]
    }

    /// Payload begins at a multiple of eight, as the producer writes it.
    pub(crate) fn copy_in(
        &self,
        at: u64,
        sources: &Sources<'_>,
        skip: usize,
        len: usize,
    ) -> Result<(), Unmapped> {
        let mut bytes = Vec::new();
        sources.copy_to(&mut bytes, skip + len)?;
        for (word, chunk) in (at / 8..).zip(bytes[skip..].chunks(8)) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            self.copies(word).with_mut(|_| ());
            self.slot(word * 8)
                .store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn copy_out(
        &self,
        at: u64,
        targets: &mut Targets<'_>,
        skip: usize,
        len: usize,
    ) -> Result<(), Unmapped> {
        let end = at + len as u64;
        let words = (at / 8..end.div_ceil(8)).map(|word| {
            self.copies(word).with(|_| ());
            self.slot(word * 8)
        });
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let from = (at % 8) as usize;
        targets.fill_at(skip, &bytes[from..from + len]).map(drop)
    }
}
