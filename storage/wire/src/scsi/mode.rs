//! The four-byte header before the pages of MODE SENSE(6) (SPC, SBC): whether a disk is write-protected. The pages
//! themselves are not read.

use core::fmt;

use verbena_wire::{Malformed, raw};

const WRITE_PROTECTED: u8 = 0x80;
const FUA: u8 = 0x10;

/// The header of MODE SENSE(6) data of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeHeader {
    /// Mode data length: bytes that follow this one, if the buffer is long enough.
    pub data_len: u8,
    /// Medium type, 0 for a disk.
    pub medium: u8,
    /// Writes are rejected.
    pub write_protected: bool,
    /// FUA and DPO are supported.
    pub fua: bool,
    /// Bytes of block descriptors before the pages.
    pub descriptors_len: u8,
}

impl ModeHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<ModeHeader, Malformed> {
        let [data_len, medium, device, descriptors_len]: [u8; ModeHeader::LEN] =
            raw::prefix("MODE SENSE(6) data", bytes)?;
        Ok(ModeHeader {
            data_len,
            medium,
            write_protected: device & WRITE_PROTECTED != 0,
            fua: device & FUA != 0,
            descriptors_len,
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; ModeHeader::LEN] {
        let device = if self.write_protected {
            WRITE_PROTECTED
        } else {
            0
        } | if self.fua { FUA } else { 0 };
        [self.data_len, self.medium, device, self.descriptors_len]
    }
}

impl fmt::Display for ModeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode medium={}", self.medium)?;
        f.write_str(if self.write_protected {
            " write-protected"
        } else {
            ""
        })?;
        f.write_str(if self.fua { " fua" } else { "" })
    }
}
