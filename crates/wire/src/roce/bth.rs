//! The base transport header of InfiniBand, the first of every RoCEv2 packet. `parse` accepts
//! transport version 0 and any opcode.

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, Psn, Qpn, raw};

#[cfg(test)]
mod tests;

const SOLICITED: u8 = 0x80;
const MIGRATION: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const PAD_MASK: u8 = 0x03;
const VERSION_MASK: u8 = 0x0f;
const FECN: u32 = 0x8000_0000;
const BECN: u32 = 0x4000_0000;
const ACK_REQUEST: u32 = 0x8000_0000;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    opcode: u8,
    flags: u8,
    pkey: U16,
    dest: U32,
    psn: U32,
}

/// A base transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Transport service and operation.
    pub opcode: u8,
    /// Raises a solicited event at the receiver.
    pub solicited: bool,
    /// Path migration state.
    pub migration: bool,
    /// Zero bytes behind the payload, 0 to 3; higher bits are not sent.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN: this packet met congestion.
    pub fecn: bool,
    /// BECN: packets in the other direction met congestion.
    pub becn: bool,
    /// The queue pair this packet is for.
    pub dest_qpn: Qpn,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = raw::prefix("BTH", bytes)?;
        let got = raw.flags & VERSION_MASK;
        if got != 0 {
            return Err(Malformed::BthVersion { got });
        }
        let (dest, psn) = (raw.dest.get(), raw.psn.get());
        Ok(Self {
            opcode: raw.opcode,
            solicited: raw.flags & SOLICITED != 0,
            migration: raw.flags & MIGRATION != 0,
            pad: raw.flags >> PAD_SHIFT & PAD_MASK,
            pkey: raw.pkey.get(),
            fecn: dest & FECN != 0,
            becn: dest & BECN != 0,
            dest_qpn: Qpn::wrapping(dest),
            ack_request: psn & ACK_REQUEST != 0,
            psn: Psn::wrapping(psn),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let flags = if self.solicited { SOLICITED } else { 0 }
            | if self.migration { MIGRATION } else { 0 }
            | (self.pad & PAD_MASK) << PAD_SHIFT;
        let dest = self.dest_qpn.get() | bit(self.fecn, FECN) | bit(self.becn, BECN);
        let psn = self.psn.get() | bit(self.ack_request, ACK_REQUEST);
        zerocopy::transmute!(Raw {
            opcode: self.opcode,
            flags,
            pkey: U16::new(self.pkey),
            dest: U32::new(dest),
            psn: U32::new(psn),
        })
    }
}

const fn bit(set: bool, mask: u32) -> u32 {
    if set { mask } else { 0 }
}

impl fmt::Display for Bth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BTH opcode={:#04x} qpn={} psn={} pkey={:#06x} pad={}",
            self.opcode, self.dest_qpn, self.psn, self.pkey, self.pad
        )?;
        for (set, word) in [
            (self.solicited, " se"),
            (self.migration, " migration"),
            (self.fecn, " fecn"),
            (self.becn, " becn"),
            (self.ack_request, " ackreq"),
        ] {
            f.write_str(if set { word } else { "" })?;
        }
        Ok(())
    }
}
