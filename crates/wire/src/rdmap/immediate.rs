//! The eight bytes of an Immediate Data message (RFC 7306 §6). `parse` takes the whole payload and
//! accepts no other length.

use core::fmt;
use serde::{Deserialize, Serialize};

use crate::Malformed;

#[cfg(test)]
mod tests;

/// Immediate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Immediate {
    /// The bytes in wire order.
    pub data: [u8; 8],
}

impl Immediate {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads a payload, which must be exactly the data (RFC 7306 §6).
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        match payload.try_into() {
            Ok(data) => Ok(Self { data }),
            Err(_) => Err(Malformed::ImmediateLength { got: payload.len() }),
        }
    }

    /// The data's bytes.
    pub const fn emit(&self) -> [u8; Self::LEN] {
        self.data
    }

    /// The 32-bit immediate of a verbs program: the first four bytes, big-endian, the rest zero. Other
    /// adapters that carry verbs over RFC 7306 put it into the same bytes.
    pub const fn from_imm(imm: u32) -> Self {
        let [a, b, c, d] = imm.to_be_bytes();
        Self {
            data: [a, b, c, d, 0, 0, 0, 0],
        }
    }

    /// The 32-bit immediate in the first four bytes.
    pub const fn imm(&self) -> u32 {
        let [a, b, c, d, ..] = self.data;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for Immediate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imm={:#018x}", u64::from_be_bytes(self.data))
    }
}
