//! Posting to a datagram queue pair: a request is checked and copied into the queue.
//! A rejected request changes nothing, and a request posted to a failed queue flushes at once. Memory is checked when a datagram is
//! sent or arrives.

use core::net::IpAddr;

use smallvec::SmallVec;
use verbena_events::event::Outbox;
use verbena_wire::number::Qpn;

use super::{MAX_DATAGRAM, MULTICAST, UdInit, UdQp};
use crate::qp::PostError;
use crate::trace::{self, TraceEvent};
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, ReceiveWr, Sge};

/// Lists and inline data up to this size are stored in the queue itself.
const INLINE_SGES: usize = 2;
const INLINE_BYTES: usize = 64;

/// Destination and local source address of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The receiver's address; a multicast address reaches every queue pair that is attached to it.
    pub address: IpAddr,
    /// The local address that it is sent from.
    pub source: IpAddr,
    /// The receiving queue pair; ignored for multicast, which has a number of its own.
    pub number: Qpn,
    /// The receiver's Q_Key; with the highest bit set, the sending queue pair's own is sent instead.
    pub qkey: u32,
}

impl Destination {
    /// With IPv4-mapped IPv6 addresses converted to IPv4, and the multicast number set.
    fn canonical(self) -> Destination {
        let address = self.address.to_canonical();
        Destination {
            address,
            source: self.source.to_canonical(),
            number: if address.is_multicast() {
                Qpn::wrapping(MULTICAST)
            } else {
                self.number
            },
            ..self
        }
    }
}

/// A request to send one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdSendWr<'a> {
    /// The program's id, returned with the completion.
    pub id: u64,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Options; fences have no effect, since no request is ever in progress.
    pub flags: Flags,
    /// The data.
    pub data: Data<'a>,
    /// The destination.
    pub to: Destination,
}

/// A queued send request.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) id: u64,
    pub(super) immediate: Option<u32>,
    pub(super) flags: Flags,
    pub(super) payload: Payload,
    pub(super) len: u32,
    pub(super) to: Destination,
    /// Requests that were posted before it.
    pub(super) number: u64,
}

/// Its data.
#[derive(Debug)]
pub(super) enum Payload {
    Gather(SmallVec<[Sge; INLINE_SGES]>),
    Inline(SmallVec<[u8; INLINE_BYTES]>),
}

impl UdQp {
    /// Queues a request; call [`transmit`](UdQp::transmit) after one or several.
    pub fn queue_send(&self, wr: &UdSendWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let len = check(&self.init, wr)?;
        let at = self.init.observer.start();
        let mut queued = Queued {
            id: wr.id,
            immediate: wr.immediate,
            flags: wr.flags,
            payload: match wr.data {
                Data::Gather(sges) => Payload::Gather(sges.into()),
                Data::Inline(bytes) => Payload::Inline(bytes.into()),
            },
            len,
            to: wr.to.canonical(),
            number: 0,
        };
        let mut inner = self.inner.lock();
        if !inner.state.takes_sends() || inner.retired {
            return Err(PostError::State(inner.state));
        }
        queued.number = inner.posted;
        if inner.state.flushes_sends() {
            inner.posted += 1;
            if at != 0 {
                self.trace_send(at, &queued);
            }
            inner.complete_send(&self.init, &queued, Status::WrFlushErr, out);
            return Ok(());
        }
        let depth = self.init.limits.sends;
        if inner.sends.len() >= depth {
            return Err(PostError::Full(depth));
        }
        inner.posted += 1;
        if at != 0 {
            self.trace_send(at, &queued);
        }
        inner.sends.push_back(queued);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn trace_send(&self, at: u64, queued: &Queued) {
        let event = TraceEvent::PostSend {
            qp: self.init.number,
            wc_qpn: self.init.qpn.get(),
            number: queued.number,
            id: queued.id,
            op: WcOp::Send,
            len: queued.len,
            signaled: queued.flags.contains(Flags::SIGNALED),
        };
        self.init.observer.record_at(at, &event);
    }

    /// Adds a receive: 40 bytes for the datagram's IP header, and then room for the longest message expected.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Shared);
        }
        let mut inner = self.inner.lock();
        if !inner.state.takes_receives() || inner.retired {
            return Err(PostError::State(inner.state));
        }
        inner.receives.post(wr)?;
        if trace::is_active() {
            let lens = wr.scatter.iter().map(|sge| sge.len);
            self.init.observer.record(&TraceEvent::PostReceive {
                qp: self.init.number,
                srq: 0,
                wc_qpn: self.init.qpn.get(),
                id: wr.id,
                len: lens.fold(0, u32::saturating_add),
            });
        }
        if inner.state.flushes() {
            inner.flush_receives(&self.init, out);
        }
        Ok(())
    }
}

fn check(init: &UdInit, wr: &UdSendWr<'_>) -> Result<u32, PostError> {
    match wr.data {
        Data::Gather(sges) if sges.len() > init.limits.max_sge => {
            let (got, limit) = (sges.len(), init.limits.max_sge);
            return Err(PostError::TooManySges { got, limit });
        }
        Data::Inline(bytes) if bytes.len() > init.limits.inline => {
            let (got, limit) = (bytes.len(), init.limits.inline);
            return Err(PostError::Inline { got, limit });
        }
        _ => {}
    }
    let fits = |len: &u32| *len as usize <= MAX_DATAGRAM;
    wr.data.len().filter(fits).ok_or(PostError::Length)
}
