//! The memory of an event queue: a ring of entries that adapter and driver access without a lock (E1, E4).
//! An entry is visible only as a whole, once its code is, and a consumed entry is empty again. Which slots may be written follows
//! from the indicators, which are not kept here.

use verbena_sync::primitives::{AtomicU32, Ordering};

use crate::eqe::{Eqe, Form};

/// Entries of the largest event queue.
pub const MAX_ENTRIES: usize = 1 << 20;

/// Memory that no event queue can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No queue has this size.
    #[error("an event queue holds 1 to {MAX_ENTRIES} entries, not {0}")]
    Size(usize),
    /// Pages hold a power of two of entries.
    #[error("a page of an event queue holds a power of two of entries, not {0}")]
    Page(usize),
}

/// Memory for a queue, in one piece or in separate pages.
#[derive(Debug)]
pub struct Memory {
    form: Form,
    entries: usize,
    /// Entries of a page, as a shift.
    shift: u32,
    pages: Box<[Box<[AtomicU32]>]>,
}

impl Memory {
    /// In one piece.
    pub fn new(entries: usize, form: Form) -> Result<Memory, MemoryError> {
        Memory::paged(entries, form, MAX_ENTRIES * 2)
    }

    /// In pages of so many entries each; the position selects the page.
    pub fn paged(entries: usize, form: Form, page: usize) -> Result<Memory, MemoryError> {
        if !(1..=MAX_ENTRIES).contains(&entries) {
            return Err(MemoryError::Size(entries));
        }
        if !page.is_power_of_two() {
            return Err(MemoryError::Page(page));
        }
        // One slot more than entries: even in a full queue there is room for the entry that points to the next memory.
        let slots = entries + 1;
        let pages = (0..slots.div_ceil(page)).map(|number| {
            let here = page.min(slots - number * page);
            (0..here * form.words())
                .map(|_| AtomicU32::new(0))
                .collect()
        });
        Ok(Memory {
            form,
            entries,
            shift: page.trailing_zeros(),
            pages: pages.collect(),
        })
    }

    /// Entries that fit.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The form of the entries.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Entries of a page; more than [`MAX_ENTRIES`] if the memory is contiguous.
    pub fn page(&self) -> usize {
        1 << self.shift
    }

    /// The slot after `slot`.
    pub(super) fn next_slot(&self, slot: usize) -> usize {
        if slot == self.entries { 0 } else { slot + 1 }
    }

    fn words(&self, slot: usize) -> &[AtomicU32] {
        let page = &self.pages[slot >> self.shift];
        let at = (slot & ((1 << self.shift) - 1)) * self.form.words();
        &page[at..at + self.form.words()]
    }

    /// Writes an entry; the code last with release ordering, so that a reader that sees it sees the whole entry.
    pub(super) fn write(&self, slot: usize, eqe: Eqe) {
        let [first, number, context, indicator] = eqe.words();
        // A short entry is its first word, a long one has the others behind it.
        let words = self.words(slot);
        if let [_, a, b, c] = words {
            a.store(number, Ordering::Relaxed);
            b.store(context, Ordering::Relaxed);
            c.store(indicator, Ordering::Relaxed);
        }
        words[0].store(first, Ordering::Release);
    }

    /// Takes an entry if there is one, and leaves the slot empty (E4).
    pub(super) fn take(&self, slot: usize) -> Option<Eqe> {
        let words = self.words(slot);
        let first = words[0].load(Ordering::Acquire);
        if first == 0 {
            return None;
        }
        let got = match words {
            [_, a, b, c] => [a, b, c].map(|word| word.load(Ordering::Relaxed)),
            _ => [0; 3],
        };
        let eqe = Eqe::from_words([first, got[0], got[1], got[2]], self.form)?;
        // Relaxed: the adapter writes here again only after it has seen the read indicator move, which releases this.
        words[0].store(0, Ordering::Relaxed);
        Some(eqe)
    }

    /// The words of an entry in the layout of E1, for tests.
    #[cfg(test)]
    pub(super) fn raw(&self, slot: usize) -> Vec<u32> {
        let words = self.words(slot).iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }
}
