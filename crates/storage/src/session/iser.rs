//! A link on RDMA: iSER (RFC 7145, M22) on an ordinary queue pair. Commands leave in Sends that name the memory of their data, which
//! the target writes or reads by itself; responses come in Sends.
//! It promises that no Send leaves which the target has no receive for, as far as numbers and terms can tell, and a receive of ours for
//! everything that the target may send. It refuses Send with Invalidate: memory of a session outlives its commands.

mod connect;
mod hear;
mod numbers;
mod send;
mod tags;

pub(crate) use connect::{How, IserDial};

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbena::low::{Arm, BLANK, Direction, PostError, QpState, RecvWr, WcOp};
use verbena::{Cq, Memory, Qp, Status};
use verbena_iscsi::login::Settled;
use verbena_wire::iscsi::{Attribute, BHS_LEN, Bhs, ScsiCommand};
use verbena_wire::iser::{HEADER_LEN, IserHeader};

use super::doze::{Polling, doze};
use super::link::{Held, Link, Moved, News, Order};
use crate::error::Error;
use numbers::Numbers;
use send::Waiting;
use tags::Tags;

/// Bytes before the data of a PDU.
const FRONT: usize = HEADER_LEN + BHS_LEN;
/// Most bytes of data in a PDU, either way: what we declare, and what a login may say.
const MOST: usize = 8192;
/// Room of one receive.
const ROOM: usize = FRONT + MOST;
/// Completions taken at once.
const AT_ONCE: usize = 64;
/// Requests that are not commands and wait for the target; the session has far fewer.
const SAYING: usize = 64;
/// Sends with text at once; logins and questions have one.
const TEXTS: u64 = 4;
/// Where the length of the data and the task tag stand in a header.
const DATA_LEN: core::ops::Range<usize> = 5..8;
const TAG: usize = 16;

/// A link on RDMA.
pub(crate) struct Iser {
    // Dropped first: what it still moves lies in the memory below.
    qp: Qp,
    cq: Cq,
    receives: Memory,
    /// A command's Send for every number that the session may give it.
    orders: Memory,
    /// Sends with text, and which of them are free.
    texts: Memory,
    free: Vec<u64>,
    depth: usize,
    numbers: Numbers,
    tags: Tags,
    /// What the target does not take yet, in the order it was asked for.
    waiting: VecDeque<Waiting>,
    /// Commands that were taken back before they left.
    flushed: Vec<u32>,
    /// Tags of immediate requests that were not answered yet.
    asked: Vec<u32>,
    /// How many of them the target has receives for (RFC 7145 §8.1).
    limit: usize,
    polling: Polling,
    /// Most bytes of data of a command, and of a PDU to the target.
    longest: u32,
    max_send: usize,
    logged_in: bool,
    /// Why we ended it.
    why: Option<String>,
    ended: bool,
    moved: Moved,
}

fn text(error: &verbena::Error) -> String {
    error.to_string()
}

impl Iser {
    fn post(&mut self, slot: u64) -> Result<(), String> {
        let scatter = self.receives.sge(slot as usize * ROOM, ROOM);
        let scatter = [scatter.map_err(|error| text(&error))?];
        let wr = RecvWr {
            id: slot,
            scatter: &scatter,
        };
        match self.qp.post_recv(&[wr]) {
            // One that was ended takes no more, and needs none.
            Ok(()) | Err((_, PostError::State(_))) => Ok(()),
            Err((_, why)) => Err(why.to_string()),
        }
    }

    /// Whether anything can leave and come.
    fn is_up(&self) -> bool {
        self.why.is_none() && self.qp.state() == QpState::Rts
    }

    /// The last news.
    fn conclude(&mut self, news: &mut Vec<News>) {
        self.ended = true;
        self.waiting.clear();
        let status = Status::WrFlushErr;
        let failed = self.tags.end_all();
        news.extend(failed.map(|task| News::Failed { task, status }));
        let why = self.why.clone().or_else(|| self.qp.view().cause);
        let why = why.unwrap_or_else(|| "the target closed it".to_owned());
        news.push(News::Ended(why));
    }
}

impl Link for Iser {
    fn begin(&mut self, settled: &Settled) {
        self.logged_in = true;
        self.asked.clear();
        if let Some(terms) = settled.iser {
            self.max_send = self.max_send.min(terms.max_send as usize);
            self.limit = match terms.unexpected_there {
                0 => usize::MAX,
                limit => limit as usize,
            };
        }
    }

