//! Equal pieces of registered memory, lent out one by one: messages and packets wait in them until the carrier is done.
//! It promises that a slot which is out is nobody else's, and never more slots than there are.
//! It refuses to know what is in them.

use verbena_nic::wr::Sge;

use crate::carrier::{Carrier, Memory, Reach, Result};

/// A slot that is out.
pub(crate) type Slot = u32;

/// Slots of one size.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: Box<dyn Memory>,
    size: usize,
    count: u32,
    free: Vec<Slot>,
    /// Which are in, so that none comes back twice.
    is_in: Vec<bool>,
}

impl Slots {
    /// So many slots of so many bytes, all in.
    pub(crate) fn new(carrier: &mut dyn Carrier, count: u32, size: usize) -> Result<Slots> {
        let memory = carrier.memory(count as usize * size, Reach::Local)?;
        Ok(Slots {
            memory,
            size,
            count,
            free: (0..count).rev().collect(),
            is_in: vec![true; count as usize],
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// How many are in.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of one.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes one out, and puts bytes at its beginning; `None` if none is in or they do not fit.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<Slot> {
        if bytes.len() > self.size {
            return None;
        }
        let slot = self.free.pop()?;
        if let Some(is_in) = self.is_in.get_mut(slot as usize) {
            *is_in = false;
        }
        self.memory.write(self.offset(slot), bytes);
        Some(slot)
    }

    /// Puts bytes somewhere in a slot that is out.
    pub(crate) fn write(&self, slot: Slot, at: usize, bytes: &[u8]) -> bool {
        at + bytes.len() <= self.size && self.memory.write(self.offset(slot) + at, bytes)
    }

    /// The memory, and where a slot begins in it.
    pub(crate) fn place(&self, slot: Slot) -> (&dyn Memory, usize) {
        (&*self.memory, self.offset(slot))
    }

    /// A copy of what is in a slot.
    pub(crate) fn read(&self, slot: Slot, into: &mut [u8]) -> bool {
        slot < self.count && into.len() <= self.size && self.memory.read(self.offset(slot), into)
    }

    /// `len` bytes of a slot, from `at`, for a request.
    pub(crate) fn piece(&self, slot: Slot, at: usize, len: u32) -> Sge {
        self.memory.piece(self.offset(slot) + at, len)
    }

    /// A slot comes back; false if it was not out.
    pub(crate) fn put_back(&mut self, slot: Slot) -> bool {
        match self.is_in.get_mut(slot as usize) {
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
