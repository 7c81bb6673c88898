//! The Request and Reply frames that open an MPA connection (RFC 5044 §7.1, RFC 6581 §6). Parsing
//! works on a growing prefix of the stream: it reports the first byte that cannot belong to a
//! frame as soon as that byte has arrived, and never consumes a byte behind the frame. The flags
//! of the two sides are compared in the `stream` crate.

use core::fmt;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::enhanced::Enhanced;

#[cfg(test)]
mod tests;

/// Bytes before the private data.
pub const HEADER_LEN: usize = 20;
/// Most private data a frame may carry, the enhanced block included (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Reserved flag a Verbena Request sets to offer the extensions (docs/extensions.md).
pub const EXT_OFFER: u8 = 0x01;
/// Reserved flag a Verbena Reply sets, with [`EXT_OFFER`] clear, to agree (docs/extensions.md).
/// A peer that only echoes reserved bits returns the offer, which is not an agreement.
pub const EXT_AGREE: u8 = 0x02;

const KEY_LEN: usize = 16;
const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0x0f;

const _: () = assert!(size_of::<Raw>() == HEADER_LEN);
const _: () = assert!(MAX_PRIVATE_DATA <= u16::MAX as usize);
const _: () = assert!((EXT_OFFER | EXT_AGREE) & !FLAGS_RESERVED == 0 && EXT_OFFER & EXT_AGREE == 0);
const _: () =
    assert!(FLAG_MARKERS | FLAG_CRC | FLAG_REJECT | FLAG_ENHANCED | FLAGS_RESERVED == 0xff);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    key: [u8; KEY_LEN],
    flags: u8,
    revision: u8,
    private_data_len: U16,
}

/// Which of the two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sent by the side that opened the TCP connection.
    Request,
    /// Sent by the side that accepted it.
    Reply,
}

impl Kind {
    /// The sixteen bytes every frame of this kind begins with.
    pub const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Request => Self::Reply,
            Self::Reply => Self::Request,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "Request",
            Self::Reply => "Reply",
        })
    }
}

/// The revision of a frame. Revision 0 and everything above 2 are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    Two,
}

impl Revision {
    const fn from_byte(byte: u8) -> Result<Self, StartupError> {
        match byte {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            got => Err(StartupError::Revision { got }),
        }
    }

    /// The revision byte.
    pub const fn get(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// The flags byte, without the bit that announces the enhanced block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// M: the sender of this frame wants markers in what it receives.
    pub markers: bool,
    /// C: the sender wants checksums in both directions.
    pub crc: bool,
    /// R: the connection is refused. It has no meaning in a Request.
    pub reject: bool,
    /// The low four bits. RFC 5044 reserves them; Verbena peers offer and agree to extensions
    /// with [`EXT_OFFER`] and [`EXT_AGREE`].
    pub reserved: u8,
}

impl Flags {
    const fn from_byte(byte: u8) -> Self {
        Self {
            markers: byte & FLAG_MARKERS != 0,
            crc: byte & FLAG_CRC != 0,
            reject: byte & FLAG_REJECT != 0,
            reserved: byte & FLAGS_RESERVED,
        }
    }

    const fn byte(self) -> u8 {
        bit(self.markers, FLAG_MARKERS)
            | bit(self.crc, FLAG_CRC)
            | bit(self.reject, FLAG_REJECT)
            | (self.reserved & FLAGS_RESERVED)
    }
}

const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, letter) in [(self.markers, 'M'), (self.crc, 'C'), (self.reject, 'R')] {
            write!(f, "{}", if set { letter } else { '-' })?;
        }
        match self.reserved & FLAGS_RESERVED {
            0 => Ok(()),
            reserved => write!(f, "+{reserved:#x}"),
        }
    }
}

/// Why a start-up frame cannot be read or built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// The key differs from both known keys.
    #[error("byte {at} is not part of an MPA key")]
    BadKey {
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// The frame is of the other kind: both sides act as initiator, or both as responder.
    #[error("the peer sent an MPA {}, expected a {expected}", expected.other())]
    WrongKind {
        /// The kind that should have come.
        expected: Kind,
    },
    /// The revision is not supported.
    #[error("MPA revision {got} is not supported, only 1 and 2")]
    Revision {
        /// The revision byte.
        got: u8,
    },
    /// More private data than RFC 5044 §7.1.1 allows.
    #[error("{got} bytes of MPA private data exceed {MAX_PRIVATE_DATA}")]
    PrivateDataTooLong {
        /// Private data bytes, the enhanced block included.
        got: usize,
    },
    /// The enhanced block is announced but does not fit the private data.
    #[error("{got} bytes of private data cannot hold the enhanced block")]
    EnhancedTruncated {
        /// Private data bytes announced.
        got: u16,
    },
    /// Revision 1 has no enhanced block.
    #[error("an enhanced block needs MPA revision 2")]
    EnhancedNeedsRevisionTwo,
}

