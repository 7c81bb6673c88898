//! One client: requests by message, with reads and atomic additions meanwhile, each compared with a model.
//! No other client writes the two keys of this one, so that the model predicts every answer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena::low::{Cq, Data, Flags, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, Wc};
use verbena::{Access, Device, Memory, RemoteMemory, Status};

use super::ClientReport;
use crate::protocol::{
    ADD, CELL, Cell, GET, KEYS, PUT, Result, WORDS, from_bytes, poll_or_sleep, slot, to_bytes,
};

/// Outstanding requests.
const WINDOW: u64 = 8;
/// Requests to one key before the other's turn. Meanwhile the other one is not written, and can be read.
const BLOCK: u64 = 32;
/// A client without an answer for this long fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Ids of requests: kind and place.
const SEND: u64 = 0;
const RECEIVE: u64 = 1 << 8;
const READ: u64 = 2 << 8;
const FETCH_ADD: u64 = 3 << 8;

/// Places in the client's memory, in cells: requests, replies, the slot read, the word before an addition.
const REPLIES: u64 = WINDOW;
const SLOT: u64 = 2 * WINDOW;
const WORD: u64 = SLOT + 1;

fn cell_offset(cell: u64) -> usize {
    cell as usize * CELL
}

/// The expected state of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Key {
    version: u64,
    value: u64,
}

pub(super) struct Session {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    table: RemoteMemory,
    index: u64,
    keys: [Key; KEYS as usize],
    /// Answers expected, in this order.
    expected: VecDeque<Cell>,
    sent: u64,
    answered: u64,
    /// Expected result of the outstanding read.
    reading: Option<Cell>,
    adding: bool,
    /// It has reported that it is running.
    warm: bool,
    last: Option<(u64, Instant)>,
    report: ClientReport,
}

/// A connection that failed.
struct ConnectionLost(String);

impl Session {
    /// Connects, loads the server until the end or the given number of answers, and disconnects.
    pub(super) fn run(
        device: &Device,
        to: SocketAddr,
        limit: Option<u64>,
        over: impl Fn() -> bool,
        warm: &AtomicU64,
    ) -> ClientReport {
        let mut session = match Session::new(device, to) {
            Ok(session) => session,
            Err(error) => {
                let lost = vec![format!("not connected: {error}")];
                return ClientReport {
                    lost,
                    ..ClientReport::default()
                };
            }
        };
        session.report.sessions = 1;
        match session.load(limit.unwrap_or(u64::MAX), over, warm) {
            Ok(Ok(())) => {
                // The server may have closed it already.
                let _ = session.qp.disconnect();
            }
            Ok(Err(ConnectionLost(why))) => session.report.lost.push(format!(
                "client {} after {} answers: {why}",
                session.index, session.answered
            )),
            Err(error) => session.report.wrong.push(error.to_string()),
        }
        session.report.requests = session.answered;
        session.report
    }

    fn new(device: &Device, to: SocketAddr) -> Result<Session> {
        let (pd, cq) = (device.pd()?, device.cq(128)?);
        let memory = pd.memory(cell_offset(WORD + 1), Access::LOCAL_WRITE)?;
        let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
        qp.modify(QpState::Init)?;
        for part in 0..WINDOW {
            receive(&qp, &memory, part)?;
        }
        let welcome = qp.connect(to, b"")?.wait()?;
        let (index, table) = welcome
            .split_at_checked(8)
            .ok_or("private data too short")?;
        let index = u64::from_le_bytes(index.try_into()?);
        let table = table
            .get(..RemoteMemory::BYTES)
            .ok_or("private data too short")?;
        Ok(Session {
            qp,
            cq,
            memory,
            table: RemoteMemory::from_bytes(table)?,
            index,
            keys: [Key::default(); KEYS as usize],
            expected: VecDeque::new(),
            sent: 0,
            answered: 0,
            reading: None,
            adding: false,
            warm: false,
            last: None,
            report: ClientReport::default(),
        })
    }

