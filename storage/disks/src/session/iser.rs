//! A link on RDMA: iSER (RFC 7145, M22) on an ordinary queue pair. Commands are Sends that advertise the memory of their data, which the
//! target accesses by RDMA Write and RDMA Read; responses are Sends of the target. No Send is posted that the target has no receive for,
//! as far as the command window and the login's keys tell, and there is a receive for everything that the target may send. A command's
//! memory is registered by its own Send, and that registration is invalidated before the command ends: by the target, or else by us.

mod connect;
mod events;
mod receive;
mod registrations;
mod requests;
mod send;
mod sequence;
mod tags;
mod unsolicited;

pub(crate) use connect::{IserDial, IserOptions};

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbena::low::{Arm, Cq, PostError, PostRecvError, Qp, QpState, RecvWr, Sge, Wc, WcOp};
use verbena::{Access, Memory, Status};
use verbena_iscsi::login::LoginOutcome;
use verbena_iscsi::{Direction, Terms};
use verbena_storage_wire::iscsi::{Attribute, BHS_LEN, Bhs, ScsiCommand};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};

use super::link::{CommandProgress, Link, LinkCommand, LinkEvent, TransferCounters};
use super::sleep_poll::{Polling, sleep_poll};
use crate::error::Error;
use events::Events;
use registrations::{Exposure, Registrations};
use send::{Body, CommandBody, WaitingPdu};
use sequence::SequenceNumbers;
use tags::Tags;
use unsolicited::{Burst, FIRST_DATA_OUT, part};

/// Bytes before the data of a PDU: iSER header and BHS.
const HEADERS_LEN: usize = HEADER_LEN + BHS_LEN;
/// Most bytes of data in a PDU in either direction: what we declare, and the default during login.
const MAX_DATA: usize = 8192;
/// Size of a receive.
const RECEIVE_LEN: usize = HEADERS_LEN + MAX_DATA;
/// Completions per poll.
const POLL_BATCH: usize = 64;
/// Polls of the completion queue at once: the first may cause invalidations, which are mostly complete in the second.
const ROUNDS: usize = 2;
/// Most requests other than commands that wait to be sent.
const MAX_WAITING: usize = 64;
/// Send buffers for PDUs with data; login and discovery use one at a time.
const DATA_BUFFERS: u64 = 4;
/// Position of DataSegmentLength and of the task tag in a BHS.
const DATA_LEN: core::ops::Range<usize> = 5..8;
const TAG: usize = 16;

/// A link on RDMA.
pub(crate) struct Iser {
    // Dropped first: it may still access the memory below.
    qp: Qp,
    cq: Cq,
    registrations: Registrations,
    receives: Memory,
    /// Buffers for headers: one for every task number, then those of Data-Out PDUs, of which `free_headers` are free.
    header_buffers: Memory,
    free_headers: Vec<u64>,
    /// Send buffers for PDUs with data, and the free ones.
    data_buffers: Memory,
    free: Vec<u64>,
    depth: usize,
    sequence: SequenceNumbers,
    tags: Tags,
    /// Sends that the target does not accept yet, in the order of their requests.
    waiting: VecDeque<WaitingPdu>,
    /// Unsolicited data of the last command, as far as it was not sent.
    burst: Option<Burst>,
    events: Events,
    /// Tags of immediate requests without an answer.
    immediate_tags: Vec<u32>,
    /// How many of them the target has receives for: MaxOutstandingUnexpectedPDUs (RFC 7145 §8.1).
    limit: usize,
    /// Tag and CmdSN of the last task management request.
    task_request: Option<(u32, u32)>,
    polling: Polling,
    /// Most bytes of data of a command, and (`max_send`) of a PDU to the target other than a command.
    max_data: u32,
    max_send: usize,
    /// Parameters of the login.
    terms: Terms,
    logged_in: bool,
    /// Why we closed it.
    why: Option<String>,
    ended: bool,
    transferred: TransferCounters,
}

fn text(error: &verbena::Error) -> String {
    error.to_string()
}

impl Iser {
    fn post(&mut self, slot: u64) -> Result<(), String> {
        let scatter = self.receives.sge(slot as usize * RECEIVE_LEN, RECEIVE_LEN);
        let scatter = [scatter.map_err(|error| text(&error))?];
        let wr = RecvWr {
            id: slot,
            scatter: &scatter,
        };
        match self.qp.post_recv(&[wr]) {
            // In `Err` receives are not accepted, and not needed.
            Ok(())
            | Err(PostRecvError {
                source: PostError::State(_),
                ..
            }) => Ok(()),
            Err(PostRecvError { source: why, .. }) => Err(why.to_string()),
        }
    }

    /// Whether the queue pair can send and receive.
    fn is_up(&self) -> bool {
        self.why.is_none() && self.qp.state() == QpState::Rts
    }

