//! The common header of InfiniBand's management datagrams, as the connection manager uses it: class
//! 0x07, method Send. Every management datagram has 256 bytes.

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    transaction: U64,
    attribute: U16,
    reserved: U16,
    modifier: U32,
}

/// The header of a management datagram of the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadHeader {
    /// The transaction: an answer repeats that of its request.
    pub transaction: u64,
    /// The kind of message.
    pub attribute: u16,
}

impl MadHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 24;
    /// Bytes of a whole management datagram.
    pub const MAD_LEN: usize = 256;
    /// The queue pair of the connection manager.
    pub const QPN: u32 = 1;
    /// The Q_Key of queue pair 1.
    pub const QKEY: u32 = 0x8001_0000;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("MAD header", bytes)?;
        for (what, got, expected) in [
            ("MAD base version", raw.base_version, BASE_VERSION),
            ("MAD class", raw.class, CLASS_CM),
            ("MAD class version", raw.class_version, CLASS_VERSION),
            ("MAD method", raw.method, METHOD_SEND),
        ] {
            if got != expected {
                let got = u64::from(got);
                return Err(Malformed::Mad { what, got });
            }
        }
        Ok(Self {
            transaction: raw.transaction.get(),
            attribute: raw.attribute.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            base_version: BASE_VERSION,
            class: CLASS_CM,
            class_version: CLASS_VERSION,
            method: METHOD_SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction: U64::new(self.transaction),
            attribute: U16::new(self.attribute),
            reserved: U16::ZERO,
            modifier: U32::ZERO,
        })
    }
}

impl fmt::Display for MadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MAD attribute={:#06x} tid={:#x}",
            self.attribute, self.transaction
        )
    }
}
