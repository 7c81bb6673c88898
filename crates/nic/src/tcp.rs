//! Queue pairs on a plain TCP connection (M14): the same queues, completions, memory and events as RDMA's, on a byte stream to any peer.
//! The data of the sends are the bytes of one direction, in posting order; the bytes of the other direction fill the posted receives
//! in order. Nothing is added to the stream, so it has no message boundaries: [`Fill`] says when a receive is complete. What a
//! completed send means is chosen with [`Acknowledgement`].

mod channel;
mod receive;
mod send;

use verbena_events::event::{Event, Outbox};
use verbena_mem::Refusal;
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, MutexGuard};

use crate::carrier::{Carrier, IoOutcome};
use crate::qp::{PostError, Receiving, Sending};
use crate::state::QpState;
use crate::ulp::{UlpInit, UlpQp, UlpView};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::{ReceiveWr, Sge};
pub use channel::TcpChannel;
use receive::{Receives, Stop};
pub use send::TcpSendWr;
use send::{Sends, Written};

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
    /// The channel whose events are raised for its receives (E7).
    pub channel: Option<TcpChannel>,
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
    receives: Receives,
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
            receives: Receives::new(limits.receives, limits.max_sge, attr.channel),
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
        self.lock().receives.at_end
    }

    /// Sends posted and not completed, and receives posted to this queue pair and not completed.
    pub fn outstanding(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.sends.outstanding(), inner.receives.outstanding())
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
        let mut inner = self.lock();
        if self.init.srq.is_some() {
            inner.receives.channel.report_illegal_post(out);
            return Err(PostError::Shared);
        }
        match inner.state {
            QpState::Rts if !inner.receives.at_end => Ok(inner.receives.post(wr, out)?),
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
        if !inner.receives.at_end {
            self.flush_receives(inner, status, out);
        }
        if flushes {
            let qp = self.init.number;
            out.push(Event::QpFatal { qp });
        }
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
        if inner.receives.at_end {
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
            if status == Status::LocProtErr {
                inner.receives.channel.report_illegal_post(out);
            }
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
        // Of the receive before: one event for all of them.
        inner.receives.channel.report_returned(out);
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

    fn ulp_view(&self) -> UlpView {
        let (sends, receives) = self.outstanding();
        UlpView {
            protocol: "tcp",
            cause: self.cause(),
            sends: Some(sends),
            receives: Some(receives),
        }
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
