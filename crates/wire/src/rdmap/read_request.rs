//! The header of an RDMA Read Request (RFC 5040 §4.4). No field is checked here, because the STags
//! of a zero-length request may have any value.

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
    sink_stag: U32,
    sink_to: U64,
    size: U32,
    source_stag: U32,
    source_to: U64,
}

/// The source in the responder's memory and the sink in the requester's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The requester's buffer; the responder copies it into the response unchecked.
    pub sink_stag: Stag,
    /// Offset in the requester's buffer of the first byte.
    pub sink_to: To,
    /// Bytes to read.
    pub size: u32,
    /// The responder's buffer.
    pub source_stag: Stag,
    /// Offset in the responder's buffer of the first byte.
    pub source_to: To,
}

impl ReadRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("read request", bytes)?;
        Ok(Self {
            sink_stag: Stag::new(raw.sink_stag.get()),
            sink_to: To::new(raw.sink_to.get()),
            size: raw.size.get(),
            source_stag: Stag::new(raw.source_stag.get()),
            source_to: To::new(raw.source_to.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            sink_stag: U32::new(self.sink_stag.get()),
            sink_to: U64::new(self.sink_to.get()),
            size: U32::new(self.size),
            source_stag: U32::new(self.source_stag.get()),
            source_to: U64::new(self.source_to.get()),
        })
    }

    /// Whether the end of the sink does not wrap. A zero-length read always fits.
    pub const fn sink_fits(&self) -> bool {
        self.size == 0 || self.sink_to.checked_add(self.size as u64).is_some()
    }

    /// The part that remains after `sent` bytes were answered, which is what a Terminate returns
    /// (RFC 5040 §7.1). `None` if `sent` exceeds the size or an offset would wrap.
    pub const fn advanced(&self, sent: u32) -> Option<Self> {
        let (Some(size), Some(sink_to), Some(source_to)) = (
            self.size.checked_sub(sent),
            self.sink_to.checked_add(sent as u64),
            self.source_to.checked_add(sent as u64),
        ) else {
            return None;
        };
        Some(Self {
            sink_to,
            size,
            source_to,
            ..*self
        })
    }
}

impl fmt::Display for ReadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "read size={} source={}+{} sink={}+{}",
            self.size, self.source_stag, self.source_to, self.sink_stag, self.sink_to
        )
    }
}
