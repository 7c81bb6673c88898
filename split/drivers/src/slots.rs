//! A pool of equal slots in registered memory: messages and packets stay in a slot until the carrier has completed the request. A slot in
//! use is not given out again before it is returned, and a second return has no effect.

use verbena_nic::wr::Sge;

use crate::carrier::{Carrier, Memory, MemoryAccess, Result};

/// Index of a slot.
pub(crate) type Slot = u32;

/// Slots of one size.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: Box<dyn Memory>,
    size: usize,
    count: u32,
    free: Vec<Slot>,
    /// Which are free, so that a slot returned twice is detected.
    is_free: Vec<bool>,
}

impl Slots {
    /// `count` free slots of `size` bytes.
    pub(crate) fn new(carrier: &mut dyn Carrier, count: u32, size: usize) -> Result<Slots> {
        let memory = carrier.register_memory(count as usize * size, MemoryAccess::Local)?;
        Ok(Slots {
            memory,
            size,
            count,
            free: (0..count).rev().collect(),
            is_free: vec![true; count as usize],
        })
    }

    /// Number of slots.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Number of free slots.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes per slot.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes a free slot and writes bytes to its beginning; `None` if there is none or they do not fit.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<Slot> {
        if bytes.len() > self.size {
            return None;
        }
        let slot = self.free.pop()?;
        if let Some(is_in) = self.is_free.get_mut(slot as usize) {
            *is_in = false;
        }
        self.memory.write(self.offset(slot), bytes);
        Some(slot)
    }

    /// Writes bytes at an offset of a slot in use; false if they do not fit.
    pub(crate) fn write(&self, slot: Slot, at: usize, bytes: &[u8]) -> bool {
        at + bytes.len() <= self.size && self.memory.write(self.offset(slot) + at, bytes)
    }

    /// The memory, and the slot's offset in it.
    pub(crate) fn location(&self, slot: Slot) -> (&dyn Memory, usize) {
        (&*self.memory, self.offset(slot))
    }

    /// Copies the beginning of a slot.
    pub(crate) fn read(&self, slot: Slot, into: &mut [u8]) -> bool {
        slot < self.count && into.len() <= self.size && self.memory.read(self.offset(slot), into)
    }

    /// A scatter/gather element for `len` bytes of a slot, from `at`.
    pub(crate) fn sge(&self, slot: Slot, at: usize, len: u32) -> Sge {
        self.memory.sge(self.offset(slot) + at, len)
    }

    /// Returns a slot; false if it was not in use.
    pub(crate) fn release(&mut self, slot: Slot) -> bool {
        match self.is_free.get_mut(slot as usize) {
            Some(is_in) if !*is_in => {
                *is_in = true;
                self.free.push(slot);
                true
            }
            _ => false,
        }
    }

    fn offset(&self, slot: Slot) -> usize {
        slot as usize * self.size
    }
}
