//! The table of outstanding commands: slots that are reused, how many of them read, and a bound on the answers to come. A slot's number
//! is kept in the command's entry of the translation and protection table.

use super::answers::Answers;
use super::command::Command;
use crate::wr::{CommandId, Direction};

/// Commands that were executed and have no response yet.
#[derive(Debug, Default)]
pub(super) struct Commands {
    slots: Vec<Option<Command>>,
    free: Vec<u32>,
    reading: usize,
    answers: Answers,
}

impl Commands {
    /// The slot of the next command.
    pub(super) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    /// Stores a command in the next slot.
    pub(super) fn add(&mut self, command: Command) {
        self.reading += usize::from(command.direction == Direction::Read);
        self.answers.add(&command);
        match self.free.pop() {
            Some(at) => self.slots[at as usize] = Some(command),
            None => self.slots.push(Some(command)),
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Command> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Command> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Command> {
        let command = self.slots.get_mut(slot as usize)?.take()?;
        self.reading -= usize::from(command.direction == Direction::Read);
        self.answers.remove(&command);
        self.free.push(slot);
        Some(command)
    }

    /// The command with this id, and its slot. A linear search, used by cancellation only.
    pub(super) fn find(&self, name: CommandId) -> Option<(u32, &Command)> {
        let all = self.slots.iter().enumerate();
        let mut live = all.filter_map(|(at, slot)| Some((at as u32, slot.as_ref()?)));
        live.find(|(_, command)| command.command == name)
    }

    /// Removes all, in the order of their slots.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.free.clear();
        self.reading = 0;
        self.answers = Answers::default();
        core::mem::take(&mut self.slots).into_iter().flatten()
    }

    /// Expected lengths of the answers.
    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Whether a command reads, so that Data-In may come.
    pub(super) fn has_reads(&self) -> bool {
        self.reading > 0
    }
}