    /// Reports the last events.
    fn conclude(&mut self, news: &mut Vec<LinkEvent>) {
        self.ended = true;
        self.waiting.clear();
        self.burst = None;
        self.events.report_all(news);
        let status = Status::WrFlushErr;
        let failed = self.tags.end_all();
        news.extend(failed.map(|task| LinkEvent::Failed { task, status }));
        let why = self.why.clone().or_else(|| self.qp.view().cause);
        let why = why.unwrap_or_else(|| "the target closed it".to_owned());
        news.push(LinkEvent::Ended(why));
    }

    /// Processes a completion; true if something was received.
    fn handle_completion(&mut self, wc: &Wc) -> bool {
        // A failed request moves the queue pair to `Err`, which records the cause. After we closed it, received PDUs are ignored.
        if wc.status != Status::Success || self.why.is_some() {
            return false;
        }
        match wc.op {
            WcOp::Receive => {
                let received = self.handle_receive(wc);
                if let Err(why) = received.and_then(|()| self.post(wc.id)) {
                    self.close(&why);
                }
                return true;
            }
            WcOp::LocalInvalidate => self.set_invalidated(wc.id as u32),
            _ => match wc.id.checked_sub(FIRST_DATA_OUT) {
                Some(slot) => self.free_headers.push(slot),
                None => self.free.push(wc.id),
            },
        }
        false
    }

    /// The command's data: checks that the whole range is within its memory, and that we may access it.
    fn data_of(order: &LinkCommand<'_>, direction: Direction) -> Result<Option<Sge>, Error> {
        let needs = match direction {
            Direction::None => return Ok(None),
            Direction::Read => Access::LOCAL_WRITE,
            Direction::Write => Access::LOCAL_READ,
        };
        let Some(place) = order.buffer else {
            let why = "a command has data and no buffer for it".to_owned();
            return Err(Error::Link(why));
        };
        let has = place.memory.access();
        if !has.contains(needs) {
            return Err(verbena::Error::MissingAccess { has, needs }.into());
        }
        Ok(Some(place.memory.sge(place.offset, order.len as usize)?))
    }

    /// Prepares the target's access to what it has to move of a command's data: not to unsolicited data.
    fn expose(
        &mut self,
        order: &LinkCommand<'_>,
        direction: Direction,
        unsolicited: u32,
    ) -> Result<Option<Exposure>, Error> {
        match order.buffer {
            Some(place) if direction != Direction::None && unsolicited < order.len => {
                let start = place.offset + unsolicited as usize;
                let range = (start, (order.len - unsolicited) as usize);
                let exposure =
                    self.registrations
                        .prepare(order.task, direction, &place.memory, range)?;
                Ok(Some(exposure))
            }
            _ => Ok(None),
        }
    }
}

impl Link for Iser {
    fn begin(&mut self, settled: &LoginOutcome) {
        self.logged_in = true;
        self.terms = settled.terms;
        self.immediate_tags.clear();
        if let Some(terms) = settled.iser {
            self.max_send = self.max_send.min(terms.max_send as usize);
            self.limit = match terms.unexpected_out {
                0 => usize::MAX,
                limit => limit as usize,
            };
        }
    }

    fn send_command(&mut self, order: &LinkCommand<'_>) -> Result<(), Error> {
        let refused = |why: String| Err(Error::Link(why));
        if !self.logged_in {
            return refused("commands cannot be sent before the login".to_owned());
        }
        if order.len > self.max_data {
            let (len, most) = (order.len, self.max_data);
            return refused(format!(
                "a command with {len} bytes over iSER, at most {most} are possible: use smaller requests, or raise the configured limit of the target"
            ));
        }
        let direction = match order.len {
            0 => Direction::None,
            _ => order.direction,
        };
        let data = Iser::data_of(order, direction)?;
        let task = order.task;
        let in_depth = (task as usize) < self.depth;
        let tag = in_depth.then(|| self.tags.take(task, direction, order.len));
        let Some(itt) = tag.flatten() else {
            return refused(format!(
                "command {task} is already outstanding, or exceeds the queue depth"
            ));
        };
        let (read, write) = (direction == Direction::Read, direction == Direction::Write);
        let (immediate, unsolicited) = match write {
            true => self.terms.unsolicited(order.len),
            false => (0, 0),
        };
        let exposed = self.expose(order, direction, unsolicited);
        let exposure = exposed.inspect_err(|_| self.tags.end(task))?;
        let command = ScsiCommand {
            immediate: false,
            is_final: immediate == unsolicited,
            read,
            write,
            attribute: Attribute::Simple,
            ahs_len: 0,
            data_len: immediate,
            lun: order.lun,
            itt,
            expected_len: order.len,
            cmd_sn: 0,
            exp_stat_sn: 0,
            cdb: order.cdb.bytes(),
        };
        let burst = data.filter(|_| immediate < unsolicited).map(|data| Burst {
            task,
            itt,
            lun: order.lun,
            data: part(data, 0, unsolicited),
            offset: immediate,
            data_sn: 0,
        });
        let advertised = exposure.map(|exposure| (exposure.ticket.stag(), exposure.base));
        self.waiting.push_back(WaitingPdu {
            header: IserHeader {
                write: advertised.filter(|_| write),
                read: advertised.filter(|_| read),
            },
            bhs: command.emit(),
            body: Body::Command(CommandBody {
                task,
                immediate: data
                    .filter(|_| immediate > 0)
                    .map(|data| part(data, 0, immediate)),
                burst,
                exposure,
            }),
        });
        self.pump();
        Ok(())
    }

