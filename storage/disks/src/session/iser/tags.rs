//! Initiator task tags of outstanding commands: the session's task number and a counter. A response matches the command it was sent for or
//! none, so that a repeated response ends nothing else.

use verbena_iscsi::Direction;

/// Limit on task numbers.
const NUMBERS: u32 = 1 << 16;
/// The counter in the upper half of a tag runs from 1 to this value. It is not 0, as in tags of logins and NOP-Outs, and too small for
/// the reserved tag 0xffffffff.
const MAX_COUNTER: u32 = 0x7fff;

/// An outstanding command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutstandingCommand {
    pub(super) tag: u32,
    pub(super) direction: Direction,
    pub(super) len: u32,
}

/// Outstanding commands, by task number.
#[derive(Debug, Default)]
pub(super) struct Tags {
    slots: Vec<Option<OutstandingCommand>>,
    /// Counter of the last tag.
    count: u32,
}

impl Tags {
    /// A tag for a command; `None` if the task number is too large or in use.
    pub(super) fn take(&mut self, task: u32, direction: Direction, len: u32) -> Option<u32> {
        if task >= NUMBERS {
            return None;
        }
        let at = task as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        let slot = self.slots.get_mut(at).filter(|slot| slot.is_none())?;
        self.count = self.count % MAX_COUNTER + 1;
        let tag = self.count << 16 | task;
        *slot = Some(OutstandingCommand {
            tag,
            direction,
            len,
        });
        Some(tag)
    }

    /// Ends the command with this tag. Returns its task number.
    pub(super) fn end(&mut self, tag: u32) -> Option<(u32, OutstandingCommand)> {
        let task = tag % NUMBERS;
        let slot = self.slots.get_mut(task as usize)?;
        let under = (*slot).filter(|under| under.tag == tag)?;
        *slot = None;
        Some((task, under))
    }

    /// The tag of the command with this task number.
    pub(super) fn of(&self, task: u32) -> Option<u32> {
        let slot = self.slots.get(task as usize)?;
        slot.map(|under| under.tag)
    }

    /// Number of outstanding commands.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Ends all commands. Returns their task numbers.
    pub(super) fn end_all(&mut self) -> impl Iterator<Item = u32> {
        let slots = core::mem::take(&mut self.slots);
        let numbered = slots.into_iter().enumerate();
        numbered.filter_map(|(at, under)| under.map(|_| at as u32))
    }
}
