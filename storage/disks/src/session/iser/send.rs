//! Sending: PDUs wait for the command window and for the target's receives, get their sequence numbers, and are posted. Waiting PDUs keep
//! their order, except that immediate ones may overtake; a CmdSN is consumed only by what was posted.

use verbena::low::{Data, SendOp, Sge};
use verbena_storage_wire::iscsi::{Bhs, NO_TAG, Opcode, is_immediate};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};

use super::registrations::Exposure;
use super::requests::{HEADER_BUFFER_LEN, NO_COMPLETION, PostOutcome, pieces, send};
use super::unsolicited::Burst;
use super::{HEADERS_LEN, Iser, RECEIVE_LEN, TAG, sequence, text};
use crate::session::link::Link;

/// A PDU that waits to be sent.
pub(super) struct WaitingPdu {
    pub(super) header: IserHeader,
    pub(super) bhs: Bhs,
    pub(super) body: Body,
}

/// What is sent with a header.
pub(super) enum Body {
    /// A command, whose data is sent from its memory.
    Command(CommandBody),
    /// Another PDU, with a copy of its data.
    Control(Vec<u8>),
}

/// What is sent with a command, and what the target may access from then on.
pub(super) struct CommandBody {
    pub(super) task: u32,
    pub(super) immediate: Option<Sge>,
    pub(super) burst: Option<Burst>,
    pub(super) exposure: Option<Exposure>,
}

impl WaitingPdu {
    /// The command, if it is one.
    pub(super) fn command(&self) -> Option<&CommandBody> {
        match &self.body {
            Body::Command(command) => Some(command),
            Body::Control(_) => None,
        }
    }
}

impl Iser {
    /// Sends what may be sent, in order; immediate requests pass those that wait for the command window.
    pub(super) fn pump(&mut self) {
        let mut at = 0;
        loop {
            match self.post_burst() {
                Ok(PostOutcome::Posted) => {}
                Ok(PostOutcome::QueueFull) => return,
                Err(why) => return self.close(&why),
            }
            let Some(one) = self.waiting.get(at) else {
                return;
            };
            if !self.may_send(&one.bhs) {
                at += 1;
                continue;
            }
            let Some(one) = self.waiting.remove(at) else {
                return;
            };
            match self.post_pdu(&one) {
                Ok(PostOutcome::Posted) => {}
                Ok(PostOutcome::QueueFull) => return self.waiting.insert(at, one),
                Err(why) => return self.close(&why),
            }
        }
    }

    fn may_send(&self, bhs: &Bhs) -> bool {
        let bounded = is_immediate(bhs) && sequence::read_word(bhs, TAG) != NO_TAG;
        self.sequence.may_send(bhs) && (!bounded || self.immediate_tags.len() < self.limit)
    }

    /// Fills in sequence numbers and posts a Send.
    fn post_pdu(&mut self, one: &WaitingPdu) -> Result<PostOutcome, String> {
        let (mut bhs, before) = (one.bhs, self.sequence);
        let cmd_sn = self.sequence.stamp(&mut bhs);
        let mut front = [0; HEADERS_LEN];
        let (header, rest) = front.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&one.header.emit());
        rest.copy_from_slice(&bhs);
        let posted = match &one.body {
            Body::Command(command) => self.post_command(command, &front)?,
            Body::Control(data) => self.post_with_data(&front, data)?,
        };
        match (&posted, &one.body) {
            (PostOutcome::QueueFull, _) => self.sequence = before,
            (PostOutcome::Posted, Body::Command(command)) => {
                let stag = command.exposure.map(|exposure| exposure.ticket.stag());
                self.tags.set_sent(command.task, cmd_sn, stag);
                self.burst = command.burst;
            }
            (PostOutcome::Posted, Body::Control(_)) => self.note_immediate(&bhs, cmd_sn),
        }
        Ok(posted)
    }

    /// M11: the memory of a command is registered by the work request that sends the command.
    fn post_command(
        &self,
        command: &CommandBody,
        front: &[u8; HEADERS_LEN],
    ) -> Result<PostOutcome, String> {
        let at = command.task as usize * HEADER_BUFFER_LEN;
        // The previous Send in this buffer was answered, so it is complete.
        let pieces = self
            .header_buffers
            .write_at(at, front)
            .and_then(|()| pieces(&self.header_buffers, at, command.immediate))
            .map_err(|error| text(&error))?;
        let mut request = send(NO_COMPLETION, Data::Gather(&pieces));
        if let Some(Exposure { ticket, .. }) = command.exposure {
            request.op = SendOp::RegisterSend {
                ticket,
                invalidate: None,
                immediate: None,
            };
        }
        PostOutcome::of(self.qp.post_send(&[request]))
    }

    fn post_with_data(
        &mut self,
        front: &[u8; HEADERS_LEN],
        data: &[u8],
    ) -> Result<PostOutcome, String> {
        if data.is_empty() {
            let request = send(NO_COMPLETION, Data::Inline(front));
            return PostOutcome::of(self.qp.post_send(&[request]));
        }
        let Some(slot) = self.free.pop() else {
            return Ok(PostOutcome::QueueFull);
        };
        let at = slot as usize * RECEIVE_LEN;
        // RFC 7143 §11.1: a data segment is padded to a multiple of 4 bytes.
        let len = HEADERS_LEN + data.len().next_multiple_of(4);
        let pad = &[0; 3][..len - HEADERS_LEN - data.len()];
        self.data_buffers
            .write_at(at, front)
            .map_err(|error| text(&error))?;
        self.data_buffers
            .write_at(at + HEADERS_LEN, data)
            .map_err(|error| text(&error))?;
        self.data_buffers
            .write_at(at + HEADERS_LEN + data.len(), pad)
            .map_err(|error| text(&error))?;
        let piece = [self
            .data_buffers
            .sge(at, len)
            .map_err(|error| text(&error))?];
        let posted = self.qp.post_send(&[send(slot, Data::Gather(&piece))]);
        if posted.is_err() {
            self.free.push(slot);
        }
        PostOutcome::of(posted)
    }

    /// Records a request other than a command that was sent.
    fn note_immediate(&mut self, bhs: &Bhs, cmd_sn: u32) {
        let tag = sequence::read_word(bhs, TAG);
        if Opcode::of(bhs) == Some(Opcode::TaskRequest) {
            self.task_request = Some((tag, cmd_sn));
        }
        if is_immediate(bhs) && tag != NO_TAG {
            self.immediate_tags.push(tag);
        }
    }
}
