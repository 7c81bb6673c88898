//! The causes that a Terminate message can carry, by layer (RFC 5040 §4.8, RFC 5041 §7, RFC 5044 §8,
//! RFC 6581 §8). Every triple of codes has a value, and each value an English text.

use core::fmt;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const LAYER_LLP: u8 = 2;
/// RFC 6581 §8 defines MPA errors under type 0.
const LLP_TYPE: u8 = 0;
/// Some adapters use 3, the type that RFC 5041 reserves for the lower layer.
const LLP_TYPE_RESERVED: u8 = 3;

/// Why a stream was terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Found by RDMAP.
    Rdmap(RdmapError),
    /// Found by DDP.
    Ddp(DdpError),
    /// Found by MPA. Peers send it under error type 0 or 3; both are read, and 0 is written.
    Llp(LlpError),
    /// A triple that no RFC defines.
    Unknown {
        /// The layer, four bits.
        layer: u8,
        /// The error type, four bits.
        etype: u8,
        /// The error code.
        code: u8,
    },
}

impl Cause {
    /// The cause with these codes.
    pub fn from_codes(layer: u8, etype: u8, code: u8) -> Self {
        let known = match layer {
            LAYER_RDMAP => RdmapError::from_codes(etype, code).map(Self::Rdmap),
            LAYER_DDP => DdpError::from_codes(etype, code).map(Self::Ddp),
            LAYER_LLP => LlpError::from_codes(etype, code).map(Self::Llp),
            _ => None,
        };
        known.unwrap_or(Self::Unknown { layer, etype, code })
    }

    /// Layer, error type and error code.
    pub const fn codes(self) -> (u8, u8, u8) {
        match self {
            Self::Rdmap(error) => {
                let (etype, code) = error.codes();
                (LAYER_RDMAP, etype, code)
            }
            Self::Ddp(error) => {
                let (etype, code) = error.codes();
                (LAYER_DDP, etype, code)
            }
            Self::Llp(error) => (LAYER_LLP, LLP_TYPE, error.code()),
            Self::Unknown { layer, etype, code } => (layer, etype, code),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdmap(error) => write!(f, "RDMAP {error}"),
            Self::Ddp(error) => write!(f, "DDP {error}"),
            Self::Llp(error) => write!(f, "MPA: {error}"),
            Self::Unknown { layer, etype, code } => {
                write!(f, "unknown: layer {layer} type {etype} code {code:#04x}")
            }
        }
    }
}

/// Errors found by RDMAP (RFC 5040 §4.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RdmapError {
    /// Failure of the sender of the Terminate; any code.
    LocalCatastrophic,
    /// Remote protection: no such STag.
    InvalidStag,
    /// Remote protection: outside the buffer.
    Bounds,
    /// Remote protection: the STag does not grant this access.
    AccessRights,
    /// Remote protection: the STag belongs to another stream.
    StagNotAssociated,
    /// Remote protection: offset plus length wraps.
    ToWrap,
    /// Remote protection: the STag cannot be invalidated.
    CannotInvalidateProtection,
    /// Remote protection: unspecified.
    UnspecifiedProtection,
    /// Remote operation: the RDMAP version is not supported.
    InvalidVersion,
    /// Remote operation: the opcode is unknown or not allowed now.
    UnexpectedOpcode,
    /// Remote operation: catastrophic for this stream.
    CatastrophicStream,
    /// Remote operation: catastrophic for the whole adapter.
    CatastrophicGlobal,
    /// Remote operation: the STag cannot be invalidated.
    CannotInvalidateOperation,
    /// Remote operation: unspecified.
    UnspecifiedOperation,
}

impl RdmapError {
    /// Every RDMAP error.
    pub const ALL: [Self; 14] = [
        Self::LocalCatastrophic,
        Self::InvalidStag,
        Self::Bounds,
        Self::AccessRights,
        Self::StagNotAssociated,
        Self::ToWrap,
        Self::CannotInvalidateProtection,
        Self::UnspecifiedProtection,
        Self::InvalidVersion,
        Self::UnexpectedOpcode,
        Self::CatastrophicStream,
        Self::CatastrophicGlobal,
        Self::CannotInvalidateOperation,
        Self::UnspecifiedOperation,
    ];