    fn send_pdu(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Error> {
        if !self.is_up() {
            return Err(Error::Lost("there is no connection now".to_owned()));
        }
        if data.len() > self.max_send {
            let (len, most) = (data.len(), self.max_send);
            let why = format!("{len} bytes in a PDU, the target accepts at most {most}");
            return Err(Error::Link(why));
        }
        let texts = self.waiting.iter().filter(|one| one.command().is_none());
        if texts.count() >= MAX_WAITING {
            let why = format!("{MAX_WAITING} PDUs wait for the target to answer others");
            return Err(Error::Link(why));
        }
        let mut bhs = *bhs;
        let len = (data.len() as u32).to_be_bytes();
        if let (Some(to), Some(from)) = (bhs.get_mut(DATA_LEN), len.get(1..)) {
            to.copy_from_slice(from);
        }
        self.waiting.push_back(WaitingPdu {
            header: IserHeader::default(),
            bhs,
            body: Body::Control(data.to_vec()),
        });
        self.pump();
        Ok(())
    }

    fn poll(&mut self, news: &mut Vec<LinkEvent>) -> bool {
        // Before polling: if the link is down now, the completions polled are the last ones.
        let over = !self.is_up();
        let mut completions = [Wc::default(); POLL_BATCH];
        let (mut n, mut any, mut received) = (0, false, false);
        for _ in 0..ROUNDS {
            n = self.cq.poll(&mut completions);
            any |= n > 0;
            for wc in completions.iter().take(n) {
                received |= self.handle_completion(wc);
            }
            if !self.events.must_wait() {
                break;
            }
        }
        if over && n < POLL_BATCH && !self.ended {
            self.conclude(news);
        } else {
            self.events.report(news);
            if any {
                self.pump();
            }
        }
        received
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        sleep_poll(
            &self.cq,
            &mut self.polling,
            self.tags.len() + self.events.len(),
            beside,
            timeout,
        )
    }

    fn arm(&mut self) -> BorrowedFd<'_> {
        self.cq.arm(Arm::Next);
        self.cq.as_fd()
    }

    fn command_state(&self, task: u32) -> CommandProgress {
        match self.tags.of(task) {
            Some(command) => match command.cmd_sn {
                Some(cmd_sn) => CommandProgress::Sent {
                    itt: command.tag,
                    cmd_sn,
                },
                None => CommandProgress::Unsent,
            },
            None => CommandProgress::Ended,
        }
    }

    fn task_cmd_sn(&self, tag: u32) -> Option<u32> {
        let (_, cmd_sn) = self.task_request.filter(|(last, _)| *last == tag)?;
        Some(cmd_sn)
    }

    fn cancel(&mut self, task: u32) -> bool {
        let Some(command) = self.tags.of(task) else {
            return false;
        };
        let status = Status::WrFlushErr;
        let failed = LinkEvent::Failed { task, status };
        if command.cmd_sn.is_some() {
            if let Err(why) = self.end_command(task, None, failed) {
                self.close(&why);
            }
            return true;
        }
        let waits = |one: &WaitingPdu| one.command().is_some_and(|command| command.task == task);
        let at = self.waiting.iter().position(waits);
        let unsent = at.and_then(|at| self.waiting.remove(at));
        let unsent = unsent.as_ref().and_then(WaitingPdu::command);
        if let Some(exposure) = unsent.and_then(|command| command.exposure) {
            self.registrations.withdraw(task, exposure);
        }
        self.tags.end(task);
        self.events.push(failed);
        true
    }

    fn close(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        // Immediately, without a disconnect handshake: from now on the target cannot access memory of commands that count as lost.
        // It fails only when the adapter is closed, and then no target accesses anything.
        let _ = self.qp.modify(QpState::Err);
    }

    fn transferred(&self) -> TransferCounters {
        self.transferred
    }
}

#[cfg(test)]
mod tests;
