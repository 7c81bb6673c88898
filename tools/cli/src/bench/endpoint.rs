//! One side of a measurement: its queue pairs, all completing in one queue, and its memory. Receives are posted before the connection is
//! established, and a completion's id names its queue pair. A failed completion ends the measurement with its cause.

use std::time::Duration;

use verbena::low::{
    Arm, Cq, Data, Flags, Limits, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, Sge, Wc,
};
use verbena::{Access, Device, Memory, RemoteMemory, Status};

use super::Error;
use super::case::{Case, Op};
use super::silence::Silence;

/// Most requests posted by one call.
pub(super) const POST_BATCH: usize = 16;

/// Queue pairs with memory, ready to be connected.
#[derive(Debug)]
pub struct BenchEndpoint {
    /// The queue pairs, in the order of their connections.
    pub qps: Vec<Qp>,
    cq: Cq,
    /// The source of sends, then the destination of receives.
    pub memory: Memory,
    /// The case that is measured.
    pub case: Case,
    /// [`BenchEndpoint::take`] sleeps in events while there are no completions, instead of returning.
    pub events: bool,
    /// How long the peer may be silent, except while this side sleeps in events.
    pub limit: Duration,
}

/// A completed message.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// The index of the queue pair.
    pub qp_index: usize,
    /// A send, not a receive.
    pub is_send: bool,
}

impl Completion {
    fn from_wr_id(id: u64) -> Completion {
        Completion {
            qp_index: (id >> 1) as usize,
            is_send: id & 1 == 1,
        }
    }

    fn wr_id(self) -> u64 {
        (self.qp_index as u64) << 1 | u64::from(self.is_send)
    }
}

impl BenchEndpoint {
    /// Queue pairs in INIT, and memory for the case's messages. The endpoint polls; the peer may be silent for `limit`.
    pub fn new(device: &Device, case: Case, limit: Duration) -> Result<BenchEndpoint, Error> {
        let pd = device.pd()?;
        let (depth, count) = (case.depth as usize, case.qps as usize);
        let limits = Limits {
            sends: (2 * depth).max(64),
            receives: (4 * depth).max(256),
            ..Limits::default()
        };
        // Room for the completions of everything that can be posted.
        let cq = device.cq(count * (limits.sends + limits.receives))?;
        // The source comes first, the destination behind it. The queue pairs share both: contents are only checked in a ping-pong, where one
        // message is outstanding at a time.
        let len = case.size.max(64) as usize;
        let memory = pd.memory(2 * len, Access::ALL)?;
        let options = QpOptions::default().limits(limits);
        let mut qps = Vec::with_capacity(count);
        for _ in 0..count {
            let qp = Qp::new(&pd, &cq, &cq, options)?;
            // Receives are posted before the connection is established.
            qp.modify(QpState::Init)?;
            qps.push(qp);
        }
        Ok(BenchEndpoint {
            qps,
            cq,
            memory,
            case,
            events: false,
            limit,
        })
    }

    /// Bytes of each half of the memory.
    #[allow(clippy::len_without_is_empty, reason = "a half is never empty")]
    pub fn len(&self) -> usize {
        self.case.size.max(64) as usize
    }

