//! What a connection and its pending operations share: queue pair, completion queue, operations, and who waits.
//! It promises that a completion finds its operation whoever polls, that a waiter is woken, and that buffers come back
//! only when the adapter has let go of them. It refuses a thread of its own: whoever waits polls, then the shards wake it.
//!
//! No lock is held while the engine is called or somebody is woken: both may call back.

use core::task::{Poll, Waker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use verbena_engine::{CompletionQueue, QueuePair, QueuePairOptions};
use verbena_nic::qp::{Limits, PostError};
use verbena_nic::wr::Data;
use verbena_nic::{Arm, Flags, QpState, ReceiveWr, SendWr, Status, Wc, WcOp};

use crate::cq::SPIN;
use crate::device::Device;
use crate::endpoint::Depths;
use crate::error::{Error, Failure};
use crate::low::BLANK;
use crate::mr::Buf;
use crate::ops::{After, Ask, Gain, Id, Kept, Lane, Ops};

/// Completions taken at once.
const AT_ONCE: usize = 32;

/// How an operation ended, with what was kept for it.
pub(crate) type End = (Result<Gain, Error>, Kept);

/// The operations, and who sleeps for them.
#[derive(Debug)]
pub(crate) struct Board {
    ops: Mutex<Ops>,
    done: Condvar,
    /// The peer ended the connection.
    peer_left: AtomicBool,
}

impl Board {
    /// Changes the operations, then wakes whoever that concerns.
    fn change<R>(&self, change: impl FnOnce(&mut Ops, &mut After) -> R) -> R {
        let mut after = After::default();
        let mut ops = self.ops.lock();
        let result = change(&mut ops, &mut after);
        let sleepers = ops.sleepers > 0;
        drop(ops);
        if sleepers {
            self.done.notify_all();
        }
        after.run();
        result
    }

    fn closed(&self) -> Error {
        let by_peer = self.peer_left.load(Ordering::Acquire);
        Error::Closed { by_peer }
    }
}

/// The queue pair. Whoever posts holds it a moment longer; when the last has let go it is destroyed, and only then are
/// the buffers of unfinished operations free.
#[derive(Debug)]
pub(crate) struct Link {
    qp: Option<QueuePair>,
    number: u32,
    board: Arc<Board>,
    device: Device,
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.qp.take());
        self.device.inner().parted(self.number);
        let error = self.board.closed();
        self.board.change(|ops, after| ops.close(&error, after));
    }
}

/// Shared by a connection and its pending operations.
#[derive(Debug)]
pub(crate) struct Shared {
    link: Mutex<Option<Arc<Link>>>,
    pub(crate) cq: CompletionQueue,
    pub(crate) board: Arc<Board>,
    pub(crate) device: Device,
    number: u32,
}

