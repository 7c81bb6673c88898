//! The receive side and frames ahead of a gap: which message one belongs to, and how it is received again when its turn has come.
//! Looking changes nothing. A message is found by the numbers in its header alone, since its first segments may be missing.

use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::rdmap::{Immediate, Opcode};
use verbena_wire::{Msn, Qn};

use super::message::MessageOutcome;
use super::{FirstFpdu, Rx, RxEvent, RxPhase};
use crate::accounting::Accounting;
use crate::ahead::AheadPlace;
use crate::delivery::{Delivery, Run};
use crate::reads::Requested;
use crate::time::Time;
use crate::violation::Violation;

/// What a frame ahead of a gap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its payload goes there.
    Place(AheadPlace),
    /// It is not certain, or it has no payload.
    Hold,
    /// A read or an atomic request, the number that comes next on its queue, and how many entries from there on are free.
    Request {
        msn: Msn,
        expected: Msn,
        free: usize,
    },
}

impl Rx {
    /// What a frame ahead of a gap is.
    pub(crate) fn look_ahead(&self, header: &Header, len: u32, accounting: &Accounting) -> Look {
        // Before the first frame, and while requests are discarded, messages ahead are not what their numbers say.
        let certain = self.first == FirstFpdu::Received
            && self.phase != RxPhase::Claim
            && !accounting.responder.is_discarding()
            && !self.accepts.drop_overlong
            && !self.accepts.xrc;
        if !certain || self.check_opcode(header).is_err() {
            return Look::Hold;
        }
        match header {
            Header::Untagged(h) if h.qn == Qn::READ_REQUEST => Look::Request {
                msn: h.msn,
                expected: self.order.expected(h.qn),
                free: usize::from(accounting.reads_in.limit())
                    .saturating_sub(accounting.reads_in.len()),
            },
            _ if len == 0 => Look::Hold,
            Header::Tagged(h) if h.opcode == Opcode::Write => match h.to.checked_add(len.into()) {
                Some(_) => Look::Place(AheadPlace::Write {
                    stag: h.stag,
                    to: h.to,
                    last: h.last,
                }),
                None => Look::Hold,
            },
            Header::Tagged(h) => response(h, len, accounting),
            Header::Untagged(h) if h.opcode.is_send() => self.look_at_send(h),
            Header::Untagged(h) if h.opcode == Opcode::ReadV2Response => {
                self.look_at_response_v2(h, len, accounting)
            }
            Header::Untagged(_) => Look::Hold,
        }
    }

    fn look_at_send(&self, h: &Untagged) -> Look {
        // docs/extensions.md: the message offset counts the immediate data in front of the payload.
        let lead = match h.opcode {
            Opcode::SendImm { .. } if h.mo.get() > 0 => Immediate::LEN as u32,
            _ => 0,
        };
        let Some(offset) = h.mo.get().checked_sub(lead) else {
            return Look::Hold;
        };
        if self.order.open_send().is_some_and(|(msn, _)| msn == h.msn) {
            return match self.messages.send {
                MessageOutcome::Receive { .. } => Look::Place(AheadPlace::Claimed { offset }),
                _ => Look::Hold,
            };
        }
        let expected = self.order.expected(Qn::SEND);
        let before = h.msn.get().wrapping_sub(expected.get());
        // Of the 2^32 numbers the half before the expected one is old.
        if before >= 1 << 31 {
            return Look::Hold;
        }
        Look::Place(AheadPlace::Receive { before, offset })
    }

    fn look_at_response_v2(&self, h: &Untagged, len: u32, accounting: &Accounting) -> Look {
        let expected = self.order.expected(Qn::READ_V2_RESPONSE);
        let oldest = self.order.open_response_v2().unwrap_or(expected);
        let at = h.msn.get().wrapping_sub(oldest.get());
        let sizes = accounting
            .reads_out
            .iter()
            .filter_map(|read| match read.requested {
                Requested::ReadV2 { size } => Some((read.rsn, size)),
                _ => None,
            });
        let fits = |size: u32| h.mo.get().checked_add(len).is_some_and(|end| end <= size);
        match usize::try_from(at)
            .ok()
            .and_then(|at| sizes.into_iter().nth(at))
        {
            Some((rsn, size)) if fits(size) => Look::Place(AheadPlace::Sink {
                rsn,
                offset: h.mo.get(),
            }),
            _ => Look::Hold,
        }
    }

    /// The stream is between two frames.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.phase == RxPhase::Head && !self.deframer.is_mid_frame(0)
    }

    /// Begins a frame of which only the head is here, because the payload was placed: the number of the message if it needs a receive.
    pub(crate) fn begin_placed(
        &mut self,
        head: &[u8],
        accounting: &mut Accounting,
    ) -> Result<Option<Msn>, Violation> {
        if !self.is_between_frames() {
            return Err(Violation::Misaligned);
        }
        accounting.responder.confirm();
        // Its checksum was right when it arrived.
        let crc = self.deframer.has_crc();
        self.deframer.set_crc(false);
        let read = self.read_head(head, accounting);
        self.deframer.set_crc(crc);
        match read? {
            Ok(_) => Ok(self.claimed_msn()),
            Err(_) => Err(Violation::Misaligned),
        }
    }

    /// The payload of the segment that was begun.
    pub(crate) fn unplaced_run(&self) -> Option<Run> {
        (self.phase == RxPhase::Payload).then_some(Run {
            place: self.segment.place,
            len: self.segment.len,
        })
    }

    /// Ends the frame: returns what it delivers.
    pub(crate) fn end_placed(
        &mut self,
        now: Time,
        accounting: &mut Accounting,
    ) -> Result<Option<Delivery>, Violation> {
        self.deframer.close_checked();
        self.step(RxEvent::PayloadDone);
        self.step(RxEvent::FrameDone);
        self.deliver(now, accounting)
    }
}

/// The outstanding read that a segment of a classic Read Response belongs to: the oldest with its sink.
fn response(h: &Tagged, len: u32, accounting: &Accounting) -> Look {
    let mut reads = accounting.reads_out.iter();
    let found = reads.find_map(|read| match read.requested {
        Requested::Read { stag, to, size } if stag == h.stag => {
            let offset = h.to.get().checked_sub(to.get())?;
            let end = offset.checked_add(u64::from(len))?;
            (end <= u64::from(size)).then_some((read.rsn, offset as u32))
        }
        _ => None,
    });
    match found {
        Some((rsn, offset)) => Look::Place(AheadPlace::Sink { rsn, offset }),
        None => Look::Hold,
    }
}
