//! Completions of descriptors, in posting order. Every failure yields an entry, a success only if it was requested, and an overflow of
//! the completion queue is reported to the caller.

use verbena_nic::Outbox;
use verbena_nic::wc::{Status, Wc, WcOp};
use verbena_nic::wr::Flags;

use super::{Queued, SendState, Wqp};
use crate::descriptor::Peer;

/// Whether a completion did not fit its queue; the channel must then fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a channel whose completions are lost cannot be relied on"]
pub(crate) struct Overflowed(pub(crate) bool);

impl Wqp {
    /// Completes `count` descriptors at the front successfully.
    pub(super) fn complete_sends(&mut self, count: usize, out: &mut Outbox) -> Overflowed {
        let mut overflowed = false;
        for _ in 0..count {
            let Some(queued) = self.pop_send() else { break };
            self.counters.packets_sent += 1;
            overflowed |= !self.push_send_wc(&queued, Status::Success, out);
        }
        Overflowed(overflowed)
    }

    /// Completes connectionless descriptors at the front that have finished.
    pub(super) fn complete_done(&mut self, out: &mut Outbox) -> Overflowed {
        let mut overflowed = false;
        while let Some(Queued {
            state: SendState::Done(status),
            ..
        }) = self.sends.front()
        {
            let status = *status;
            if let Some(queued) = self.pop_send() {
                self.counters.packets_sent += u64::from(status == Status::Success);
                overflowed |= !self.push_send_wc(&queued, status, out);
            }
        }
        Overflowed(overflowed)
    }

    /// Removes the descriptor at the front and adjusts everything that counts from there.
    fn pop_send(&mut self) -> Option<Queued> {
        let queued = self.sends.pop_front()?;
        self.rung_sends = self.rung_sends.saturating_sub(1);
        self.fully_sent = self.fully_sent.saturating_sub(1);
        self.una = self.una.next();
        if self.cursor.at == 0 {
            self.cursor = super::Cursor::default();
        } else {
            self.cursor.at -= 1;
        }
        Some(queued)
    }

    /// Completes the descriptor at the front with an error.
    pub(super) fn fail_front(&mut self, status: Status, out: &mut Outbox) {
        if let Some(queued) = self.pop_send() {
            // The channel fails in any case.
            let _ = self.push_send_wc(&queued, status, out);
        }
    }

    fn push_send_wc(&self, queued: &Queued, status: Status, out: &mut Outbox) -> bool {
        let notify = queued.flags.contains(Flags::NOTIFY);
        let silent = status == Status::Success && !queued.flags.contains(Flags::SIGNALED);
        if silent && !notify {
            return true;
        }
        let wc = Wc {
            id: queued.id,
            qpn: self.init.number.get(),
            status,
            op: queued.op,
            len: queued.len,
            ..Wc::default()
        };
        if notify {
            self.init.send_cq.push_and_notify(wc, out)
        } else {
            self.init.send_cq.push(wc, out)
        }
    }

    /// Completes a receive with a packet, or with the immediate data of one.
    pub(super) fn complete_receive(
        &mut self,
        (id, op): (u64, WcOp),
        len: u32,
        (immediate, solicited): (Option<u32>, bool),
        from: Peer,
        out: &mut Outbox,
    ) -> Overflowed {
        if !self.init.kind.connected {
            // Bounded, for consumers that never call `take_source`.
            if self.sources.len() >= self.init.limits.receives.max(1) {
                self.sources.pop_front();
            }
            self.sources.push_back((id, from));
        }
        let wc = Wc {
            id,
            qpn: self.init.number.get(),
            status: Status::Success,
            op,
            len,
            immediate,
            src_qp: from.wqp.get(),
            solicited,
            ..Wc::default()
        };
        Overflowed(!self.init.recv_cq.push(wc, out))
    }

    /// Completes a receive with an error.
    pub(super) fn fail_receive(&self, id: u64, status: Status, out: &mut Outbox) {
        let wc = Wc {
            id,
            qpn: self.init.number.get(),
            status,
            op: WcOp::Receive,
            ..Wc::default()
        };
        // The channel fails or has failed; the completion queue reports its overflow itself.
        let _ = self.init.recv_cq.push(wc, out);
    }

    /// Flushes both queues, each in posting order.
    pub(super) fn flush(&mut self, out: &mut Outbox) {
        if let Some(receive) = self
            .partial
            .take()
            .and_then(super::Reassembly::into_receive)
        {
            self.fail_receive(receive.id, Status::WrFlushErr, out);
        }
        while let Some(receive) = self.receives.pop_front() {
            self.fail_receive(receive.id, Status::WrFlushErr, out);
        }
        self.rung_receives = 0;
        while let Some(queued) = self.pop_send() {
            let status = match queued.state {
                SendState::Done(status) => status,
                _ => Status::WrFlushErr,
            };
            let _ = self.push_send_wc(&queued, status, out);
        }
    }
}