impl Shared {
    /// A connection to be, whose receives may be posted already.
    pub(crate) fn new(device: &Device, wanted: Depths) -> Result<Arc<Shared>, Error> {
        let most = device.attributes().requests / 2;
        let depths = [wanted.sends, wanted.recvs].map(|depth| depth.clamp(1, most));
        // Twice the room: a completion may be seen here before the queue pair has counted it out.
        let [sends, receives] = depths.map(|depth| 2 * depth);
        let engine = &device.inner().engine;
        let cq = engine.create_cq(sends + receives)?;
        let options = QueuePairOptions {
            limits: Limits {
                sends,
                receives,
                pieces: 1,
                inline: 0,
            },
            ..QueuePairOptions::new(device.hidden.pd)
        };
        let qp = engine.create_qp(&cq, &cq, options)?;
        qp.set_manners(|manners| (manners.ird, manners.ord) = (wanted.ird, wanted.ord));
        qp.modify(QpState::Init);
        let number = qp.number();
        let board = Arc::new(Board {
            ops: Mutex::new(Ops::new(depths)),
            done: Condvar::new(),
            peer_left: AtomicBool::new(false),
        });
        let link = Arc::new(Link {
            qp: Some(qp),
            number,
            board: board.clone(),
            device: device.clone(),
        });
        let shared = Arc::new(Shared {
            link: Mutex::new(Some(link)),
            cq,
            board,
            device: device.clone(),
            number,
        });
        device.inner().joined(number, &shared);
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        shared.cq.listen(Some(Arc::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.rung();
            }
        })));
        Ok(shared)
    }

    /// Something with the queue pair, if it is still there.
    pub(crate) fn with_qp<R>(&self, what: impl FnOnce(&QueuePair) -> R) -> Option<R> {
        let link = self.link.lock().clone()?;
        link.qp.as_ref().map(what)
    }

    /// The peer ended the connection: receives will not be served any more. Messages that came before are kept.
    pub(crate) fn peer_left(&self) {
        self.board.peer_left.store(true, Ordering::Release);
        // `iwarp` has flushed them by itself and may refuse.
        self.with_qp(|qp| qp.modify(QpState::Err));
        self.drive();
    }

    pub(crate) fn has_peer_left(&self) -> bool {
        self.board.peer_left.load(Ordering::Acquire)
    }

    /// The connection fails: what is under way on it ends.
    pub(crate) fn fail(&self) {
        self.with_qp(|qp| qp.modify(QpState::Err));
    }

    /// The operation has ended, whether its end was taken or not.
    pub(crate) fn is_over(&self, id: Id) -> bool {
        self.board.ops.lock().is_over(id)
    }

    /// Lets go of the queue pair.
    pub(crate) fn close(&self) {
        self.drive();
        let link = self.link.lock().take();
        drop(link);
    }

    /// Begins an operation.
    pub(crate) fn begin(&self, ask: Ask, kept: Kept) -> Result<Id, (Error, Kept)> {
        let begun = self.board.ops.lock().begin(ask, kept)?;
        self.post_all();
        if self.board.ops.lock().has_backlog() {
            // Nobody may be waiting here: then a completion must ring, so that those in line are posted.
            self.cq.arm(Arm::Next);
            self.drive();
        }
        Ok(begun)
    }

    /// An earlier receive that nobody waits for any more.
    pub(crate) fn claim(&self) -> Option<Id> {
        self.board.ops.lock().claim()
    }

    fn post_all(&self) {
        for lane in [Lane::Send, Lane::Recv] {
            while self.board.ops.lock().start_posting(lane) {
                self.post_lane(lane);
            }
        }
    }

    fn post_lane(&self, lane: Lane) {
        loop {
            let next = self.board.ops.lock().next(lane);
            let Some((id, ask)) = next else { return };
            let posted = self.with_qp(|qp| post(qp, id, &ask));
            let error = match posted {
                Some(Ok(())) => continue,
                Some(Err(PostError::State(_))) | None => self.board.closed(),
                Some(Err(error)) => error.into(),
            };
            self.board
                .change(|ops, after| ops.finish(id, Err(error), after));
        }
    }

    /// Takes completions to their operations; returns how many.
    pub(crate) fn drive(&self) -> usize {
        let mut some = [BLANK; AT_ONCE];
        let mut count = 0;
        loop {
            let n = self.cq.poll(&mut some);
            if n > 0 {
                self.dispatch(&some[..n]);
            }
            count += n;
            if n < AT_ONCE {
                break;
            }
        }
        if count > 0 {
            self.post_all();
        }
        count
    }

    fn dispatch(&self, some: &[Wc]) {
        let failed = some.iter().any(|wc| wc.status != Status::Success);
        let mut cause = None;
        if failed && let Some(known) = self.with_qp(|qp| qp.view().cause) {
            // `iwarp` closes gently: receives are flushed without any failure, before the event is told.
            if known.is_none() && some.iter().any(|wc| wc.status == Status::WrFlushErr) {
                self.board.peer_left.store(true, Ordering::Release);
            }
            cause = known;
        }
        self.board.change(|ops, after| {
            for wc in some {
                let end = match wc.status {
                    Status::Success => Ok(Gain {
                        len: wc.len,
                        // A write with immediate data reports what went elsewhere.
                        placed: if wc.op == WcOp::ReceiveWriteImm {
                            0
                        } else {
                            wc.len
                        },
                        immediate: wc.immediate,
                    }),
                    Status::WrFlushErr if self.has_peer_left() => Err(self.board.closed()),
                    status => Err(Error::Failed(Failure {
                        qp: self.number,
                        status,
                        cause: cause.clone(),
                    })),
                };
                ops.finish(Id::of_wr(wc.id), end, after);
            }
        });
    }

    /// The armed queue has a completion. Runs on whatever thread noticed.
    fn rung(&self) {
        loop {
            self.drive();
            let waits = {
                let ops = self.board.ops.lock();
                ops.awaited > 0 || ops.sleepers > 0 || ops.has_backlog()
            };
            if !waits {
                return;
            }
            self.cq.arm(Arm::Next);
            if self.drive() == 0 {
                return;
            }
        }
    }

    /// The end of an operation, if it has ended.
    pub(crate) fn try_take(&self, id: Id) -> Option<End> {
        let ended = self.board.ops.lock().take(id);
        ended.or_else(|| {
            self.drive();
            self.board.ops.lock().take(id)
        })
    }

    /// For a task: the end, or a promise to wake it.
    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "only tasks poll"))]
    pub(crate) fn poll(&self, id: Id, waker: &Waker) -> Poll<End> {
        if let Some(end) = self.try_take(id) {
            return Poll::Ready(end);
        }
        self.board.ops.lock().wake_by(id, waker);
        // What completes from here on rings; what completed before is found by this look.
        self.cq.arm(Arm::Next);
        self.drive();
        match self.board.ops.lock().take(id) {
            Some(end) => Poll::Ready(end),
            None => Poll::Pending,
        }
    }

    /// For a thread: the end, or none if it does not come in time. Polls for a little while, then sleeps.
    pub(crate) fn wait(&self, id: Id, until: Option<Instant>) -> Option<End> {
        let spin = Instant::now() + SPIN;
        loop {
            if let Some(end) = self.try_take(id) {
                return Some(end);
            }
            if Instant::now() >= spin {
                break;
            }
            core::hint::spin_loop();
        }
        self.sleep(until, |ops| ops.take(id))
    }

    /// Sleeps until there is what the caller looks for, or until the time is over.
    pub(crate) fn sleep<R>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut Ops) -> Option<R>,
    ) -> Option<R> {
        self.board.ops.lock().sleepers += 1;
        loop {
            self.cq.arm(Arm::Next);
            self.drive();
            let mut ops = self.board.ops.lock();
            let found = look(&mut ops);
            let late = until.is_some_and(|until| Instant::now() >= until);
            if found.is_some() || late {
                ops.sleepers -= 1;
                return found;
            }
            self.doze(&mut ops, until);
        }
    }

    fn doze(&self, ops: &mut MutexGuard<'_, Ops>, until: Option<Instant>) {
        match until {
            Some(until) => drop(self.board.done.wait_until(ops, until)),
            None => self.board.done.wait(ops),
        }
    }

    /// A `Pending` was dropped.
    pub(crate) fn give_up(&self, id: Id) {
        self.board.change(|ops, after| ops.give_up(id, after));
    }

    /// A buffer of eight bytes for the answer of an atomic.
    pub(crate) fn word(&self) -> Result<Buf, Error> {
        let spare = self.board.ops.lock().word();
        spare.map_or_else(|| self.device.buffer(8), Ok)
    }

    pub(crate) fn keep_word(&self, word: Buf) {
        let too_many = self.board.ops.lock().keep_word(word);
        drop(too_many);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cq.listen(None);
    }
}

fn post(qp: &QueuePair, id: Id, ask: &Ask) -> Result<(), PostError> {
    let pieces = core::slice::from_ref(&ask.sge);
    // No piece at all for no bytes: an empty one would name memory for nothing.
    let pieces = if ask.sge.len == 0 { &[] } else { pieces };
    match ask.op {
        Some(op) => qp.post_send(&SendWr {
            id: id.to_wr(),
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(pieces),
        }),
        None => qp.post_receive(&ReceiveWr {
            id: id.to_wr(),
            scatter: pieces,
        }),
    }
}
