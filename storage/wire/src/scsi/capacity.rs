//! The answers to READ CAPACITY (SBC): number and length of a disk's blocks. A block length of 0 is an error. Both the
//! 10-byte and the 16-byte command are covered.

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use verbena_wire::{Malformed, raw};

const PROTECTED: u8 = 0x01;
const EXPONENT: u8 = 0x0f;
/// LBPME and LBPRZ above the lowest aligned block, 14 bits.
const THIN: u16 = 0x8000;
const READS_ZEROS: u16 = 0x4000;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw10 {
    last: U32,
    block_len: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw16 {
    last: U64,
    block_len: U32,
    protection: u8,
    exponent: u8,
    aligned: U16,
    reserved: [u8; 16],
}

/// The capacity of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The last block.
    pub last_lba: u64,
    /// Bytes of a block, at least one.
    pub block_len: u32,
    /// Logical blocks per physical block, as a power of two; four bits. This and the following are only in the long answer.
    pub physical_exponent: u8,
    /// Blocks carry protection information.
    pub protected: bool,
    /// LBPME: blocks can be deallocated.
    pub thin: bool,
    /// LBPRZ: deallocated blocks read as zeros.
    pub reads_zeros: bool,
}

impl Capacity {
    /// Bytes of the answer to READ CAPACITY(10).
    pub const LEN_10: usize = 8;
    /// Bytes of the answer to READ CAPACITY(16).
    pub const LEN_16: usize = 32;

    /// Reads the answer to READ CAPACITY(10). A last block of 0xffffffff means that only READ CAPACITY(16) gives the capacity.
    pub fn parse10(bytes: &[u8]) -> Result<Capacity, Malformed> {
        let raw: Raw10 = raw::prefix("READ CAPACITY(10) data", bytes)?;
        Ok(Capacity {
            last_lba: raw.last.get().into(),
            block_len: block_len(raw.block_len)?,
            physical_exponent: 0,
            protected: false,
            thin: false,
            reads_zeros: false,
        })
    }

    /// Reads the answer to READ CAPACITY(16).
    pub fn parse16(bytes: &[u8]) -> Result<Capacity, Malformed> {
        let raw: Raw16 = raw::prefix("READ CAPACITY(16) data", bytes)?;
        let aligned = raw.aligned.get();
        Ok(Capacity {
            last_lba: raw.last.get(),
            block_len: block_len(raw.block_len)?,
            physical_exponent: raw.exponent & EXPONENT,
            protected: raw.protection & PROTECTED != 0,
            thin: aligned & THIN != 0,
            reads_zeros: aligned & READS_ZEROS != 0,
        })
    }

    /// The answer to READ CAPACITY(10); a last block beyond 32 bits is sent as 0xffffffff.
    pub fn emit10(&self) -> [u8; Capacity::LEN_10] {
        zerocopy::transmute!(Raw10 {
            last: U32::new(u32::try_from(self.last_lba).unwrap_or(u32::MAX)),
            block_len: U32::new(self.block_len),
        })
    }

    /// The answer to READ CAPACITY(16).
    pub fn emit16(&self) -> [u8; Capacity::LEN_16] {
        let aligned =
            if self.thin { THIN } else { 0 } | if self.reads_zeros { READS_ZEROS } else { 0 };
        zerocopy::transmute!(Raw16 {
            last: U64::new(self.last_lba),
            block_len: U32::new(self.block_len),
            protection: if self.protected { PROTECTED } else { 0 },
            exponent: self.physical_exponent & EXPONENT,
            aligned: U16::new(aligned),
            ..Raw16::new_zeroed()
        })
    }

    /// Number of blocks; `None` if it exceeds 64 bits.
    pub const fn blocks(&self) -> Option<u64> {
        self.last_lba.checked_add(1)
    }

    /// Bytes of the disk; `None` if the number exceeds 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.blocks()?.checked_mul(self.block_len.into())
    }
}

fn block_len(len: U32) -> Result<u32, Malformed> {
    match len.get() {
        0 => Err(Malformed::BlockLength { got: 0 }),
        len => Ok(len),
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (last, len) = (self.last_lba, self.block_len);
        write!(f, "capacity last={last} block={len}")?;
        f.write_str(if self.thin { " thin" } else { "" })
    }
}
