//! The numbers of the protocols as distinct types, so that an STag cannot be passed where an offset
//! is expected. Every constructor either accepts all values of its integer, returns `None` for
//! those that the field cannot hold, or is named `wrapping` and drops the surplus bits.

use core::fmt;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Largest value of a 24-bit field.
const MAX_24: u32 = 0x00ff_ffff;

/// How much later than `earlier` a 24-bit number that wraps is.
const fn distance_24(later: u32, earlier: u32) -> u32 {
    later.wrapping_sub(earlier) & MAX_24
}

/// Whether `later` lies ahead by less than half the number space.
const fn is_before_24(earlier: u32, later: u32) -> bool {
    let distance = distance_24(later, earlier);
    distance != 0 && distance < 1 << 23
}

/// Steering tag: names a buffer of the receiver. 24 bits of index and an 8-bit key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Stag(u32);

impl Stag {
    /// The tag with this 32-bit value.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The 32-bit value as it stands on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The upper 24 bits, which select a table entry.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The lower 8 bits, which the consumer may change so that old tags become invalid.
    pub const fn key(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// Joins index and key; `None` if the index does not fit 24 bits.
    pub const fn from_parts(index: u32, key: u8) -> Option<Self> {
        if index > MAX_24 {
            return None;
        }
        Some(Self(index << 8 | key as u32))
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Tagged offset: a byte address within the buffer an [`Stag`] names.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct To(u64);

impl To {
    /// The offset with this value.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The 64-bit value.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The offset `bytes` further on; `None` if it would wrap, which is an error on the wire.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Queue number of an untagged segment.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Qn(u32);

impl Qn {
    /// Send family and Immediate Data (RFC 5040 §4.1, RFC 7306 §6).
    pub const SEND: Self = Self(0);
    /// Read and Atomic Requests (RFC 5040 §4.1, RFC 7306 §5).
    pub const READ_REQUEST: Self = Self(1);
    /// Terminate (RFC 5040 §4.1).
    pub const TERMINATE: Self = Self(2);
    /// Atomic Responses (RFC 7306 §5).
    pub const ATOMIC_RESPONSE: Self = Self(3);
    /// Read V2 Responses (docs/extensions.md).
    pub const READ_V2_RESPONSE: Self = Self(4);
    /// Control messages (docs/extensions.md).
    pub const CONTROL: Self = Self(5);

    /// The queue with this number.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The 32-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Message sequence number of an untagged segment. It wraps, so it has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Msn(u32);

impl Msn {
    /// The first number on every queue (RFC 5041 §4.3).
    pub const FIRST: Self = Self(1);

    /// The sequence number with this value.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The 32-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the next message; 0 follows the largest.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Message offset: where in its message an untagged segment belongs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Mo(u32);

impl Mo {
    /// The offset of every first segment.
    pub const ZERO: Self = Self(0);

    /// The offset with this value.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The 32-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The offset `bytes` further on; `None` if it would wrap.
    pub const fn checked_add(self, bytes: u32) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }
}

impl fmt::Display for Mo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Request sequence number: the implicit 24-bit count of requests on a stream with extensions
/// (docs/extensions.md). It wraps; compare with [`Rsn::is_before`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rsn(u32);

impl Rsn {
    /// The first request of a stream.
    pub const ZERO: Self = Self(0);

    /// The number with this value; `None` above 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value > MAX_24 {
            return None;
        }
        Some(Self(value))
    }

    /// The number with the lower 24 bits of `value`.
    pub const fn wrapping(value: u32) -> Self {
        Self(value & MAX_24)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the next request; 0 follows the largest.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number `count` requests later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::wrapping(self.0.wrapping_add(count))
    }

    /// How many requests later than `earlier` this one is, modulo 2^24.
    pub const fn minus(self, earlier: Self) -> u32 {
        distance_24(self.0, earlier.0)
    }

    /// Whether `other` lies ahead by less than half the number space.
    pub const fn is_before(self, other: Self) -> bool {
        is_before_24(self.0, other.0)
    }
}

impl fmt::Display for Rsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// 24-bit packet sequence number, as InfiniBand programs exchange it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Psn(u32);

impl Psn {
    /// The number with this value; `None` above 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value > MAX_24 {
            return None;
        }
        Some(Self(value))
    }

    /// The number with the lower 24 bits of `value`.
    pub const fn wrapping(value: u32) -> Self {
        Self(value & MAX_24)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the next packet; 0 follows the largest.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number of the packet before; the largest precedes 0.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::wrapping(self.0.wrapping_sub(1))
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::wrapping(self.0.wrapping_add(count))
    }

    /// How many packets later than `earlier` this one is, modulo 2^24.
    pub const fn minus(self, earlier: Self) -> u32 {
        distance_24(self.0, earlier.0)
    }

    /// Whether `other` lies ahead by less than half the number space.
    pub const fn is_before(self, other: Self) -> bool {
        is_before_24(self.0, other.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// 24-bit number of a shared receive queue, by which an XRC initiator names it. In three bytes, so that it fits into the padding
/// of a queued request.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Srqn([u8; 3]);

impl Srqn {
    /// The number with this value; `None` above 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value > MAX_24 {
            return None;
        }
        Some(Self::wrapping(value))
    }

    /// The number with the lower 24 bits of `value`.
    pub const fn wrapping(value: u32) -> Self {
        let [_, high, middle, low] = value.to_be_bytes();
        Self([high, middle, low])
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        let [high, middle, low] = self.0;
        u32::from_be_bytes([0, high, middle, low])
    }
}

impl fmt::Display for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// 24-bit queue pair number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The number with this value; `None` above 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value > MAX_24 {
            return None;
        }
        Some(Self(value))
    }

    /// The number with the lower 24 bits of `value`.
    pub const fn wrapping(value: u32) -> Self {
        Self(value & MAX_24)
    }

    /// The 24-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}
