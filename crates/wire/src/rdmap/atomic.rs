//! The Atomic Request and Response headers and the arithmetic they ask for (RFC 7306 §5), with the operations Atomic Write and
//! Flush of docs/extensions.md. `parse` accepts all four; whether the peer may use the last two is checked in the `stream` crate,
//! memory is accessed and alignment checked by the responder.

use core::fmt;
use serde::{Deserialize, Serialize};

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, Stag, To, raw};

#[cfg(test)]
mod tests;

const FETCH_ADD: u8 = 0;
const CMP_SWAP: u8 = 2;
const FLUSH: u8 = 14;
const WRITE: u8 = 15;
/// The one placement type of a Flush: global visibility.
const GLOBAL: u64 = 1;
/// The selectivity of a Flush.
const RANGE: u64 = 0;
const REGION: u64 = 1;
/// The code is the low four bits of the first word, the rest is reserved (RFC 7306 §5.2.1).
const CODE_MASK: u32 = 0x0f;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRequest {
    code: U32,
    id: U32,
    stag: U32,
    to: U64,
    data: U64,
    mask: U64,
    compare: U64,
    compare_mask: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawResponse {
    id: U32,
    original: U64,
}

/// The operation on the 64-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtomicOp {
    /// Adds, with the word divided into fields by `mask`.
    FetchAdd {
        /// The addend.
        add: u64,
        /// A set bit ends a field: the carry out of it is dropped. 0 is one 64-bit field.
        mask: u64,
    },
    /// Replaces some bits if some bits compare equal.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// Which bits are replaced.
        swap_mask: u64,
        /// The bits compared with.
        compare: u64,
        /// Which bits are compared.
        compare_mask: u64,
    },
    /// Replaces the word and does not return the previous value (docs/extensions.md).
    Write {
        /// The new bytes, in the order of memory.
        bytes: [u8; 8],
    },
    /// Makes earlier writes of the requester visible to everything that accesses the memory (docs/extensions.md). Changes nothing.
    Flush(FlushScope),
}

/// The memory that a Flush is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlushScope {
    /// Bytes from the address of the request on.
    Range {
        /// How many.
        len: u64,
    },
    /// The whole region or window.
    Region,
}

impl AtomicOp {
    /// Whether it is an operation of docs/extensions.md, which both sides must have agreed to.
    pub const fn is_extension(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Flush(_))
    }

    /// The code on the wire.
    pub const fn code(&self) -> u8 {
        match self {
            Self::FetchAdd { .. } => FETCH_ADD,
            Self::CmpSwap { .. } => CMP_SWAP,
            Self::Flush(_) => FLUSH,
            Self::Write { .. } => WRITE,
        }
    }

    /// The result of the operation on `original`, in the target's own byte order.
    pub const fn apply(&self, original: u64) -> u64 {
        match *self {
            // RFC 7306 §5.1: with the top bit of each field cleared, no carry leaves a field; the
            // sum of the top bits without their carry is an exclusive or.
            Self::FetchAdd { add, mask } => {
                let below = (original & !mask).wrapping_add(add & !mask);
                below ^ ((original ^ add) & mask)
            }
            // RFC 7306 §5.1.
            Self::CmpSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => {
                if (compare ^ original) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
            Self::Write { bytes } => u64::from_ne_bytes(bytes),
            Self::Flush(_) => original,
        }
    }
}

impl fmt::Display for AtomicOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FetchAdd { add, mask } => write!(f, "FetchAdd add={add:#x} mask={mask:#x}"),
            Self::CmpSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => write!(
                f,
                "CmpSwap swap={swap:#x}/{swap_mask:#x} compare={compare:#x}/{compare_mask:#x}"
            ),
            Self::Write { bytes } => write!(f, "AtomicWrite {:016x}", u64::from_be_bytes(*bytes)),
            Self::Flush(FlushScope::Range { len }) => write!(f, "Flush global len={len}"),
            Self::Flush(FlushScope::Region) => f.write_str("Flush global region"),
        }
    }
}

/// An atomic operation on one word of the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// Chosen by the requester and returned in the response.
    pub id: u32,
    /// The responder's buffer.
    pub stag: Stag,
    /// Offset of the word in the buffer.
    pub to: To,
}

impl AtomicRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 52;

    /// Reads the header. Fields that the operation does not use are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: RawRequest = raw::prefix("atomic request", bytes)?;
        let op = match (raw.code.get() & CODE_MASK) as u8 {
            FETCH_ADD => AtomicOp::FetchAdd {
                add: raw.data.get(),
                mask: raw.mask.get(),
            },
            CMP_SWAP => AtomicOp::CmpSwap {
                swap: raw.data.get(),
                swap_mask: raw.mask.get(),
                compare: raw.compare.get(),
                compare_mask: raw.compare_mask.get(),
            },
            WRITE => AtomicOp::Write {
                bytes: raw.data.get().to_be_bytes(),
            },
            FLUSH => AtomicOp::Flush(flush_scope(&raw)?),
            got => return Err(Malformed::AtomicCode { got }),
        };
        Ok(Self {
            op,
            id: raw.id.get(),
            stag: Stag::new(raw.stag.get()),
            to: To::new(raw.to.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        // RFC 7306 §5.2.1: a FetchAdd sends zero compare data and an all-ones compare mask.
        let (data, mask, compare, compare_mask) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (add, mask, 0, u64::MAX),
            AtomicOp::CmpSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (swap, swap_mask, compare, compare_mask),
            AtomicOp::Write { bytes } => (u64::from_be_bytes(bytes), 0, 0, 0),
            AtomicOp::Flush(FlushScope::Range { len }) => (len, GLOBAL, RANGE, 0),
            AtomicOp::Flush(FlushScope::Region) => (0, GLOBAL, REGION, 0),
        };
        zerocopy::transmute!(RawRequest {
            code: U32::new(self.op.code().into()),
            id: U32::new(self.id),
            stag: U32::new(self.stag.get()),
            to: U64::new(self.to.get()),
            data: U64::new(data),
            mask: U64::new(mask),
            compare: U64::new(compare),
            compare_mask: U64::new(compare_mask),
        })
    }
}

/// The scope of a Flush; its placement type must be the defined one.
fn flush_scope(raw: &RawRequest) -> Result<FlushScope, Malformed> {
    let (placement, selectivity) = (raw.mask.get(), raw.compare.get());
    match (placement, selectivity) {
        (GLOBAL, RANGE) => Ok(FlushScope::Range {
            len: raw.data.get(),
        }),
        (GLOBAL, REGION) => Ok(FlushScope::Region),
        _ => Err(Malformed::FlushKind {
            placement,
            selectivity,
        }),
    }
}

impl fmt::Display for AtomicRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, id, stag, to } = self;
        write!(f, "{op} id={id:#x} stag={stag} to={to}")
    }
}

/// The response: the word before the operation; zero for an Atomic Write and a Flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtomicResponse {
    /// The request's identifier.
    pub id: u32,
    /// The word before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Bytes on the wire: the figure of RFC 7306 §5.2, not the larger number in its prose.
    pub const LEN: usize = 12;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: RawResponse = raw::prefix("atomic response", bytes)?;
        Ok(Self {
            id: raw.id.get(),
            original: raw.original.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawResponse {
            id: U32::new(self.id),
            original: U64::new(self.original),
        })
    }
}

impl fmt::Display for AtomicResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id={:#x} original={:#x}", self.id, self.original)
    }
}
