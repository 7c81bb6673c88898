//! The header of an untagged segment (RFC 5041 §4.3): queue, message number and offset. `parse`
//! accepts DDP version 1 and RDMAP version 1 only; it does not check that queue and opcode belong
//! together.

use core::fmt;
use serde::{Deserialize, Serialize};

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rdmap::Opcode;
use crate::{Malformed, Mo, Msn, Qn, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    ddp: u8,
    rdmap: u8,
    ulp: U32,
    qn: U32,
    msn: U32,
    mo: U32,
}

/// An untagged DDP header with the RDMAP opcode it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untagged {
    /// Whether this segment ends its message.
    pub last: bool,
    /// The message this segment is part of.
    pub opcode: Opcode,
    /// The word left to the upper layer: the STag to invalidate, or the kind and number of a
    /// control message. Zero and ignored otherwise (RFC 5040 §4.1).
    pub ulp: u32,
    /// The queue.
    pub qn: Qn,
    /// The message within the queue.
    pub msn: Msn,
    /// Where in the message this segment's first byte belongs.
    pub mo: Mo,
}

impl Untagged {
    /// Bytes on the wire.
    pub const LEN: usize = 18;

    /// Reads the header; the checks are length, class, DDP version, RDMAP version, in that order.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("untagged DDP header", bytes)?;
        let last = super::check_control(raw.ddp, false)?;
        Ok(Self {
            last,
            opcode: Opcode::parse(raw.rdmap)?,
            ulp: raw.ulp.get(),
            qn: Qn::new(raw.qn.get()),
            msn: Msn::new(raw.msn.get()),
            mo: Mo::new(raw.mo.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            ddp: super::control(false, self.last),
            rdmap: self.opcode.emit(),
            ulp: U32::new(self.ulp),
            qn: U32::new(self.qn.get()),
            msn: U32::new(self.msn.get()),
            mo: U32::new(self.mo.get()),
        })
    }
}

impl fmt::Display for Untagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            opcode,
            qn,
            msn,
            mo,
            ..
        } = self;
        write!(f, "{opcode} qn={qn} msn={msn} mo={mo}")?;
        if self.ulp != 0 {
            write!(f, " ulp={:#010x}", self.ulp)?;
        }
        f.write_str(if self.last { " last" } else { "" })
    }
}
