//! The Terminate message (RFC 5040 §4.8): why a stream ends and which segment caused it. `parse`
//! reads the layout of the RFC and the bit-swapped one of Linux siw, and returns which of them it
//! found. The returned headers are kept as bytes, since one of them may be the malformed one.

use core::fmt;
use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::read_request::ReadRequest;
use crate::Malformed;
use crate::ddp::{self, Header, Tagged, Untagged, peek_len};
use crate::mpa::fpdu::MAX_ULPDU;

#[cfg(test)]
mod tests;

/// The fixed word: layer and type, code, header bits, reserved.
const CONTROL_LEN: usize = 4;
/// The length of the offending segment.
const SEGMENT_LEN_LEN: usize = 2;

/// Header bits as RFC 5040 places them.
const RFC_BITS: Bits = Bits {
    length: 0x80,
    ddp: 0x40,
    rdmap: 0x20,
};
/// Header bits as siw places them on a little-endian host.
const SIW_BITS: Bits = Bits {
    length: 0x01,
    ddp: 0x02,
    rdmap: 0x04,
};

const _: () = assert!(Terminate::MAX_LEN == 52);
const _: () = assert!(Terminate::MAX_LEN + ddp::MAX_LEN <= MAX_ULPDU);
const _: () = assert!(RFC_BITS.all() & SIW_BITS.all() == 0);

/// M, D and R: which of the optional parts follow.
struct Bits {
    length: u8,
    ddp: u8,
    rdmap: u8,
}

impl Bits {
    const fn all(&self) -> u8 {
        self.length | self.ddp | self.rdmap
    }
}

/// The layout of a Terminate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// As in the figures of RFC 5040.
    Rfc,
    /// As Linux siw sends it from little-endian hosts: nibbles of the first byte swapped, header
    /// bits in the low instead of the high bits of their byte, in reverse order.
    Siw,
}

impl Dialect {
    const fn bits(self) -> Bits {
        match self {
            Self::Rfc => RFC_BITS,
            Self::Siw => SIW_BITS,
        }
    }

    fn cause(self, first: u8, code: u8) -> Cause {
        let (high, low) = (first >> 4, first & 0x0f);
        match self {
            Self::Rfc => Cause::from_codes(high, low, code),
            Self::Siw => Cause::from_codes(low, high, code),
        }
    }

    const fn first_byte(self, layer: u8, etype: u8) -> u8 {
        match self {
            Self::Rfc => layer << 4 | (etype & 0x0f),
            Self::Siw => etype << 4 | (layer & 0x0f),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rfc => "rfc",
            Self::Siw => "siw",
        })
    }
}

/// The progress of the stream, which decides between codes that differ in the two dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Before the first segment other than the ready-to-receive message.
    Startup,
    /// After it.
    Running,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Startup => "start-up",
            Self::Running => "running",
        })
    }
}

/// The DDP header of the offending segment, not validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EchoHeader {
    /// A tagged header. Its first byte has the T bit set.
    Tagged([u8; Tagged::LEN]),
    /// An untagged header. Its first byte has the T bit clear.
    Untagged([u8; Untagged::LEN]),
}

impl EchoHeader {
    /// Copies the header that starts `segment`, by its T bit; `None` if it is not all there.
    pub fn copy_from(segment: &[u8]) -> Option<Self> {
        let first = segment.first()?;
        if peek_len(*first) == Tagged::LEN {
            segment.first_chunk().copied().map(Self::Tagged)
        } else {
            segment.first_chunk().copied().map(Self::Untagged)
        }
    }

    /// Reads the header as if it had just arrived.
    pub fn parse(&self) -> Result<Header, Malformed> {
        Header::parse(self.bytes())
    }

    /// The raw bytes.
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Tagged(bytes) => bytes,
            Self::Untagged(bytes) => bytes,
        }
    }
}

impl From<Header> for EchoHeader {
    fn from(header: Header) -> Self {
        match header {
            Header::Tagged(header) => Self::Tagged(header.emit()),
            Header::Untagged(header) => Self::Untagged(header.emit()),
        }
    }
}

impl fmt::Display for EchoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse() {
            Ok(header) => header.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// The returned part of the offending segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Length of the segment, headers included. siw counts the payload only.
    pub segment_len: u16,
    /// Its DDP header.
    pub header: Option<EchoHeader>,
    /// Its Read Request header, advanced by what was already answered. It is written and read only
    /// together with the DDP header.
    pub read_request: Option<ReadRequest>,
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment_len={}", self.segment_len)?;
        if let Some(header) = self.header {
            write!(f, " [{header}]")?;
        }
        if let Some(request) = self.read_request {
            write!(f, " [{request}]")?;
        }
        Ok(())
    }
}

/// A Terminate message, without the DDP header in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminate {
    /// Why.
    pub cause: Cause,
    /// The segment that caused it, if there is one and it could be returned.
    pub segment: Option<Echo>,
}

