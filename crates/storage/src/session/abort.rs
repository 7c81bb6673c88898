//! Ending commands without ending their connection: ABORT TASK for one, LOGICAL UNIT RESET for all of a unit (RFC 7143 §11.5).
//! It promises that a command is taken back only when the target has said that it will say no more of it, and that others go on.
//! It refuses to guess: a target that does not abort what it is asked to is left, and its connection with it.
//!
//! Until the target has answered, responses of the commands in question are good (RFC 7143 §4.2.3.3), and what it asks for is sent.
//! One request of the kind is under way at a time: a target need not take more (§4.2.2.1).

use std::time::Instant;

use verbena_wire::iscsi::{Lun, NO_TAG, TaskFunction, TaskOutcome, TaskRequest, sn_lt};

use super::Session;
use super::link::Held;
use super::outcome::Outcome;
use crate::error::Error;

/// A request to abort that the target has not answered.
#[derive(Debug)]
pub(super) struct Abort {
    tag: u32,
    /// The command, until it has ended by itself.
    task: Option<u32>,
    until: Instant,
    why: String,
}

impl Session {
    /// Has the command with the owner's number `id` end; false if there is none under way. It ends in [`poll`](Session::poll) as any
    /// other, once: as the target ended it if that was sooner, else as [`Outcome::Cancelled`]. One that was not sent never is;
    /// for another the target is asked to abort it (RFC 7143 §11.5.1), and whether it has happened cannot be known. Its memory is
    /// its owner's again when it has ended, not before.
    pub fn cancel(&mut self, id: u64) -> bool {
        let found = self.tasks.numbers_of(|task| task.id == id);
        let Some(number) = found.first().copied() else {
            return false;
        };
        let Some(task) = self.tasks.get_mut(number) else {
            return false;
        };
        task.unwanted = true;
        if task.sent {
            self.call_off(number, "its owner cancelled it", true);
        } else {
            self.ready.retain(|one| *one != number);
            self.later.retain(|(_, one)| *one != number);
            self.finish(number, Outcome::Cancelled);
        }
        true
    }

    /// Resets a logical unit. Commands that were under way there are sent again if that is safe, and end as lost if not; the connection
    /// stays, and so does what is under way at other units.
    pub fn reset_unit(&mut self, lun: Lun) -> Result<(), Error> {
        self.until("answer to an abort", |session| session.abort.is_none())?;
        let itt = self.ask(TaskFunction::LogicalUnitReset, lun, (NO_TAG, 0))?;
        self.control.expect(itt);
        let answered = self.until("answer to a reset", |session| session.control.is_answered());
        let outcome = self.control.take_answer();
        answered?;
        match outcome {
            Some(TaskOutcome::Complete) => {}
            Some(outcome) => return Err(Error::Target(format!("reset of unit {lun}: {outcome}"))),
            None => return Err(Error::Lost("the answer to a reset".to_owned())),
        }
        let number = self.link.as_ref().and_then(|link| link.task_number(itt));
        let sent = self
            .tasks
            .numbers_of(|task| task.sent && task.command.lun == lun);
        for task in sent {
            match (self.held(task), number) {
                // RFC 7143 §4.2.3.2: those before the reset. What came after it, perhaps for the second time, goes on.
                (Held::There { cmd_sn, .. }, Some(reset)) if sn_lt(cmd_sn, reset) => {
                    self.take_back(task, "its unit was reset");
                }
                // RFC 7143 §11.5.1: it has no response, and we cannot know that nobody touches its memory.
                (Held::Bound, _) => self.give_up("a unit was reset"),
                _ => {}
            }
        }
        Ok(())
    }

    fn held(&self, number: u32) -> Held {
        let link = self.link.as_ref();
        link.map_or(Held::Ended, |link| link.held(number))
    }

    /// Commands that take too long or that nobody wants, and an abort that does.
    pub(super) fn watch_aborts(&mut self, now: Instant) {
        if let Some(abort) = self.abort.as_ref().filter(|abort| abort.until <= now) {
            if abort.task.is_some() {
                let (why, limit) = (&abort.why, self.options.silence);
                let why = format!("{why}, and the target did not abort it within {limit:?}");
                return self.give_up(&why);
            }
            // The command has ended all the same, and the next one may be asked for.
            self.abort = None;
        }
        let late = self
            .tasks
            .numbers_of(|task| task.sent && (task.unwanted || task.deadline <= now));
        for number in late {
            if self.is_busy() {
                break;
            }
            let unwanted = self.tasks.get(number).is_some_and(|task| task.unwanted);
            let limit = self.options.command;
            match unwanted {
                true => self.call_off(number, "its owner cancelled it", true),
                false => {
                    let why = format!("a command took longer than {limit:?}");
                    self.call_off(number, &why, false);
                }
            }
        }
    }

    /// A request about tasks is under way, which may be a reset that makes all others needless.
    fn is_busy(&self) -> bool {
        self.abort.is_some() || self.control.is_asking()
    }

    /// Has a command that was sent end, in the mildest way that there is.
    fn call_off(&mut self, number: u32, why: &str, unwanted: bool) {
        if self.is_busy() {
            // Its turn comes.
            return;
        }
        match self.held(number) {
            Held::Here if unwanted => self.take_back(number, why),
            // The target has taken no command for all that time, and would not take it now.
            Held::Here | Held::Bound => self.give_up(why),
            Held::There { itt, cmd_sn } => {
                let Some(lun) = self.tasks.get(number).map(|task| task.command.lun) else {
                    return;
                };
                match self.ask(TaskFunction::AbortTask, lun, (itt, cmd_sn)) {
                    Ok(tag) => {
                        self.abort = Some(Abort {
                            tag,
                            task: Some(number),
                            until: Instant::now() + self.options.silence,
                            why: why.to_owned(),
                        });
                    }
                    Err(error) => self.give_up(&format!("{why}, and {error}")),
                }
            }
            Held::Ended => {}
        }
    }

    /// A request about tasks leaves; its tag.
    fn ask(
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
        self.say(&request.emit(), &[])?;
        Ok(itt)
    }

    /// The target has answered a request about tasks.
    pub(super) fn hear_abort(&mut self, tag: u32, outcome: TaskOutcome) {
        let Some(Abort { task, why, .. }) = self.abort.take_if(|abort| abort.tag == tag) else {
            return;
        };
        match (task, outcome) {
            (Some(number), TaskOutcome::Complete) => self.take_back(number, &why),
            // RFC 7143 §11.6.1: a task that it does not know has had its response, which would have come before this.
            (Some(_), outcome) => {
                self.give_up(&format!(
                    "{why}, and the target did not abort it: {outcome}"
                ));
            }
            (None, _) => {}
        }
        // The next one need not wait for a tick.
        self.watch_aborts(Instant::now());
    }

    /// The command has ended by itself: whatever the target says to a request to abort it, there is nothing to take back.
    pub(super) fn settle_abort(&mut self, number: u32) {
        if let Some(abort) = self.abort.as_mut().filter(|one| one.task == Some(number)) {
            abort.task = None;
        }
    }

    /// Takes a command back from the link, whose word of it follows.
    fn take_back(&mut self, number: u32, why: &str) {
        let Some(link) = &mut self.link else {
            return;
        };
        if link.cancel(number)
            && let Some(task) = self.tasks.get_mut(number)
        {
            task.taken_back = Some(why.to_owned());
        }
    }
}
