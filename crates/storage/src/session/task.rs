//! Commands of a session from the moment they are asked for until their end, over as many connections as it takes.
//! Tasks promise that each ends once, and that one which was sent when a connection was lost is sent again only if that is safe.
//! They refuse to judge statuses.

use std::time::Instant;

use verbena::low::Direction;
use verbena_wire::iscsi::Lun;
use verbena_wire::scsi::{Cdb, DeviceType};

use super::link::Order;
use crate::blocks::Place;

/// A SCSI command for a session.
#[derive(Debug, Clone)]
pub struct Command {
    /// The logical unit.
    pub lun: Lun,
    /// What kind of device it is.
    pub device: DeviceType,
    /// The command.
    pub cdb: Cdb,
    /// Which way its data goes.
    pub direction: Direction,
    /// Where its data is, or goes.
    pub place: Option<Place>,
    /// Bytes of data.
    pub len: u32,
    /// Doing it twice is doing it once: after a lost connection it is sent again.
    pub safe: bool,
}

impl Command {
    /// One without data that may be repeated.
    pub fn plain(lun: Lun, device: DeviceType, cdb: Cdb) -> Command {
        Command {
            lun,
            device,
            cdb,
            direction: Direction::None,
            place: None,
            len: 0,
            safe: true,
        }
    }
}

/// One under way.
#[derive(Debug)]
pub(super) struct Task {
    /// The owner's number.
    pub(super) id: u64,
    pub(super) command: Command,
    /// When it is too late.
    pub(super) deadline: Instant,
    /// Times that its unit had it sent again.
    pub(super) tries: u32,
    /// Times that it was lost: with its connection, or because it took too long.
    pub(super) losses: u32,
    /// On the link.
    pub(super) sent: bool,
    /// Its owner has no more use for it.
    pub(super) unwanted: bool,
    /// It was taken back from the link, for this reason; the link's word of it is still to come.
    pub(super) taken_back: Option<String>,
}

impl Task {
    pub(super) fn order(&self, task: u32) -> Order<'_> {
        let command = &self.command;
        Order {
            task,
            lun: command.lun,
            device: command.device,
            cdb: command.cdb,
            direction: command.direction,
            place: command.place.as_ref(),
            len: command.len,
        }
    }
}

/// All of them, by number.
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

    /// The numbers of all of them.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(at, task)| task.as_ref().map(|_| at as u32))
            .collect()
    }

    /// Those of which this is so, by number.
    pub(super) fn numbers_of(&self, so: impl Fn(&Task) -> bool) -> Vec<u32> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, task)| task.as_ref().is_some_and(&so))
            .map(|(at, _)| at as u32)
            .collect()
    }
}
