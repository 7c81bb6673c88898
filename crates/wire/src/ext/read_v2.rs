//! The header of a Read V2 Request (docs/extensions.md): a read without the sink's STag and offset,
//! which the requester keeps to itself. No field is checked here.

use core::fmt;
use serde::{Deserialize, Serialize};

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, Stag, To, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    size: U32,
    source_stag: U32,
    source_to: U64,
}

/// The memory to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadV2Request {
    /// Bytes to read.
    pub size: u32,
    /// The responder's buffer.
    pub source_stag: Stag,
    /// Offset in the responder's buffer of the first byte.
    pub source_to: To,
}

impl ReadV2Request {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("read V2 request", bytes)?;
        Ok(Self {
            size: raw.size.get(),
            source_stag: Stag::new(raw.source_stag.get()),
            source_to: To::new(raw.source_to.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            size: U32::new(self.size),
            source_stag: U32::new(self.source_stag.get()),
            source_to: U64::new(self.source_to.get()),
        })
    }
}

impl fmt::Display for ReadV2Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            size,
            source_stag,
            source_to,
        } = self;
        write!(f, "read v2 size={size} source={source_stag}+{source_to}")
    }
}
