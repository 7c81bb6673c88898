//! The receive side of a datagram queue pair: checking the Q_Key, filling a receive, completing it.
//! A datagram that is dropped leaves the queue as it was, except when its receive's memory may not be accessed. Datagrams are never
//! kept for later.

use smallvec::SmallVec;
use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, Placement, Refusal};

use super::datagram::{DropReason, GRH_LEN, ReceivedDatagram};
use super::{Inner, UdInit, UdQp, mem_access};
use crate::receive::Receive;
use crate::srq::TakeError;
use crate::state::QpEvent;
use crate::wc::{Status, Wc, WcOp};
use crate::wr::Sge;

impl UdQp {
    /// Delivers a datagram, or says why not; dropped ones are counted.
    pub fn deliver(
        &self,
        arrival: &ReceivedDatagram<'_>,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let mut inner = self.inner.lock();
        let taken = inner.deliver(&self.init, arrival, out);
        let counters = &mut inner.counters;
        match taken {
            Ok(()) => {
                counters.received += 1;
                counters.bytes_in += arrival.packet.payload.len() as u64;
            }
            Err(DropReason::State) => counters.not_receiving += 1,
            Err(DropReason::Key) => counters.wrong_key += 1,
            Err(DropReason::NoReceive) => counters.no_receive += 1,
            Err(DropReason::TooLong) => counters.too_long += 1,
            Err(DropReason::Pending) => counters.pending += 1,
            // The receive that failed has a completion of its own.
            Err(_) => {}
        }
        taken
    }
}

impl Inner {
    fn deliver(
        &mut self,
        init: &UdInit,
        arrival: &ReceivedDatagram<'_>,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let packet = &arrival.packet;
        if !self.state.receives() || self.retired {
            return Err(DropReason::State);
        }
        if packet.qkey != self.qkey {
            return Err(DropReason::Key);
        }
        // Bounded by the size limits of `ReceivedDatagram::parse`.
        let len = (GRH_LEN + packet.payload.len()) as u32;
        let receive = self.claim(init, len, out)?;
        let placed = place(init, &receive.scatter, &arrival.grh(), packet.payload);
        match placed {
            Ok(()) => {}
            // V5: a datagram does not wait for memory; the receive stays for a later one.
            Err(Refusal::Pending { .. }) => {
                self.put_back(init, receive, out);
                return Err(DropReason::Pending);
            }
            Err(refusal) => {
                self.fail_receive(init, &receive, &refusal, out);
                return Err(DropReason::Memory);
            }
        }
        let wc = Wc {
            id: receive.id,
            qpn: init.qpn.get(),
            status: Status::Success,
            op: WcOp::Receive,
            len,
            immediate: packet.immediate.map(u32::from_be_bytes),
            src_qp: packet.src_qpn.get(),
            solicited: packet.solicited,
            grh: Some(arrival.header()),
            ..Wc::default()
        };
        if !init.recv_cq.push(wc, out) {
            self.fail_cq_overflow(init, out);
        }
        Ok(())
    }

    /// The next receive, if it holds so many bytes. One that is too small stays, and the datagram is dropped, as in the
    /// Linux software adapter (rxe).
    fn claim(&mut self, init: &UdInit, len: u32, out: &mut Outbox) -> Result<Receive, DropReason> {
        if let Some(srq) = &init.srq {
            return srq.take_now(len, out).map_err(|unfit| match unfit {
                TakeError::None => DropReason::NoReceive,
                TakeError::TooSmall => DropReason::TooLong,
            });
        }
        let next = self.receives.front().ok_or(DropReason::NoReceive)?;
        if next.capacity() < len {
            return Err(DropReason::TooLong);
        }
        self.receives.take().ok_or(DropReason::NoReceive)
    }

    fn put_back(&mut self, init: &UdInit, receive: Receive, out: &mut Outbox) {
        match &init.srq {
            None => self.receives.put_back(receive),
            Some(srq) => {
                if let Some(waiter) = srq.give_back(receive) {
                    out.wake(waiter);
                }
            }
        }
    }

    /// The memory of a receive may not be accessed: it completes with an error, and the queue pair fails.
    fn fail_receive(
        &mut self,
        init: &UdInit,
        receive: &Receive,
        refusal: &Refusal,
        out: &mut Outbox,
    ) {
        self.cause
            .get_or_insert_with(|| format!("the memory of a receive: {refusal}"));
        let wc = receive_failed(init, receive.id, Status::LocProtErr);
        init.recv_cq.push(wc, out);
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }
}

/// The completion of a receive that failed.
pub(super) fn receive_failed(init: &UdInit, id: u64, status: Status) -> Wc {
    Wc {
        id,
        qpn: init.qpn.get(),
        status,
        op: WcOp::Receive,
        ..Wc::default()
    }
}

/// Scatters header and payload to the beginning of a scatter list; nothing is placed unless all accesses are granted.
fn place(init: &UdInit, scatter: &[Sge], grh: &[u8], payload: &[u8]) -> Result<(), Refusal> {
    let mut left = (grh.len() + payload.len()) as u32;
    let mut places: SmallVec<[Placement<'_>; 2]> = SmallVec::new();
    for sge in scatter {
        let len = sge.len.min(left);
        if len > 0 {
            let piece = mem_access(init, sge, len, Access::LOCAL_WRITE);
            places.push(init.tpt.place_local(&piece)?);
            left -= len;
        }
    }
    let (mut grh, mut payload) = (grh, payload);
    for place in &places {
        let first = place.write(0, grh)?;
        grh = grh.get(first..).unwrap_or_default();
        let then = place.write(first as u64, payload)?;
        payload = payload.get(then..).unwrap_or_default();
    }
    Ok(())
}
