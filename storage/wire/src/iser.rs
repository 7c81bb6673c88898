//! The iSER header (RFC 7145 §9), 28 bytes before the iSCSI header in every Send, with Hello and HelloReply of the same
//! length; and the four bytes that Linux adds to the private data of a connection. A tag is returned only if its valid
//! bit is set.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use verbena_wire::{Malformed, Stag, raw};

#[cfg(test)]
mod tests;

/// Bytes of the header, of Hello and of HelloReply.
pub const HEADER_LEN: usize = 28;
/// The version of RFC 7145, the same as that of RFC 5046.
pub const VERSION: u8 = 10;

const OPCODE_SHIFT: u32 = 4;
const CONTROL: u8 = 1;
const HELLO: u8 = 2;
const HELLO_REPLY: u8 = 3;
const WRITE_VALID: u8 = 0x08;
const READ_VALID: u8 = 0x04;
const REJECTED: u8 = 0x01;
const VERSION_MASK: u8 = 0x0f;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    opcode: u8,
    versions: u8,
    depth: [u8; 2],
    write_stag: U32,
    write_base: U64,
    read_stag: U32,
    read_base: U64,
}

impl Raw {
    fn read(bytes: &[u8], expected: u8) -> Result<Raw, Malformed> {
        let raw: Raw = raw::prefix("iSER header", bytes)?;
        let got = raw.opcode >> OPCODE_SHIFT;
        if got != expected {
            return Err(Malformed::IserOpcode { got });
        }
        Ok(raw)
    }

    fn versions(&self) -> (u8, u8) {
        (self.versions >> 4, self.versions & VERSION_MASK)
    }
}

fn versions(high: u8, low: u8) -> u8 {
    (high & VERSION_MASK) << 4 | low & VERSION_MASK
}

/// The header before an iSCSI PDU: the buffers that the initiator offers for the command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IserHeader {
    /// Tag and base offset of the buffer that the target reads: data of a write.
    pub write: Option<(Stag, u64)>,
    /// Tag and base offset of the buffer that the target writes: data of a read.
    pub read: Option<(Stag, u64)>,
}

impl IserHeader {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<IserHeader, Malformed> {
        let raw = Raw::read(bytes, CONTROL)?;
        let buffer = |valid, stag: U32, base: U64| {
            let buffer = (Stag::new(stag.get()), base.get());
            (raw.opcode & valid != 0).then_some(buffer)
        };
        Ok(IserHeader {
            write: buffer(WRITE_VALID, raw.write_stag, raw.write_base),
            read: buffer(READ_VALID, raw.read_stag, raw.read_base),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let valid = |buffer: Option<_>, bit| if buffer.is_some() { bit } else { 0 };
        let (write_stag, write_base) = self.write.unwrap_or_default();
        let (read_stag, read_base) = self.read.unwrap_or_default();
        zerocopy::transmute!(Raw {
            opcode: CONTROL << OPCODE_SHIFT
                | valid(self.write, WRITE_VALID)
                | valid(self.read, READ_VALID),
            versions: 0,
            depth: [0; 2],
            write_stag: U32::new(write_stag.get()),
            write_base: U64::new(write_base),
            read_stag: U32::new(read_stag.get()),
            read_base: U64::new(read_base),
        })
    }
}

impl fmt::Display for IserHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iSER control")?;
        for (word, buffer) in [("write", self.write), ("read", self.read)] {
            if let Some((stag, base)) = buffer {
                write!(f, " {word}={stag}+{base:#x}")?;
            }
        }
        Ok(())
    }
}

/// Hello, sent by the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Highest version offered, four bits.
    pub version_max: u8,
    /// Lowest version offered, four bits.
    pub version_min: u8,
    /// iSER-IRD: RDMA reads of the target that the initiator serves at once.
    pub ird: u16,
}

impl Hello {
    /// Reads the message.
    pub fn parse(bytes: &[u8]) -> Result<Hello, Malformed> {
        let raw = Raw::read(bytes, HELLO)?;
        let (version_max, version_min) = raw.versions();
        Ok(Hello {
            version_max,
            version_min,
            ird: u16::from_be_bytes(raw.depth),
        })
    }

