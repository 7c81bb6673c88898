//! The four-byte marker at every 512th byte of a stream (RFC 5044 §4.2). The pointer is a multiple
//! of four after `parse` and in the output of `emit`; `fpdu.rs` computes the positions of markers.

use core::fmt;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    reserved: U16,
    fpdu_ptr: U16,
}

/// The pointer's lower two bits carry no information (RFC 5044 §4.2).
const PTR_MASK: u16 = !3;

/// A marker: how far back the FPDU around it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Stream bytes from the ULPDU length field to this marker; 0 if the length follows.
    pub fpdu_ptr: u16,
}

impl Marker {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads a marker, clearing the two low bits of the pointer.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("marker", bytes)?;
        Ok(Self {
            fpdu_ptr: raw.fpdu_ptr.get() & PTR_MASK,
        })
    }

    /// The marker's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            reserved: U16::ZERO,
            fpdu_ptr: U16::new(self.fpdu_ptr & PTR_MASK),
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marker fpdu_ptr={}", self.fpdu_ptr)
    }
}