    /// The source of messages.
    fn source(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(0, self.case.size as usize)?)
    }

    /// The destination of messages.
    fn sink(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(self.len(), self.case.size as usize)?)
    }

    /// Posts receives to one of the queue pairs.
    pub fn post_receives(&self, at: usize, count: usize) -> Result<(), Error> {
        let scatter = [self.sink()?];
        let wr = RecvWr {
            id: Completion {
                qp_index: at,
                is_send: false,
            }
            .wr_id(),
            scatter: &scatter,
        };
        for _ in 0..count {
            self.qps[at].post_recv(&[wr]).map_err(post_error)?;
        }
        Ok(())
    }

    /// Posts `count` requests of the case's kind to one of the queue pairs.
    pub fn post(&self, at: usize, remote: &RemoteMemory, count: usize) -> Result<(), Error> {
        let place = remote.remote_addr();
        let (op, piece) = match self.case.op {
            Op::Send => (
                SendOp::Send {
                    invalidate: None,
                    immediate: None,
                },
                self.source()?,
            ),
            Op::Write => (
                SendOp::Write {
                    remote: place,
                    immediate: None,
                },
                self.source()?,
            ),
            Op::Read => (
                SendOp::Read {
                    remote: place,
                    local_invalidate: None,
                },
                self.sink()?,
            ),
            Op::Atomic => (
                SendOp::FetchAdd {
                    remote: place,
                    add: 1,
                    mask: 0,
                },
                self.memory.sge(self.len(), 8)?,
            ),
        };
        let wr = SendWr {
            id: Completion {
                qp_index: at,
                is_send: true,
            }
            .wr_id(),
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[piece]),
        };
        let mut left = count;
        if count == 1 {
            // Without an array of copies, which would be most of what a program adds to the time of one message.
            let list = core::slice::from_ref(&wr);
            return self.qps[at].post_send(list).map_err(post_error);
        }
        while left > 0 {
            let now = left.min(POST_BATCH);
            let list = &[wr; POST_BATCH][..now];
            self.qps[at].post_send(list).map_err(post_error)?;
            left -= now;
        }
        Ok(())
    }

    /// Polls completions.
    pub fn poll<'a>(
        &self,
        wcs: &'a mut [Wc],
    ) -> Result<impl Iterator<Item = Completion> + use<'a>, Error> {
        let n = self.cq.poll(wcs);
        self.check_statuses(&wcs[..n])
    }

    /// As [`BenchEndpoint::poll`]; with `events` it sleeps while there are no completions.
    pub fn take<'a>(
        &self,
        wcs: &'a mut [Wc],
    ) -> Result<impl Iterator<Item = Completion> + use<'a>, Error> {
        let mut n = self.cq.poll(wcs);
        while n == 0 && self.events {
            self.cq.arm(Arm::Next);
            n = self.cq.poll(wcs);
            if n == 0 {
                self.cq.take_notification()?;
                n = self.cq.poll(wcs);
            }
        }
        self.check_statuses(&wcs[..n])
    }

    /// After an empty poll: fails if the peer has disconnected, or has been silent for longer than the limit.
    pub fn check_silence(&self, silence: &mut Silence) -> Result<(), Error> {
        if !silence.is_check_due() {
            return Ok(());
        }
        if !self.is_connected() {
            return Err(self.own_failure().unwrap_or(Error::Disconnected));
        }
        match silence.is_too_long() {
            true => Err(Error::Silent(silence.limit())),
            false => Ok(()),
        }
    }

    /// Why a queue pair of this side failed, if it was not by the peer.
    fn own_failure(&self) -> Option<Error> {
        let views = self.qps.iter().map(Qp::view);
        let mut failed = views.filter(|view| !view.peer_disconnected);
        failed.find_map(|view| view.cause).map(Error::Failed)
    }

    /// Bytes that have arrived on all connections.
    pub fn bytes_in(&self) -> u64 {
        let each = self.qps.iter().map(|qp| qp.view().counters.bytes_in);
        each.sum()
    }

    /// Whether every connection is still established.
    pub fn is_connected(&self) -> bool {
        self.qps.iter().all(|qp| {
            let view = qp.view();
            view.state == QpState::Rts && !view.peer_disconnected
        })
    }

    /// Marks the source with the number of the turn.
    pub fn mark(&self, turn: usize) -> Result<(), Error> {
        let last = (self.case.size.max(1) - 1) as usize;
        Ok(self.memory.write_at(last, &[turn as u8 | 1 << 7])?)
    }

    /// Waits until the peer's write of this turn has arrived.
    pub fn await_mark(&self, turn: usize, wcs: &mut [Wc]) -> Result<(), Error> {
        let mut silence = Silence::new(self.limit);
        loop {
            // Also if the mark is there already: a thread of the adapter may be faster each time, and completions fill the queue.
            if !self.case.poll_memory {
                self.poll(wcs)?.for_each(drop);
            }
            if self.take_mark(turn)? {
                return Ok(());
            }
            self.check_silence(&mut silence)?;
        }
    }

    /// After a message of this turn was posted: if `memory` is set, polls the completions of the last 16 messages together, every 16 turns.
    pub fn poll_batch(&self, turn: usize, wcs: &mut [Wc]) -> Result<(), Error> {
        if self.case.poll_memory && turn % POST_BATCH == POST_BATCH - 1 {
            let (mut left, mut silence) = (POST_BATCH, Silence::new(self.limit));
            while left > 0 {
                left -= self.poll(wcs)?.count().min(left);
                self.check_silence(&mut silence)?;
            }
        }
        Ok(())
    }

    /// Whether the peer's write of this turn has arrived; if so, the mark is cleared for the next turn.
    pub fn take_mark(&self, turn: usize) -> Result<bool, Error> {
        let last = self.len() + (self.case.size.max(1) - 1) as usize;
        let mut byte = [0];
        self.memory.read_at(last, &mut byte)?;
        if byte[0] != turn as u8 | 1 << 7 {
            return Ok(false);
        }
        self.memory.write_at(last, &[0])?;
        Ok(true)
    }

    fn check_statuses<'a>(
        &self,
        some: &'a [Wc],
    ) -> Result<impl Iterator<Item = Completion> + use<'a>, Error> {
        if let Some(wc) = some.iter().find(|wc| wc.status != Status::Success) {
            let qp = self.qps.get(Completion::from_wr_id(wc.id).qp_index);
            let why = qp.and_then(|qp| qp.view().cause).unwrap_or_default();
            return Err(Error::Failed(format!("{:?}: {why}", wc.status)));
        }
        Ok(some.iter().map(|wc| Completion::from_wr_id(wc.id)))
    }
}

/// Runs `work` in this number of threads, each with its number; in this thread if it is one. The error of any is returned.
pub(super) fn run_in_threads<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    if threads == 1 {
        return Ok(vec![work(0)?]);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let running = (0..threads).map(|at| scope.spawn(move || work(at)));
        let running: Vec<_> = running.collect();
        let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
        let ended =
            ended.map(|one| one.map_err(|_| Error::Failed("a thread panicked".to_owned()))?);
        ended.collect()
    })
}

fn post_error(error: impl Into<verbena::Error>) -> Error {
    Error::Failed(error.into().to_string())
}
