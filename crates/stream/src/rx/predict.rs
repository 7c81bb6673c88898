//! Header prediction: a fast path for a whole frame that is exactly the expected next one, and for a run of segments of one Write.
//! A frame that is recognized has the same meaning as in [`Rx::handle`], and nothing changes until [`Rx::commit_prediction`]. Frames that could be a
//! violation, that are incomplete, or that have markers are left to [`Rx::handle`], and so is one whose checksum is wrong.

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Msn, Qn, Rsn, Stag, To};

use super::message::MessageOutcome;
use super::{FirstFpdu, Rx, RxPhase};
use crate::accounting::Accounting;
use crate::deframe::has_right_crc;

/// A whole frame that is the expected next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction<'a> {
    /// What it is.
    pub kind: PredictedKind,
    /// Its payload.
    pub payload: &'a [u8],
    /// Bytes of the whole frame.
    pub size: usize,
}

/// Several whole segments of one Write, each of the same length and none of them the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRun<'a> {
    first: Prediction<'a>,
    /// All their frames.
    stage: &'a [u8],
    /// Payload bytes of all.
    len: u32,
    /// Bytes of the message up to their end.
    so_far: u32,
}

impl<'a> WriteRun<'a> {
    /// Payload bytes of all segments, which are contiguous in the buffer.
    #[allow(clippy::len_without_is_empty, reason = "there are at least two")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of all frames.
    pub fn size(&self) -> usize {
        self.stage.len()
    }

    /// The payload of each segment.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let end = LENGTH_LEN + Tagged::LEN + self.first.payload.len();
        let frames = self.stage.chunks_exact(self.first.size);
        frames.map(move |frame| &frame[LENGTH_LEN + Tagged::LEN..end])
    }
}

/// Kinds of frames that are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictedKind {
    /// A whole Send.
    Send {
        /// With a solicited event.
        solicited: bool,
    },
    /// A segment of an RDMA Write, of at least a byte.
    Write {
        /// The buffer.
        stag: Stag,
        /// The address in it.
        to: To,
        /// Bytes of the message up to its end.
        so_far: u32,
        /// It is the last segment.
        last: bool,
    },
    /// An acknowledgement: all requests of this side before this one are executed.
    Ack(Rsn),
}

