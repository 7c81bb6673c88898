//! Header prediction: a fast path for a whole frame that is exactly the expected next one.
//! A frame that is recognized has the same meaning as in [`Rx::handle`], and nothing changes until [`Rx::commit_prediction`]. Frames that could be a
//! violation, that are incomplete, or that have checksums or markers are left to [`Rx::handle`].

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Msn, Qn, Rsn, Stag, To};

use super::message::MessageOutcome;
use super::{FirstFpdu, Rx, RxPhase};
use crate::accounting::Accounting;

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
    /// The frame at the front of the stage, if it is complete and the expected next one. Nothing is changed.
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
        if stage.len() < size || !between || !self.deframer.is_plain() {
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
