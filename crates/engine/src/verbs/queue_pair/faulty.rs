//! Posting while faults are set: each request is shown to the rules, and what they decide happens to it.
//! Not called while no fault is set.

use verbena_nic::qp::{PostError, PostSendError};
use verbena_nic::{Outbox, ReceiveWr, SendWr};
use verbena_wire::Srqn;

use super::QueuePair;
use crate::faults::QpNumbers;
use crate::sys;

impl QueuePair {
    pub(super) fn numbers(&self) -> QpNumbers {
        (self.qp.number(), self.qp.init().wc_qpn)
    }

    /// Posts requests; those of an XRC initiator are for the peer's shared receive queue with the number.
    #[cold]
    pub(super) fn post_faulty_sends(
        &self,
        srqn: Option<Srqn>,
        wrs: &[SendWr<'_>],
    ) -> Result<(), PostSendError> {
        let refused = wrs.iter().enumerate().find_map(|(posted, wr)| {
            let source = self.queue_faulty_send(srqn, wr).err()?;
            Some(PostSendError { posted, source })
        });
        self.kick();
        refused.map_or(Ok(()), Err)
    }

    fn queue_faulty_send(&self, srqn: Option<Srqn>, wr: &SendWr<'_>) -> Result<(), PostError> {
        let found = self.core.faults.on_send(self.numbers(), sys::now());
        if let Some(time) = found.port_down {
            self.core.take_port_down(time);
        }
        if let Some(rule) = found.kill {
            self.core.kill_qp(&self.qp, rule);
        }
        if let Some(rule) = found.reset {
            self.core.reset_connection(&self.qp, rule);
        }
        if let Some(errno) = found.refuse {
            return Err(PostError::Injected(errno));
        }
        match (found.fault, srqn) {
            (Some(fault), _) => self.qp.queue_faulty_send(srqn, wr, fault),
            (None, Some(srqn)) => self.qp.queue_send_to(srqn, wr),
            (None, None) => self.qp.queue_send(wr),
        }
    }

    #[cold]
    pub(super) fn post_faulty_receive(&self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        let now = sys::now();
        let found = self.core.faults.on_receive(Some(self.numbers()), now);
        if let Some(errno) = found.refuse {
            return Err(PostError::Injected(errno));
        }
        if let Some(until) = found.storm {
            let mut out = Outbox::new();
            self.qp.refuse_messages(until, &mut out);
            self.transmit_and_deliver(&mut out);
        }
        let needed = match found.status {
            Some(status) => self.qp.queue_faulty_receive(wr, status)?,
            None => self.qp.queue_receive(wr)?,
        };
        if needed {
            self.act(verbena_nic::Qp::ring_doorbell);
        }
        Ok(())
    }
}
