//! Command descriptor blocks (SPC, SBC): 16 bytes, of which the operation code determines the used length. Each
//! constructor builds one command. Whether a unit supports it, and how much data it may move, is checked by the callers.

use core::fmt;

use super::name;

const FUA: u8 = 0x08;
const EVPD: u8 = 0x01;
/// Disable block descriptors.
const DBD: u8 = 0x08;
const UNMAP: u8 = 0x08;
/// Service action of READ CAPACITY(16).
const READ_CAPACITY_16: u8 = 0x10;

/// A CDB, padded with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cdb {
    bytes: [u8; 16],
}

impl Cdb {
    /// The CDB with these bytes, unchecked.
    pub const fn from_bytes(bytes: [u8; 16]) -> Cdb {
        Cdb { bytes }
    }

    /// All 16 bytes, as a SCSI Command carries them.
    pub const fn bytes(&self) -> [u8; 16] {
        self.bytes
    }

    /// The operation code.
    pub const fn opcode(&self) -> u8 {
        let [opcode, ..] = self.bytes;
        opcode
    }

    /// The used length, by the group of the operation code; `None` for variable lengths and vendor-specific groups.
    pub const fn used_len(&self) -> Option<usize> {
        match self.opcode() >> 5 {
            0 => Some(6),
            1 | 2 => Some(10),
            4 => Some(16),
            5 => Some(12),
            _ => None,
        }
    }

    /// TEST UNIT READY.
    pub const fn test_unit_ready() -> Cdb {
        six([0x00, 0, 0, 0, 0, 0])
    }

    /// INQUIRY: the standard data, or a page of vital product data.
    pub const fn inquiry(page: Option<u8>, alloc: u16) -> Cdb {
        let [high, low] = alloc.to_be_bytes();
        match page {
            Some(page) => six([0x12, EVPD, page, high, low, 0]),
            None => six([0x12, 0, 0, high, low, 0]),
        }
    }

    /// MODE SENSE(6) of a page, current values without block descriptors.
    pub const fn mode_sense6(page: u8, alloc: u8) -> Cdb {
        six([0x1a, DBD, page & 0x3f, 0, alloc, 0])
    }

    /// READ CAPACITY(10).
    pub const fn read_capacity10() -> Cdb {
        ten(0x25, 0, 0, 0)
    }

    /// READ CAPACITY(16).
    pub const fn read_capacity16(alloc: u32) -> Cdb {
        sixteen(0x9e, READ_CAPACITY_16, 0, alloc)
    }

    /// REPORT LUNS, of all units; `alloc` is at least 16.
    pub const fn report_luns(alloc: u32) -> Cdb {
        let [a, b, c, d] = alloc.to_be_bytes();
        Cdb {
            bytes: [0xa0, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0],
        }
    }

    /// READ(10).
    pub const fn read10(lba: u32, blocks: u16) -> Cdb {
        ten(0x28, 0, lba, blocks)
    }

    /// READ(16).
    pub const fn read16(lba: u64, blocks: u32) -> Cdb {
        sixteen(0x88, 0, lba, blocks)
    }

    /// WRITE(10); with `fua` it completes when the data is on the medium.
    pub const fn write10(lba: u32, blocks: u16, fua: bool) -> Cdb {
        ten(0x2a, if fua { FUA } else { 0 }, lba, blocks)
    }

    /// WRITE(16); with `fua` it completes when the data is on the medium.
    pub const fn write16(lba: u64, blocks: u32, fua: bool) -> Cdb {
        sixteen(0x8a, if fua { FUA } else { 0 }, lba, blocks)
    }

    /// READ(10) if address and length fit it, else READ(16).
    pub fn read(lba: u64, blocks: u32) -> Cdb {
        match short(lba, blocks) {
            Some((lba, blocks)) => Cdb::read10(lba, blocks),
            None => Cdb::read16(lba, blocks),
        }
    }

    /// WRITE(10) if address and length fit it, else WRITE(16).
    pub fn write(lba: u64, blocks: u32, fua: bool) -> Cdb {
        match short(lba, blocks) {
            Some((lba, blocks)) => Cdb::write10(lba, blocks, fua),
            None => Cdb::write16(lba, blocks, fua),
        }
    }

    /// SYNCHRONIZE CACHE(10); 0 blocks mean all that follow.
    pub const fn synchronize_cache10(lba: u32, blocks: u16) -> Cdb {
        ten(0x35, 0, lba, blocks)
    }

    /// UNMAP with a parameter list of this many bytes: see [`UnmapList`](super::UnmapList).
    pub const fn unmap(list_len: u16) -> Cdb {
        ten(0x42, 0, 0, list_len)
    }

    /// WRITE SAME(16) of one block of data; with `unmap` the unit may deallocate the blocks instead.
    pub const fn write_same16(lba: u64, blocks: u32, unmap: bool) -> Cdb {
        sixteen(0x93, if unmap { UNMAP } else { 0 }, lba, blocks)
    }
}

/// Address and length if they fit a 10-byte CDB.
fn short(lba: u64, blocks: u32) -> Option<(u32, u16)> {
    Some((u32::try_from(lba).ok()?, u16::try_from(blocks).ok()?))
}

const fn six([a, b, c, d, e, f]: [u8; 6]) -> Cdb {
    Cdb {
        bytes: [a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

const fn ten(opcode: u8, flags: u8, lba: u32, len: u16) -> Cdb {
    let [a, b, c, d] = lba.to_be_bytes();
    let [e, f] = len.to_be_bytes();
    Cdb {
        bytes: [opcode, flags, a, b, c, d, 0, e, f, 0, 0, 0, 0, 0, 0, 0],
    }
}

const fn sixteen(opcode: u8, flags: u8, lba: u64, len: u32) -> Cdb {
    let [a, b, c, d, e, f, g, h] = lba.to_be_bytes();
    let [i, j, k, l] = len.to_be_bytes();
    Cdb {
        bytes: [opcode, flags, a, b, c, d, e, f, g, h, i, j, k, l, 0, 0],
    }
}

impl fmt::Display for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.opcode()) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "operation {:#04x}", self.opcode())?,
        }
        let len = self.used_len().unwrap_or(self.bytes.len());
        f.write_str(" ")?;
        let counted = self.bytes.iter().take(len);
        counted.into_iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
