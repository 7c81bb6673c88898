//! Ending commands without closing the connection: ABORT TASK for one, LOGICAL UNIT RESET for all of a unit (RFC 7143 §11.5). A command
//! is cancelled in the adapter only after the target has confirmed that no more PDUs for it follow; other commands continue. If the target
//! does not confirm, the connection is closed.
//!
//! Until the target has confirmed, responses to the commands concerned are valid (RFC 7143 §4.2.3.3), and its R2Ts are served. One such
//! request is outstanding at a time: a target need not accept more (§4.2.2.1).

use std::time::Instant;

use verbena_storage_wire::iscsi::{Lun, NO_TAG, TaskFunction, TaskOutcome, TaskRequest, sn_lt};

use super::Session;
use super::link::CommandProgress;
use super::outcome::Outcome;
use crate::error::Error;

/// An ABORT TASK request without a response.
#[derive(Debug)]
pub(super) struct Abort {
    tag: u32,
    /// The command, until it has ended with its own response.
    task: Option<u32>,
    until: Instant,
    why: String,
}

impl Session {
    /// Cancels the command with the owner's `id`; false if none is outstanding. It ends in [`poll`](Session::poll), once: with the target's
    /// result if that came first, otherwise with [`Outcome::Cancelled`]. A command that was not sent is never sent; for another the target is
    /// asked to abort it (RFC 7143 §11.5.1), and it may have been executed. Its memory belongs to the owner again only after it has ended.
    pub fn cancel(&mut self, id: u64) -> bool {
        let found = self.tasks.numbers_of(|task| task.id == id);
        let Some(number) = found.first().copied() else {
            return false;
        };
        let Some(task) = self.tasks.get_mut(number) else {
            return false;
        };
        task.cancel_requested = true;
        if task.sent {
            self.abort_command(number, "the caller cancelled it", true);
        } else {
            self.ready.retain(|one| *one != number);
            self.later.retain(|(_, one)| *one != number);
            self.finish(number, Outcome::Cancelled);
        }
        true
    }

