//! Either DDP header, chosen by the T bit (RFC 5041 §4.1). The first byte alone determines the
//! length, 14 or 18 bytes, see [`peek_len`].

use core::fmt;
use core::ops::Deref;
use serde::{Deserialize, Serialize};

use super::{TAGGED, Tagged, Untagged};
use crate::Malformed;
use crate::rdmap::Opcode;

#[cfg(test)]
mod tests;

/// Bytes of the longer header.
pub const MAX_LEN: usize = Untagged::LEN;
/// Bytes of the shorter header.
pub const MIN_LEN: usize = Tagged::LEN;

const _: () = assert!(MIN_LEN < MAX_LEN);

/// Bytes of the header that starts with this byte.
pub const fn peek_len(first_byte: u8) -> usize {
    if first_byte & TAGGED != 0 {
        Tagged::LEN
    } else {
        Untagged::LEN
    }
}

/// A DDP header of either class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Header {
    /// The segment names its destination in the receiver's memory.
    Tagged(Tagged),
    /// The segment goes to a buffer of the receiver's choice.
    Untagged(Untagged),
}

impl Header {
    /// Reads the header; the checks are length, DDP version, RDMAP version, in that order.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.first() {
            None => Err(Malformed::Truncated {
                what: "DDP header",
                need: MIN_LEN,
                got: 0,
            }),
            Some(first) if first & TAGGED != 0 => Tagged::parse(bytes).map(Self::Tagged),
            Some(_) => Untagged::parse(bytes).map(Self::Untagged),
        }
    }

    /// The header's bytes.
    pub fn emit(&self) -> HeaderBytes {
        let mut bytes = HeaderBytes {
            bytes: [0; MAX_LEN],
            len: self.len(),
        };
        match self {
            Self::Tagged(header) => {
                let (front, _) = bytes.bytes.split_at_mut(Tagged::LEN);
                front.copy_from_slice(&header.emit());
            }
            Self::Untagged(header) => bytes.bytes = header.emit(),
        }
        bytes
    }

    /// Bytes on the wire.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => Tagged::LEN,
            Self::Untagged(_) => Untagged::LEN,
        }
    }

    /// Whether this segment ends its message.
    pub const fn last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }

    /// The message this segment is part of.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Tagged(header) => header.opcode,
            Self::Untagged(header) => header.opcode,
        }
    }

    /// Whether the T bit is set.
    pub const fn is_tagged(&self) -> bool {
        matches!(self, Self::Tagged(_))
    }
}

impl From<Tagged> for Header {
    fn from(header: Tagged) -> Self {
        Self::Tagged(header)
    }
}

impl From<Untagged> for Header {
    fn from(header: Untagged) -> Self {
        Self::Untagged(header)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tagged(header) => header.fmt(f),
            Self::Untagged(header) => header.fmt(f),
        }
    }
}

/// An emitted header: as many bytes as its class takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderBytes {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl AsRef<[u8]> for HeaderBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Display for HeaderBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
