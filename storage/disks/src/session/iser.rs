//! A link on RDMA: iSER (RFC 7145, M22) on an ordinary queue pair. Commands are Sends that advertise the memory of their data, which the
//! target accesses by RDMA Write and RDMA Read; responses are Sends of the target. No Send is posted that the target has no receive for,
//! as far as the command window and the login's keys tell, and there is a receive for everything that the target may send. Send with
//! Invalidate is rejected: memory of a session stays registered beyond its commands.

mod connect;
mod receive;
mod send;
mod sequence;
mod tags;

pub(crate) use connect::{IserDial, IserOptions};

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbena::low::{Arm, PostError, PostRecvError, QpState, RecvWr, Wc, WcOp};
use verbena::{Cq, Memory, Qp, Status};
use verbena_iscsi::Direction;
use verbena_iscsi::login::LoginOutcome;
use verbena_storage_wire::iscsi::{Attribute, BHS_LEN, Bhs, ScsiCommand};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};

use super::link::{CommandProgress, Link, LinkCommand, LinkEvent, TransferCounters};
use super::sleep_poll::{Polling, sleep_poll};
use crate::error::Error;
use send::WaitingPdu;
use sequence::SequenceNumbers;
use tags::Tags;

/// Bytes before the data of a PDU: iSER header and BHS.
const HEADERS_LEN: usize = HEADER_LEN + BHS_LEN;
/// Most bytes of data in a PDU in either direction: what we declare, and the default during login.
const MAX_DATA: usize = 8192;
/// Size of a receive.
const RECEIVE_LEN: usize = HEADERS_LEN + MAX_DATA;
/// Completions per poll.
const POLL_BATCH: usize = 64;
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
    receives: Memory,
    /// A command's Send buffer for every task number.
    command_buffers: Memory,
    /// Send buffers for PDUs with data, and the free ones.
    data_buffers: Memory,
    free: Vec<u64>,
    depth: usize,
    sequence: SequenceNumbers,
    tags: Tags,
    /// Sends that the target does not accept yet, in the order of their requests.
    waiting: VecDeque<WaitingPdu>,
    /// Commands that were cancelled before they were sent.
    flushed: Vec<u32>,
    /// Tags of immediate requests without an answer.
    immediate_tags: Vec<u32>,
    /// How many of them the target has receives for: MaxOutstandingUnexpectedPDUs (RFC 7145 §8.1).
    limit: usize,
    polling: Polling,
    /// Most bytes of data of a command, and (`max_send`) of a PDU to the target.
    max_data: u32,
    max_send: usize,
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
        let status = Status::WrFlushErr;
        let failed = self.tags.end_all();
        news.extend(failed.map(|task| LinkEvent::Failed { task, status }));
        let why = self.why.clone().or_else(|| self.qp.view().cause);
        let why = why.unwrap_or_else(|| "the target closed it".to_owned());
        news.push(LinkEvent::Ended(why));
    }
}

impl Link for Iser {
    fn begin(&mut self, settled: &LoginOutcome) {
        self.logged_in = true;
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
        let named = match order.buffer {
            Some(place) if direction != Direction::None => {
                // Checks that the whole range is within the memory.
                place.memory.sge(place.offset, order.len as usize)?;
                let at = place.memory.remote_addr(place.offset)?;
                Some((at.stag, at.to.get()))
            }
            _ => None,
        };
        if named.is_none() && direction != Direction::None {
            return refused("a command has data and no buffer for it".to_owned());
        }
        let task = order.task;
        let tag = self.tags.take(task, direction, order.len);
        let Some(itt) = tag.filter(|_| (task as usize) < self.depth) else {
            return refused(format!(
                "command {task} is already outstanding, or exceeds the queue depth"
            ));
        };
        let (read, write) = (direction == Direction::Read, direction == Direction::Write);
        let command = ScsiCommand {
            immediate: false,
            // RFC 7145 §7.3.1: no unsolicited data; the target fetches it.
            is_final: true,
            read,
            write,
            attribute: Attribute::Simple,
            ahs_len: 0,
            data_len: 0,
            lun: order.lun,
            itt,
            expected_len: order.len,
            cmd_sn: 0,
            exp_stat_sn: 0,
            cdb: order.cdb.bytes(),
        };
        self.waiting.push_back(WaitingPdu {
            header: IserHeader {
                write: named.filter(|_| write),
                read: named.filter(|_| read),
            },
            bhs: command.emit(),
            data: Vec::new(),
            task: Some(task),
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
        let texts = self.waiting.iter().filter(|one| one.task.is_none());
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
            data: data.to_vec(),
            task: None,
        });
        self.pump();
        Ok(())
    }

    fn poll(&mut self, news: &mut Vec<LinkEvent>) -> bool {
        // Before polling: if the link is down now, the completions polled are the last ones.
        let over = !self.is_up();
        let status = Status::WrFlushErr;
        let flushed = self.flushed.drain(..);
        news.extend(flushed.map(|task| LinkEvent::Failed { task, status }));
        let (mut completions, mut received) = ([Wc::default(); POLL_BATCH], false);
        let n = self.cq.poll(&mut completions);
        for wc in completions.iter().take(n) {
            // A failed request moves the queue pair to `Err`, which records the cause. After we closed it, received PDUs are ignored.
            if wc.status != Status::Success || self.why.is_some() {
                continue;
            }
            if wc.op != WcOp::Receive {
                self.free.push(wc.id);
                continue;
            }
            received = true;
            let received = self.handle_receive(wc, news);
            if let Err(why) = received.and_then(|()| self.post(wc.id)) {
                self.close(&why);
            }
        }
        if over && n < POLL_BATCH && !self.ended {
            self.conclude(news);
        } else if n > 0 {
            self.pump();
        }
        received
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        sleep_poll(
            &self.cq,
            &mut self.polling,
            self.tags.len(),
            beside,
            timeout,
        )
    }

    fn arm(&mut self) -> BorrowedFd<'_> {
        self.cq.arm(Arm::Next);
        self.cq.as_fd()
    }

    fn command_state(&self, task: u32) -> CommandProgress {
        if self.waiting.iter().any(|one| one.task == Some(task)) {
            return CommandProgress::Unsent;
        }
        match self.tags.of(task) {
            // The memory stays registered, so the target can access it for as long as there is a connection.
            Some(_) => CommandProgress::RdmaExposed,
            None => CommandProgress::Ended,
        }
    }

    fn cancel(&mut self, task: u32) -> bool {
        let waits = |one: &WaitingPdu| one.task == Some(task);
        let Some(at) = self.waiting.iter().position(waits) else {
            return false;
        };
        self.waiting.remove(at);
        if let Some(tag) = self.tags.of(task) {
            self.tags.end(tag);
        }
        self.flushed.push(task);
        true
    }

    fn close(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        // Immediately, without a disconnect handshake: from now on the target cannot access memory of commands that count as lost.
        self.qp.modify(QpState::Err);
    }

    fn transferred(&self) -> TransferCounters {
        self.transferred
    }
}

#[cfg(test)]
mod tests;
