//! A lower bound on the bytes that answers to outstanding commands will have. Lengths are counted in classes of powers of two; the bound
//! takes every answer for as long as the lower end of the shortest class.

use verbena_storage_wire::iscsi::BHS_LEN;

use super::command::Command;
use crate::wr::Direction;

/// One class for length 0, and one for each position of the highest set bit.
const CLASSES: usize = 33;
/// The fraction of the outstanding answers (1/4) that is waited for: the target meanwhile works on the others.
const FRACTION: usize = 4;
/// Fewest answers that are waited for together.
const MIN_ANSWERS: usize = 2;
/// An answer of this length is worth a wake-up of its own.
pub(super) const LONG: usize = 64 << 10;

/// Answers to come.
#[derive(Debug)]
pub(super) struct Answers {
    all: usize,
    classes: [u32; CLASSES],
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            all: 0,
            classes: [0; CLASSES],
        }
    }
}

impl Answers {
    pub(super) fn add(&mut self, command: &Command) {
        self.all += 1;
        self.classes[class(command)] += 1;
    }

    pub(super) fn remove(&mut self, command: &Command) {
        self.all -= 1;
        self.classes[class(command)] -= 1;
    }

    /// Bytes that the fraction of them has at least; `None` if it is fewer than [`MIN_ANSWERS`], or if every answer is long.
    pub(super) fn coalesced_bytes(&self) -> Option<usize> {
        let part = self.all / FRACTION;
        if part < MIN_ANSWERS {
            return None;
        }
        let least = self.classes.iter().position(|count| *count > 0)?;
        let shortest = if least == 0 { 0 } else { 1 << (least - 1) };
        (shortest < LONG).then(|| part.saturating_mul(BHS_LEN + shortest))
    }
}

/// The class of a command's read length: 0 for none, otherwise the position of the highest set bit plus one.
fn class(command: &Command) -> usize {
    let len = match command.direction {
        Direction::Read => command.len,
        // A SCSI Response, or an R2T.
        Direction::Write | Direction::None => 0,
    };
    (u32::BITS - len.leading_zeros()) as usize
}

#[cfg(test)]
mod tests;
