//! Posting: requests are put into the queues, and a command gets its id. A rejected request changes nothing, and a command is accepted
//! only if there is a receive for its response (M12). Memory is not accessed here; it is checked when the request is executed.

use verbena_nic::{Outbox, QpState, ReceiveWr, Status, Wc, WcOp};
use verbena_storage_wire::iscsi::{MAX_DATA, is_immediate};

use super::Qp;
use super::command::Command;
use super::queues::{Pdu, Queues, Request};
use crate::wr::{CommandId, CommandWr, PduWr, PostError};

/// Most data of a PDU that is not a command: enough for any login text.
const MAX_TEXT: usize = 64 << 10;
const _: () = assert!(MAX_TEXT < MAX_DATA as usize);

impl Qp {
    /// Posts a command. Its id is returned again with its response. The caller transmits afterwards.
    pub fn post_command(
        &self,
        wr: &CommandWr<'_>,
        out: &mut Outbox,
    ) -> Result<CommandId, PostError> {
        let (got, limit) = (wr.data.len(), self.init.ulp.limits.max_sge);
        if got > limit {
            return Err(PostError::Pieces { got, limit });
        }
        let mut queues = self.queues.lock();
        self.check_send(&queues)?;
        let (receives, commands) = (queues.receives.len(), queues.commands_outstanding);
        if receives <= commands && queues.state == QpState::Rts {
            return Err(PostError::NoReceive { receives, commands });
        }
        let command = CommandId(queues.next_command);
        queues.next_command = queues.next_command.wrapping_add(1);
        if matches!(queues.state, QpState::Sqe | QpState::Err) {
            self.flush_posted(wr.id, out);
            return Ok(command);
        }
        let request = Request::Command(Command::new(wr, command));
        queues.sends.push_back(request);
        queues.sends_outstanding += 1;
        queues.commands_outstanding += 1;
        Ok(command)
    }

    /// Posts any other PDU. One for immediate delivery is sent before everything else. The caller transmits afterwards.
    pub fn post_pdu(&self, wr: &PduWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let (got, limit) = (wr.data.len(), MAX_TEXT);
        if got > limit {
            return Err(PostError::TooLong { got, limit });
        }
        let mut queues = self.queues.lock();
        self.check_send(&queues)?;
        // M12, option 1: PDUs for immediate delivery are sent while the send queue is stopped.
        let stopped = queues.state == QpState::Sqe && !is_immediate(&wr.bhs);
        if stopped || queues.state == QpState::Err {
            self.flush_posted(wr.id, out);
            return Ok(());
        }
        let pdu = Pdu {
            id: wr.id,
            flags: wr.flags,
            bhs: wr.bhs,
            data: wr.data.into(),
        };
        if is_immediate(&pdu.bhs) {
            queues.immediate.push_back(pdu);
        } else {
            queues.sends.push_back(Request::Pdu(pdu));
        }
        queues.sends_outstanding += 1;
        Ok(())
    }

    /// Posts a receive, for a header, a response or any other PDU. If reading was held for lack of one, the caller has to read again.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>, out: &mut Outbox) -> Result<(), PostError> {
        let mut queues = self.queues.lock();
        if queues.retired {
            return Err(PostError::State(QpState::Reset));
        }
        if queues.state == QpState::Err {
            let wc = Wc {
                id: wr.id,
                qpn: self.number(),
                status: Status::WrFlushErr,
                op: WcOp::Receive,
                ..Wc::default()
            };
            self.init.ulp.recv_cq.push(wc, out);
            return Ok(());
        }
        Ok(queues.receives.post(wr)?)
    }

    fn check_send(&self, queues: &Queues) -> Result<(), PostError> {
        if queues.retired || queues.state == QpState::Reset {
            return Err(PostError::State(QpState::Reset));
        }
        let limit = self.init.ulp.limits.sends;
        if queues.sends_outstanding >= limit {
            return Err(PostError::Full(limit));
        }
        Ok(())
    }

    /// The queue pair is in `Sqe` or `Err`: the request completes as flushed at once.
    fn flush_posted(&self, id: u64, out: &mut Outbox) {
        let wc = Wc {
            id,
            qpn: self.number(),
            status: Status::WrFlushErr,
            op: WcOp::Send,
            ..Wc::default()
        };
        self.init.ulp.send_cq.push(wc, out);
    }
}
