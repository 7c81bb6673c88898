//! Page B0 of vital product data (SBC): the transfer limits of a disk. Fields that a short page leaves out are zero, which
//! the standard defines as "not reported".

use core::fmt;

use verbena_wire::Malformed;

use super::page::body;

/// The limits of a disk, in blocks unless said otherwise; 0 is "not reported".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockLimits {
    /// Most blocks of a COMPARE AND WRITE.
    pub max_compare_and_write: u8,
    /// Optimal transfer length granularity.
    pub optimal_granularity: u16,
    /// Most blocks of a transfer.
    pub max_transfer: u32,
    /// Optimal transfer length.
    pub optimal_transfer: u32,
    /// Most blocks of an UNMAP.
    pub max_unmap_blocks: u32,
    /// Most ranges of an UNMAP.
    pub max_unmap_ranges: u32,
    /// Optimal unmap granularity.
    pub unmap_granularity: u32,
    /// The first block of such a granule, if reported.
    pub unmap_alignment: Option<u32>,
    /// Most blocks of a WRITE SAME.
    pub max_write_same: u64,
}

impl BlockLimits {
    /// The page code.
    pub const PAGE: u8 = 0xb0;
    /// UGAVALID: the alignment is valid.
    const ALIGNED: u32 = 1 << 31;

    /// Reads the page.
    pub fn parse(bytes: &[u8]) -> Result<BlockLimits, Malformed> {
        let body = body(BlockLimits::PAGE, bytes)?;
        // The offsets of the standard include the four bytes before the body.
        let word = |at: usize| chunk(body, at - 4).map_or(0, u32::from_be_bytes);
        let alignment = word(32);
        Ok(BlockLimits {
            max_compare_and_write: chunk(body, 1).map_or(0, |[blocks]| blocks),
            optimal_granularity: chunk(body, 2).map_or(0, u16::from_be_bytes),
            max_transfer: word(8),
            optimal_transfer: word(12),
            max_unmap_blocks: word(20),
            max_unmap_ranges: word(24),
            unmap_granularity: word(28),
            unmap_alignment: (alignment & BlockLimits::ALIGNED != 0)
                .then_some(alignment & !BlockLimits::ALIGNED),
            max_write_same: chunk(body, 32).map_or(0, u64::from_be_bytes),
        })
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl fmt::Display for BlockLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block limits transfer={} optimal={} unmap={} ranges={} same={}",
            self.max_transfer,
            self.optimal_transfer,
            self.max_unmap_blocks,
            self.max_unmap_ranges,
            self.max_write_same
        )
    }
}
