//! Cancellation of a single command: its table entry is removed, its buffers belong to the consumer again, and later PDUs for it fail
//! their checks (M12). A cancelled command completes as flushed, and no response is delivered. The target is not informed: a caller that
//! cancels a command that was sent has aborted it before (RFC 7143 §11.5.1), or ignores its outcome.
//!
//! | state of the command | effect |
//! | --- | --- |
//! | in the send queue | removed: it had no tag and no CmdSN |
//! | sent, or being sent | the command PDU is sent, since the target expects its CmdSN; Data-Out PDUs not started are not |
//! | during a Data-In | the rest of that PDU is read and discarded |

use parking_lot::Mutex;
use verbena_nic::{Outbox, Status};

use super::command::Command;
use super::frame::Refused;
use super::inner::Inner;
use super::queues::{Queues, Request};
use super::verdict::Verdict;
use super::{Init, Qp};
use crate::wr::{CommandId, CommandState};

impl Qp {
    /// Cancels a command. After `true` its buffers are neither read nor written any more, its request completes as flushed, and no response
    /// to it is delivered. `false` if there is no such command: it has ended, and its end was reported. The caller transmits afterwards.
    pub fn cancel(&self, name: CommandId, out: &mut Outbox) -> bool {
        self.with_lock(out, |inner, init, queues, out| {
            inner.cancel(init, queues, name, out)
        })
    }

    /// State of a command, with its tag and CmdSN if it was sent; `None` if it has ended.
    pub fn command_state(&self, name: CommandId) -> Option<CommandState> {
        self.lock.read(|inner| {
            if let Some((_, command)) = inner.commands.find(name) {
                let (itt, cmd_sn) = (command.stag?.get(), command.cmd_sn);
                return Some(CommandState::Sent { itt, cmd_sn });
            }
            let queues = self.queues.lock();
            let mut waiting = queues.sends.iter();
            waiting
                .any(|request| has_id(request, name))
                .then_some(CommandState::Queued)
        })
    }

    /// The CmdSN of the last task management request, if it has this tag: a request for several tasks affects those with smaller CmdSN
    /// (RFC 7143 §4.2.3.2).
    pub fn task_request_cmd_sn(&self, itt: u32) -> Option<u32> {
        let last = self.lock.read(|inner| inner.task_request)?;
        (last.0 == itt).then_some(last.1)
    }
}

fn has_id(request: &Request, name: CommandId) -> bool {
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
            let found = queues.sends.iter().position(|one| has_id(one, name));
            found.and_then(|at| queues.sends.remove(at))
        };
        if let Some(request) = waiting {
            self.flush(init, queues, &request, out);
            return true;
        }
        let Some(slot) = self.commands.find(name).map(|(slot, _)| slot) else {
            return false;
        };
        self.discard_current_pdu(slot);
        self.bursts.retain(|burst| burst.slot != slot);
        let disowned = self.frames.detach_command(&init.ulp, &self.commands, slot);
        if let Some(command) = self.commands.remove(slot) {
            self.fail_command(init, queues, &command, Status::WrFlushErr, out);
        }
        if let Err(refusal) = disowned {
            // A PDU that has to be sent could not be copied.
            self.fail_gather(init, queues, &Refused { slot, refusal }, out);
        }
        true
    }

    /// Discards the PDU that is being read: its slot may belong to another command before the rest has come.
    fn discard_current_pdu(&mut self, slot: u32) {
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
            // The StatSN is consumed.
            self.note_status(stat_sn);
        }
    }
}
