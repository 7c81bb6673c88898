//! Processing of PDUs from the target: responses, NOP-In, Reject, and asynchronous messages. A target that violates the protocol has its
//! connection closed, with the violation as the reason. Reconnecting is in `recover`.

use std::time::{Duration, Instant};

use verbena::Status;
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{
    Bhs, FromTarget, Lun, NO_TAG, NopIn, NopOut, Reject, Residual, TaskOutcome,
};

use super::Session;
use super::link::{CommandTransfer, LinkEvent};
use super::outcome::Outcome;
use crate::error::Error;

/// Retries of a command after a unit attention.
const ATTENTIONS: u32 = 5;
/// Retries of a command whose unit was busy, and the delay between them.
const BUSY: (u32, Duration) = (200, Duration::from_millis(10));

/// Outstanding requests of the session other than commands.
#[derive(Debug, Default)]
pub(super) struct Control {
    tag: u8,
    /// Tag of a NOP-Out without an answer, and when it was sent.
    pub(super) ping: Option<(u32, Instant)>,
    /// Tag of the last NOP-Out that was answered.
    pub(super) pong: Option<u32>,
    /// Tag of a task management request (other than an abort) and its response.
    task_request: Option<(u32, Option<TaskOutcome>)>,
    /// A logout was requested by the owner.
    pub(super) logging_out: bool,
    /// It was answered.
    pub(super) logged_out: bool,
}

impl Control {
    /// A task tag that no command has: tags of commands are STags with an index of at least 1, hence at least 256.
    pub(super) fn next_tag(&mut self) -> u32 {
        self.tag = self.tag.checked_add(1).unwrap_or(2).max(2);
        self.tag.into()
    }

    /// Sets the request whose response is waited for.
    pub(super) fn expect(&mut self, tag: u32) {
        self.task_request = Some((tag, None));
    }

    /// Whether no response is waited for any more: it came, or cannot come.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.task_request, Some((_, None)))
    }

    /// Whether there is a request whose response was not taken.
    pub(super) fn has_task_request(&self) -> bool {
        self.task_request.is_some()
    }

    pub(super) fn take_response(&mut self) -> Option<TaskOutcome> {
        self.task_request.take()?.1
    }

    /// Records a response; others than the expected one are ignored.
    fn record(&mut self, tag: u32, outcome: TaskOutcome) {
        if let Some((asked, answer)) = &mut self.task_request
            && *asked == tag
        {
            answer.get_or_insert(outcome);
        }
    }

    /// The connection was lost, and with it the outstanding requests.
    pub(super) fn reset(&mut self) {
        self.ping = None;
        self.task_request = None;
    }
}

impl Session {
    pub(super) fn handle_event(&mut self, news: LinkEvent) {
        match news {
            LinkEvent::Response {
                task,
                bhs,
                data,
                transferred: carried,
            } => self.respond(task, &bhs, &data, carried),
            LinkEvent::Failed { task, status } => self.failed(task, status),
            LinkEvent::Pdu { bhs, data } => self.handle_pdu(&bhs, &data),
            LinkEvent::Ended(why) => self.handle_link_end(&why),
        }
    }

    /// Processes the response to a command.
    fn respond(&mut self, number: u32, bhs: &Bhs, data: &[u8], carried: Option<CommandTransfer>) {
        let outcome = match Outcome::parse(bhs, data) {
            Ok(outcome) => outcome,
            Err(why) => return self.reject_response(number, &format!("a response: {why}")),
        };
        // The command ended before the target processed an abort of it.
        self.settle_abort(number);
        let Some(task) = self.tasks.get_mut(number) else {
            return;
        };
        // RFC 7143 §11.4.5: a residual count reports missing data. Without one, good status means that all of it was transferred.
        let moved = match (task.command.direction, carried) {
            (Direction::Read, Some(carried)) => Some(carried.received),
            (Direction::Write, Some(carried)) => Some(carried.sent),
            (Direction::None, _) | (_, None) => None,
        };
        if let (Outcome::Good(residual), Some(moved)) = (&outcome, moved) {
            let owed = match residual {
                Residual::Underflow(less) => task.command.len.saturating_sub(*less),
                Residual::None | Residual::Overflow(_) => task.command.len,
            };
            if moved < owed {
                let why = format!("good status after {moved} of {owed} bytes");
                return self.reject_response(number, &why);
            }
        }
        let (tries, safe) = (
            task.tries,
            task.command.idempotent && !task.cancel_requested,
        );
        if outcome.is_attention() && safe && tries < ATTENTIONS {
            task.tries += 1;
            task.sent = false;
            self.ready.push_back(number);
        } else if outcome.is_busy() && safe && tries < BUSY.0 {
            task.tries += 1;
            task.sent = false;
            self.later.push((Instant::now() + BUSY.1, number));
        } else {
            self.finish(number, outcome);
        }
    }

