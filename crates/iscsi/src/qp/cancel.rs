//! Taking a single command back: its entry is destroyed, its buffers are its consumer's again, and whatever comes for it later fails
//! its checks (M12). It promises one end for every command: whoever takes one back sees it flushed, and no response.
//! It refuses to tell the target: who cancels what was sent has had it aborted before (RFC 7143 §11.5.1), or wants no more of it.
//!
//! | where the command is | what is left of it |
//! | --- | --- |
//! | in the send queue | nothing: it had no tag and no number |
//! | sent, or on its way | its own PDU leaves, since its CmdSN must come; data that has not begun to leave does not |
//! | amid a Data-In | the rest of that PDU is read and thrown away |

use parking_lot::Mutex;
use verbena_nic::{Outbox, Status};

use super::command::Command;
use super::frame::Refused;
use super::head::Verdict;
use super::inner::Inner;
use super::queues::{Queues, Request};
use super::{Init, Qp};
use crate::wr::{CommandId, Standing};

impl Qp {
    /// Takes a command back: when this returns true no byte of its buffers is read or written any more, its request completes as
    /// flushed, and no response to it comes up. False if there is no such command: it has ended, and its end was told.
    /// The caller transmits afterwards.
    pub fn cancel(&self, name: CommandId, out: &mut Outbox) -> bool {
        self.attend(out, |inner, init, queues, out| {
            inner.cancel(init, queues, name, out)
        })
    }

    /// Where a command is, and what the target knows it by; none if it has ended.
    pub fn standing(&self, name: CommandId) -> Option<Standing> {
        self.desk.look(|inner| {
            if let Some((_, command)) = inner.commands.named(name) {
                let (itt, cmd_sn) = (command.stag?.get(), command.cmd_sn);
                return Some(Standing::Sent { itt, cmd_sn });
            }
            let queues = self.queues.lock();
            let mut waiting = queues.sends.iter();
            waiting
                .any(|request| is_named(request, name))
                .then_some(Standing::Waits)
        })
    }

    /// The CmdSN that the last request about tasks left with, if it has this tag: commands with smaller ones are before it, and those
    /// are the ones that it is about (RFC 7143 §4.2.3.2).
    pub fn task_number(&self, itt: u32) -> Option<u32> {
        let last = self.desk.look(|inner| inner.task_request)?;
        (last.0 == itt).then_some(last.1)
    }
}

fn is_named(request: &Request, name: CommandId) -> bool {
    matches!(request, Request::Command(Command { command, .. }) if *command == name)
}

impl Inner {
    fn cancel(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        name: CommandId,
        out: &mut Outbox,
    ) -> bool {
        let waiting = {
            let mut queues = queues.lock();
            let found = queues.sends.iter().position(|one| is_named(one, name));
            found.and_then(|at| queues.sends.remove(at))
        };
        if let Some(request) = waiting {
            self.flush(init, queues, &request, out);
            return true;
        }
        let Some(slot) = self.commands.named(name).map(|(slot, _)| slot) else {
            return false;
        };
        self.forsake(slot);
        self.bursts.retain(|burst| burst.slot != slot);
        let disowned = self.frames.disown(&init.upper, &self.commands, slot);
        if let Some(command) = self.commands.remove(slot) {
            self.struck(init, queues, &command, Status::WrFlushErr, out);
        }
        if let Err(refusal) = disowned {
            // A PDU that must leave is not there to be copied.
            self.memory_gone(init, queues, &Refused { slot, refusal }, out);
        }
        true
    }

    /// The PDU that is coming is for nobody any more. Its slot may be another command's before all of it has come.
    fn forsake(&mut self, slot: u32) {
        let Some(body) = &mut self.intake.body else {
            return;
        };
        let stat_sn = match body.verdict {
            Verdict::DataIn { slot: of, pdu } if of == slot => pdu.status.map(|_| pdu.stat_sn),
            Verdict::Response { slot: of, stat_sn } if of == slot => Some(stat_sn),
            Verdict::R2t { slot: of, .. } if of == slot => None,
            _ => return,
        };
        body.verdict = Verdict::Drop;
        self.counters.dropped += 1;
        if let Some(stat_sn) = stat_sn {
            // Its number has come, whoever it was for.
            self.note_status(stat_sn);
        }
    }
}
