//! A link on TCP: an iSCSI queue pair (M12), whose requests are commands with their buffers. Each receive is posted again as soon as its
//! PDU was processed. A PDU longer than a receive is truncated.

mod transfers;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustc_hash::FxHashMap;
use verbena::low::{Arm, Cq, Flags, Limits, Pd, QpState, RecvWr, Sge, Wc, WcOp};
use verbena::{Access, Device, Memory, Status};
use verbena_iscsi::login::LoginOutcome;
use verbena_storage_wire::iscsi::{Attribute, BHS_LEN, Bhs, Opcode};

use self::transfers::{Transfers, tag};
use super::link::{
    CommandProgress, DataSegment, Dialling, Link, LinkCommand, LinkEvent, TransferCounters,
};
use super::options::Options;
use super::sleep_poll::{Polling, sleep_on_fds, sleep_poll};
use crate::error::Error;
use crate::iscsi::{
    CommandId, CommandState, CommandWr, Direction, Gap, IscsiConnecting, IscsiOptions, IscsiQp,
    PduWr, PostError,
};

/// Size of a receive: the longest header, and the data of a login response.
const RECEIVE_LEN: usize = 48 + 1020 + 8192;
/// Completions per poll.
const POLL_BATCH: usize = 64;
/// Requests other than commands.
const CONTROL: usize = 32;
/// Tags of cancelled commands that are remembered.
const LATE: usize = 256;
/// Work request id of requests whose completion is ignored.
const NO_COMPLETION: u64 = u64::MAX;

/// A link on TCP.
pub(crate) struct Tcp {
    // Dropped first: it may still access the memory below.
    qp: IscsiQp,
    cq: Cq,
    receives: Memory,
    /// Task numbers by the adapter's command ids.
    tasks: FxHashMap<u32, u32>,
    /// Bytes moved for outstanding commands.
    transfers: Transfers,
    /// Cancelled commands whose completion was not polled yet, with their tags.
    cancelled: Vec<(u32, u32)>,
    /// Tags of cancelled commands: PDUs for them are ignored and no violation.
    late: VecDeque<u32>,
    ended: bool,
    /// Commands were accepted and may not have been sent.
    unsent: bool,
    polling: Polling,
    /// Buffer of polled completions.
    completions: Box<[Wc; POLL_BATCH]>,
}

/// A connection being established, with the resources of the link.
pub(crate) struct TcpDial {
    dial: Option<(IscsiConnecting, Cq, Memory)>,
    receives: usize,
    polling: Polling,
}

impl TcpDial {
    pub(crate) fn new(
        device: &Device,
        pd: &Pd,
        to: SocketAddr,
        options: &Options,
    ) -> Result<TcpDial, Error> {
        let depth = options.depth;
        // For each command a response and a header of its data, and some for unsolicited PDUs.
        let (sends, receives) = (depth + CONTROL, 2 * depth + CONTROL);
        let entries = sends + receives;
        let how = IscsiOptions {
            limits: Limits {
                sends,
                receives,
                ..Limits::default()
            },
            connect_timeout: options.login,
            ..IscsiOptions::default()
        };
        let dial = IscsiQp::start_connect(pd, to, how)?;
        let cq = match &options.handler {
            Some(handler) => device.cq_with(entries, handler)?,
            None => device.cq(entries)?,
        };
        let memory = pd.memory(receives * RECEIVE_LEN, Access::LOCAL_WRITE)?;
        Ok(TcpDial {
            dial: Some((dial, cq, memory)),
            receives,
            polling: Polling::new(options.poll),
        })
    }
}

impl Dialling for TcpDial {
    fn poll(&mut self) -> Result<Option<Box<dyn Link>>, Error> {
        match &self.dial {
            Some((dial, ..)) if dial.is_connected()? => {}
            _ => return Ok(None),
        }
        let Some((dial, cq, receives)) = self.dial.take() else {
            return Ok(None);
        };
        let mut link = Tcp {
            qp: dial.into_qp(&cq, &cq)?,
            cq,
            receives,
            tasks: FxHashMap::default(),
            completions: Box::new([Wc::default(); POLL_BATCH]),
            transfers: Transfers::default(),
            cancelled: Vec::new(),
            late: VecDeque::new(),
            ended: false,
            unsent: false,
            polling: self.polling,
        };
        for slot in 0..self.receives as u64 {
            link.post(slot)?;
        }
        Ok(Some(Box::new(link)))
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        let dial = self.dial.as_ref();
        sleep_on_fds(beside, dial.map(|(dial, ..)| dial.as_fd()), timeout)
    }
}

