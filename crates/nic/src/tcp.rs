//! Queue pairs on a plain TCP connection (M14): the same queues, completions, memory and events as RDMA's, on a byte stream to any peer.
//! The data of the sends are the bytes of one direction, in posting order; the bytes of the other direction fill the posted receives
//! in order. Nothing is added to the stream, so it has no message boundaries: [`Fill`] says when a receive is complete. What a
//! completed send means is chosen with [`Acknowledgement`].

mod send;

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Refusal, Targets};
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, MutexGuard};

use crate::carrier::{Carrier, IoOutcome};
use crate::qp::{PostError, Receiving, Sending};
use crate::receive::{Receive, ReceiveQueue};
use crate::state::QpState;
use crate::ulp::{UlpInit, UlpQp};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::{ReceiveWr, Sge};
pub use send::TcpSendWr;
use send::{Sends, Written};

/// Bytes that are read before a receive of a shared receive queue is taken for them: an idle connection holds none.
const STAGE: usize = 4096;
/// Reads per call of `receive`.
const READS: usize = 4;

/// What the success of a send means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Acknowledgement {
    /// The local TCP has accepted the bytes, and the memory may be used again. The fastest.
    #[default]
    Accepted,
    /// The peer's TCP has acknowledged the bytes: they have reached the peer's host.
    Delivered,
    /// The peer's process has answered: a byte arrived after the peer's TCP had acknowledged the send, or the peer closed the
    /// connection in good order. Exact for protocols of requests and replies with one request outstanding. Where requests are
    /// pipelined, the reply to an earlier one may complete a later one that has reached the peer's host.
    Consumed,
}

/// When a receive is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fill {
    /// With the first bytes that arrive for it, as `recv`.
    #[default]
    Any,
    /// When it is full, as `recv` with `MSG_WAITALL`; with fewer bytes only at the end of the stream.
    Whole,
}

/// Attributes of a queue pair on a TCP connection, fixed at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpAttr {
    /// What the success of a send means.
    pub acknowledgement: Acknowledgement,
    /// When a receive is complete.
    pub fill: Fill,
}

/// A queue pair on a TCP connection.
#[derive(Debug)]
pub struct TcpQp {
    init: UlpInit,
    attr: TcpAttr,
    inner: Mutex<Inner>,
}

/// Everything that changes. One lock serializes both directions: no call blocks under it.
#[derive(Debug)]
struct Inner {
    state: QpState,
    retired: bool,
    cause: Option<String>,
    sends: Sends,
    receives: ReceiveQueue,
    /// The receive that is being filled.
    filling: Option<Filling>,
    /// Bytes that wait for a receive of the shared receive queue.
    stage: Vec<u8>,
    /// The peer has closed its direction: receives are flushed, sends go on.
    at_end: bool,
}

#[derive(Debug)]
struct Filling {
    receive: Receive,
    done: u32,
}

/// What is left of the pieces behind the first `skip` bytes.
fn rest(pieces: &[Sge], mut skip: u32) -> impl Iterator<Item = Sge> + '_ {
    pieces.iter().filter_map(move |sge| {
        let cut = skip.min(sge.len);
        skip -= cut;
        // An address beyond the end of the address space is refused by the check of the memory.
        let addr = sge.addr.wrapping_add(u64::from(cut));
        let len = sge.len - cut;
        (len > 0).then_some(Sge { addr, len, ..*sge })
    })
}

impl TcpQp {
    /// A queue pair whose connection is not established yet.
    pub fn new(init: UlpInit, attr: TcpAttr) -> TcpQp {
        let limits = init.limits;
        let inner = Inner {
            state: QpState::Reset,
            retired: false,
            cause: None,
            sends: Sends::default(),
            receives: ReceiveQueue::new(limits.receives, limits.max_sge),
            filling: None,
            stage: Vec::new(),
            at_end: false,
        };
        TcpQp {
            init,
            attr,
            inner: Mutex::new(inner),
        }
    }

    /// Its attributes.
    pub fn attr(&self) -> TcpAttr {
        self.attr
    }

    /// Why it is in the error state.
    pub fn cause(&self) -> Option<String> {
        self.lock().cause.clone()
    }

    /// The peer has closed its direction of the connection.
    pub fn is_at_end(&self) -> bool {
        self.lock().at_end
    }

    /// Sends posted and not completed, and receives posted to this queue pair and not completed.
    pub fn outstanding(&self) -> (usize, usize) {
        let inner = self.lock();
        let receives = inner.receives.len() + usize::from(inner.filling.is_some());
        (inner.sends.outstanding(), receives)
    }

