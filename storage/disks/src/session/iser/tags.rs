//! Initiator task tags of outstanding commands: the session's task number and a counter. A response matches the command it was sent for or
//! none, so that a repeated response ends nothing else, and neither does a response to a command that was not sent.

use verbena::low::Stag;
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
    /// Its CmdSN, once it was sent.
    pub(super) cmd_sn: Option<u32>,
    /// The STag by which the target accesses its memory, once it was sent.
    pub(super) stag: Option<Stag>,
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
            cmd_sn: None,
            stag: None,
        });
        Some(tag)
    }

    /// The command with this task number is sent.
    pub(super) fn set_sent(&mut self, task: u32, cmd_sn: u32, stag: Option<Stag>) {
        let slot = self.slots.get_mut(task as usize);
        if let Some(command) = slot.and_then(Option::as_mut) {
            (command.cmd_sn, command.stag) = (Some(cmd_sn), stag);
        }
    }

    /// The sent command with this tag, and its task number.
    pub(super) fn sent(&self, tag: u32) -> Option<(u32, OutstandingCommand)> {
        let task = tag % NUMBERS;
        let command = self.of(task)?;
        (command.tag == tag && command.cmd_sn.is_some()).then_some((task, command))
    }

    /// Ends the command with this task number.
    pub(super) fn end(&mut self, task: u32) {
        if let Some(slot) = self.slots.get_mut(task as usize) {
            *slot = None;
        }
    }

    /// The command with this task number.
    pub(super) fn of(&self, task: u32) -> Option<OutstandingCommand> {
        *self.slots.get(task as usize)?
    }

    /// Number of outstanding commands.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Ends all commands. Returns their task numbers.
    pub(super) fn end_all(&mut self) -> impl Iterator<Item = u32> {
        let slots = core::mem::take(&mut self.slots);
        let numbered = slots.into_iter().enumerate();
        numbered.filter_map(|(at, command)| command.map(|_| at as u32))
    }
}
