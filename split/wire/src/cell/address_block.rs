//! The address block in the first cell of an RDMA Write: destination and length of the whole packet. Every value of its fields is
//! valid here; the receiver checks them against its memory.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use verbena_wire::{Malformed, Stag, To, raw};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    at: U64,
    handle: U32,
    len: U32,
}

/// Destination and length of an RDMA write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    /// Address of the first byte, in the terms of the owner of the memory.
    pub at: To,
    /// The memory handle: an STag of the receiver.
    pub handle: Stag,
    /// Bytes of the whole packet.
    pub len: u32,
}

impl AddressBlock {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads a block.
    pub fn parse(bytes: &[u8]) -> Result<AddressBlock, Malformed> {
        let raw: RawBlock = raw::prefix("address block", bytes)?;
        Ok(AddressBlock {
            at: To::new(raw.at.get()),
            handle: Stag::new(raw.handle.get()),
            len: raw.len.get(),
        })
    }

    /// The block's bytes.
    pub fn emit(&self) -> [u8; AddressBlock::LEN] {
        zerocopy::transmute!(RawBlock {
            at: U64::new(self.at.get()),
            handle: U32::new(self.handle.get()),
            len: U32::new(self.len),
        })
    }
}
