//! State, indicators and the backlog flag of a queue in one word, so that each change of them is atomic (E2, E3).
//! Arming and writing an entry both exchange this word, so one of them sees the other.

use super::state::State;

/// Positions count modulo this; far more than can be unread at once.
pub(super) const POSITIONS: u32 = 1 << 30;
const MASK: u32 = POSITIONS - 1;
const BACKLOG: u64 = 4;
const READ: u32 = 4;
const WRITTEN: u32 = 34;

/// The number of positions from `from` to `to`.
pub(super) const fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & MASK
}

/// The word, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) state: State,
    /// The backlog is not empty.
    pub(super) backlog: bool,
    /// Read indicator: entries that the driver has acknowledged.
    pub(super) read: u32,
    /// Write indicator: entries written.
    pub(super) written: u32,
}

impl Word {
    pub(super) const UNDEFINED: Word = Word {
        state: State::Undefined,
        backlog: false,
        read: 0,
        written: 0,
    };

    pub(super) const fn unpack(word: u64) -> Word {
        let state = match word & 3 {
            1 => State::Unarmed,
            2 => State::Armed,
            _ => State::Undefined,
        };
        Word {
            state,
            backlog: word & BACKLOG != 0,
            read: (word >> READ) as u32 & MASK,
            written: (word >> WRITTEN) as u32 & MASK,
        }
    }

    pub(super) const fn pack(self) -> u64 {
        let state = match self.state {
            State::Undefined => 0,
            State::Unarmed => 1,
            State::Armed => 2,
        };
        let backlog = if self.backlog { BACKLOG } else { 0 };
        state | backlog | (self.read as u64) << READ | (self.written as u64) << WRITTEN
    }

    /// Entries that the driver has not acknowledged.
    ///
    /// The driver may have read an entry that is written and not counted yet; then none waits.
    pub(super) const fn unread(self) -> u32 {
        let unread = distance(self.read, self.written);
        if unread == MASK { 0 } else { unread }
    }

    pub(super) const fn advanced(self, count: u32) -> Word {
        Word {
            read: self.read.wrapping_add(count) & MASK,
            ..self
        }
    }

    pub(super) const fn after_write(self) -> Word {
        Word {
            written: self.written.wrapping_add(1) & MASK,
            ..self
        }
    }
}
