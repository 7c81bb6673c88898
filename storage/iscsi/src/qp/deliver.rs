//! Completion of a received PDU (M12): delivery, R2Ts become bursts, commands end. Each delivered PDU takes one receive, header first; the
//! receive of a response carries the command's id. A PDU longer than its receive is truncated and completes with `LocLenErr`.

use parking_lot::Mutex;
use verbena_nic::{Outbox, Status, Wc, WcOp};
use verbena_storage_wire::iscsi::{BHS_LEN, DataIn, R2t};

use super::Init;
use super::burst::Burst;
use super::frame::Refused;
use super::inner::Inner;
use super::intake::state::Body;
use super::queues::Queues;
use super::segments;
use super::verdict::Verdict;
use crate::wr::CommandId;

impl Inner {
    /// The PDU is complete, with padding and digest. False if the queue pair has ended.
    pub(super) fn finish_pdu(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        body: &Body,
        out: &mut Outbox,
    ) -> bool {
        let whole = body.head + body.len;
        match body.verdict {
            Verdict::Drop => {
                // The receive stays the first in the queue and still counts for posting a command.
                if let Some(receive) = self.claimed.take() {
                    queues.lock().receives.put_back(receive);
                }
                true
            }
            Verdict::Deliver => self.complete_receive(init, queues, whole, None, out),
            Verdict::R2t { slot, pdu } => {
                self.queue_burst(slot, &pdu);
                self.deliver_header(init, queues, body, None, out)
            }
            Verdict::DataIn { slot, pdu } => {
                self.finish_data_in(init, queues, body, slot, &pdu, out)
            }
            Verdict::Response { slot, stat_sn } => {
                self.note_status(stat_sn);
                match self.end_command(init, queues, slot, out) {
                    Ok(command) => self.complete_receive(init, queues, whole, command, out),
                    Err(()) => false,
                }
            }
        }
    }

    /// Queues the data that an R2T requests.
    fn queue_burst(&mut self, slot: u32, pdu: &R2t) {
        if let Some(command) = self.commands.get_mut(slot) {
            command.bursts += 1;
        }
        self.bursts.push_back(Burst {
            slot,
            itt: pdu.itt,
            ttt: pdu.ttt,
            lun: pdu.lun,
            offset: pdu.offset,
            left: pdu.len,
            data_sn: 0,
        });
    }

    fn finish_data_in(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        body: &Body,
        slot: u32,
        pdu: &DataIn,
        out: &mut Outbox,
    ) -> bool {
        if pdu.status.is_none() {
            return self.deliver_header(init, queues, body, None, out);
        }
        self.note_status(pdu.stat_sn);
        match self.end_command(init, queues, slot, out) {
            Ok(command) => self.deliver_header(init, queues, body, command, out),
            Err(()) => false,
        }
    }

    /// M12: removes the command's table entry and returns its id. An error if the queue pair ended.
    fn end_command(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        slot: u32,
        out: &mut Outbox,
    ) -> Result<Option<CommandId>, ()> {
        if !self.frames.is_empty() || !self.bursts.is_empty() {
            // The target needs no more of its data, and the buffers return to the consumer.
            self.bursts.retain(|burst| burst.slot != slot);
            let disowned = self.frames.detach_command(&init.ulp, &self.commands, slot);
            if let Err(refusal) = disowned {
                // A PDU is partly transmitted, and the rest of its data cannot be copied.
                self.fail_gather(init, queues, &Refused { slot, refusal }, out);
                return Err(());
            }
        }
        let command = self.commands.remove(slot);
        if let Some(command) = &command {
            self.finish_command(init, queues, command, out);
        }
        Ok(command.map(|command| command.command))
    }

    /// Delivers the header alone.
    fn deliver_header(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        body: &Body,
        command: Option<CommandId>,
        out: &mut Outbox,
    ) -> bool {
        self.write_receive(init, queues, 0, &body.bhs, out)
            && self.complete_receive(init, queues, BHS_LEN as u32, command, out)
    }

    /// Copies bytes into the receive of this PDU, as far as they fit. False if the queue pair has ended.
    pub(super) fn write_receive(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        at: u32,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let Some(receive) = &self.claimed else {
            return true;
        };
        let fits = receive.capacity().saturating_sub(at) as usize;
        let bytes = bytes.get(..fits).unwrap_or(bytes);
        let written = segments::write(&init.ulp, &receive.scatter, at, bytes);
        let Err(refusal) = written else {
            return true;
        };
        let (id, cause) = (
            receive.id,
            format!("access to the memory of a receive failed: {refusal}"),
        );
        self.claimed = None;
        self.push_receive_wc(init, queues, id, (Status::LocProtErr, 0), None, out);
        self.end(init, queues, &cause, out);
        false
    }

    fn complete_receive(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        len: u32,
        command: Option<CommandId>,
        out: &mut Outbox,
    ) -> bool {
        if let Some(receive) = self.claimed.take() {
            let room = receive.capacity();
            let end = if len <= room {
                (Status::Success, len)
            } else {
                (Status::LocLenErr, room)
            };
            self.push_receive_wc(init, queues, receive.id, end, command, out);
        }
        true
    }

    fn push_receive_wc(
        &self,
        init: &Init,
        queues: &Mutex<Queues>,
        id: u64,
        (status, len): (Status, u32),
        command: Option<CommandId>,
        out: &mut Outbox,
    ) {
        if queues.lock().retired {
            return;
        }
        let wc = Wc {
            id,
            qpn: init.ulp.number,
            status,
            op: WcOp::Receive,
            len,
            immediate: command.map(|command| command.0),
            ..Wc::default()
        };
        // On overflow the completion queue puts an event into `out`; the caller then fails the queue pairs that use it.
        init.ulp.recv_cq.push(wc, out);
    }
}
