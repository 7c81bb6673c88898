//! Posting to a datagram queue pair: a request is judged, copied and left for whoever sends.
//! It promises that a refused request changes nothing, and that a request posted to a failed queue flushes at once.
//! It refuses to look up memory; that happens when a datagram leaves or arrives.

use core::net::IpAddr;

use smallvec::SmallVec;
use verbena_wire::number::Qpn;

use super::{MAX_DATAGRAM, MULTICAST, UdInit, UdQp};
use crate::event::Outbox;
use crate::qp::PostError;
use crate::wc::Status;
use crate::wr::{Data, Flags, ReceiveWr, Sge};

/// Lists and inline data up to this size live in the queue itself.
const FEW_PIECES: usize = 2;
const FEW_BYTES: usize = 64;

/// Where a datagram goes, and from which address of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The receiver's address; a multicast address reaches every queue pair that is attached to it.
    pub address: IpAddr,
    /// The address of ours that it leaves from.
    pub source: IpAddr,
    /// The receiving queue pair; multicast has a number of its own, whatever stands here.
    pub number: Qpn,
    /// The key that the receiver demands; with the highest bit set, the sending queue pair's own is shown instead.
    pub qkey: u32,
}

impl Destination {
    /// As 16 bytes every address is one of version 6: those that stand for one of version 4 are meant so.
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
    /// The consumer's own number, returned with the completion.
    pub id: u64,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// How; fences wait for nothing here, since nothing is ever under way.
    pub flags: Flags,
    /// Where the data is.
    pub data: Data<'a>,
    /// Where it goes.
    pub to: Destination,
}

/// A send request as the queue keeps it.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) id: u64,
    pub(super) immediate: Option<u32>,
    pub(super) flags: Flags,
    pub(super) payload: Payload,
    pub(super) len: u32,
    pub(super) to: Destination,
}

/// Where its data is, as kept.
#[derive(Debug)]
pub(super) enum Payload {
    Gather(SmallVec<[Sge; FEW_PIECES]>),
    Inline(SmallVec<[u8; FEW_BYTES]>),
}

impl UdQp {
    /// Leaves a request; [`transmit`](UdQp::transmit) afterwards. Several can be left before.
    pub fn queue_send(&self, wr: &UdSendWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let len = check(&self.init, wr)?;
        let queued = Queued {
            id: wr.id,
            immediate: wr.immediate,
            flags: wr.flags,
            payload: match wr.data {
                Data::Gather(sges) => Payload::Gather(sges.into()),
                Data::Inline(bytes) => Payload::Inline(bytes.into()),
            },
            len,
            to: wr.to.canonical(),
        };
        let mut inner = self.inner.lock();
        if !inner.state.takes_sends() || inner.retired {
            return Err(PostError::State(inner.state));
        }
        if inner.state.flushes_sends() {
            inner.complete_send(&self.init, &queued, Status::WrFlushErr, out);
            return Ok(());
        }
        let depth = self.init.limits.sends;
        if inner.sends.len() >= depth {
            return Err(PostError::Full(depth));
        }
        inner.sends.push_back(queued);
        Ok(())
    }

    /// Adds a receive: 40 bytes for where the datagram came from, and then the longest message that it shall take.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Shared);
        }
        let mut inner = self.inner.lock();
        if !inner.state.takes_receives() || inner.retired {
            return Err(PostError::State(inner.state));
        }
        inner.receives.post(wr)?;
        if inner.state.flushes() {
            inner.flush_receives(&self.init, out);
        }
        Ok(())
    }
}

fn check(init: &UdInit, wr: &UdSendWr<'_>) -> Result<u32, PostError> {
    match wr.data {
        Data::Gather(sges) if sges.len() > init.limits.pieces => {
            let (got, limit) = (sges.len(), init.limits.pieces);
            return Err(PostError::Pieces { got, limit });
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
