//! Executes, in the process of a shared receive queue, what a target of another process receives for it (docs/decisions.md, decision 54).
//! There is one executor for each conversation. It has at most one message at a time, checks every access with the rights and the tables of this
//! process, and trusts nothing of a record: one that does not fit ends the conversation. A receive that was taken ends with a completion in any
//! case, and a reserved one is passed on.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::{Access, MemAccess, Refusal, atomic};
use verbena_wire::rdmap::{AtomicOp, AtomicRequest};
use verbena_wire::{Srqn, Stag, To};

use super::answer::flush;
use super::memory::{Right, fault_of, places};
use super::{Limits, QpInit, Registration, Transfer};
use crate::receive::Receive;
use crate::state::{Personality, QpType};
use crate::trace::ObserverCell;
use crate::wc::{Status, Wc, WcOp};
use crate::xrc::record::{Answer, End, MAX_BODY, Reason, Request, VERSION};
use crate::xrc::{FIRST_WAITER, XrcDomain, XrcSrq};

/// The record does not fit: the conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRecord;

/// The queue that requests are for, and the parts with which they are executed.
#[derive(Debug)]
struct Selected {
    number: Srqn,
    queue: Arc<XrcSrq>,
    init: QpInit,
}

/// The receive of the message that is being received.
#[derive(Debug)]
struct Claimed {
    receive: Receive,
    capacity: u32,
    /// It names memory that may not be written.
    failed: bool,
}

/// Executes the requests of one target.
#[derive(Debug)]
pub struct XrcExecutor {
    domain: Arc<XrcDomain>,
    /// What waits for receives on behalf of the target.
    waiter: u32,
    /// The target's number in completions, after the first record.
    target: Option<u32>,
    selected: Option<Selected>,
    claimed: Option<Claimed>,
    /// The target waits for a receive of the selected queue, or one is reserved for it.
    waits: bool,
    /// Why the RDMA Write that is being received is refused.
    refused: Option<Reason>,
}

impl XrcExecutor {
    /// For a conversation that begins; `waiter` is the number with which it is woken, unique in the process from [`FIRST_WAITER`] on.
    pub fn new(domain: Arc<XrcDomain>, waiter: u32) -> XrcExecutor {
        debug_assert!(waiter >= FIRST_WAITER);
        XrcExecutor {
            domain,
            waiter,
            target: None,
            selected: None,
            claimed: None,
            waits: false,
            refused: None,
        }
    }

    /// A receive is held for the target: if it does not go on, the conversation should end.
    pub fn holds_receive(&self) -> bool {
        self.claimed.is_some() || self.is_reserved()
    }

    fn is_reserved(&self) -> bool {
        let reserved = |s: &Selected| s.queue.srq.has_reservation(self.waiter);
        self.waits && self.selected.as_ref().is_some_and(reserved)
    }

    /// Executes a record; what is to be sent is put to `reply`, which is empty.
    pub fn handle(
        &mut self,
        record: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Outbox,
    ) -> Result<(), BadRecord> {
        let (request, body) = Request::parse(record).ok_or(BadRecord)?;
        let Some(target) = self.target else {
            let Request::Hello { version, qpn } = request else {
                return Err(BadRecord);
            };
            self.target = Some(qpn);
            return if version == VERSION && qpn < FIRST_WAITER {
                Ok(())
            } else {
                Err(BadRecord)
            };
        };
        let answer = match request {
            Request::Hello { .. } => return Err(BadRecord),
            Request::Claim { srq } => Some(self.claim(target, srq, out)?),
            Request::Piece { offset } => {
                self.place(offset, body)?;
                None
            }
            Request::End(end) => Some(self.end_message(end, out)?),
            Request::Fail(status) => {
                self.fail_message(status, out);
                None
            }
            Request::Write { srq, stag, to, run } => {
                if self.refused.is_none() {
                    let placed = self.write(target, srq, (stag, to, run), body, out)?;
                    self.refused = placed.err();
                }
                None
            }
            Request::WriteEnd => Some(match self.refused.take() {
                None => Answer::Done,
                Some(reason) => Answer::Refused(reason),
            }),
            Request::Read { srq, stag, to, len } => {
                reply.extend_from_slice(&Answer::Data.emit());
                match self.read(target, srq, (stag, to, len), reply, out)? {
                    Ok(()) => return Ok(()),
                    Err(reason) => {
                        reply.clear();
                        Some(Answer::Refused(reason))
                    }
                }
            }
            Request::Atomic { srq } => {
                let request = AtomicRequest::parse(body).map_err(|_| BadRecord)?;
                let value = match self.select(target, srq, out)? {
                    Some(selected) => execute(&selected.init, &request),
                    None => Err(Reason::NoSuchSrq),
                };
                Some(value.map_or_else(Answer::Refused, Answer::Value))
            }
        };
        if let Some(answer) = answer {
            reply.extend_from_slice(&answer.emit());
        }
        Ok(())
    }