/// A Request or Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    kind: Kind,
    revision: Revision,
    flags: Flags,
    enhanced: Option<Enhanced>,
    private_data: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Builds a frame that can be sent. Bits of `flags.reserved` above the low four are dropped.
    pub fn new(
        kind: Kind,
        revision: Revision,
        flags: Flags,
        enhanced: Option<Enhanced>,
        private_data: &'a [u8],
    ) -> Result<Self, StartupError> {
        // RFC 6581 §6: the S flag exists from revision 2 on.
        if enhanced.is_some() && revision == Revision::One {
            return Err(StartupError::EnhancedNeedsRevisionTwo);
        }
        let got = private_data.len().saturating_add(block_len(enhanced));
        if got > MAX_PRIVATE_DATA {
            return Err(StartupError::PrivateDataTooLong { got });
        }
        let flags = Flags::from_byte(flags.byte());
        Ok(Self {
            kind,
            revision,
            flags,
            enhanced,
            private_data,
        })
    }

    /// Reads a frame of the expected kind from the bytes received so far.
    ///
    /// `Ok(None)` means that everything so far is right and more is needed. On success the second
    /// value is the number of bytes the frame takes; whatever follows belongs to the stream.
    pub fn parse(expect: Kind, bytes: &'a [u8]) -> Result<Option<(Self, usize)>, StartupError> {
        check_key(expect, bytes)?;
        if let Some(&byte) = bytes.get(KEY_LEN + 1) {
            Revision::from_byte(byte)?;
        }
        let Ok((raw, rest)) = Raw::ref_from_prefix(bytes) else {
            return Ok(None);
        };
        let revision = Revision::from_byte(raw.revision)?;
        let got = raw.private_data_len.get();
        let len = usize::from(got);
        // RFC 5044 §7.1.2: an over-long frame is rejected before a byte of it is stored.
        if len > MAX_PRIVATE_DATA {
            return Err(StartupError::PrivateDataTooLong { got: len });
        }
        // In revision 1 the S bit is reserved and therefore ignored.
        let has_block = revision == Revision::Two && raw.flags & FLAG_ENHANCED != 0;
        if has_block && len < Enhanced::LEN {
            return Err(StartupError::EnhancedTruncated { got });
        }
        let Some(data) = rest.get(..len) else {
            return Ok(None);
        };
        let (enhanced, private_data) = if has_block {
            let block =
                Enhanced::parse(data).map_err(|_| StartupError::EnhancedTruncated { got })?;
            (Some(block), data.get(Enhanced::LEN..).unwrap_or_default())
        } else {
            (None, data)
        };
        let frame = Self {
            kind: expect,
            revision,
            flags: Flags::from_byte(raw.flags),
            enhanced,
            private_data,
        };
        Ok(Some((frame, HEADER_LEN + len)))
    }

    /// Appends the frame to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let len = block_len(self.enhanced) + self.private_data.len();
        let raw = Raw {
            key: *self.kind.key(),
            flags: self.flags.byte() | bit(self.enhanced.is_some(), FLAG_ENHANCED),
            revision: self.revision.get(),
            // `new` and `parse` keep the length within MAX_PRIVATE_DATA.
            private_data_len: U16::new(len as u16),
        };
        out.extend_from_slice(raw.as_bytes());
        if let Some(block) = self.enhanced {
            out.extend_from_slice(&block.emit());
        }
        out.extend_from_slice(self.private_data);
    }

    /// Request or Reply.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The revision the sender speaks.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The flags.
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// The enhanced block, if the frame has one.
    pub const fn enhanced(&self) -> Option<Enhanced> {
        self.enhanced
    }

    /// The private data of the upper layer, without the enhanced block.
    pub const fn private_data(&self) -> &'a [u8] {
        self.private_data
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MPA {} rev={} flags={}",
            self.kind, self.revision, self.flags
        )?;
        if let Some(block) = self.enhanced {
            write!(f, " {block}")?;
        }
        write!(f, " private_data={}", self.private_data.len())
    }
}

const fn block_len(enhanced: Option<Enhanced>) -> usize {
    match enhanced {
        Some(_) => Enhanced::LEN,
        None => 0,
    }
}

/// Checks as much of the key as has arrived. The two keys differ in one byte, and that byte alone
/// decides between `WrongKind` and `BadKey`, so that the result does not depend on how much of the
/// key has arrived with it.
fn check_key(expect: Kind, bytes: &[u8]) -> Result<(), StartupError> {
    let keys = expect.key().iter().zip(expect.other().key());
    for (at, (&got, (&want, &other))) in bytes.iter().zip(keys).enumerate() {
        // RFC 5044 §7.1.2: the keys differ so that two initiators detect each other.
        if got != want && got == other {
            return Err(StartupError::WrongKind { expected: expect });
        }
        if got != want {
            return Err(StartupError::BadKey { at });
        }
    }
    Ok(())
}
