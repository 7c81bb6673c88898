//! The datagram extended transport header of InfiniBand: the Q_Key and the sending queue pair. The
//! receiver compares the key elsewhere.

use core::fmt;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, Qpn, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    qkey: U32,
    src: U32,
}

/// A datagram extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// The Q_Key; the receiving queue pair accepts only its own.
    pub qkey: u32,
    /// The queue pair that sent the datagram.
    pub src_qpn: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("DETH", bytes)?;
        Ok(Self {
            qkey: raw.qkey.get(),
            src_qpn: Qpn::wrapping(raw.src.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            qkey: U32::new(self.qkey),
            src: U32::new(self.src_qpn.get()),
        })
    }
}

impl fmt::Display for Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DETH qkey={:#010x} src={}", self.qkey, self.src_qpn)
    }
}
