//! Commands of a session from start to end, across reconnects. Each ends once, and one that was sent when a connection was lost is sent
//! again only if that is safe. Statuses are evaluated in `answer`.

use std::time::Instant;

use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::Lun;
use verbena_storage_wire::scsi::{Cdb, DeviceType};

use super::link::LinkCommand;
use crate::blocks::BufferRef;

/// A SCSI command for a session.
#[derive(Debug, Clone)]
pub struct Command {
    /// The logical unit.
    pub lun: Lun,
    /// Peripheral device type.
    pub device: DeviceType,
    /// The command.
    pub cdb: Cdb,
    /// Direction of the data.
    pub direction: Direction,
    /// Memory of the data.
    pub buffer: Option<BufferRef>,
    /// Bytes of data.
    pub len: u32,
    /// Idempotent: may be sent again after a lost connection.
    pub idempotent: bool,
}

impl Command {
    /// A command without data that may be repeated.
    pub fn plain(lun: Lun, device: DeviceType, cdb: Cdb) -> Command {
        Command {
            lun,
            device,
            cdb,
            direction: Direction::None,
            buffer: None,
            len: 0,
            idempotent: true,
        }
    }
}

/// An outstanding command.
#[derive(Debug)]
pub(super) struct Task {
    /// The owner's id.
    pub(super) id: u64,
    pub(super) command: Command,
    /// Time limit.
    pub(super) deadline: Instant,
    /// Retries after unit attention or busy.
    pub(super) tries: u32,
    /// Times that it was lost: with its connection, or by a timeout.
    pub(super) losses: u32,
    /// Passed to the link.
    pub(super) sent: bool,
    /// Cancelled by its owner.
    pub(super) cancel_requested: bool,
    /// Cancelled in the link, for this reason; the link's report is still to come.
    pub(super) cancelled: Option<String>,
}

impl Task {
    pub(super) fn link_command(&self, task: u32) -> LinkCommand<'_> {
        let command = &self.command;
        LinkCommand {
            task,
            lun: command.lun,
            device: command.device,
            cdb: command.cdb,
            direction: command.direction,
            buffer: command.buffer.as_ref(),
            len: command.len,
        }
    }
}

/// Outstanding commands, by task number.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<u32>,
    live: usize,
}

impl Tasks {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn add(&mut self, task: Task) -> u32 {
        self.live += 1;
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(task);
                at
            }
            None => {
                self.slots.push(Some(task));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Task> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn get(&self, at: u32) -> Option<&Task> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<Task> {
        let task = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.live -= 1;
        Some(task)
    }

    /// All task numbers.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(at, task)| task.as_ref().map(|_| at as u32))
            .collect()
    }

    /// Numbers of the tasks for which the predicate holds.
    pub(super) fn numbers_of(&self, so: impl Fn(&Task) -> bool) -> Vec<u32> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, task)| task.as_ref().is_some_and(&so))
            .map(|(at, _)| at as u32)
            .collect()
    }
}
