//! The datagram extension header of InfiniBand: the key a datagram must show and who sent it. It
//! promises both fields at their places. It does not check the key.

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

/// A datagram extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// The key the receiving queue pair demands.
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