impl Tcp {
    fn post(&mut self, slot: u64) -> Result<(), Error> {
        let scatter = [self
            .receives
            .sge(slot as usize * RECEIVE_LEN, RECEIVE_LEN)?];
        let wr = RecvWr {
            id: slot,
            scatter: &scatter,
        };
        self.qp
            .post_recv(&[wr])
            .map_err(|error| refused(error.source))
    }

    /// Processes the PDU in a receive.
    fn handle_receive(
        &mut self,
        slot: u64,
        len: usize,
        command: Option<u32>,
    ) -> Result<Option<LinkEvent>, Error> {
        let at = slot as usize * RECEIVE_LEN;
        let mut bhs: Bhs = [0; BHS_LEN];
        self.receives.read_at(at, &mut bhs)?;
        // The adapter delivers the header alone where the data was placed.
        let mut data = DataSegment::new();
        if len > BHS_LEN {
            data.resize(len - BHS_LEN, 0);
            self.receives.read_at(at + BHS_LEN, &mut data)?;
        }
        let task = command.and_then(|name| self.tasks.remove(&name));
        Ok(match task {
            Some(task) => {
                let carried = Some(self.transfers.close(&bhs));
                Some(LinkEvent::Response {
                    task,
                    bhs,
                    data,
                    transferred: carried,
                })
            }
            None if len == BHS_LEN && self.count_data(&bhs) => None,
            None if self.is_late(&bhs) => None,
            None => Some(LinkEvent::Pdu { bhs, data }),
        })
    }

    /// M12: PDUs for a cancelled command fail their checks and are delivered whole. The target may have sent them before it processed the
    /// abort; later ones are harmless.
    fn is_late(&self, bhs: &Bhs) -> bool {
        let kind = Opcode::of(bhs);
        !self.late.is_empty()
            && matches!(kind, Some(Opcode::DataIn | Opcode::R2t))
            && self.late.contains(&tag(bhs))
    }

    /// The completion of a cancelled command. PDUs that the adapter delivered before it were processed before it.
    fn finish_cancelled(&mut self, task: u32) {
        self.tasks.retain(|_, one| *one != task);
        if let Some(at) = self.cancelled.iter().position(|(of, _)| *of == task) {
            let (_, tag) = self.cancelled.swap_remove(at);
            self.transfers.remove(tag);
        }
    }

    fn command_id(&self, task: u32) -> Option<CommandId> {
        let mut all = self.tasks.iter();
        let (name, _) = all.find(|(_, one)| **one == task)?;
        Some(CommandId(*name))
    }

    /// A header alone: its data was placed, or (R2T) is being sent. A PDU that failed a check is delivered whole; without data the two
    /// cannot be distinguished, and nothing was moved.
    fn count_data(&mut self, bhs: &Bhs) -> bool {
        // All commands that a tag can belong to.
        let most = self.tasks.len() + self.cancelled.len() + self.late.len();
        match Opcode::of(bhs) {
            Some(Opcode::R2t) => self.transfers.count_r2t(bhs, most),
            Some(Opcode::DataIn) => {
                let some = self.transfers.count_data_in(bhs, most);
                // Data in sequence was placed under this tag, so it belongs to a new command.
                self.late.retain(|late| !some || *late != tag(bhs));
                some
            }
            _ => false,
        }
    }
}

fn refused(why: PostError) -> Error {
    Error::Link(why.to_string())
}

impl Link for Tcp {
    fn begin(&mut self, settled: &LoginOutcome) {
        self.transfers = Transfers::new(&settled.terms);
        self.qp.enter_full_feature(settled.terms);
    }

