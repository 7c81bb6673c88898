//! The RDMA extended transport header of InfiniBand: the memory that a Write or a Read names. The
//! receiver checks rights and bounds elsewhere.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, Stag, To, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    va: U64,
    rkey: U32,
    len: U32,
}

/// An RDMA extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// The virtual address.
    pub va: To,
    /// The R_Key.
    pub rkey: Stag,
    /// Bytes of the whole message.
    pub len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("RETH", bytes)?;
        Ok(Self {
            va: To::new(raw.va.get()),
            rkey: Stag::new(raw.rkey.get()),
            len: raw.len.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            va: U64::new(self.va.get()),
            rkey: U32::new(self.rkey.get()),
            len: U32::new(self.len),
        })
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RETH va={} rkey={} len={}", self.va, self.rkey, self.len)
    }
}
