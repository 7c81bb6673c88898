//! The control messages (docs/extensions.md): a kind and a 24-bit number in the word DDP leaves to
//! its upper layer, and for three kinds a short payload. `parse` accepts known kinds with a payload
//! of the right length.

use core::fmt;
use serde::{Deserialize, Serialize};

use super::caps::Caps;
use super::rnr_timer::RnrTimer;
use crate::ddp::MAX_LEN;
use crate::{Malformed, Psn, Rsn, Srqn};

#[cfg(test)]
mod tests;

// A list of capabilities fits one segment of the smallest size that may be agreed.
const _: () = assert!(Caps::MAX_LEN + MAX_LEN <= 128);

const KIND_CAPS: u8 = 1;
const KIND_ACK: u8 = 2;
const KIND_RNR: u8 = 3;
const KIND_READY: u8 = 4;
const KIND_RESUME: u8 = 5;
const KIND_ACTIVE: u8 = 6;
const KIND_SRQ: u8 = 8;

/// Payload of RNR: one byte of content and three zeros.
const WORD: usize = 4;

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// The capabilities of the sender; the first message in each direction.
    Caps(Caps),
    /// Every request before this one is executed.
    Ack(Rsn),
    /// No receive was posted for this request; it and all later ones are discarded until it is resumed.
    Rnr {
        /// The request.
        rsn: Rsn,
        /// How long the requester shall wait if no receive is reported earlier.
        timer: RnrTimer,
    },
    /// A receive for this request is posted now.
    Ready(Rsn),
    /// The next request on the stream is this one again.
    Resume(Rsn),
    /// The sender is ready to send, starting with this packet number.
    Active {
        /// The PSN that the two programs exchanged beforehand.
        psn: Psn,
    },
    /// The requests behind it are for this shared receive queue of the XRC target.
    Srq(Srqn),
}

impl Control {
    /// Reads a control message from the header's upper-layer word and the segment's payload.
    pub fn parse(ulp_word: u32, payload: &[u8]) -> Result<Self, Malformed> {
        let [kind, ..] = ulp_word.to_be_bytes();
        let rsn = Rsn::wrapping(ulp_word);
        match kind {
            KIND_CAPS => Caps::parse(payload).map(Self::Caps),
            KIND_ACK => exact(kind, payload).map(|[]| Self::Ack(rsn)),
            KIND_RNR => {
                let [got, ..] = exact::<WORD>(kind, payload)?;
                let timer = RnrTimer::new(got).ok_or(Malformed::RnrTimer { got })?;
                Ok(Self::Rnr { rsn, timer })
            }
            KIND_READY => exact(kind, payload).map(|[]| Self::Ready(rsn)),
            KIND_RESUME => exact(kind, payload).map(|[]| Self::Resume(rsn)),
            KIND_ACTIVE => {
                let psn = Psn::wrapping(ulp_word);
                exact(kind, payload).map(|[]| Self::Active { psn })
            }
            KIND_SRQ => {
                let number = Srqn::wrapping(ulp_word);
                exact(kind, payload).map(|[]| Self::Srq(number))
            }
            got => Err(Malformed::ControlKind { got }),
        }
    }

    /// The number of the kind.
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Caps(_) => KIND_CAPS,
            Self::Ack(_) => KIND_ACK,
            Self::Rnr { .. } => KIND_RNR,
            Self::Ready(_) => KIND_READY,
            Self::Resume(_) => KIND_RESUME,
            Self::Active { .. } => KIND_ACTIVE,
            Self::Srq(_) => KIND_SRQ,
        }
    }

    /// The word for the header: the kind in the upper 8 bits, the number in the lower 24.
    pub const fn ulp_word(&self) -> u32 {
        let number = match self {
            Self::Caps(_) => 0,
            Self::Ack(rsn) | Self::Ready(rsn) | Self::Resume(rsn) => rsn.get(),
            Self::Rnr { rsn, .. } => rsn.get(),
            Self::Active { psn } => psn.get(),
            Self::Srq(number) => number.get(),
        };
        (self.kind() as u32) << 24 | number
    }

    /// Appends the payload to `out`; most kinds have none.
    pub fn emit_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Caps(caps) => caps.emit(out),
            Self::Rnr { timer, .. } => out.extend_from_slice(&[timer.code(), 0, 0, 0]),
            Self::Ack(_)
            | Self::Ready(_)
            | Self::Resume(_)
            | Self::Active { .. }
            | Self::Srq(_) => {}
        }
    }
}

/// The payload as an array, or the error that it has another length.
fn exact<const N: usize>(kind: u8, payload: &[u8]) -> Result<[u8; N], Malformed> {
    payload.try_into().map_err(|_| Malformed::ControlLength {
        kind,
        need: N,
        got: payload.len(),
    })
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caps(caps) => caps.fmt(f),
            Self::Ack(rsn) => write!(f, "ack rsn={rsn}"),
            Self::Rnr { rsn, timer } => write!(f, "rnr rsn={rsn} timer={timer}"),
            Self::Ready(rsn) => write!(f, "ready rsn={rsn}"),
            Self::Resume(rsn) => write!(f, "resume rsn={rsn}"),
            Self::Active { psn } => write!(f, "active psn={psn}"),
            Self::Srq(number) => write!(f, "srq number={number}"),
        }
    }
}
