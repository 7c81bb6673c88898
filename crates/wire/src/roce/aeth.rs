//! The acknowledgement extended transport header of InfiniBand: what became of a request, and how many
//! messages the responder has completed. Every syndrome that the specification reserves is rejected.

use core::fmt;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ext::RnrTimer;
use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

const KIND_SHIFT: u32 = 5;
const VALUE_MASK: u8 = 0x1f;
const ACK: u8 = 0;
const RNR_NAK: u8 = 1;
const NAK: u8 = 3;
const MSN_MASK: u32 = 0x00ff_ffff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    syndrome_and_msn: U32,
}

/// Why a responder did not execute a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Nak {
    /// A packet is missing: the requester goes back to the PSN of this packet.
    PsnSequence,
    /// The request breaks the protocol, or needs what the responder does not have.
    InvalidRequest,
    /// Rights or bounds.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// Only of reliable datagrams.
    InvalidRdRequest,
}

impl Nak {
    /// Every reason, in the order of its code.
    pub const ALL: [Nak; 5] = [
        Nak::PsnSequence,
        Nak::InvalidRequest,
        Nak::RemoteAccess,
        Nak::RemoteOperational,
        Nak::InvalidRdRequest,
    ];
}

impl fmt::Display for Nak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nak::PsnSequence => "PSN sequence error",
            Nak::InvalidRequest => "invalid request",
            Nak::RemoteAccess => "remote access error",
            Nak::RemoteOperational => "remote operational error",
            Nak::InvalidRdRequest => "invalid RD request",
        })
    }
}

/// What a responder says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Executed, as are all before it.
    Ack {
        /// The code of the receives that the responder has; [`Syndrome::NO_CREDITS`] if it does not count them. Five bits.
        credits: u8,
    },
    /// Not executed: no receive was posted.
    RnrNak(RnrTimer),
    /// Not executed.
    Nak(Nak),
}

impl Syndrome {
    /// The code of an acknowledgement without end-to-end flow control.
    pub const NO_CREDITS: u8 = 31;

    /// An acknowledgement without end-to-end flow control.
    pub const ACK: Self = Self::Ack {
        credits: Self::NO_CREDITS,
    };

    fn parse(got: u8) -> Result<Self, Malformed> {
        let undefined = Malformed::Syndrome { got };
        let value = got & VALUE_MASK;
        match got >> KIND_SHIFT {
            ACK => Ok(Self::Ack { credits: value }),
            RNR_NAK => RnrTimer::new(value).map(Self::RnrNak).ok_or(undefined),
            NAK => {
                let nak = Nak::ALL.get(usize::from(value));
                nak.map(|&nak| Self::Nak(nak)).ok_or(undefined)
            }
            _ => Err(undefined),
        }
    }

    fn emit(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK << KIND_SHIFT | credits & VALUE_MASK,
            Self::RnrNak(timer) => RNR_NAK << KIND_SHIFT | timer.code(),
            Self::Nak(nak) => NAK << KIND_SHIFT | nak as u8,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack {
                credits: Self::NO_CREDITS,
            } => f.write_str("ACK"),
            Self::Ack { credits } => write!(f, "ACK credits={credits}"),
            Self::RnrNak(timer) => write!(f, "RNR NAK timer={}", timer.code()),
            Self::Nak(nak) => write!(f, "NAK {nak}"),
        }
    }
}

/// An acknowledgement extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// What became of the request.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24; higher bits are not sent.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("AETH", bytes)?;
        let [syndrome, ..] = raw.syndrome_and_msn.to_bytes();
        Ok(Self {
            syndrome: Syndrome::parse(syndrome)?,
            msn: raw.syndrome_and_msn.get() & MSN_MASK,
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let syndrome = u32::from(self.syndrome.emit()) << 24;
        (syndrome | self.msn & MSN_MASK).to_be_bytes()
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AETH {} msn={}", self.syndrome, self.msn)
    }
}