    /// Resets a logical unit. Its outstanding commands are sent again if that is safe, and end as lost otherwise. The connection stays, and
    /// commands at other units continue.
    pub fn reset_unit(&mut self, lun: Lun) -> Result<(), Error> {
        self.until("answer to an abort", |session| session.abort.is_none())?;
        let itt = self.send_task_request(TaskFunction::LogicalUnitReset, lun, (NO_TAG, 0))?;
        self.control.expect(itt);
        let answered = self.until("answer to a reset", |session| session.control.is_answered());
        let outcome = self.control.take_response();
        answered?;
        match outcome {
            Some(TaskOutcome::Complete) => {}
            Some(outcome) => return Err(Error::Target(format!("reset of unit {lun}: {outcome}"))),
            None => {
                return Err(Error::Lost(
                    "while waiting for the answer to a reset".to_owned(),
                ));
            }
        }
        let number = self.link.as_ref().and_then(|link| link.task_cmd_sn(itt));
        let sent = self
            .tasks
            .numbers_of(|task| task.sent && task.command.lun == lun);
        for task in sent {
            match (self.command_state(task), number) {
                // RFC 7143 §4.2.3.2: a reset affects commands with smaller CmdSN. Later ones, repeated commands among them, continue.
                (CommandProgress::Sent { cmd_sn, .. }, Some(reset)) if sn_lt(cmd_sn, reset) => {
                    self.cancel_in_link(task, "its unit was reset");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn command_state(&self, number: u32) -> CommandProgress {
        let link = self.link.as_ref();
        link.map_or(CommandProgress::Ended, |link| link.command_state(number))
    }

    /// Aborts commands that exceed their time or were cancelled, and closes the connection if an abort exceeds its time.
    pub(super) fn check_aborts(&mut self, now: Instant) {
        if let Some(abort) = self.abort.as_ref().filter(|abort| abort.until <= now) {
            if abort.task.is_some() {
                let (why, limit) = (&abort.why, self.options.silence);
                let why = format!("{why}, and the target did not abort it within {limit:?}");
                return self.close_link(&why);
            }
            // The command has ended meanwhile, so the next abort may be sent.
            self.abort = None;
        }
        let late = self
            .tasks
            .numbers_of(|task| task.sent && (task.cancel_requested || task.deadline <= now));
        for number in late {
            if self.is_busy() {
                break;
            }
            let unwanted = self
                .tasks
                .get(number)
                .is_some_and(|task| task.cancel_requested);
            let limit = self.options.command;
            match unwanted {
                true => self.abort_command(number, "the caller cancelled it", true),
                false => {
                    let why = format!("a command took longer than {limit:?}");
                    self.abort_command(number, &why, false);
                }
            }
        }
    }

    /// Whether a task management request is outstanding; it may be a reset, which makes aborts unnecessary.
    fn is_busy(&self) -> bool {
        self.abort.is_some() || self.control.has_task_request()
    }

    /// Ends a command that was sent, with the least effect on others.
    fn abort_command(&mut self, number: u32, why: &str, unwanted: bool) {
        if self.is_busy() {
            // Repeated by `check_aborts`.
            return;
        }
        match self.command_state(number) {
            CommandProgress::Unsent if unwanted => self.cancel_in_link(number, why),
            // The target's command window was closed all that time.
            CommandProgress::Unsent => self.close_link(why),
            CommandProgress::Sent { itt, cmd_sn } => {
                let Some(lun) = self.tasks.get(number).map(|task| task.command.lun) else {
                    return;
                };
                match self.send_task_request(TaskFunction::AbortTask, lun, (itt, cmd_sn)) {
                    Ok(tag) => {
                        self.abort = Some(Abort {
                            tag,
                            task: Some(number),
                            until: Instant::now() + self.options.silence,
                            why: why.to_owned(),
                        });
                    }
                    Err(error) => self.close_link(&format!("{why}, and {error}")),
                }
            }
            CommandProgress::Ended => {}
        }
    }

    /// Sends a task management request. Returns its tag.
    fn send_task_request(
        &mut self,
        function: TaskFunction,
        lun: Lun,
        (reference, ref_cmd_sn): (u32, u32),
    ) -> Result<u32, Error> {
        let itt = self.control.next_tag();
        let request = TaskRequest {
            immediate: true,
            function,
            lun,
            itt,
            reference,
            cmd_sn: 0,
            exp_stat_sn: 0,
            ref_cmd_sn,
            exp_data_sn: 0,
        };
        self.send_pdu(&request.emit(), &[])?;
        Ok(itt)
    }

    /// Processes a task management response.
    pub(super) fn handle_abort_response(&mut self, tag: u32, outcome: TaskOutcome) {
        let Some(Abort { task, why, .. }) = self.abort.take_if(|abort| abort.tag == tag) else {
            return;
        };
        match (task, outcome) {
            (Some(number), TaskOutcome::Complete) => self.cancel_in_link(number, &why),
            // RFC 7143 §11.6.1: "task does not exist" means that its response was sent, and it would have come before this one.
            (Some(_), outcome) => {
                self.close_link(&format!(
                    "{why}, and the target did not abort it: {outcome}"
                ));
            }
            (None, _) => {}
        }
        // Send the next abort without waiting for a tick.
        self.check_aborts(Instant::now());
    }

    /// The command has ended with its own response: a later response to its abort has no effect.
    pub(super) fn settle_abort(&mut self, number: u32) {
        if let Some(abort) = self.abort.as_mut().filter(|one| one.task == Some(number)) {
            abort.task = None;
        }
    }

    /// Cancels a command in the link, which then reports it as failed.
    fn cancel_in_link(&mut self, number: u32, why: &str) {
        let Some(link) = &mut self.link else {
            return;
        };
        if link.cancel(number)
            && let Some(task) = self.tasks.get_mut(number)
        {
            task.cancelled = Some(why.to_owned());
        }
    }
}
