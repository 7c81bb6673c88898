//! The state shared by a connection and its pending operations: queue pair, completion queue, operations and waiters.
//! A completion finds its operation whichever thread polls, waiters are woken, and buffers are returned only after the adapter is
//! done with them. There is no thread of its own: a waiting thread polls and then sleeps, and the shards wake it.
//!
//! No lock is held while the engine or a waker is called: both may call back.

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
use crate::depths::Depths;
use crate::device::{ConnectionEvents, Device};
use crate::error::{Error, Failure};
use crate::mr::Buf;
use crate::ops::{DeferredWork, OpId, OpMemory, OpOutput, OpRequest, Ops, QueueKind};

/// Completions polled at once.
const POLL_BATCH: usize = 32;

/// The result of an operation, with what was kept for it.
pub(crate) type OpResult = (Result<OpOutput, Error>, OpMemory);

/// The operations and the threads that sleep for them.
#[derive(Debug)]
pub(crate) struct OpTracker {
    ops: Mutex<Ops>,
    done: Condvar,
    /// The peer has ended the connection.
    peer_disconnected: AtomicBool,
}

impl OpTracker {
    /// Changes the operations, then wakes their waiters.
    fn update<R>(&self, change: impl FnOnce(&mut Ops, &mut DeferredWork) -> R) -> R {
        let mut after = DeferredWork::default();
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

    fn closed_error(&self) -> Error {
        let by_peer = self.peer_disconnected.load(Ordering::Acquire);
        Error::Closed { by_peer }
    }
}

/// The queue pair. A thread that posts holds a reference meanwhile; with the last reference it is destroyed, and only then
/// are the buffers of unfinished operations returned.
#[derive(Debug)]
pub(crate) struct QpHandle {
    qp: Option<QueuePair>,
    number: u32,
    tracker: Arc<OpTracker>,
    device: Device,
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        drop(self.qp.take());
        self.device.inner().remove_connection(self.number);
        let error = self.tracker.closed_error();
        self.tracker.update(|ops, after| ops.close(&error, after));
    }
}

/// Shared by a connection and its pending operations.
#[derive(Debug)]
pub(crate) struct Shared {
    handle: Mutex<Option<Arc<QpHandle>>>,
    pub(crate) cq: CompletionQueue,
    pub(crate) tracker: Arc<OpTracker>,
    pub(crate) device: Device,
    number: u32,
}