    /// The response to this command violates the protocol; the adapter has released the command already.
    fn reject_response(&mut self, number: u32, why: &str) {
        self.handle_lost_command(number, why);
        self.close_link(why);
    }

    /// The adapter did not send a command, or the command will have no response.
    fn failed(&mut self, number: u32, status: Status) {
        match status {
            Status::WrFlushErr => {
                let task = self.tasks.get_mut(number);
                let why = task.and_then(|task| task.cancelled.take());
                self.handle_lost_command(
                    number,
                    why.as_deref().unwrap_or("the connection was lost"),
                );
            }
            status => {
                let why = format!("the adapter refused it: {status:?}");
                self.finish(number, Outcome::Unsent(why));
            }
        }
    }

    /// Any other PDU.
    fn handle_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        let pdu = match FromTarget::parse(bhs) {
            Ok(pdu) => pdu,
            Err(why) => return self.close_link(&format!("the target's PDU: {why}")),
        };
        match pdu {
            FromTarget::NopIn(nop) => self.handle_nop_in(&nop, data),
            FromTarget::TaskResponse(task) => {
                self.control.record(task.itt, task.response);
                self.handle_abort_response(task.itt, task.response);
            }
            FromTarget::LogoutResponse(_) if self.control.logging_out || self.is_logging_out() => {
                self.finish_logout();
            }
            FromTarget::AsyncMessage(message) => self.handle_async_message(&message),
            FromTarget::Reject(reject) => self.rejected(&reject, data),
            // Data or an R2T that failed the adapter's checks; a login or text response without a request.
            pdu => self.close_link(&format!("the target sent an unexpected PDU: {pdu}")),
        }
    }

    fn handle_nop_in(&mut self, nop: &NopIn, data: &[u8]) {
        if let Some((tag, _)) = self.control.ping
            && nop.itt == tag
        {
            self.control.ping = None;
            self.control.pong = Some(tag);
        }
        if nop.wants_answer() {
            let answer = NopOut {
                immediate: true,
                data_len: 0,
                lun: nop.lun,
                itt: NO_TAG,
                ttt: nop.ttt,
                cmd_sn: 0,
                exp_stat_sn: 0,
            };
            // RFC 7143 §11.18: the answer to a NOP-In carries no data. If it cannot be sent, the link has ended.
            let _ = (data, self.send_pdu(&answer.emit(), &[]));
        }
    }

    fn rejected(&mut self, reject: &Reject, data: &[u8]) {
        let what = Reject::header(data).ok().and_then(|bhs| {
            let pdu = verbena_storage_wire::iscsi::FromInitiator::parse(bhs).ok()?;
            Some(pdu.to_string())
        });
        let what = what.unwrap_or_else(|| "a PDU".to_owned());
        self.close_link(&format!("the target rejected {what}: {}", reject.reason));
    }

    /// Sends a NOP-Out. Returns its tag.
    pub(super) fn send_ping(&mut self) -> Result<u32, Error> {
        let itt = self.control.next_tag();
        let ping = NopOut {
            immediate: true,
            data_len: 0,
            lun: Lun::default(),
            itt,
            ttt: NO_TAG,
            cmd_sn: 0,
            exp_stat_sn: 0,
        };
        self.send_pdu(&ping.emit(), &[])?;
        self.control.ping = Some((itt, Instant::now()));
        self.control.pong = None;
        Ok(itt)
    }
}