impl Rx {
    /// The frame at the front of the stage, if it is complete and the expected next one. Nothing is changed, and a checksum is not looked at.
    #[inline]
    pub(crate) fn predict<'a>(
        &self,
        stage: &'a [u8],
        accounting: &Accounting,
    ) -> Option<Prediction<'a>> {
        let (length, rest) = stage.split_first_chunk::<LENGTH_LEN>()?;
        let ulpdu_len = u16::from_be_bytes(*length);
        let size = Layout::new(ulpdu_len, None).size();
        let between = self.phase == RxPhase::Head && self.first == FirstFpdu::Received;
        if stage.len() < size || !between || self.deframer.has_markers() {
            return None;
        }
        if accounting.responder.is_discarding() {
            return None;
        }
        let ulpdu = rest.get(..usize::from(ulpdu_len))?;
        let (what, payload) = match *ulpdu.first()? {
            TAGGED | TAGGED_LAST => self.predict_tagged(ulpdu)?,
            UNTAGGED_LAST if !self.order.is_mid_message() => {
                self.predict_untagged(ulpdu, accounting)?
            }
            _ => return None,
        };
        Some(Prediction {
            kind: what,
            payload,
            size,
        })
    }

    /// The checksum of a predicted frame at the front of the stage is right, or there is none.
    #[inline]
    pub(crate) fn is_intact(&self, stage: &[u8], prediction: &Prediction<'_>) -> bool {
        !self.deframer.has_crc() || stage.get(..prediction.size).is_some_and(has_right_crc)
    }

    /// The segments of the same Write that follow a predicted one in the stage, together with it, if there are any and their checksums are right.
    pub(crate) fn predict_run<'a>(
        &self,
        stage: &'a [u8],
        first: &Prediction<'a>,
    ) -> Option<WriteRun<'a>> {
        let PredictedKind::Write {
            to,
            mut so_far,
            last: false,
            ..
        } = first.kind
        else {
            return None;
        };
        let step = first.payload.len() as u32;
        // All headers are the same except for the address.
        let mut header: [u8; LENGTH_LEN + Tagged::LEN] = *stage.first_chunk()?;
        let (mut next, mut end) = (to.checked_add(u64::from(step))?, first.size);
        while let Some(frame) = stage.get(end..end + first.size) {
            header[ADDRESS_AT..].copy_from_slice(&next.get().to_be_bytes());
            let is_next =
                frame.starts_with(&header) && (!self.deframer.has_crc() || has_right_crc(frame));
            // Neither the address nor the length may wrap (RFC 5041 §7.1).
            let ends = next
                .checked_add(u64::from(step))
                .zip(so_far.checked_add(step));
            let Some((after, total)) = ends.filter(|_| is_next) else {
                break;
            };
            (next, so_far, end) = (after, total, end + first.size);
        }
        let frames = (end / first.size) as u32;
        (frames > 1).then_some(WriteRun {
            first: *first,
            stage: &stage[..end],
            len: frames * step,
            so_far,
        })
    }

    fn predict_tagged<'a>(&self, ulpdu: &'a [u8]) -> Option<(PredictedKind, &'a [u8])> {
        let (header, payload) = ulpdu.split_first_chunk::<{ Tagged::LEN }>()?;
        let header = Tagged::parse(header).ok()?;
        // A zero-length Write accesses no memory; it is left to `handle`.
        if header.opcode != Opcode::Write || payload.is_empty() {
            return None;
        }
        let (stag, to) = (header.stag, header.to);
        let before = self.order.next_write_offset(stag, to)?;
        if before > 0 && self.messages.write != MessageOutcome::Write {
            return None;
        }
        // Neither the address nor the length may wrap (RFC 5041 §7.1).
        to.checked_add(payload.len() as u64)?;
        let what = PredictedKind::Write {
            stag,
            to,
            so_far: before.checked_add(payload.len() as u32)?,
            last: header.last,
        };
        Some((what, payload))
    }

    fn predict_untagged<'a>(
        &self,
        ulpdu: &'a [u8],
        accounting: &Accounting,
    ) -> Option<(PredictedKind, &'a [u8])> {
        let (header, payload) = ulpdu.split_first_chunk::<{ Untagged::LEN }>()?;
        // Compared with the one header that is expected, which is cheaper than parsing.
        let (front, ulp, place) = split(header);
        let in_turn = |qn: Qn| place == expected_position(qn, self.order.expected(qn));
        let what = match front[1] {
            SEND if in_turn(Qn::SEND) => PredictedKind::Send { solicited: false },
            SEND_SE if in_turn(Qn::SEND) => PredictedKind::Send { solicited: true },
            CONTROL if self.accepts.extensions && in_turn(Qn::CONTROL) => {
                match Control::parse(u32::from_be_bytes(ulp), payload).ok()? {
                    Control::Ack(n) if accounting.requester.is_valid_ack(n) => {
                        PredictedKind::Ack(n)
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((what, payload))
    }

    /// Records a run of segments as [`handle`](Rx::handle) would; their payload has been placed.
    pub(crate) fn commit_run(&mut self, run: &WriteRun<'_>, accounting: &mut Accounting) {
        let PredictedKind::Write { stag, to, .. } = run.first.kind else {
            return;
        };
        self.segment.offender = None;
        accounting.responder.confirm();
        self.order
            .advance_write(stag, to, (run.len, run.so_far), false);
        self.messages.record_write(run.so_far, false);
    }

    /// Records a predicted frame as [`handle`](Rx::handle) would; its payload has been placed.
    #[inline]
    pub(crate) fn commit_prediction(
        &mut self,
        prediction: &Prediction<'_>,
        accounting: &mut Accounting,
    ) {
        self.segment.offender = None;
        accounting.responder.confirm();
        let len = prediction.payload.len() as u32;
        match prediction.kind {
            PredictedKind::Send { .. } => {
                self.order.advance(Qn::SEND);
                self.messages.record_send();
                accounting.responder.deliver(len);
            }
            PredictedKind::Write {
                stag,
                to,
                so_far,
                last,
            } => {
                self.order.advance_write(stag, to, (len, so_far), last);
                self.messages.record_write(so_far, last);
                if last {
                    accounting.responder.deliver(so_far);
                }
            }
            PredictedKind::Ack(n) => {
                self.order.advance(Qn::CONTROL);
                // `predict` checked it with `is_valid_ack`.
                let taken = accounting.requester.handle_ack(n);
                debug_assert!(taken.is_ok(), "a predicted acknowledgement is valid");
            }
        }
    }
}

/// Where the address begins in a frame with a tagged header (RFC 5041 §4.2).
const ADDRESS_AT: usize = LENGTH_LEN + Tagged::LEN - 8;

/// DDP control bytes (RFC 5041 §4.1), reserved bits zero.
const TAGGED: u8 = 0x81;
const TAGGED_LAST: u8 = 0xc1;
const UNTAGGED_LAST: u8 = 0x41;
/// RDMAP control bytes (RFC 5040 §4.1).
const SEND: u8 = Opcode::Send.emit();
const SEND_SE: u8 = Opcode::SendSe.emit();
const CONTROL: u8 = Opcode::Control.emit();

/// An untagged header's two control bytes, its RDMAP word, and its position: queue, number and offset.
fn split(header: &[u8; Untagged::LEN]) -> ([u8; 2], [u8; 4], [u8; 12]) {
    let [a, b, c, d, e, f, place @ ..] = *header;
    ([a, b], [c, d, e, f], place)
}

/// The position of a message's only segment (RFC 5041 §4.3).
fn expected_position(qn: Qn, msn: Msn) -> [u8; 12] {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&qn.get().to_be_bytes());
    place[4..8].copy_from_slice(&msn.get().to_be_bytes());
    place
}

#[cfg(test)]
mod tests;
