//! The memory of a pool, and the owner of each element.
//! Unused bytes are filled with patterns, so that every byte written beside the pool, in an element that the program holds, behind the
//! end of a packet, or after the pool was freed is detected.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd, Tpt};
use verbena_push::Arrangement;
use verbena_split_wire::push::Pool;
use verbena_wire::To;

/// Bytes before and behind the elements that must not be written.
const MARGIN: usize = 64;

/// The patterns.
const MARGIN_PATTERN: u8 = 0x77;
const LENT_PATTERN: u8 = 0xa5;
const HELD_PATTERN: u8 = 0x5c;
const DEAD_PATTERN: u8 = 0x3d;

/// The owner of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementOwner {
    Lent,
    Held,
    Dead,
}

impl ElementOwner {
    fn pattern(self) -> u8 {
        match self {
            ElementOwner::Lent => LENT_PATTERN,
            ElementOwner::Held => HELD_PATTERN,
            ElementOwner::Dead => DEAD_PATTERN,
        }
    }
}

/// A pool with its memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) pool: Pool,
    buffer: Buffer,
    owners: Vec<ElementOwner>,
    pub(super) freed: bool,
}

impl Memory {
    pub(super) fn new(
        tpt: &Arc<Tpt>,
        pd: Pd,
        (reference, count, size): (u32, u32, u32),
        arrangement: Arrangement,
    ) -> Result<Memory, String> {
        let len = count as usize * size as usize + 2 * MARGIN;
        // Only RDMA writes come from the peer.
        let access = match arrangement {
            Arrangement::Writes => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Arrangement::Sends | Arrangement::Single => Access::LOCAL_WRITE,
        };
        let buffer = Buffer::new(tpt, len, pd, access).map_err(|e| e.to_string())?;
        buffer.write(0, &vec![MARGIN_PATTERN; len]);
        let pool = Pool {
            reference,
            count,
            size,
            handle: buffer.stag(),
            at: To::new(buffer.at() + MARGIN as u64),
            context: 0,
        };
        let memory = Memory {
            pool,
            buffer,
            owners: vec![ElementOwner::Lent; count as usize],
            freed: false,
        };
        (0..count).for_each(|element| memory.fill_pattern(element));
        Ok(memory)
    }

    fn owner(&mut self, element: u32) -> Result<&mut ElementOwner, String> {
        let unknown = format!("pool {} has no element {element}", self.pool.reference);
        self.owners.get_mut(element as usize).ok_or(unknown)
    }

    fn offset(&self, element: u32) -> usize {
        MARGIN + element as usize * self.pool.size as usize
    }

    fn fill_pattern(&self, element: u32) {
        let slot = self.owners.get(element as usize).copied();
        let paint = slot.map_or(DEAD_PATTERN, ElementOwner::pattern);
        let fresh = vec![paint; self.pool.size as usize];
        self.buffer.write(self.offset(element), &fresh);
    }

    /// Checks that the pattern is unchanged from this byte of an element on.
    fn check(&self, element: u32, from: u32) -> Result<(), String> {
        let slot = self.owners.get(element as usize).copied();
        let paint = slot.map_or(DEAD_PATTERN, ElementOwner::pattern);
        let len = self.pool.size.saturating_sub(from) as usize;
        let bytes = self.buffer.read(self.offset(element) + from as usize, len);
        match bytes.iter().all(|byte| *byte == paint) {
            true => Ok(()),
            false => Err(format!(
                "element {element} of pool {} was touched while {slot:?}",
                self.pool.reference
            )),
        }
    }

    /// Stores a packet in an element, for a carrier that copies.
    pub(super) fn store(&mut self, element: u32, bytes: &[u8]) -> Result<(), String> {
        let (size, reference) = (self.pool.size as usize, self.pool.reference);
        let slot = *self.owner(element)?;
        if slot != ElementOwner::Lent || bytes.len() > size {
            let len = bytes.len();
            return Err(format!(
                "{len} bytes for element {element} of pool {reference}, which is {slot:?} and has {size}"
            ));
        }
        self.check(element, 0)?;
        self.buffer.write(self.offset(element), bytes);
        Ok(())
    }

    /// Restores the pattern if the session refused what was stored.
    pub(super) fn wipe(&self, element: u32) {
        self.fill_pattern(element);
    }

    /// Takes a packet out, of which the program was notified.
    pub(super) fn take(&mut self, element: u32, len: u32) -> Result<Vec<u8>, String> {
        let reference = self.pool.reference;
        let slot = self.owner(element)?;
        if *slot != ElementOwner::Lent {
            return Err(format!(
                "element {element} of pool {reference} was indicated while {slot:?}"
            ));
        }
        self.check(element, len)?;
        let bytes = self.buffer.read(self.offset(element), len as usize);
        *self.owner(element)? = ElementOwner::Held;
        self.fill_pattern(element);
        Ok(bytes)
    }

    /// The program gives an element back.
    pub(super) fn give_back(&mut self, element: u32) -> Result<(), String> {
        self.check(element, 0)?;
        let next = if self.freed {
            ElementOwner::Dead
        } else {
            ElementOwner::Lent
        };
        *self.owner(element)? = next;
        self.fill_pattern(element);
        Ok(())
    }

    /// The session will not use it any more: it must hold no packet of which the program was not notified.
    pub(super) fn free(&mut self) -> Result<(), String> {
        if core::mem::replace(&mut self.freed, true) {
            return Err(format!("pool {} was freed twice", self.pool.reference));
        }
        self.end_elements(|slot| slot == ElementOwner::Lent, true)
    }

    /// The connection has ended, and with it everything that was lent.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.judge()?;
        self.freed = true;
        self.end_elements(|_| true, false)
    }

    fn end_elements(
        &mut self,
        which: impl Fn(ElementOwner) -> bool,
        clean: bool,
    ) -> Result<(), String> {
        for element in 0..self.pool.count {
            if which(*self.owner(element)?) {
                if clean {
                    self.check(element, 0)?;
                }
                *self.owner(element)? = ElementOwner::Dead;
                self.fill_pattern(element);
            }
        }
        Ok(())
    }

    /// Checks that no byte was written that must not be.
    pub(super) fn judge(&self) -> Result<(), String> {
        let behind = self.offset(self.pool.count);
        for at in [0, behind] {
            let margin = self.buffer.read(at, MARGIN);
            if margin.len() != MARGIN || margin.iter().any(|byte| *byte != MARGIN_PATTERN) {
                return Err(format!(
                    "memory beside pool {} was written",
                    self.pool.reference
                ));
            }
        }
        let settled = |slot: &ElementOwner| *slot != ElementOwner::Lent;
        for (element, _) in self.owners.iter().enumerate().filter(|(_, s)| settled(s)) {
            self.check(element as u32, 0)?;
        }
        Ok(())
    }
}