    fn send_command(&mut self, order: &LinkCommand<'_>) -> Result<(), Error> {
        let data: Option<Sge> = match order.buffer {
            Some(place) => Some(place.memory.sge(place.offset, order.len as usize)?),
            None => None,
        };
        let wr = CommandWr {
            id: order.task.into(),
            flags: Flags::NONE,
            lun: order.lun,
            device: order.device,
            cdb: order.cdb.bytes(),
            attribute: Attribute::Simple,
            direction: if order.len == 0 {
                Direction::None
            } else {
                order.direction
            },
            data: data.as_slice(),
        };
        let name = self.qp.queue_command(&wr).map_err(refused)?;
        self.tasks.insert(name.0, order.task);
        self.unsent = true;
        Ok(())
    }

    fn flush(&mut self) {
        if core::mem::take(&mut self.unsent) {
            self.qp.transmit_queued();
        }
    }

    fn send_pdu(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Error> {
        let wr = PduWr {
            id: NO_COMPLETION,
            flags: Flags::NONE,
            bhs: *bhs,
            data,
        };
        self.qp.post_pdu(&wr).map_err(refused)
    }

    fn poll(&mut self, news: &mut Vec<LinkEvent>) -> bool {
        let n = self.cq.poll(&mut self.completions[..]);
        for at in 0..n.min(POLL_BATCH) {
            let wc = self.completions[at];
            match (wc.op, wc.status) {
                (WcOp::Receive, Status::Success | Status::LocLenErr) => {
                    match self.handle_receive(wc.id, wc.len as usize, wc.immediate) {
                        Ok(one) => news.extend(one),
                        Err(error) => self.close(&error.to_string()),
                    }
                    if let Err(error) = self.post(wc.id) {
                        self.close(&error.to_string());
                    }
                }
                (WcOp::Receive, _) => {}
                (_, status) if wc.id != NO_COMPLETION && status != Status::Success => {
                    let task = wc.id as u32;
                    self.finish_cancelled(task);
                    news.push(LinkEvent::Failed { task, status });
                }
                _ => {}
            }
        }
        match self.qp.state() {
            QpState::Err if n < POLL_BATCH && !self.ended => {
                self.ended = true;
                let cause = self.qp.view().cause;
                news.push(LinkEvent::Ended(cause.unwrap_or_default()));
            }
            // The failed command was reported; those behind it were flushed and may be sent again.
            QpState::Sqe => {
                self.qp.restart_sends();
            }
            _ => {}
        }
        n > 0
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        sleep_poll(
            &self.cq,
            &mut self.polling,
            self.tasks.len(),
            beside,
            timeout,
        )
    }

    fn arm(&mut self) -> BorrowedFd<'_> {
        self.cq.arm(Arm::Next);
        self.cq.as_fd()
    }

    fn command_state(&self, task: u32) -> CommandProgress {
        match self
            .command_id(task)
            .and_then(|name| self.qp.command_state(name))
        {
            Some(CommandState::Queued) => CommandProgress::Unsent,
            Some(CommandState::Sent { itt, cmd_sn }) => CommandProgress::Sent { itt, cmd_sn },
            None => CommandProgress::Ended,
        }
    }

    fn task_cmd_sn(&self, tag: u32) -> Option<u32> {
        self.qp.task_request_cmd_sn(tag)
    }

    fn cancel(&mut self, task: u32) -> bool {
        let Some(name) = self.command_id(task) else {
            return false;
        };
        let sent = match self.qp.command_state(name) {
            Some(CommandState::Sent { itt, .. }) => Some(itt),
            _ => None,
        };
        let taken = self.qp.cancel(name);
        if let Some(tag) = sent.filter(|_| taken) {
            self.cancelled.push((task, tag));
            self.late.push_front(tag);
            if self.late.len() > LATE
                && let Some(old) = self.late.pop_back()
            {
                self.transfers.remove(old);
            }
        }
        taken
    }

    fn violation(&self) -> Option<String> {
        let Gap { expected, got } = self.qp.view().gap?;
        // RFC 7143 §7.9: at error recovery level 0 a missing status cannot be requested again.
        Some(format!(
            "the target skipped a status: {got} came, expected {expected}"
        ))
    }

    fn close(&mut self, why: &str) {
        self.qp.fail(why);
    }

    fn transferred(&self) -> TransferCounters {
        let counters = self.qp.view().counters;
        TransferCounters {
            placed: counters.placed,
            copied: counters.copied,
            gathered: counters.gathered,
        }
    }
}
