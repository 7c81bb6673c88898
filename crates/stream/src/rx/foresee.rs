//! Header prediction: a short frame that is just what had to come next is understood at one glance.
//! It promises that what it recognises means what the long way ([`Rx::handle`]) would find, and that it changes nothing until it is told to.
//! It refuses whatever could be a violation, is summed, marked, cut or not all there: the long way judges that.

use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Mo, Qn, Rsn, Stag, To};

use super::{First, Moment, Rx};
use crate::ledger::Ledger;

/// A whole frame that had to come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreseen<'a> {
    /// What it is.
    pub what: What,
    /// Its payload.
    pub payload: &'a [u8],
    /// Bytes of the whole frame.
    pub size: usize,
}

/// What can be foreseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A whole Send.
    Send {
        /// With a solicited event.
        solicited: bool,
    },
    /// A whole RDMA Write of at least a byte.
    Write {
        /// The buffer.
        stag: Stag,
        /// The address in it.
        to: To,
    },
    /// All our requests before this one are executed, it says.
    Ack(Rsn),
}

impl Rx {
    /// What stands at the front of the stage, if that had to come next and is all there. Nothing has changed.
    #[inline]
    pub(crate) fn foresee<'a>(&self, stage: &'a [u8], ledger: &Ledger) -> Option<Foreseen<'a>> {
        let (length, rest) = stage.split_first_chunk::<LENGTH_LEN>()?;
        let ulpdu_len = u16::from_be_bytes(*length);
        let size = Layout::new(ulpdu_len, None).size();
        let between = self.moment == Moment::Head && self.first == First::Past;
        if stage.len() < size || !between || !self.deframer.is_plain() || self.order.mid_message() {
            return None;
        }
        if ledger.responder.discarding() {
            return None;
        }
        let ulpdu = rest.get(..usize::from(ulpdu_len))?;
        let (what, payload) = match *ulpdu.first()? {
            TAGGED_LAST => self.tagged(ulpdu)?,
            UNTAGGED_LAST => self.untagged(ulpdu, ledger)?,
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
        // An empty Write names no memory; the long way knows what it is for.
        if header.opcode != Opcode::Write || payload.is_empty() {
            return None;
        }
        let (stag, to) = (header.stag, header.to);
        Some((What::Write { stag, to }, payload))
    }

    fn untagged<'a>(&self, ulpdu: &'a [u8], ledger: &Ledger) -> Option<(What, &'a [u8])> {
        let (header, payload) = ulpdu.split_first_chunk::<{ Untagged::LEN }>()?;
        let header = Untagged::parse(header).ok()?;
        let in_turn = |qn: Qn| {
            header.qn == qn && header.mo == Mo::ZERO && header.msn == self.order.expected(qn)
        };
        let what = match header.opcode {
            Opcode::Send if in_turn(Qn::SEND) => What::Send { solicited: false },
            Opcode::SendSe if in_turn(Qn::SEND) => What::Send { solicited: true },
            Opcode::Control if in_turn(Qn::CONTROL) && self.accepts.extensions => {
                match Control::parse(header.ulp, payload).ok()? {
                    Control::Ack(n) if ledger.requester.believes(n) => What::Ack(n),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((what, payload))
    }

    /// It came: what the long way would note of it is noted. Its payload is where it belongs.
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
            What::Write { .. } => {
                self.messages.written(len);
                ledger.responder.deliver(len);
            }
            What::Ack(n) => {
                self.order.pass(Qn::CONTROL);
                // Believed a moment ago.
                let taken = ledger.requester.handle_ack(n);
                debug_assert!(taken.is_ok(), "an acknowledgement that was believed");
            }
        }
    }
}

/// DDP control bytes of the last segment of a message (RFC 5041 §4.1), reserved bits as we send them.
const TAGGED_LAST: u8 = 0xc1;
const UNTAGGED_LAST: u8 = 0x41;

#[cfg(test)]
mod tests;