    fn load(
        &mut self,
        limit: u64,
        over: impl Fn() -> bool,
        warm: &AtomicU64,
    ) -> Result<std::result::Result<(), ConnectionLost>> {
        let mut received = Instant::now();
        let mut some = [Wc::default(); 32];
        loop {
            let stopping = over() || self.sent >= limit;
            let posted = if stopping {
                Ok(())
            } else {
                self.post_requests()
            };
            if let Err(error) = posted {
                // The completions have the reason.
                let lost = self.drain(&mut some)?;
                return Ok(Err(
                    lost.unwrap_or(ConnectionLost(format!("not posted: {error}")))
                ));
            }
            let idle = self.expected.is_empty() && self.reading.is_none() && !self.adding;
            if stopping && idle {
                return Ok(Ok(()));
            }
            let n = poll_or_sleep(&self.cq, &mut some, Duration::from_millis(100))?;
            if n > 0 {
                received = Instant::now();
            } else if received.elapsed() > TIMEOUT {
                return Err(format!("client {} hangs: nothing in {TIMEOUT:?}", self.index).into());
            }
            for wc in &some[..n] {
                if let Err(lost) = self.check_completion(wc)? {
                    return Ok(Err(lost));
                }
            }
            if self.answered > 100 && !core::mem::replace(&mut self.warm, true) {
                warm.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The reason why posting failed, from the completions.
    fn drain(&mut self, some: &mut [Wc]) -> Result<Option<ConnectionLost>> {
        let n = poll_or_sleep(&self.cq, some, Duration::from_millis(500))?;
        for wc in &some[..n] {
            if let Err(lost) = self.check_completion(wc)? {
                return Ok(Some(lost));
            }
        }
        Ok(None)
    }

    /// Posts requests up to the window.
    fn post_requests(&mut self) -> Result<()> {
        while self.sent < self.answered + WINDOW {
            if self.sent.is_multiple_of(BLOCK) && self.reading.is_some() {
                break;
            }
            self.post_request()?;
        }
        let block = self.sent / BLOCK;
        if block > 0 && self.reading.is_none() && self.answered >= block * BLOCK {
            let at = (block + 1) % KEYS;
            let (key, other) = (self.index * KEYS + at, self.keys[at as usize]);
            self.reading = Some(slot(key, other.version, other.value));
            let remote = self
                .table
                .slice(key * CELL as u64, CELL as u64)?
                .remote_addr();
            let op = SendOp::Read {
                remote,
                local_invalidate: None,
            };
            self.post(READ, op, SLOT, CELL)?;
        }
        if !self.adding {
            self.adding = true;
            let at = WORDS as u64 + self.index * 8;
            let op = SendOp::FetchAdd {
                remote: self.table.slice(at, 8)?.remote_addr(),
                add: 1,
                mask: 0,
            };
            self.post(FETCH_ADD, op, WORD, 8)?;
        }
        Ok(())
    }

    fn post_request(&mut self) -> Result<()> {
        let (n, part) = (self.sent, self.sent % WINDOW);
        let at = (n / BLOCK) % KEYS;
        let (key, model) = (self.index * KEYS + at, &mut self.keys[at as usize]);
        let value = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let what = [PUT, ADD, GET, PUT, PUT][(n % 5) as usize];
        if what != GET {
            model.version += 1;
            let before = if what == ADD { model.value } else { 0 };
            model.value = before.wrapping_add(value);
        }
        let answer = [n, model.version, model.value, 0, 0, key, 0, 0];
        self.expected.push_back(answer);
        let request = to_bytes(&[n, what, key, value, 0, 0, 0, 0]);
        self.memory.write_at(cell_offset(part), &request)?;
        self.sent += 1;
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        self.post(SEND | part, op, part, CELL)
    }

    fn post(&self, id: u64, op: SendOp, cell: u64, len: usize) -> Result<()> {
        let pieces = [self.memory.sge(cell_offset(cell), len)?];
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&pieces),
        };
        Ok(self.qp.post_send(&[wr])?)
    }

    /// Compares one completion with the model.
    fn check_completion(&mut self, wc: &Wc) -> Result<std::result::Result<(), ConnectionLost>> {
        if wc.status != Status::Success {
            let cause = self.qp.view().cause;
            return Ok(Err(ConnectionLost(format!("{:?}, {cause:?}", wc.status))));
        }
        let part = wc.id & 0xff;
        match wc.id & !0xff {
            RECEIVE => {
                let mut bytes = [0; CELL];
                self.memory
                    .read_at(cell_offset(REPLIES + part), &mut bytes)?;
                self.check_reply(from_bytes(&bytes), part)?;
                receive(&self.qp, &self.memory, part).or_else(|error| match self.qp.state() {
                    // Its completions are about to tell the reason.
                    QpState::Rts => Err(error),
                    _ => Ok(()),
                })?;
            }
            READ => {
                let mut bytes = [0; CELL];
                self.memory.read_at(cell_offset(SLOT), &mut bytes)?;
                let (got, must) = (from_bytes(&bytes), self.reading.take());
                self.report.reads += 1;
                if must != Some(got) {
                    self.record_wrong(&format!("read {got:x?} instead of {must:x?}"));
                }
            }
            FETCH_ADD => {
                let before = self.memory.load(cell_offset(WORD))?;
                self.adding = false;
                if before != self.report.adds {
                    self.record_wrong(&format!(
                        "addition {} found {before}: one is lost, or done twice",
                        self.report.adds
                    ));
                }
                self.report.adds += 1;
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    fn check_reply(&mut self, got: Cell, part: u64) -> Result<()> {
        let must = self
            .expected
            .pop_front()
            .ok_or("an answer without a request")?;
        let generation = got[3];
        let plain = Cell::from([got[0], got[1], got[2], 0, got[4], got[5], got[6], got[7]]);
        if plain != must || part != self.answered % WINDOW {
            self.record_wrong(&format!("answer {got:x?} instead of {must:x?}"));
        }
        let now = Instant::now();
        match self.last {
            Some((before, _)) if generation < before => {
                self.record_wrong(&format!("generation {generation} answers after {before}"));
            }
            Some((before, at)) if generation > before => {
                println!("answered by generation {generation}");
                self.report.pauses.push(now - at);
            }
            _ => {}
        }
        self.last = Some((generation, now));
        self.report.generation = generation;
        self.answered += 1;
        Ok(())
    }

    fn record_wrong(&mut self, why: &str) {
        let (index, answered) = (self.index, self.answered);
        let why = format!("client {index} after {answered} answers: {why}");
        self.report.wrong.push(why);
    }
}

fn receive(qp: &Qp, memory: &Memory, part: u64) -> Result<()> {
    let scatter = [memory.sge(cell_offset(REPLIES + part), CELL)?];
    let id = RECEIVE | part;
    let receive = RecvWr {
        id,
        scatter: &scatter,
    };
    Ok(qp.post_recv(&[receive])?)
}