    /// It was woken: a receive of the queue is reserved, or the queue is being destroyed.
    pub fn woken(&mut self, reply: &mut Vec<u8>) {
        let Some(selected) = self.selected.as_ref().filter(|_| self.waits) else {
            return;
        };
        if selected.queue.enter().is_none() {
            self.waits = false;
            reply.extend_from_slice(&Answer::Refused(Reason::NoSuchSrq).emit());
        } else if selected.queue.srq.has_reservation(self.waiter) {
            reply.extend_from_slice(&Answer::Ready.emit());
        }
    }

    /// The conversation is over.
    pub fn end(&mut self, out: &mut Outbox) {
        self.fail_message(Status::WrFlushErr, out);
        self.leave(out);
        self.selected = None;
    }
}

/// Queues and receives.
impl XrcExecutor {
    /// The queue with this number; none if there is none, or not any more. A message that is being received has its queue until it ends.
    fn select(
        &mut self,
        target: u32,
        number: Srqn,
        out: &mut Outbox,
    ) -> Result<Option<&Selected>, BadRecord> {
        if self.claimed.is_some() {
            return Err(BadRecord);
        }
        let same = |s: &Selected| s.number == number && s.queue.enter().is_some();
        if !self.selected.as_ref().is_some_and(same) {
            self.leave(out);
            let queue = self.domain.find(number);
            self.selected = queue.map(|queue| Selected {
                number,
                init: self.parts(target, &queue),
                queue,
            });
        }
        Ok(self.selected.as_ref())
    }

    fn parts(&self, target: u32, queue: &XrcSrq) -> QpInit {
        QpInit {
            number: self.waiter,
            wc_qpn: target,
            pd: queue.srq.pd(),
            personality: Personality::Roce,
            qp_type: QpType::XrcRecv,
            send_cq: queue.cq.clone(),
            recv_cq: queue.cq.clone(),
            srq: Some(queue.srq.clone()),
            xrcd: None,
            xrc_sends: 0,
            tpt: queue.tpt.clone(),
            limits: Limits::default(),
            transfer: Transfer::default(),
            registration: Registration::default(),
            // It posts no requests; completion queues tell the trace of their entries themselves.
            observer: ObserverCell::default(),
        }
    }

    /// The target needs no receive of the queue any more.
    fn leave(&mut self, out: &mut Outbox) {
        if core::mem::take(&mut self.waits)
            && let Some(selected) = &self.selected
            && let Some(next) = selected.queue.srq.leave(self.waiter)
        {
            out.wake(next);
        }
    }

    fn claim(&mut self, target: u32, number: Srqn, out: &mut Outbox) -> Result<Answer, BadRecord> {
        let waiter = self.waiter;
        let Some(selected) = self.select(target, number, out)? else {
            return Ok(Answer::Refused(Reason::NoSuchSrq));
        };
        let Some(entered) = selected.queue.enter() else {
            return Ok(Answer::Refused(Reason::NoSuchSrq));
        };
        let (taken, faulty) = match selected.queue.srq.take(waiter, out) {
            Some(receive) => match receive.fault {
                None => (Some(receive), false),
                Some(status) => {
                    let wc = failed_wc(&selected.init, receive.id, status);
                    selected.queue.cq.push(wc, out);
                    (None, true)
                }
            },
            None => (None, false),
        };
        drop(entered);
        self.waits = taken.is_none() && !faulty;
        Ok(match taken {
            Some(receive) => {
                let capacity = receive.capacity();
                self.claimed = Some(Claimed {
                    receive,
                    capacity,
                    failed: false,
                });
                Answer::Granted { capacity }
            }
            None if faulty => Answer::Refused(Reason::Failed),
            None => Answer::NotReady,
        })
    }

    fn place(&mut self, offset: u32, bytes: &[u8]) -> Result<(), BadRecord> {
        let (Some(claimed), Some(selected)) = (&mut self.claimed, &self.selected) else {
            return Err(BadRecord);
        };
        let len = bytes.len() as u32;
        if offset
            .checked_add(len)
            .is_none_or(|end| end > claimed.capacity)
        {
            return Err(BadRecord);
        }
        let (mut rest, mut copied) = (bytes, Ok(0));
        let scatter = &claimed.receive.scatter;
        let placed = places(
            &selected.init,
            scatter,
            (offset, len),
            Right::Local,
            |place| {
                copied = place.write(0, rest);
                rest = &rest[copied.unwrap_or(0)..];
                copied.is_ok() && !rest.is_empty()
            },
        );
        claimed.failed |= placed.is_err() || copied.is_err();
        Ok(())
    }

