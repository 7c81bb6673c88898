//! Task tags of commands under way: the session's number of a command, and how often that number was used.
//! They promise that a response finds the command it was meant for or none, so that one which comes twice ends nothing else.
//! What a response says is not known here.

use verbena::low::Direction;

/// Most numbers of a session.
const NUMBERS: u32 = 1 << 16;
/// How often a number is used before its tags come again. The first half of a tag is never 0, as in those of logins and pings, and
/// never so great that a tag could be the one that names nothing.
const USES: u32 = 0x7fff;

/// A command under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Under {
    pub(super) tag: u32,
    pub(super) direction: Direction,
    pub(super) len: u32,
}

/// Commands under way, by the session's number.
#[derive(Debug, Default)]
pub(super) struct Tags {
    slots: Vec<Option<Under>>,
    /// Commands there were.
    count: u32,
}

impl Tags {
    /// A tag for a command; none if the number is too great, or in use.
    pub(super) fn take(&mut self, task: u32, direction: Direction, len: u32) -> Option<u32> {
        if task >= NUMBERS {
            return None;
        }
        let at = task as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        let slot = self.slots.get_mut(at).filter(|slot| slot.is_none())?;
        self.count = self.count % USES + 1;
        let tag = self.count << 16 | task;
        *slot = Some(Under {
            tag,
            direction,
            len,
        });
        Some(tag)
    }

    /// Ends the command with this tag, if there is one; its number.
    pub(super) fn end(&mut self, tag: u32) -> Option<(u32, Under)> {
        let task = tag % NUMBERS;
        let slot = self.slots.get_mut(task as usize)?;
        let under = (*slot).filter(|under| under.tag == tag)?;
        *slot = None;
        Some((task, under))
    }

    /// The tag of the command with this number.
    pub(super) fn of(&self, task: u32) -> Option<u32> {
        let slot = self.slots.get(task as usize)?;
        slot.map(|under| under.tag)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Ends all of them; their numbers.
    pub(super) fn end_all(&mut self) -> impl Iterator<Item = u32> {
        let slots = core::mem::take(&mut self.slots);
        let numbered = slots.into_iter().enumerate();
        numbered.filter_map(|(at, under)| under.map(|_| at as u32))
    }
}
