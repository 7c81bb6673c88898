//! The header of a tagged segment (RFC 5041 §4.2): the receiver's buffer and the offset in it.
//! `parse` accepts DDP version 1 and RDMAP version 1 only; it does not check that the opcode is one
//! of tagged messages.

use core::fmt;
use serde::{Deserialize, Serialize};

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rdmap::Opcode;
use crate::{Malformed, Stag, To, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    ddp: u8,
    rdmap: u8,
    stag: U32,
    to: U64,
}

/// A tagged DDP header with the RDMAP opcode it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    /// Whether this segment ends its message.
    pub last: bool,
    /// The message this segment is part of.
    pub opcode: Opcode,
    /// The sink buffer.
    pub stag: Stag,
    /// Where in the buffer this segment's first byte goes.
    pub to: To,
}

impl Tagged {
    /// Bytes on the wire.
    pub const LEN: usize = 14;

    /// Reads the header; the checks are length, class, DDP version, RDMAP version, in that order.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("tagged DDP header", bytes)?;
        let last = super::check_control(raw.ddp, true)?;
        Ok(Self {
            last,
            opcode: Opcode::parse(raw.rdmap)?,
            stag: Stag::new(raw.stag.get()),
            to: To::new(raw.to.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            ddp: super::control(true, self.last),
            rdmap: self.opcode.emit(),
            stag: U32::new(self.stag.get()),
            to: U64::new(self.to.get()),
        })
    }
}

impl fmt::Display for Tagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stag={} to={}", self.opcode, self.stag, self.to)?;
        f.write_str(if self.last { " last" } else { "" })
    }
}