    fn order(&mut self, order: &Order<'_>) -> Result<(), Error> {
        let refused = |why: String| Err(Error::Link(why));
        if !self.logged_in {
            return refused("there are no commands before the login".to_owned());
        }
        if order.len > self.longest {
            let (len, most) = (order.len, self.longest);
            return refused(format!(
                "a command with {len} bytes over iSER, and {most} are the most: ask for less, or set how many the target takes"
            ));
        }
        let direction = match order.len {
            0 => Direction::None,
            _ => order.direction,
        };
        let named = match order.place {
            Some(place) if direction != Direction::None => {
                // All of it is there.
                place.memory.sge(place.offset, order.len as usize)?;
                let at = place.memory.place(place.offset)?;
                Some((at.stag, at.to.get()))
            }
            _ => None,
        };
        if named.is_none() && direction != Direction::None {
            return refused("a command has data and no place for it".to_owned());
        }
        let task = order.task;
        let tag = self.tags.take(task, direction, order.len);
        let Some(itt) = tag.filter(|_| (task as usize) < self.depth) else {
            return refused(format!("command {task} is under way, or one too many"));
        };
        let (read, write) = (direction == Direction::Read, direction == Direction::Write);
        let command = ScsiCommand {
            immediate: false,
            // RFC 7145 §7.3.1: no data comes by itself, the target fetches it.
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
        self.waiting.push_back(Waiting {
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

    fn say(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Error> {
        if !self.is_up() {
            return Err(Error::Lost("there is no connection now".to_owned()));
        }
        if data.len() > self.max_send {
            let (len, most) = (data.len(), self.max_send);
            let why = format!("{len} bytes in a PDU, and the target takes {most}");
            return Err(Error::Link(why));
        }
        let texts = self.waiting.iter().filter(|one| one.task.is_none());
        if texts.count() >= SAYING {
            let why = format!("{SAYING} PDUs wait for the target to answer others");
            return Err(Error::Link(why));
        }
        let mut bhs = *bhs;
        let len = (data.len() as u32).to_be_bytes();
        if let (Some(to), Some(from)) = (bhs.get_mut(DATA_LEN), len.get(1..)) {
            to.copy_from_slice(from);
        }
        self.waiting.push_back(Waiting {
            header: IserHeader::default(),
            bhs,
            data: data.to_vec(),
            task: None,
        });
        self.pump();
        Ok(())
    }

    fn poll(&mut self, news: &mut Vec<News>) -> bool {
        // Before the completions: those that are there when it is over are the last ones.
        let over = !self.is_up();
        let status = Status::WrFlushErr;
        let flushed = self.flushed.drain(..);
        news.extend(flushed.map(|task| News::Failed { task, status }));
        let (mut completions, mut heard) = ([BLANK; AT_ONCE], false);
        let n = self.cq.poll(&mut completions);
        for wc in completions.iter().take(n) {
            // Anything that fails, fails the queue pair, which knows the cause. What comes after we ended it comes too late.
            if wc.status != Status::Success || self.why.is_some() {
                continue;
            }
            if wc.op != WcOp::Receive {
                self.free.push(wc.id);
                continue;
            }
            heard = true;
            let heard = self.hear(wc, news);
            if let Err(why) = heard.and_then(|()| self.post(wc.id)) {
                self.end(&why);
            }
        }
        if over && n < AT_ONCE && !self.ended {
            self.conclude(news);
        } else if n > 0 {
            self.pump();
        }
        heard
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        doze(
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

    fn held(&self, task: u32) -> Held {
        if self.waiting.iter().any(|one| one.task == Some(task)) {
            return Held::Here;
        }
        match self.tags.of(task) {
            // Memory outlives its commands, and the target reaches it for as long as there is a connection.
            Some(_) => Held::Bound,
            None => Held::Ended,
        }
    }

    fn cancel(&mut self, task: u32) -> bool {
        let waits = |one: &Waiting| one.task == Some(task);
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

    fn end(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        // At once, not in good order: from now on the target reaches no memory of commands that count as lost.
        self.qp.modify(QpState::Err);
    }

    fn moved(&self) -> Moved {
        self.moved
    }
}

#[cfg(test)]
mod tests;
