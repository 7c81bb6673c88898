//! The target's access to the memory of commands (M4, M9, M11). A command's memory is registered by the work request that sends the
//! command, with the rights and the range that the command needs, and the registration is invalidated before the command ends: by the
//! target's Send with Invalidate, or by a request of ours. Between commands the target can access nothing.

use verbena::low::{Data, Flags, Pd, SendOp, SendWr, Stag};
use verbena::mr::{FastRegMr, Ticket};
use verbena::{Access, Memory};
use verbena_iscsi::Direction;

use super::Iser;
use super::requests::PostOutcome;
use crate::error::Error;

/// A registration that was prepared, to be executed by the Send of its command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exposure {
    pub(super) ticket: Ticket,
    /// The address of its first byte.
    pub(super) base: u64,
}

/// An STag for each task number, allocated when it is first needed.
#[derive(Debug)]
pub(super) struct Registrations {
    pd: Pd,
    one_touch: bool,
    stags: Vec<FastRegMr>,
}

impl Registrations {
    pub(super) fn new(pd: &Pd, one_touch: bool) -> Registrations {
        Registrations {
            pd: pd.clone(),
            one_touch,
            stags: Vec::new(),
        }
    }

    /// Prepares the registration of `len` bytes of memory for a command. The task number has no other.
    pub(super) fn prepare(
        &mut self,
        task: u32,
        direction: Direction,
        memory: &Memory,
        (offset, len): (usize, usize),
    ) -> Result<Exposure, Error> {
        let access = match direction {
            Direction::Read => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Direction::Write => Access::REMOTE_READ,
            Direction::None => Access::NONE,
        };
        while self.stags.len() <= task as usize {
            // One page: the memory is contiguous.
            let stag = self.pd.fast_reg_mr(1)?;
            self.stags.push(match self.one_touch {
                true => stag.one_touch(),
                false => stag,
            });
        }
        let stag = &mut self.stags[task as usize];
        let (ticket, remote) = stag.register(memory, offset, len, access)?;
        let base = remote.remote_addr().to.get();
        Ok(Exposure { ticket, base })
    }

    /// The Send of a command was not posted and will not be.
    pub(super) fn withdraw(&mut self, task: u32, exposure: Exposure) {
        if let Some(stag) = self.stags.get_mut(task as usize) {
            stag.withdraw(exposure.ticket);
        }
    }

    /// The registration of a task is invalidated: its memory is not needed any more.
    pub(super) fn release(&mut self, task: u32) {
        if let Some(stag) = self.stags.get_mut(task as usize) {
            stag.release();
        }
    }
}

impl Iser {
    /// Posts the request that invalidates a command's STag. It runs after all Sends before it, that of the command included.
    pub(super) fn invalidate(&self, task: u32, stag: Stag) -> Result<(), String> {
        let request = SendWr {
            id: task.into(),
            op: SendOp::LocalInvalidate(stag),
            flags: Flags::SIGNALED,
            data: Data::Gather(&[]),
        };
        // In `Err` it is not executed, and the target has no access.
        match PostOutcome::of(self.qp.post_send(&[request]))? {
            PostOutcome::Posted => Ok(()),
            PostOutcome::QueueFull => Err(format!("{stag} is not invalidated: the queue is full")),
        }
    }

    /// The registration of a task was invalidated, by the target or by us.
    pub(super) fn set_invalidated(&mut self, task: u32) {
        self.registrations.release(task);
        self.events.set_invalidated(task);
    }
}