    /// Posts a send. In `Err` it completes as flushed at once.
    pub fn post_send(&self, wr: &TcpSendWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let mut inner = self.lock();
        match inner.state {
            QpState::Rts => inner.sends.post(wr, &self.init.limits),
            QpState::Err => {
                self.complete(WcOp::Send, wr.id, Status::WrFlushErr, 0, out);
                Ok(())
            }
            state => Err(PostError::State(state)),
        }
    }

    /// Ends the sending direction behind the sends posted so far: the peer's process reads the end of the stream. Later sends fail.
    pub fn finish(&self) -> Result<(), PostError> {
        let mut inner = self.lock();
        match inner.state {
            QpState::Rts => inner.sends.finish(),
            state => return Err(PostError::State(state)),
        }
        Ok(())
    }

    /// Posts a receive. In `Err`, and behind the end of the stream, it completes as flushed at once.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Shared);
        }
        let mut inner = self.lock();
        match inner.state {
            QpState::Rts if !inner.at_end => Ok(inner.receives.post(wr)?),
            QpState::Rts | QpState::Err => {
                self.complete(WcOp::Receive, wr.id, Status::WrFlushErr, 0, out);
                Ok(())
            }
            state => Err(PostError::State(state)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    fn complete(&self, op: WcOp, id: u64, status: Status, len: u32, out: &mut Outbox) {
        let queue = match op {
            WcOp::Receive => &self.init.recv_cq,
            _ => &self.init.send_cq,
        };
        let qpn = self.init.number;
        let wc = Wc {
            id,
            qpn,
            status,
            op,
            len,
            ..Wc::default()
        };
        queue.push(wc, out);
    }

    /// Completes sends that need no longer be waited for.
    fn complete_sends(&self, done: impl Iterator<Item = Written>, out: &mut Outbox) {
        for send in done.filter(|send| send.signaled) {
            self.complete(WcOp::Send, send.id, Status::Success, 0, out);
        }
    }

    /// Moves to `Err`. The oldest send or receive gets `status` if `first` names its queue; everything else is flushed.
    fn end(&self, inner: &mut Inner, cause: &str, first: Option<(WcOp, Status)>, out: &mut Outbox) {
        if inner.state == QpState::Err {
            return;
        }
        inner.state = QpState::Err;
        inner.cause = Some(cause.to_owned());
        let sends = inner.sends.take_all();
        let flushes = !inner.retired;
        if flushes {
            for (at, id) in sends.into_iter().enumerate() {
                let status = match first {
                    Some((WcOp::Send, status)) if at == 0 => status,
                    _ => Status::WrFlushErr,
                };
                self.complete(WcOp::Send, id, status, 0, out);
            }
        }
        let status = match first {
            Some((WcOp::Receive, status)) => status,
            _ => Status::WrFlushErr,
        };
        self.flush_receives(inner, status, out);
        if flushes {
            let qp = self.init.number;
            out.push(Event::QpFatal { qp });
        }
    }

    /// Completes the receives: the first with `status`, the others as flushed. A receive of a shared queue in which nothing was placed
    /// goes back to it.
    fn flush_receives(&self, inner: &mut Inner, status: Status, out: &mut Outbox) {
        let mut queue = std::mem::replace(&mut inner.receives, ReceiveQueue::new(0, 0));
        let begun = inner.filling.take().map(|filling| filling.receive);
        inner.stage = Vec::new();
        if !inner.retired {
            let all = begun.into_iter().chain(std::iter::from_fn(|| queue.take()));
            for (at, receive) in all.enumerate() {
                let status = if at == 0 { status } else { Status::WrFlushErr };
                self.complete(WcOp::Receive, receive.id, status, 0, out);
            }
        }
        if let Some(srq) = &self.init.srq {
            if let Some(next) = srq.leave(self.init.number) {
                out.wake(next);
            }
            if !inner.retired {
                let qp = self.init.number;
                out.push(Event::LastWqe { qp });
            }
        }
    }

    /// The receive for the next bytes becomes `filling`; false if there is none.
    fn begin_receive(&self, inner: &mut Inner, out: &mut Outbox) -> bool {
        while inner.filling.is_none() {
            let taken = match &self.init.srq {
                Some(srq) => srq.take(self.init.number, out),
                None => inner.receives.take(),
            };
            let Some(receive) = taken else {
                return false;
            };
            if receive.capacity() == 0 {
                self.complete(WcOp::Receive, receive.id, Status::Success, 0, out);
            } else {
                inner.filling = Some(Filling { receive, done: 0 });
            }
        }
        true
    }

    /// `moved` bytes are in the receive.
    fn filled(&self, inner: &mut Inner, moved: usize, out: &mut Outbox) {
        let Some(filling) = &mut inner.filling else {
            return;
        };
        // Not more than the receive holds, which is a u32.
        filling.done += moved as u32;
        let is_complete = match self.attr.fill {
            Fill::Any => true,
            Fill::Whole => filling.done == filling.receive.capacity(),
        };
        if is_complete {
            let (id, len) = (filling.receive.id, filling.done);
            inner.filling = None;
            self.complete(WcOp::Receive, id, Status::Success, len, out);
        }
    }

    /// The targets of the receive that is being filled.
    fn targets<'a>(&'a self, filling: &Filling) -> Result<Targets<'a>, Refusal> {
        let mut targets = Targets::new();
        for piece in rest(&filling.receive.scatter, filling.done) {
            let placed = targets.place(self.init.place(&piece)?);
            // Not all of it fits: the rest is for the next read.
            if placed < piece.len as usize {
                break;
            }
        }
        Ok(targets)
    }

    /// Moves staged bytes into receives of the shared receive queue.
    fn unstage(&self, inner: &mut Inner, out: &mut Outbox) -> Result<(), Stop> {
        while !inner.stage.is_empty() {
            if !self.begin_receive(inner, out) {
                return Err(Stop::Held);
            }
            let Some(filling) = &inner.filling else {
                return Err(Stop::Held);
            };
            let filled = self.targets(filling)?.fill(&inner.stage);
            let moved = filled.map_err(|_| Stop::Unmapped)?;
            inner.stage.drain(..moved);
            self.filled(inner, moved, out);
        }
        Ok(())
    }

    /// One read, into the receive that is being filled or into the stage.
    fn read(
        &self,
        inner: &mut Inner,
        carrier: &mut dyn Carrier,
        out: &mut Outbox,
    ) -> Result<usize, Stop> {
        self.unstage(inner, out)?;
        let is_shared = self.init.srq.is_some();
        let acknowledged = match self.attr.acknowledgement {
            Acknowledgement::Consumed => inner.sends.acknowledged(carrier),
            Acknowledgement::Accepted | Acknowledgement::Delivered => 0,
        };
        let staged = is_shared && inner.filling.is_none();
        let outcome = if staged {
            inner.stage.resize(STAGE, 0);
            let outcome = {
                let mut targets = Targets::new();
                targets.stage(&mut inner.stage);
                carrier.read(&mut targets)
            };
            inner.stage.truncate(match outcome {
                IoOutcome::Bytes(n) => n,
                _ => 0,
            });
            outcome
        } else {
            if !self.begin_receive(inner, out) {
                return Err(Stop::Held);
            }
            let Some(filling) = &inner.filling else {
                return Err(Stop::Held);
            };
            carrier.read(&mut self.targets(filling)?)
        };
        match outcome {
            IoOutcome::Bytes(n) => {
                self.complete_sends(inner.sends.answered(acknowledged), out);
                if staged {
                    self.unstage(inner, out)?;
                } else {
                    self.filled(inner, n, out);
                }
                Ok(n)
            }
            IoOutcome::WouldBlock => Err(Stop::WouldBlock),
            IoOutcome::Eof => Err(Stop::Eof),
            IoOutcome::Broken => Err(Stop::Broken),
            IoOutcome::Fault => Err(Stop::Unmapped),
        }
    }

    /// The peer has closed its direction.
    fn reach_end(
        &self,
        inner: &mut Inner,
        carrier: &mut dyn Carrier,
        out: &mut Outbox,
    ) -> Receiving {
        inner.at_end = true;
        if let Some(filling) = inner.filling.take_if(|filling| filling.done > 0) {
            let (id, len) = (filling.receive.id, filling.done);
            self.complete(WcOp::Receive, id, Status::Success, len, out);
        }
        let qp = self.init.number;
        out.push(Event::Disconnected { qp });
        self.flush_receives(inner, Status::WrFlushErr, out);
        if self.attr.acknowledgement == Acknowledgement::Consumed {
            // What the peer's TCP had acknowledged when it closed in good order was read by its process (`Carrier::unacknowledged`). Later
            // sends can never be.
            let read = inner.sends.acknowledged(carrier);
            self.complete_sends(inner.sends.answered(read), out);
            self.end(inner, "the peer closed the connection", None, out);
            return Receiving::Ended;
        }
        Receiving::Held
    }
}

