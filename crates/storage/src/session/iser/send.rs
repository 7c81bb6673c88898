//! What leaves on a link: Sends wait for the target's window and its receives, are numbered, and are posted.
//! It promises that those which wait leave in their order, but for immediate ones, and that a number is used only by what has left.
//! It refuses to judge what they ask for.

use verbena::low::{Data, Flags, PostError, SendOp, SendWr};
use verbena_wire::iscsi::{Bhs, NO_TAG, is_immediate};
use verbena_wire::iser::{HEADER_LEN, IserHeader};

use super::{FRONT, Iser, ROOM, TAG, TEXTS, numbers, text};
use crate::session::link::Link;

/// The number of Sends whose completion nobody waits for.
const NOBODY: u64 = u64::MAX;

/// A Send that waits.
pub(super) struct Waiting {
    pub(super) header: IserHeader,
    pub(super) bhs: Bhs,
    pub(super) data: Vec<u8>,
    /// The number of the command, if it is one.
    pub(super) task: Option<u32>,
}

type Posted = Result<(), (usize, PostError)>;

/// What became of a Send.
enum Left {
    Gone,
    /// There is no room for it now.
    Later,
}

impl Iser {
    /// Sends what may be sent, in order: what is for immediate delivery passes by what waits for the window.
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

    /// Numbers a Send and posts it.
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
            // It has ended, and everything with it.
            Err((_, PostError::State(_))) => Ok(Left::Gone),
            Err((_, why)) => Err(why.to_string()),
        }
    }

    fn post_order(&self, task: u32, front: &[u8]) -> Result<Posted, String> {
        let at = task as usize * FRONT;
        // The Send that lay here has reached the target, which has answered it.
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
        // RFC 7143 §11.7: a data segment is whole words.
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

/// A Send. What fails ends the queue pair, so only text waits for its completion. RFC 7145 §7.3.1: it is a solicited one.
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
