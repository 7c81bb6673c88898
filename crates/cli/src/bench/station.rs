//! One side's end of a measurement: its queue pairs, all completing in one queue, and its memory.
//! It promises that receives wait before a connection is there, and that a completion says whose it is.
//! It refuses to count what failed: any bad completion ends the measurement with its sentence.

use verbena::low::{Arm, Data, Flags, Limits, PostError, QpState, RecvWr, SendOp, SendWr, Sge, Wc};
use verbena::{Access, Cq, Device, Memory, Qp, QpOptions, RemoteMemory, Status};

use super::Error;
use super::case::{Case, Op};

/// Requests that are posted together.
const AT_ONCE: usize = 16;

/// Queue pairs with memory, ready to be joined.
#[derive(Debug)]
pub struct Station {
    /// The queue pairs, in the order of their connections.
    pub qps: Vec<Qp>,
    cq: Cq,
    /// What is sent, then what is received.
    pub memory: Memory,
    /// What is measured.
    pub case: Case,
}

/// A message is over.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// The queue pair, by its place.
    pub at: usize,
    /// Sent, not received.
    pub sent: bool,
}

impl Done {
    fn of(id: u64) -> Done {
        Done {
            at: (id >> 1) as usize,
            sent: id & 1 == 1,
        }
    }

    fn id(self) -> u64 {
        (self.at as u64) << 1 | u64::from(self.sent)
    }
}

impl Station {
    /// Queue pairs that take receives, and memory for the case's messages.
    pub fn new(device: &Device, case: Case) -> Result<Station, Error> {
        let pd = device.pd()?;
        let (depth, count) = (case.depth as usize, case.qps as usize);
        let limits = Limits {
            sends: (2 * depth).max(64),
            receives: (4 * depth).max(256),
            ..Limits::default()
        };
        // Whatever is posted has room to complete.
        let cq = device.cq(count * (limits.sends + limits.receives))?;
        // What is sent lies in front, what is received behind it. The queue pairs share it: nobody looks at the bytes
        // but in a ping-pong, where one message is under way at once.
        let len = case.size.max(64) as usize;
        let memory = pd.memory(2 * len, Access::ALL)?;
        let options = QpOptions {
            limits,
            ..QpOptions::default()
        };
        let mut qps = Vec::with_capacity(count);
        for _ in 0..count {
            let qp = Qp::new(&pd, &cq, &cq, options)?;
            // Receives are posted before the connection is there.
            qp.modify(QpState::Init);
            qps.push(qp);
        }
        Ok(Station {
            qps,
            cq,
            memory,
            case,
        })
    }

    /// Bytes of each half of the memory.
    #[allow(clippy::len_without_is_empty, reason = "a half is never empty")]
    pub fn len(&self) -> usize {
        self.case.size.max(64) as usize
    }

    /// What is sent.
    fn source(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(0, self.case.size as usize)?)
    }

    /// Where answers go.
    fn sink(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(self.len(), self.case.size as usize)?)
    }

    /// Posts receives to one of the queue pairs.
    pub fn post_receives(&self, at: usize, count: usize) -> Result<(), Error> {
        let scatter = [self.sink()?];
        let wr = RecvWr {
            id: Done { at, sent: false }.id(),
            scatter: &scatter,
        };
        for _ in 0..count {
            self.qps[at].post_recv(&[wr]).map_err(refused)?;
        }
        Ok(())
    }

    /// Posts `count` requests of the case's kind to one of the queue pairs.
    pub fn post(&self, at: usize, remote: &RemoteMemory, count: usize) -> Result<(), Error> {
        let place = remote.place();
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
            id: Done { at, sent: true }.id(),
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[piece]),
        };
        let mut left = count;
        if count == 1 {
            // Without a list of copies: it would be most of what a program adds to the time of one message.
            let list = core::slice::from_ref(&wr);
            return self.qps[at].post_send(list).map_err(refused);
        }
        while left > 0 {
            let now = left.min(AT_ONCE);
            let list = &[wr; AT_ONCE][..now];
            self.qps[at].post_send(list).map_err(refused)?;
            left -= now;
        }
        Ok(())
    }

    /// Takes what has completed.
    pub fn poll<'a>(
        &self,
        wcs: &'a mut [Wc],
    ) -> Result<impl Iterator<Item = Done> + use<'a>, Error> {
        let n = self.cq.poll(wcs);
        self.judge(&wcs[..n])
    }

    /// The peer is still there, on every connection.
    pub fn is_joined(&self) -> bool {
        self.qps.iter().all(|qp| {
            let view = qp.view();
            view.state == QpState::Rts && !view.peer_gone
        })
    }

    /// Marks what is sent with the number of its turn.
    pub fn mark(&self, turn: usize) -> Result<(), Error> {
        let last = (self.case.size.max(1) - 1) as usize;
        Ok(self.memory.write_at(last, &[turn as u8 | 1 << 7])?)
    }

    /// Waits until the peer's write of this turn is there; others of its turns are not.
    pub fn await_mark(&self, turn: usize, wcs: &mut [Wc]) -> Result<(), Error> {
        while !self.marked(turn)? {
            if !self.case.memory {
                self.poll(wcs)?.for_each(drop);
            }
        }
        Ok(())
    }

    /// After a message of this turn was posted: takes its completion and those before it, if they are not taken while it waits for the
    /// peer and there are several.
    pub fn take_several(&self, turn: usize, wcs: &mut [Wc]) -> Result<(), Error> {
        if self.case.memory && turn % AT_ONCE == AT_ONCE - 1 {
            let mut left = AT_ONCE;
            while left > 0 {
                left -= self.poll(wcs)?.count().min(left);
            }
        }
        Ok(())
    }

    /// Whether the peer's write of this turn is there; if so, the next turn is told apart by being another.
    pub fn marked(&self, turn: usize) -> Result<bool, Error> {
        let last = self.len() + (self.case.size.max(1) - 1) as usize;
        let mut byte = [0];
        self.memory.read_at(last, &mut byte)?;
        if byte[0] != turn as u8 | 1 << 7 {
            return Ok(false);
        }
        self.memory.write_at(last, &[0])?;
        Ok(true)
    }

    /// As [`Station::poll`], asleep while there is nothing to take.
    pub fn sleep<'a>(
        &self,
        wcs: &'a mut [Wc],
    ) -> Result<impl Iterator<Item = Done> + use<'a>, Error> {
        let mut n = self.cq.poll(wcs);
        while n == 0 {
            self.cq.arm(Arm::Next);
            n = self.cq.poll(wcs);
            if n == 0 {
                self.cq.take_notification()?;
                n = self.cq.poll(wcs);
            }
        }
        self.judge(&wcs[..n])
    }

    fn judge<'a>(&self, some: &'a [Wc]) -> Result<impl Iterator<Item = Done> + use<'a>, Error> {
        if let Some(wc) = some.iter().find(|wc| wc.status != Status::Success) {
            let qp = self.qps.get(Done::of(wc.id).at);
            let why = qp.and_then(|qp| qp.view().cause).unwrap_or_default();
            return Err(Error::Failed(format!("{:?}: {why}", wc.status)));
        }
        Ok(some.iter().map(|wc| Done::of(wc.id)))
    }
}

/// Does this in so many threads at once, each told its number; in this thread if it is one. A failure of any is a failure of all.
pub(super) fn in_threads<T: Send>(
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

fn refused(refused: (usize, PostError)) -> Error {
    Error::Failed(refused.1.to_string())
}