/// Why reading stops.
#[derive(Debug)]
enum Stop {
    /// No receive is posted.
    Held,
    WouldBlock,
    Eof,
    Broken,
    Unmapped,
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl UlpQp for TcpQp {
    fn number(&self) -> u32 {
        self.init.number
    }

    fn state(&self) -> QpState {
        self.lock().state
    }

    fn handle_connected(&self) {
        self.lock().state = QpState::Rts;
    }

    fn receive(&self, carrier: &mut dyn Carrier, _: Time, out: &mut Outbox) -> Receiving {
        let inner = &mut *self.lock();
        if inner.state != QpState::Rts {
            return Receiving::Ended;
        }
        if inner.at_end {
            return Receiving::Held;
        }
        let mut moved = 0;
        for _ in 0..READS {
            let stop = match self.read(inner, carrier, out) {
                Ok(n) => {
                    moved += n;
                    continue;
                }
                Err(stop) => stop,
            };
            let (cause, status) = match stop {
                Stop::Held => return Receiving::Held,
                Stop::WouldBlock if moved > 0 => break,
                Stop::WouldBlock => return Receiving::WouldBlock,
                Stop::Eof => return self.reach_end(inner, carrier, out),
                Stop::Refused(refusal @ Refusal::Pending { .. }) => {
                    // V5: called again when the memory is valid; if it became valid meanwhile, at once.
                    return match self.init.wait_for_memory(&refusal) {
                        true => Receiving::Held,
                        false => Receiving::Some(moved),
                    };
                }
                Stop::Refused(refusal) => (refusal.to_string(), Status::LocProtErr),
                Stop::Unmapped => (UNMAPPED.to_owned(), Status::LocProtErr),
                Stop::Broken => {
                    let qp = self.init.number;
                    out.push(Event::Disconnected { qp });
                    (BROKEN.to_owned(), Status::WrFlushErr)
                }
            };
            self.end(inner, &cause, Some((WcOp::Receive, status)), out);
            return Receiving::Ended;
        }
        Receiving::Some(moved)
    }

    fn try_transmit(
        &self,
        carrier: &mut dyn Carrier,
        now: Time,
        out: &mut Outbox,
    ) -> Option<Sending> {
        let inner = &mut *self.lock();
        let sending = loop {
            if inner.state != QpState::Rts {
                return Some(Sending::Ended);
            }
            let (cause, status) = match inner.sends.write(&self.init, carrier) {
                Ok(Some(IoOutcome::Bytes(_))) => {
                    if self.attr.acknowledgement == Acknowledgement::Accepted {
                        self.complete_sends(inner.sends.accepted(), out);
                    }
                    continue;
                }
                Ok(None) => break Sending::Idle,
                Ok(Some(IoOutcome::WouldBlock)) => break Sending::Blocked,
                Ok(Some(IoOutcome::Fault)) => (UNMAPPED.to_owned(), Status::LocProtErr),
                Ok(Some(IoOutcome::Eof | IoOutcome::Broken)) => {
                    (BROKEN.to_owned(), Status::RetryExcErr)
                }
                Err(refusal @ Refusal::Pending { .. }) => {
                    match self.init.wait_for_memory(&refusal) {
                        true => break Sending::Idle,
                        false => continue,
                    }
                }
                Err(refusal) => (refusal.to_string(), Status::LocProtErr),
            };
            self.end(inner, &cause, Some((WcOp::Send, status)), out);
        };
        if self.attr.acknowledgement == Acknowledgement::Accepted {
            // Sends without bytes.
            self.complete_sends(inner.sends.accepted(), out);
        } else {
            let acknowledged = inner.sends.acknowledged(carrier);
            if self.attr.acknowledgement == Acknowledgement::Delivered {
                self.complete_sends(inner.sends.answered(acknowledged), out);
                inner.sends.set_check(now);
            }
        }
        Some(sending)
    }

    fn fail(&self, cause: &str, out: &mut Outbox) {
        self.end(&mut self.lock(), cause, None, out);
    }

    fn retire(&self, out: &mut Outbox) -> bool {
        let mut inner = self.lock();
        let before = std::mem::replace(&mut inner.retired, true);
        self.end(&mut inner, "it was destroyed", None, out);
        !before
    }

    fn is_busy(&self) -> bool {
        self.lock().sends.outstanding() > 0
    }

    fn deadline(&self) -> Option<Time> {
        self.lock().sends.next_check()
    }

    /// `try_transmit` follows, which asks the carrier.
    fn handle_timeout(&self, _: Time, _: &mut Outbox) {
        self.lock().sends.clear_check();
    }
}

const BROKEN: &str = "the connection broke";
const UNMAPPED: &str = "registered memory is not mapped any more";

#[cfg(test)]
mod tests;
