//! How much commands under way will bring at least: the lengths of their answers, in classes of powers of two.
//! It promises never to name more than so many of the shortest of them have, whatever came and went.
//! It refuses to know which command is which.

use verbena_wire::iscsi::BHS_LEN;

use super::command::Command;
use super::expect::MUCH;
use crate::wr::Direction;

/// One class for nothing, and one for each power of two that a length may begin with.
const CLASSES: usize = 33;
/// It is worth waiting for such a part of the answers under way: the target has the others to go on with.
const PART: usize = 4;
/// For one alone nobody need wait.
const FEWEST: usize = 2;
/// Nor for others behind one that is so long: it is worth a wake-up of its own.
const LONG: usize = MUCH;

/// Answers that are to come.
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

    /// Bytes that a part of them has at least; none if that is not several, or each is long.
    pub(super) fn several(&self) -> Option<usize> {
        let part = self.all / PART;
        if part < FEWEST {
            return None;
        }
        let least = self.classes.iter().position(|count| *count > 0)?;
        let shortest = if least == 0 { 0 } else { 1 << (least - 1) };
        (shortest < LONG).then(|| part.saturating_mul(BHS_LEN + shortest))
    }
}

/// The class of what is read: 0 for nothing, else one more than the power of two that it begins with.
fn class(command: &Command) -> usize {
    let len = match command.direction {
        Direction::Read => command.len,
        // A status, or a request for data.
        Direction::Write | Direction::None => 0,
    };
    (u32::BITS - len.leading_zeros()) as usize
}

#[cfg(test)]
mod tests;