    fn from_codes(etype: u8, code: u8) -> Option<Self> {
        // RFC 5040 §4.8 gives a local catastrophic error no codes of its own.
        if etype == 0 {
            return Some(Self::LocalCatastrophic);
        }
        Self::ALL
            .into_iter()
            .find(|error| error.codes() == (etype, code))
    }

    const fn codes(self) -> (u8, u8) {
        match self {
            Self::LocalCatastrophic => (0, 0x00),
            Self::InvalidStag => (1, 0x00),
            Self::Bounds => (1, 0x01),
            Self::AccessRights => (1, 0x02),
            Self::StagNotAssociated => (1, 0x03),
            Self::ToWrap => (1, 0x04),
            Self::CannotInvalidateProtection => (1, 0x09),
            Self::UnspecifiedProtection => (1, 0xff),
            Self::InvalidVersion => (2, 0x05),
            Self::UnexpectedOpcode => (2, 0x06),
            Self::CatastrophicStream => (2, 0x07),
            Self::CatastrophicGlobal => (2, 0x08),
            Self::CannotInvalidateOperation => (2, 0x09),
            Self::UnspecifiedOperation => (2, 0xff),
        }
    }
}

impl fmt::Display for RdmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalCatastrophic => "local catastrophic error",
            Self::InvalidStag => "remote protection: invalid STag",
            Self::Bounds => "remote protection: base or bounds violation",
            Self::AccessRights => "remote protection: access rights violation",
            Self::StagNotAssociated => "remote protection: STag not associated with the stream",
            Self::ToWrap => "remote protection: tagged offset wraps",
            Self::CannotInvalidateProtection => "remote protection: STag cannot be invalidated",
            Self::UnspecifiedProtection => "remote protection: unspecified error",
            Self::InvalidVersion => "remote operation: invalid RDMAP version",
            Self::UnexpectedOpcode => "remote operation: unexpected opcode",
            Self::CatastrophicStream => "remote operation: catastrophic error of the stream",
            Self::CatastrophicGlobal => "remote operation: catastrophic error of the adapter",
            Self::CannotInvalidateOperation => "remote operation: STag cannot be invalidated",
            Self::UnspecifiedOperation => "remote operation: unspecified error",
        })
    }
}

/// Errors found by DDP (RFC 5041 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DdpError {
    /// Failure of the sender of the Terminate.
    LocalCatastrophic,
    /// Tagged buffer: no such STag.
    TaggedInvalidStag,
    /// Tagged buffer: outside the buffer.
    TaggedBounds,
    /// Tagged buffer: the STag belongs to another stream.
    TaggedNotAssociated,
    /// Tagged buffer: offset plus length wraps.
    TaggedToWrap,
    /// Tagged buffer: the DDP version is not supported.
    TaggedVersion,
    /// Untagged buffer: no such queue.
    UntaggedQn,
    /// Untagged buffer: no buffer is posted for this message.
    UntaggedNoBuffer,
    /// Untagged buffer: the message number is out of range.
    UntaggedMsnRange,
    /// Untagged buffer: the message offset is wrong.
    UntaggedMo,
    /// Untagged buffer: the message is longer than the buffer.
    UntaggedTooLong,
    /// Untagged buffer: the DDP version is not supported.
    UntaggedVersion,
}

impl DdpError {
    /// Every DDP error.
    pub const ALL: [Self; 12] = [
        Self::LocalCatastrophic,
        Self::TaggedInvalidStag,
        Self::TaggedBounds,
        Self::TaggedNotAssociated,
        Self::TaggedToWrap,
        Self::TaggedVersion,
        Self::UntaggedQn,
        Self::UntaggedNoBuffer,
        Self::UntaggedMsnRange,
        Self::UntaggedMo,
        Self::UntaggedTooLong,
        Self::UntaggedVersion,
    ];