    /// The message's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        zerocopy::transmute!(Raw {
            opcode: HELLO << OPCODE_SHIFT,
            versions: versions(self.version_max, self.version_min),
            depth: self.ird.to_be_bytes(),
            ..Raw::new_zeroed()
        })
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (self.version_min, self.version_max);
        write!(f, "iSER Hello versions={min}..={max} ird={}", self.ird)
    }
}

/// HelloReply, the target's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloReply {
    /// The target rejects the connection.
    pub rejected: bool,
    /// Highest version the target supports, four bits.
    pub version_max: u8,
    /// The version in use, four bits.
    pub version: u8,
    /// iSER-ORD: RDMA reads that the target issues at once.
    pub ord: u16,
}

impl HelloReply {
    /// Reads the message.
    pub fn parse(bytes: &[u8]) -> Result<HelloReply, Malformed> {
        let raw = Raw::read(bytes, HELLO_REPLY)?;
        let (version_max, version) = raw.versions();
        Ok(HelloReply {
            rejected: raw.opcode & REJECTED != 0,
            version_max,
            version,
            ord: u16::from_be_bytes(raw.depth),
        })
    }

    /// The message's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let rejected = if self.rejected { REJECTED } else { 0 };
        zerocopy::transmute!(Raw {
            opcode: HELLO_REPLY << OPCODE_SHIFT | rejected,
            versions: versions(self.version_max, self.version),
            depth: self.ord.to_be_bytes(),
            ..Raw::new_zeroed()
        })
    }
}

impl fmt::Display for HelloReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.rejected { " rejected" } else { "" };
        write!(
            f,
            "iSER HelloReply version={} max={} ord={}{word}",
            self.version, self.version_max, self.ord
        )
    }
}

/// The first 28 bytes of a Send of iSER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IserMessage {
    /// An iSCSI PDU follows.
    Control(IserHeader),
    /// The initiator's Hello.
    Hello(Hello),
    /// The target's HelloReply.
    HelloReply(HelloReply),
}

impl IserMessage {
    /// Reads the front of a Send.
    pub fn parse(bytes: &[u8]) -> Result<IserMessage, Malformed> {
        match bytes.first().map(|first| first >> OPCODE_SHIFT) {
            Some(HELLO) => Hello::parse(bytes).map(IserMessage::Hello),
            Some(HELLO_REPLY) => HelloReply::parse(bytes).map(IserMessage::HelloReply),
            _ => IserHeader::parse(bytes).map(IserMessage::Control),
        }
    }

    /// The 28 bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        match self {
            IserMessage::Control(header) => header.emit(),
            IserMessage::Hello(hello) => hello.emit(),
            IserMessage::HelloReply(reply) => reply.emit(),
        }
    }
}

impl fmt::Display for IserMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IserMessage::Control(header) => header.fmt(f),
            IserMessage::Hello(hello) => hello.fmt(f),
            IserMessage::HelloReply(reply) => reply.fmt(f),
        }
    }
}

/// What one side of a connection supports, in the private data of Linux: a byte of flags, then three of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    /// Addresses of its buffers may begin at zero.
    pub zero_based: bool,
    /// It accepts Send with Invalidate.
    pub invalidate: bool,
}

impl PrivateData {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    const NO_ZERO_BASED: u8 = 0x80;
    const NO_INVALIDATE: u8 = 0x40;

    /// Reads the front of the private data.
    pub fn parse(bytes: &[u8]) -> Result<PrivateData, Malformed> {
        let [flags, _, _, _]: [u8; PrivateData::LEN] = raw::prefix("iSER private data", bytes)?;
        Ok(PrivateData {
            zero_based: flags & PrivateData::NO_ZERO_BASED == 0,
            invalidate: flags & PrivateData::NO_INVALIDATE == 0,
        })
    }

    /// The four bytes.
    pub fn emit(&self) -> [u8; PrivateData::LEN] {
        let unless = |can, flag| if can { 0 } else { flag };
        let flags = unless(self.zero_based, PrivateData::NO_ZERO_BASED)
            | unless(self.invalidate, PrivateData::NO_INVALIDATE);
        [flags, 0, 0, 0]
    }
}

impl fmt::Display for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "iSER private data zero-based={} invalidate={}",
            self.zero_based, self.invalidate
        )
    }
}