impl Terminate {
    /// Bytes of the longest message.
    pub const MAX_LEN: usize = CONTROL_LEN + SEGMENT_LEN_LEN + ddp::MAX_LEN + ReadRequest::LEN;

    /// Reads the payload of a Terminate segment and returns its dialect with it.
    pub fn parse(payload: &[u8], phase: Phase) -> Result<(Self, Dialect), Malformed> {
        let mut cursor = Cursor { payload, at: 0 };
        let [first, code, parts, _] = cursor.take()?;
        let dialect = detect_dialect(first, code, parts, phase);
        let cause = dialect.cause(first, code);
        let bits = dialect.bits();
        let with_header = parts & bits.ddp != 0;
        // RFC 5040 §4.8: the length is there whenever it or the header it measures is announced.
        let segment = if with_header || parts & bits.length != 0 {
            let segment_len = u16::from_be_bytes(cursor.take()?);
            let header = with_header.then(|| cursor.take_header()).transpose()?;
            let with_request = with_header && parts & bits.rdmap != 0;
            let read_request = with_request.then(|| cursor.take_request()).transpose()?;
            Some(Echo {
                segment_len,
                header,
                read_request,
            })
        } else {
            None
        };
        Ok((Self { cause, segment }, dialect))
    }

    /// Appends the payload to `out` in the given layout.
    ///
    /// Codes that decode to the same cause are written in one form: MPA errors under type 0, a local
    /// catastrophic error with code 0. Without a returned segment siw's layout may read back as the RFC's.
    pub fn emit(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let (layer, etype, code) = self.cause.codes();
        let header = self.segment.and_then(|echo| echo.header);
        let request = self
            .segment
            .and_then(|echo| echo.read_request)
            .filter(|_| header.is_some());
        let bits = dialect.bits();
        let parts = bit(self.segment.is_some(), bits.length)
            | bit(header.is_some(), bits.ddp)
            | bit(request.is_some(), bits.rdmap);
        out.extend_from_slice(&[dialect.first_byte(layer, etype), code, parts, 0]);
        if let Some(echo) = self.segment {
            out.extend_from_slice(&echo.segment_len.to_be_bytes());
        }
        if let Some(header) = header {
            out.extend_from_slice(header.bytes());
        }
        if let Some(request) = request {
            out.extend_from_slice(&request.emit());
        }
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Terminate {}", self.cause)?;
        match self.segment {
            Some(echo) => write!(f, " {echo}"),
            None => Ok(()),
        }
    }
}

const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

/// Decides which dialect the control word is in.
///
/// The header bits decide, since the two dialects use different ones. Without any, the RFC reading
/// is taken if it is a defined cause, and siw's if only that one is. Where both are, MPA errors
/// 5 to 7 collide with RDMAP operation errors 5 to 7, and the former exist only during start-up.
fn detect_dialect(first: u8, code: u8, parts: u8, phase: Phase) -> Dialect {
    if parts & RFC_BITS.all() != 0 {
        return Dialect::Rfc;
    }
    if parts & SIW_BITS.all() != 0 {
        return Dialect::Siw;
    }
    let rfc = Dialect::Rfc.cause(first, code);
    let siw = Dialect::Siw.cause(first, code);
    match (rfc, siw, phase) {
        (Cause::Llp(_), Cause::Rdmap(_), Phase::Running)
        | (Cause::Rdmap(_), Cause::Llp(_), Phase::Startup) => Dialect::Siw,
        (Cause::Unknown { .. }, Cause::Unknown { .. }, _) => Dialect::Rfc,
        // siw sends MPA errors under type 0; a reading that needs type 3 is not from siw.
        (Cause::Unknown { .. }, ..) if first >> 4 != 3 => Dialect::Siw,
        _ => Dialect::Rfc,
    }
}

/// The payload and how much of it has been read.
struct Cursor<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let need = self.at + N;
        let rest = self.payload.get(self.at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(bytes) => {
                self.at = need;
                Ok(*bytes)
            }
            None => Err(Malformed::TerminateTruncated {
                need,
                got: self.payload.len(),
            }),
        }
    }

    /// RFC 5040 §4.8: the returned header is as long as its own T bit says.
    fn take_header(&mut self) -> Result<EchoHeader, Malformed> {
        let tagged = self
            .payload
            .get(self.at)
            .is_none_or(|first| peek_len(*first) == Tagged::LEN);
        if tagged {
            self.take().map(EchoHeader::Tagged)
        } else {
            self.take().map(EchoHeader::Untagged)
        }
    }

    fn take_request(&mut self) -> Result<ReadRequest, Malformed> {
        let bytes: [u8; ReadRequest::LEN] = self.take()?;
        ReadRequest::parse(&bytes)
    }
}