    fn from_codes(etype: u8, code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|error| error.codes() == (etype, code))
    }

    const fn codes(self) -> (u8, u8) {
        match self {
            Self::LocalCatastrophic => (0, 0x00),
            Self::TaggedInvalidStag => (1, 0x00),
            Self::TaggedBounds => (1, 0x01),
            Self::TaggedNotAssociated => (1, 0x02),
            Self::TaggedToWrap => (1, 0x03),
            Self::TaggedVersion => (1, 0x04),
            Self::UntaggedQn => (2, 0x01),
            Self::UntaggedNoBuffer => (2, 0x02),
            Self::UntaggedMsnRange => (2, 0x03),
            Self::UntaggedMo => (2, 0x04),
            Self::UntaggedTooLong => (2, 0x05),
            Self::UntaggedVersion => (2, 0x06),
        }
    }
}

impl fmt::Display for DdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalCatastrophic => "local catastrophic error",
            Self::TaggedInvalidStag => "tagged buffer: invalid STag",
            Self::TaggedBounds => "tagged buffer: base or bounds violation",
            Self::TaggedNotAssociated => "tagged buffer: STag not associated with the stream",
            Self::TaggedToWrap => "tagged buffer: tagged offset wraps",
            Self::TaggedVersion => "tagged buffer: invalid DDP version",
            Self::UntaggedQn => "untagged buffer: invalid queue number",
            Self::UntaggedNoBuffer => "untagged buffer: no buffer available",
            Self::UntaggedMsnRange => "untagged buffer: message number out of range",
            Self::UntaggedMo => "untagged buffer: invalid message offset",
            Self::UntaggedTooLong => "untagged buffer: message too long for the buffer",
            Self::UntaggedVersion => "untagged buffer: invalid DDP version",
        })
    }
}

/// Errors found by MPA (RFC 5044 §8, RFC 6581 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LlpError {
    /// The TCP connection is gone.
    ConnectionLost,
    /// A checksum does not match.
    Crc,
    /// A marker contradicts the frame boundaries that follow from the lengths.
    Marker,
    /// A start-up frame is invalid.
    StartupFrame,
    /// Failure of the sender of the Terminate during start-up.
    LocalCatastrophic,
    /// The sender cannot hold as many inbound reads as the peer needs.
    InsufficientIrd,
    /// The sides share no ready-to-receive message.
    NoMatchingRtr,
}

impl LlpError {
    /// Every MPA error.
    pub const ALL: [Self; 7] = [
        Self::ConnectionLost,
        Self::Crc,
        Self::Marker,
        Self::StartupFrame,
        Self::LocalCatastrophic,
        Self::InsufficientIrd,
        Self::NoMatchingRtr,
    ];

    fn from_codes(etype: u8, code: u8) -> Option<Self> {
        if etype != LLP_TYPE && etype != LLP_TYPE_RESERVED {
            return None;
        }
        Self::ALL.into_iter().find(|error| error.code() == code)
    }

    const fn code(self) -> u8 {
        match self {
            Self::ConnectionLost => 1,
            Self::Crc => 2,
            Self::Marker => 3,
            Self::StartupFrame => 4,
            Self::LocalCatastrophic => 5,
            Self::InsufficientIrd => 6,
            Self::NoMatchingRtr => 7,
        }
    }
}

impl fmt::Display for LlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConnectionLost => "TCP connection closed, terminated or lost",
            Self::Crc => "checksum mismatch",
            Self::Marker => "marker and length disagree",
            Self::StartupFrame => "invalid start-up frame",
            Self::LocalCatastrophic => "local catastrophic error",
            Self::InsufficientIrd => "insufficient inbound read depth",
            Self::NoMatchingRtr => "no matching ready-to-receive message",
        })
    }
}