    fn end_message(&mut self, end: End, out: &mut Outbox) -> Result<Answer, BadRecord> {
        let (Some(claimed), Some(selected)) = (&self.claimed, &self.selected) else {
            return Err(BadRecord);
        };
        if end.len > claimed.capacity && !end.write {
            return Err(BadRecord);
        }
        if claimed.failed {
            self.fail_message(Status::LocProtErr, out);
            return Ok(Answer::Refused(Reason::ReceiveBuffer));
        }
        let init = &selected.init;
        if let Some(stag) = end.invalidate
            && let Err(refusal) = init.tpt.invalidate_remote(stag, init.pd, init.number)
        {
            return Ok(Answer::Refused(Reason::Access(stag, fault_of(&refusal))));
        }
        let wc = Wc {
            id: claimed.receive.id,
            qpn: init.wc_qpn,
            status: Status::Success,
            op: match end.write {
                true => WcOp::ReceiveWriteImm,
                false => WcOp::Receive,
            },
            len: end.len,
            immediate: end.immediate,
            invalidated: end.invalidate,
            solicited: end.solicited,
            ..Wc::default()
        };
        let answer = match selected.queue.enter() {
            None => Answer::Refused(Reason::NoSuchSrq),
            Some(_entered) if selected.queue.cq.push(wc, out) => Answer::Done,
            Some(_) => Answer::Refused(Reason::Failed),
        };
        self.claimed = None;
        Ok(answer)
    }

    /// The message will not be complete: its receive completes with this status.
    fn fail_message(&mut self, status: Status, out: &mut Outbox) {
        if let (Some(claimed), Some(selected)) = (self.claimed.take(), &self.selected)
            && let Some(_entered) = selected.queue.enter()
        {
            let wc = failed_wc(&selected.init, claimed.receive.id, status);
            selected.queue.cq.push(wc, out);
        }
    }
}

/// Memory of the queue's protection domain.
impl XrcExecutor {
    fn write(
        &mut self,
        target: u32,
        number: Srqn,
        (stag, to, run): (Stag, To, u32),
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<Result<(), Reason>, BadRecord> {
        if run < bytes.len() as u32 || bytes.is_empty() {
            return Err(BadRecord);
        }
        let Some(selected) = self.select(target, number, out)? else {
            return Ok(Err(Reason::NoSuchSrq));
        };
        let init = &selected.init;
        let reach = access(init, (stag, to), run.into(), Access::REMOTE_WRITE);
        let write = || {
            let place = init.tpt.place_remote(&reach)?;
            // Which message was the first in one-touch memory (M9) is known to a queue pair of this process only.
            if place.is_one_touch() {
                return Err(Refusal::Kind { stag });
            }
            place.write(0, bytes)?;
            Ok(())
        };
        Ok(write().map_err(|refusal| Reason::Access(stag, fault_of(&refusal))))
    }

    /// Appends the bytes to `to`.
    fn read(
        &mut self,
        target: u32,
        number: Srqn,
        (stag, from, len): (Stag, To, u32),
        to: &mut Vec<u8>,
        out: &mut Outbox,
    ) -> Result<Result<(), Reason>, BadRecord> {
        if len == 0 || len as usize > MAX_BODY {
            return Err(BadRecord);
        }
        let Some(selected) = self.select(target, number, out)? else {
            return Ok(Err(Reason::NoSuchSrq));
        };
        let init = &selected.init;
        let reach = access(init, (stag, from), len.into(), Access::REMOTE_READ);
        let mut read = || {
            let source = init.tpt.gather_remote(&reach)?;
            if source.is_one_touch() {
                return Err(Refusal::Kind { stag });
            }
            source.append_to(0, len as usize, to)?;
            Ok(())
        };
        Ok(read().map_err(|refusal| Reason::Access(stag, fault_of(&refusal))))
    }
}

fn access(init: &QpInit, (stag, to): (Stag, To), len: u64, needs: Access) -> MemAccess {
    MemAccess {
        stag,
        at: to.get(),
        len,
        pd: init.pd,
        qp: init.number,
        needs,
    }
}

/// The previous value of the word.
fn execute(init: &QpInit, request: &AtomicRequest) -> Result<u64, Reason> {
    let needs = match request.op {
        AtomicOp::Write { .. } => Access::REMOTE_WRITE,
        AtomicOp::Flush(_) => Access::REMOTE_FLUSH,
        _ => Access::REMOTE_ATOMIC,
    };
    let reach = access(init, (request.stag, request.to), 8, needs);
    let run = || {
        if let AtomicOp::Flush(scope) = request.op {
            flush(init, reach, scope)?;
            return Ok(Some(0));
        }
        let place = init.tpt.place_remote(&reach)?;
        if place.is_one_touch() {
            return Err(Refusal::Kind { stag: request.stag });
        }
        Ok(atomic::execute(&place, request.op)?)
    };
    let original = run().map_err(|refusal: Refusal| {
        let fault = fault_of(&refusal);
        Reason::Access(request.stag, fault)
    })?;
    let original = original.ok_or(Reason::Unaligned)?;
    // The right to write does not include reading the previous value.
    let is_write = matches!(request.op, AtomicOp::Write { .. });
    Ok(if is_write { 0 } else { original })
}

fn failed_wc(init: &QpInit, id: u64, status: Status) -> Wc {
    Wc {
        id,
        qpn: init.wc_qpn,
        status,
        op: WcOp::Receive,
        ..Wc::default()
    }
}