impl Shared {
    /// Creates an unconnected endpoint; receives may be posted to it.
    pub(crate) fn new(device: &Device, wanted: Depths) -> Result<Arc<Shared>, Error> {
        let most = device.attributes().requests / 2;
        let depths = [wanted.sends, wanted.recvs].map(|depth| depth.clamp(1, most));
        // Twice the capacity: a completion may be polled here before the queue pair has released its slot.
        let [sends, receives] = depths.map(|depth| 2 * depth);
        let engine = &device.inner().engine;
        let cq = engine.create_cq(sends + receives)?;
        let options = QueuePairOptions {
            limits: Limits {
                sends,
                receives,
                max_sge: 1,
                inline: 0,
            },
            ..QueuePairOptions::new(device.internal_domain.pd)
        };
        let qp = engine.create_qp(&cq, &cq, options)?;
        qp.set_attr(|attr| (attr.ird, attr.ord) = (wanted.ird, wanted.ord));
        qp.modify(QpState::Init)?;
        let number = qp.number();
        let board = Arc::new(OpTracker {
            ops: Mutex::new(Ops::new(depths)),
            done: Condvar::new(),
            peer_disconnected: AtomicBool::new(false),
        });
        let link = Arc::new(QpHandle {
            qp: Some(qp),
            number,
            tracker: board.clone(),
            device: device.clone(),
        });
        let shared = Arc::new(Shared {
            handle: Mutex::new(Some(link)),
            cq,
            tracker: board,
            device: device.clone(),
            number,
        });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        device.inner().add_connection(number, weak.clone());
        shared.cq.set_notify(Some(Arc::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.on_notify();
            }
        })));
        Ok(shared)
    }

    /// Calls `what` with the queue pair, if it still exists.
    pub(crate) fn with_qp<R>(&self, what: impl FnOnce(&QueuePair) -> R) -> Option<R> {
        let link = self.handle.lock().clone()?;
        link.qp.as_ref().map(what)
    }

    pub(crate) fn is_peer_disconnected(&self) -> bool {
        self.tracker.peer_disconnected.load(Ordering::Acquire)
    }

    /// Moves the queue pair to the error state, which flushes its operations.
    pub(crate) fn fail(&self) {
        // Fails only when the adapter is closed, and then nothing is left to flush.
        self.with_qp(|qp| drop(qp.modify(QpState::Err)));
    }

    /// Whether the operation has ended, and its result was taken or not.
    pub(crate) fn is_finished(&self, id: OpId) -> bool {
        self.tracker.ops.lock().is_finished(id)
    }

    /// Releases the queue pair.
    pub(crate) fn close(&self) {
        self.drive();
        let link = self.handle.lock().take();
        drop(link);
    }

    /// Begins an operation.
    pub(crate) fn begin(&self, ask: OpRequest, kept: OpMemory) -> Result<OpId, (Error, OpMemory)> {
        let begun = self.tracker.ops.lock().begin(ask, kept)?;
        self.post_all();
        if self.tracker.ops.lock().has_backlog() {
            // There may be no waiter: a completion must notify, so that the backlog is posted.
            self.cq.arm(Arm::Next);
            self.drive();
        }
        Ok(begun)
    }

    /// Takes over a receive whose `Pending` was dropped.
    pub(crate) fn claim(&self) -> Option<OpId> {
        self.tracker.ops.lock().claim()
    }

    fn post_all(&self) {
        for lane in [QueueKind::Send, QueueKind::Recv] {
            while self.tracker.ops.lock().start_posting(lane) {
                self.post_queue(lane);
            }
        }
    }

    fn post_queue(&self, lane: QueueKind) {
        loop {
            let next = self.tracker.ops.lock().next(lane);
            let Some((id, ask)) = next else { return };
            let posted = self.with_qp(|qp| post(qp, id, &ask));
            let error = match posted {
                Some(Ok(())) => continue,
                Some(Err(PostError::State(_))) | None => self.tracker.closed_error(),
                Some(Err(error)) => error.into(),
            };
            self.tracker
                .update(|ops, after| ops.finish(id, Err(error), after));
        }
    }

    /// Polls completions and ends their operations; returns how many.
    pub(crate) fn drive(&self) -> usize {
        let mut some = [Wc::default(); POLL_BATCH];
        let mut count = 0;
        loop {
            let n = self.cq.poll(&mut some);
            if n > 0 {
                self.dispatch(&some[..n]);
            }
            count += n;
            if n < POLL_BATCH {
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
            // The iWARP personality closes in order: receives are flushed without a failure, before the event is raised.
            if known.is_none() && some.iter().any(|wc| wc.status == Status::WrFlushErr) {
                self.tracker
                    .peer_disconnected
                    .store(true, Ordering::Release);
            }
            cause = known;
        }
        self.tracker.update(|ops, after| {
            for wc in some {
                let end = match wc.status {
                    Status::Success => Ok(OpOutput {
                        len: wc.len,
                        // The payload of a write with immediate data is not in the receive's buffer.
                        placed: if wc.op == WcOp::ReceiveWriteImm {
                            0
                        } else {
                            wc.len
                        },
                        immediate: wc.immediate,
                    }),
                    Status::WrFlushErr if self.is_peer_disconnected() => {
                        Err(self.tracker.closed_error())
                    }
                    status => Err(Error::Failed(Failure {
                        qp: self.number,
                        status,
                        cause: cause.clone(),
                    })),
                };
                ops.finish(OpId::from_wr_id(wc.id), end, after);
            }
        });
    }

    /// Called when the armed queue has a completion, on the thread that completed it.
    fn on_notify(&self) {
        loop {
            self.drive();
            let waits = {
                let ops = self.tracker.ops.lock();
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

    /// Takes the result of an operation, if it has ended.
    pub(crate) fn try_take(&self, id: OpId) -> Option<OpResult> {
        let ended = self.tracker.ops.lock().take(id);
        ended.or_else(|| {
            self.drive();
            self.tracker.ops.lock().take(id)
        })
    }

    /// For a task: takes the result, or stores the waker.
    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "only tasks poll"))]
    pub(crate) fn poll(&self, id: OpId, waker: &Waker) -> Poll<OpResult> {
        if let Some(end) = self.try_take(id) {
            return Poll::Ready(end);
        }
        self.tracker.ops.lock().set_waker(id, waker);
        // Later completions notify; earlier ones are found by this poll.
        self.cq.arm(Arm::Next);
        self.drive();
        match self.tracker.ops.lock().take(id) {
            Some(end) => Poll::Ready(end),
            None => Poll::Pending,
        }
    }

    /// For a thread: waits for the result, `None` at the time limit. Polls for 50 µs, then sleeps.
    pub(crate) fn wait(&self, id: OpId, until: Option<Instant>) -> Option<OpResult> {
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

    /// Sleeps until `look` finds something, or until the time limit.
    pub(crate) fn sleep<R>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut Ops) -> Option<R>,
    ) -> Option<R> {
        self.tracker.ops.lock().sleepers += 1;
        loop {
            self.cq.arm(Arm::Next);
            self.drive();
            let mut ops = self.tracker.ops.lock();
            let found = look(&mut ops);
            let late = until.is_some_and(|until| Instant::now() >= until);
            if found.is_some() || late {
                ops.sleepers -= 1;
                return found;
            }
            self.wait_done(&mut ops, until);
        }
    }

    fn wait_done(&self, ops: &mut MutexGuard<'_, Ops>, until: Option<Instant>) {
        match until {
            Some(until) => drop(self.tracker.done.wait_until(ops, until)),
            None => self.tracker.done.wait(ops),
        }
    }

    /// A `Pending` was dropped.
    pub(crate) fn abandon(&self, id: OpId) {
        self.tracker.update(|ops, after| ops.abandon(id, after));
    }

    /// A buffer of eight bytes for the result of an atomic.
    pub(crate) fn take_atomic_buffer(&self) -> Result<Buf, Error> {
        let spare = self.tracker.ops.lock().take_atomic_buffer();
        spare.map_or_else(|| self.device.buffer(8), Ok)
    }

    pub(crate) fn recycle_atomic_buffer(&self, word: Buf) {
        let too_many = self.tracker.ops.lock().recycle_atomic_buffer(word);
        drop(too_many);
    }
}

impl ConnectionEvents for Shared {
    fn on_disconnected(&self) {
        self.tracker
            .peer_disconnected
            .store(true, Ordering::Release);
        // Fails only when the adapter is closed, and then nothing is left to flush.
        self.with_qp(|qp| drop(qp.modify(QpState::Err)));
        self.drive();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cq.set_notify(None);
    }
}

fn post(qp: &QueuePair, id: OpId, ask: &OpRequest) -> Result<(), PostError> {
    let pieces = core::slice::from_ref(&ask.sge);
    // No element for no bytes: a zero-length slice of a scope is not registered and has no STag.
    let pieces = if ask.sge.len == 0 { &[] } else { pieces };
    match ask.op {
        Some(op) => qp.post_send(&SendWr {
            id: id.to_wr_id(),
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(pieces),
        }),
        None => qp.post_receive(&ReceiveWr {
            id: id.to_wr_id(),
            scatter: pieces,
        }),
    }
}
