//! Sending: PDUs wait for the command window and for the target's receives, get their sequence numbers, and are posted. Waiting PDUs keep
//! their order, except that immediate ones may overtake; a CmdSN is consumed only by what was posted.

use verbena::low::{Data, Flags, PostError, PostSendError, SendOp, SendWr};
use verbena_storage_wire::iscsi::{Bhs, NO_TAG, is_immediate};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};

use super::{DATA_BUFFERS, HEADERS_LEN, Iser, RECEIVE_LEN, TAG, sequence, text};
use crate::session::link::Link;

/// Work request id of Sends without a completion.
const NO_COMPLETION: u64 = u64::MAX;

/// A PDU that waits to be sent.
pub(super) struct WaitingPdu {
    pub(super) header: IserHeader,
    pub(super) bhs: Bhs,
    pub(super) data: Vec<u8>,
    /// Task number, if it is a command.
    pub(super) task: Option<u32>,
}

type Posted = Result<(), PostSendError>;

/// Result of posting a Send.
enum PostOutcome {
    Posted,
    /// The send queue, or the buffers, are full.
    QueueFull,
}

impl Iser {
    /// Sends what may be sent, in order; immediate requests pass those that wait for the command window.
    pub(super) fn pump(&mut self) {
        let mut at = 0;
        while let Some(one) = self.waiting.get(at) {
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
        self.sequence.stamp(&mut bhs);
        let mut front = [0; HEADERS_LEN];
        let (header, rest) = front.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&one.header.emit());
        rest.copy_from_slice(&bhs);
        let posted = match one.task {
            Some(task) => self.post_command(task, &front)?,
            None => self.post_with_data(&front, &one.data)?,
        };
        match posted {
            Ok(()) => {
                if one.task.is_none() {
                    self.note_immediate(&bhs);
                }
                Ok(PostOutcome::Posted)
            }
            Err(PostSendError {
                source: PostError::Full(_),
                ..
            }) => {
                self.sequence = before;
                Ok(PostOutcome::QueueFull)
            }
            // The queue pair is in `Err`; the command is reported with the end of the link.
            Err(PostSendError {
                source: PostError::State(_),
                ..
            }) => Ok(PostOutcome::Posted),
            Err(PostSendError { source: why, .. }) => Err(why.to_string()),
        }
    }

    fn post_command(&self, task: u32, front: &[u8]) -> Result<Posted, String> {
        let at = task as usize * HEADERS_LEN;
        // The previous Send in this buffer was answered, so it is complete.
        self.command_buffers
            .write_at(at, front)
            .map_err(|error| text(&error))?;
        let piece = [self
            .command_buffers
            .sge(at, HEADERS_LEN)
            .map_err(|error| text(&error))?];
        Ok(self
            .qp
            .post_send(&[send(NO_COMPLETION, Data::Gather(&piece))]))
    }

    fn post_with_data(&mut self, front: &[u8], data: &[u8]) -> Result<Posted, String> {
        if data.is_empty() {
            return Ok(self
                .qp
                .post_send(&[send(NO_COMPLETION, Data::Inline(front))]));
        }
        let Some(slot) = self.free.pop() else {
            return Ok(Err(PostSendError {
                posted: 0,
                source: PostError::Full(DATA_BUFFERS as usize),
            }));
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
        Ok(posted)
    }

    fn note_immediate(&mut self, bhs: &Bhs) {
        let tag = sequence::read_word(bhs, TAG);
        if is_immediate(bhs) && tag != NO_TAG {
            self.immediate_tags.push(tag);
        }
    }
}

/// A Send. A failure ends the queue pair, so only a Send with a buffer is signaled. RFC 7145 §7.3.1: with Solicited Event.
fn send(id: u64, data: Data<'_>) -> SendWr<'_> {
    let flags = match id {
        NO_COMPLETION => Flags::SOLICITED,
        _ => Flags::SOLICITED | Flags::SIGNALED,
    };
    SendWr {
        id,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags,
        data,
    }
}
