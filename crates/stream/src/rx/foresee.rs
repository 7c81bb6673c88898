//! Header prediction: a fast path for a whole frame that is exactly the expected next one.
//! A frame that is recognized has the same meaning as in [`Rx::handle`], and nothing changes until [`Rx::came`]. Frames that could be a
//! violation, that are incomplete, or that have checksums or markers are left to [`Rx::handle`].

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Msn, Qn, Rsn, Stag, To};

use super::message::Fate;
use super::{First, Moment, Rx};
use crate::ledger::Ledger;

/// A whole frame that is the expected next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreseen<'a> {
    /// What it is.
    pub what: What,
    /// Its payload.
    pub payload: &'a [u8],
    /// Bytes of the whole frame.
    pub size: usize,
}

/// Kinds of frames that are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
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
    pub(crate) fn foresee<'a>(&self, stage: &'a [u8], ledger: &Ledger) -> Option<Foreseen<'a>> {
        let (length, rest) = stage.split_first_chunk::<LENGTH_LEN>()?;
        let ulpdu_len = u16::from_be_bytes(*length);
        let size = Layout::new(ulpdu_len, None).size();
        let between = self.moment == Moment::Head && self.first == First::Past;
        if stage.len() < size || !between || !self.deframer.is_plain() {
            return None;
        }
        if ledger.responder.discarding() {
            return None;
        }
        let ulpdu = rest.get(..usize::from(ulpdu_len))?;
        let (what, payload) = match *ulpdu.first()? {
            TAGGED | TAGGED_LAST => self.tagged(ulpdu)?,
            UNTAGGED_LAST if !self.order.mid_message() => self.untagged(ulpdu, ledger)?,
            _ => return None,
        };
        Some(Foreseen {
            what,
            payload,
            size,
        })
    }

    fn tagged<'a>(&self, ulpdu: &'a [u8]) -> Option<(What, &'a [u8])> {
        let (header, payload) = ulpdu.split_first_chunk::<{ Tagged::LEN }>()?;
        let header = Tagged::parse(header).ok()?;
        // A zero-length Write accesses no memory; it is left to `handle`.
        if header.opcode != Opcode::Write || payload.is_empty() {
            return None;
        }
        let (stag, to) = (header.stag, header.to);
        let before = self.order.before_write(stag, to)?;
        if before > 0 && self.messages.write != Fate::Live {
            return None;
        }
        // Neither the address nor the length may wrap (RFC 5041 §7.1).
        to.checked_add(payload.len() as u64)?;
        let what = What::Write {
            stag,
            to,
            so_far: before.checked_add(payload.len() as u32)?,
            last: header.last,
        };
        Some((what, payload))
    }

    fn untagged<'a>(&self, ulpdu: &'a [u8], ledger: &Ledger) -> Option<(What, &'a [u8])> {
        let (header, payload) = ulpdu.split_first_chunk::<{ Untagged::LEN }>()?;
        // Compared with the one header that is expected, which is cheaper than parsing.
        let (front, ulp, place) = split(header);
        let in_turn = |qn: Qn| place == expected_place(qn, self.order.expected(qn));
        let what = match front[1] {
            SEND if in_turn(Qn::SEND) => What::Send { solicited: false },
            SEND_SE if in_turn(Qn::SEND) => What::Send { solicited: true },
            CONTROL if self.accepts.extensions && in_turn(Qn::CONTROL) => {
                match Control::parse(u32::from_be_bytes(ulp), payload).ok()? {
                    Control::Ack(n) if ledger.requester.believes(n) => What::Ack(n),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((what, payload))
    }

    /// Records a predicted frame as [`handle`](Rx::handle) would; its payload has been placed.
    #[inline]
    pub(crate) fn came(&mut self, foreseen: &Foreseen<'_>, ledger: &mut Ledger) {
        self.segment.offender = None;
        ledger.responder.confirm();
        let len = foreseen.payload.len() as u32;
        match foreseen.what {
            What::Send { .. } => {
                self.order.pass(Qn::SEND);
                self.messages.sent();
                ledger.responder.deliver(len);
            }
            What::Write {
                stag,
                to,
                so_far,
                last,
            } => {
                self.order.pass_write(stag, to, (len, so_far), last);
                self.messages.written(so_far, last);
                if last {
                    ledger.responder.deliver(so_far);
                }
            }
            What::Ack(n) => {
                self.order.pass(Qn::CONTROL);
                // `foresee` checked it with `believes`.
                let taken = ledger.requester.handle_ack(n);
                debug_assert!(taken.is_ok(), "an acknowledgement that was believed");
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
fn expected_place(qn: Qn, msn: Msn) -> [u8; 12] {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&qn.get().to_be_bytes());
    place[4..8].copy_from_slice(&msn.get().to_be_bytes());
    place
}

#[cfg(test)]
mod tests;
