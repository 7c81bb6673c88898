//! Posting, and the two doorbells (P1): a descriptor is checked and copied, and processed once its doorbell is rung. A rejected
//! descriptor changes nothing, and one posted to an ended work queue pair flushes at its doorbell. Memory is looked up when cells are
//! sent or placed.

use verbena_nic::Outbox;
use verbena_nic::receive::{PostError, Receive};
use verbena_nic::wc::WcOp;
use verbena_nic::wr::{Data, ReceiveWr};
use verbena_split_wire::cell::NakReason;

use super::{Queued, SendState, Wqp};
use crate::config::{Config, MAX_CELLS};
use crate::descriptor::{Descriptor, Operation};
use crate::error::Error;
use crate::state::State;

impl Wqp {
    /// Posts a descriptor to the send queue.
    pub(crate) fn post_send(&mut self, wr: &Descriptor<'_>, config: &Config) -> Result<(), Error> {
        let limits = self.init.limits;
        match wr.data {
            Data::Gather(sges) if sges.len() > limits.max_sge => {
                let (got, limit) = (sges.len(), limits.max_sge);
                return Err(Error::Segments { got, limit });
            }
            Data::Inline(bytes) if bytes.len() > limits.inline => {
                let (got, limit) = (bytes.len(), limits.inline);
                return Err(Error::Inline { got, limit });
            }
            _ => {}
        }
        if !self.state.takes_sends() {
            return Err(Error::State(self.state));
        }
        let (remote, destination) = match &wr.address {
            Some(address) => (address.remote, address.destination),
            None => (None, None),
        };
        let op = match wr.control.operation {
            Operation::Send => WcOp::Send,
            Operation::Write => WcOp::Write,
        };
        let named = destination.is_none() == self.init.kind.connected;
        if remote.is_some() != (op == WcOp::Write) || !named {
            return Err(Error::Address);
        }
        // P2: a connectionless packet is one cell.
        let limit = if self.init.kind.connected {
            config.packet.min(u32::from(self.cell) * MAX_CELLS)
        } else {
            u32::from(self.cell).min(config.packet)
        };
        let len = wr.data.len().unwrap_or(u32::MAX);
        if len > limit {
            return Err(Error::Length { got: len, limit });
        }
        if self.sends.len() >= limits.sends {
            return Err(Error::Full(limits.sends));
        }
        self.sends.push_back(Queued {
            id: wr.control.id,
            op,
            flags: wr.control.flags,
            immediate: wr.control.immediate,
            remote,
            destination,
            payload: wr.data.into(),
            len,
            state: SendState::Waiting,
            tries: 0,
            busy: 0,
        });
        Ok(())
    }

    /// Posts a descriptor to the receive queue.
    pub(crate) fn post_receive(&mut self, wr: &ReceiveWr<'_>) -> Result<(), Error> {
        let limits = self.init.limits;
        if self.receives.len() >= limits.receives {
            return Err(Error::Full(limits.receives));
        }
        let receive = Receive::new(wr, limits.max_sge).map_err(|error| match error {
            PostError::TooManySges { got, limit } => Error::Segments { got, limit },
            PostError::Full(limit) => Error::Full(limit),
        })?;
        self.receives.push_back(receive);
        Ok(())
    }

    /// The send doorbell: everything posted so far may be sent.
    pub(crate) fn ring_send(&mut self, out: &mut Outbox) {
        self.rung_sends = self.sends.len();
        if self.state == State::Ended {
            self.flush(out);
        }
    }

    /// The receive doorbell. A peer that waits for a receive is asked to send again.
    pub(crate) fn ring_receive(&mut self, out: &mut Outbox) {
        self.rung_receives = self.receives.len();
        if self.state == State::Ended {
            self.flush(out);
        } else if self.starved && self.rung_receives > 0 {
            self.starved = false;
            self.pending_nak = Some(NakReason::Gap);
        }
    }
}
