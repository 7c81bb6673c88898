//! The parameter list of UNMAP (SBC): ranges of blocks that the unit may deallocate. The list has at most as many ranges
//! as its two 16-bit lengths can express; the unit's own limit is in its block limits page.

use core::fmt;

use verbena_wire::Malformed;

/// Bytes before the ranges.
const HEADER_LEN: usize = 8;
const RANGE_LEN: usize = 16;

/// A range of blocks to deallocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmapRange {
    /// The first block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// The parameter list of UNMAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmapList<'a>(&'a [UnmapRange]);

impl<'a> UnmapList<'a> {
    /// Most ranges that the lengths can count.
    pub const MAX: usize = (u16::MAX as usize - HEADER_LEN) / RANGE_LEN;

    /// A list of these ranges.
    pub fn new(ranges: &'a [UnmapRange]) -> Result<UnmapList<'a>, Malformed> {
        if ranges.len() > UnmapList::MAX {
            return Err(Malformed::TooLong {
                what: "UNMAP list",
                limit: HEADER_LEN + UnmapList::MAX * RANGE_LEN,
                got: HEADER_LEN.saturating_add(ranges.len().saturating_mul(RANGE_LEN)),
            });
        }
        Ok(UnmapList(ranges))
    }

    /// Bytes of the list, for [`Cdb::unmap`](super::Cdb::unmap).
    pub const fn len(&self) -> u16 {
        (HEADER_LEN + self.0.len() * RANGE_LEN) as u16
    }

    /// Whether there are no ranges, which is valid.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the list.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let ranges = self.len() - HEADER_LEN as u16;
        // The first length does not include itself.
        out.extend_from_slice(&(self.len() - 2).to_be_bytes());
        out.extend_from_slice(&ranges.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        for UnmapRange { lba, blocks } in self.0 {
            out.extend_from_slice(&lba.to_be_bytes());
            out.extend_from_slice(&blocks.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
        }
    }
}

impl fmt::Display for UnmapList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unmap")?;
        let mut ranges = self.0.iter();
        ranges.try_for_each(|range| write!(f, " {}+{}", range.lba, range.blocks))
    }
}
