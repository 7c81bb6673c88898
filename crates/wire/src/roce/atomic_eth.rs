//! The atomic extended transport header of InfiniBand: the word that an atomic operation names and its
//! operands. FetchAdd does not use `compare`.

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
    swap_or_add: U64,
    compare: U64,
}

/// An atomic extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// The virtual address of eight bytes.
    pub va: To,
    /// The R_Key.
    pub rkey: Stag,
    /// The new value of CmpSwap, or the addend of FetchAdd.
    pub swap_or_add: u64,
    /// The value that CmpSwap expects.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("AtomicETH", bytes)?;
        Ok(Self {
            va: To::new(raw.va.get()),
            rkey: Stag::new(raw.rkey.get()),
            swap_or_add: raw.swap_or_add.get(),
            compare: raw.compare.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            va: U64::new(self.va.get()),
            rkey: U32::new(self.rkey.get()),
            swap_or_add: U64::new(self.swap_or_add),
            compare: U64::new(self.compare),
        })
    }
}

impl fmt::Display for AtomicEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AtomicETH va={} rkey={} swap_or_add={:#x} compare={:#x}",
            self.va, self.rkey, self.swap_or_add, self.compare
        )
    }
}
