//! Sending: PDUs wait for the command window and for the target's receives, get their sequence numbers, and are posted. Waiting PDUs keep
//! their order, except that immediate ones may overtake; a CmdSN is consumed only by what was posted.

use verbena::low::{Data, Flags, PostError, SendOp, SendWr};
use verbena_wire::iscsi::{Bhs, NO_TAG, is_immediate};
use verbena_wire::iser::{HEADER_LEN, IserHeader};

use super::{FRONT, Iser, ROOM, TAG, TEXTS, numbers, text};
use crate::session::link::Link;

/// Work request id of Sends without a completion.
const NOBODY: u64 = u64::MAX;

/// A PDU that waits to be sent.
pub(super) struct Waiting {
    pub(super) header: IserHeader,
    pub(super) bhs: Bhs,
    pub(super) data: Vec<u8>,
    /// Task number, if it is a command.
    pub(super) task: Option<u32>,
}

type Posted = Result<(), (usize, PostError)>;

/// Result of posting a Send.
enum Left {
    Gone,
    /// The send queue, or the buffers, are full.
    Later,
}

impl Iser {
    /// Sends what may be sent, in order; immediate requests pass those that wait for the command window.
    pub(super) fn pump(&mut self) {
        let mut at = 0;
        while let Some(one) = self.waiting.get(at) {
            if !self.may_leave(&one.bhs) {
                at += 1;
                continue;
            }
            let Some(one) = self.waiting.remove(at) else {
                return;
            };
            match self.leave(&one) {
                Ok(Left::Gone) => {}
                Ok(Left::Later) => return self.waiting.insert(at, one),
                Err(why) => return self.end(&why),
            }
        }
    }

    fn may_leave(&self, bhs: &Bhs) -> bool {
        let bounded = is_immediate(bhs) && numbers::word(bhs, TAG) != NO_TAG;
        self.numbers.admit(bhs) && (!bounded || self.asked.len() < self.limit)
    }

    /// Fills in sequence numbers and posts a Send.
    fn leave(&mut self, one: &Waiting) -> Result<Left, String> {
        let (mut bhs, before) = (one.bhs, self.numbers);
        self.numbers.stamp(&mut bhs);
        let mut front = [0; FRONT];
        let (header, rest) = front.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&one.header.emit());
        rest.copy_from_slice(&bhs);
        let posted = match one.task {
            Some(task) => self.post_order(task, &front)?,
            None => self.post_text(&front, &one.data)?,
        };
        match posted {
            Ok(()) => {
                if one.task.is_none() {
                    self.note_asked(&bhs);
                }
                Ok(Left::Gone)
            }
            Err((_, PostError::Full(_))) => {
                self.numbers = before;
                Ok(Left::Later)
            }
            // The queue pair is in `Err`; the command is reported with the end of the link.
            Err((_, PostError::State(_))) => Ok(Left::Gone),
            Err((_, why)) => Err(why.to_string()),
        }
    }

    fn post_order(&self, task: u32, front: &[u8]) -> Result<Posted, String> {
        let at = task as usize * FRONT;
        // The previous Send in this buffer was answered, so it is complete.
        self.orders
            .write_at(at, front)
            .map_err(|error| text(&error))?;
        let piece = [self.orders.sge(at, FRONT).map_err(|error| text(&error))?];
        Ok(self.qp.post_send(&[send(NOBODY, Data::Gather(&piece))]))
    }

    fn post_text(&mut self, front: &[u8], data: &[u8]) -> Result<Posted, String> {
        if data.is_empty() {
            return Ok(self.qp.post_send(&[send(NOBODY, Data::Inline(front))]));
        }
        let Some(slot) = self.free.pop() else {
            return Ok(Err((0, PostError::Full(TEXTS as usize))));
        };
        let at = slot as usize * ROOM;
        // RFC 7143 §11.1: a data segment is padded to a multiple of 4 bytes.
        let len = FRONT + data.len().next_multiple_of(4);
        let pad = &[0; 3][..len - FRONT - data.len()];
        self.texts
            .write_at(at, front)
            .map_err(|error| text(&error))?;
        self.texts
            .write_at(at + FRONT, data)
            .map_err(|error| text(&error))?;
        self.texts
            .write_at(at + FRONT + data.len(), pad)
            .map_err(|error| text(&error))?;
        let piece = [self.texts.sge(at, len).map_err(|error| text(&error))?];
        let posted = self.qp.post_send(&[send(slot, Data::Gather(&piece))]);
        if posted.is_err() {
            self.free.push(slot);
        }
        Ok(posted)
    }

    fn note_asked(&mut self, bhs: &Bhs) {
        let tag = numbers::word(bhs, TAG);
        if is_immediate(bhs) && tag != NO_TAG {
            self.asked.push(tag);
        }
    }
}

/// A Send. A failure ends the queue pair, so only a Send with a buffer is signaled. RFC 7145 §7.3.1: with Solicited Event.
fn send(id: u64, data: Data<'_>) -> SendWr<'_> {
    let flags = match id {
        NOBODY => Flags::SOLICITED,
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
