//! The four bytes of enhanced connection set-up in front of the private data of a revision 2
//! start-up frame (RFC 6581 §9). Both depths and all four model bits are read and written
//! unchanged; the negotiation is in the `stream` crate.

use core::fmt;
use serde::{Deserialize, Serialize};

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    ird: U16,
    ord: U16,
}

/// A, beside the inbound depth: the peer-to-peer model.
const PEER_TO_PEER: u16 = 0x8000;
/// B, beside the inbound depth: zero-length Send.
const RTR_SEND: u16 = 0x4000;
/// C, beside the outbound depth: zero-length Write.
const RTR_WRITE: u16 = 0x8000;
/// D, beside the outbound depth: zero-length Read.
const RTR_READ: u16 = 0x4000;

/// A 14-bit count of outstanding read requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Depth(u16);

impl Depth {
    /// "Not agreed here": the side leaves the depth to its upper layer (RFC 6581 §9.1).
    pub const NOT_NEGOTIATED: Self = Self(0x3fff);

    /// The depth with this value; `None` above 14 bits.
    pub const fn new(value: u16) -> Option<Self> {
        if value > Self::NOT_NEGOTIATED.0 {
            return None;
        }
        Some(Self(value))
    }

    /// The 14-bit value.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether this is a count and not the "not agreed here" mark.
    pub const fn is_negotiated(self) -> bool {
        self.0 != Self::NOT_NEGOTIATED.0
    }

    const fn from_word(word: u16) -> Self {
        Self(word & Self::NOT_NEGOTIATED.0)
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negotiated() {
            write!(f, "{}", self.0)
        } else {
            f.write_str("any")
        }
    }
}

/// Which messages may serve as the ready-to-receive message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RtrKinds {
    /// B: a zero-length Send.
    pub send: bool,
    /// C: a zero-length RDMA Write.
    pub write: bool,
    /// D: a zero-length RDMA Read.
    pub read: bool,
}

impl fmt::Display for RtrKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = [
            (self.send, "send"),
            (self.write, "write"),
            (self.read, "read"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name));
        f.write_str(rest.next().unwrap_or("none"))?;
        rest.try_for_each(|name| write!(f, "+{name}"))
    }
}

/// The enhanced block of a start-up frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enhanced {
    /// Read requests the sender of the frame can hold.
    pub ird: Depth,
    /// Read requests the sender of the frame wants to have outstanding.
    pub ord: Depth,
    /// A: the initiator opens with a ready-to-receive message.
    pub peer_to_peer: bool,
    /// B, C and D. They mean nothing unless `peer_to_peer` is set, but are kept as read so that
    /// the block can be written back exactly.
    pub rtr: RtrKinds,
}

impl Enhanced {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the block.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("enhanced start-up block", bytes)?;
        let (ird, ord) = (raw.ird.get(), raw.ord.get());
        Ok(Self {
            ird: Depth::from_word(ird),
            ord: Depth::from_word(ord),
            peer_to_peer: ird & PEER_TO_PEER != 0,
            rtr: RtrKinds {
                send: ird & RTR_SEND != 0,
                write: ord & RTR_WRITE != 0,
                read: ord & RTR_READ != 0,
            },
        })
    }

    /// The block's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let ird =
            self.ird.get() | bit(self.peer_to_peer, PEER_TO_PEER) | bit(self.rtr.send, RTR_SEND);
        let ord = self.ord.get() | bit(self.rtr.write, RTR_WRITE) | bit(self.rtr.read, RTR_READ);
        zerocopy::transmute!(Raw {
            ird: U16::new(ird),
            ord: U16::new(ord),
        })
    }
}

const fn bit(set: bool, mask: u16) -> u16 {
    if set { mask } else { 0 }
}

impl fmt::Display for Enhanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ird={} ord={}", self.ird, self.ord)?;
        if self.peer_to_peer {
            write!(f, " rtr={}", self.rtr)?;
        }
        Ok(())
    }
}
