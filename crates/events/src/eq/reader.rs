//! The driver's end of an event queue: it takes entries while their codes are nonzero (E4).
//! Entries come in order across every switch of memory, and the write indicator is never read. Acknowledging through the register
//! is left to the caller.

use verbena_sync::primitives::Arc;
use verbena_sync::ring::Consumer;

use super::memory::Memory;
use crate::eqe::Eqe;

/// Reads one queue, from its initialisation to its end.
pub struct Reader {
    pub(super) memory: Arc<Memory>,
    pub(super) slot: usize,
    /// The next memories; each is pushed before the entry that announces it is written.
    pub(super) moves: Consumer<Arc<Memory>>,
    /// Taken and not yet acknowledged.
    pub(super) taken: u32,
    /// The driver left the queue unarmed and will poll again by itself.
    pub(crate) polling: bool,
}

impl core::fmt::Debug for Reader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reader")
            .field("slot", &self.slot)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(memory: Arc<Memory>, moves: Consumer<Arc<Memory>>) -> Reader {
        Reader {
            memory,
            slot: 0,
            moves,
            taken: 0,
            polling: false,
        }
    }

    /// Entries taken since the last [`acknowledge`](Reader::acknowledge).
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Half of its memory is taken and not acknowledged: the queue may soon be full.
    pub(crate) fn is_half_taken(&self) -> bool {
        self.taken as usize * 2 >= self.memory.entries()
    }

    /// The number of entries to acknowledge now, as a relative indicator.
    #[must_use = "entries that are not acknowledged fill the queue"]
    pub fn acknowledge(&mut self) -> u32 {
        core::mem::take(&mut self.taken)
    }
}

impl Iterator for Reader {
    type Item = Eqe;

    /// The next entry, if there is one.
    fn next(&mut self) -> Option<Eqe> {
        loop {
            let eqe = self.memory.take(self.slot)?;
            if eqe.is_moved() {
                // The memory was pushed before the entry was written, so it is there.
                self.memory = self.moves.pop()?;
                self.slot = 0;
                continue;
            }
            self.slot = self.memory.next_slot(self.slot);
            self.taken += 1;
            return Some(eqe);
        }
    }
}
