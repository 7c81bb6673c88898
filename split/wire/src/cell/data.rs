//! A cell with a piece of a packet: its position in the packet, the fields of that position, and its payload. An address block is
//! in the first cell of a write and in no other, immediate data only in a last cell. The packet's checksum is not verified here,
//! because it also covers the cells before.

use core::fmt;

use verbena_wire::{Malformed, Stag, To};

use super::header::{ACKNOWLEDGED, CONNECTED, FIRST, IMMEDIATE, LAST, SOLICITED};
use super::{AddressBlock, CRC_LEN, CellRoute, Header, IMMEDIATE_LEN, Kind, PacketSeq};

/// The position of a cell in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellPosition {
    /// The first cell of a Send.
    SendFirst,
    /// A later one, with its number.
    SendMore(core::num::NonZeroU16),
    /// The first cell of an RDMA Write.
    WriteFirst(AddressBlock),
    /// A later one, with its number.
    WriteMore(core::num::NonZeroU16),
}

impl CellPosition {
    /// The place of cell `cell` of a Send, or of a Write to this block.
    pub fn of(cell: u16, write: Option<AddressBlock>) -> CellPosition {
        match (core::num::NonZeroU16::new(cell), write) {
            (None, None) => CellPosition::SendFirst,
            (None, Some(block)) => CellPosition::WriteFirst(block),
            (Some(cell), None) => CellPosition::SendMore(cell),
            (Some(cell), Some(_)) => CellPosition::WriteMore(cell),
        }
    }

    /// The number of the cell in its packet, from 0.
    pub const fn cell(&self) -> u16 {
        match self {
            CellPosition::SendFirst | CellPosition::WriteFirst(_) => 0,
            CellPosition::SendMore(cell) | CellPosition::WriteMore(cell) => cell.get(),
        }
    }

    /// The kind of the cell.
    pub const fn kind(&self) -> Kind {
        match self {
            CellPosition::SendFirst | CellPosition::SendMore(_) => Kind::Send,
            CellPosition::WriteFirst(_) | CellPosition::WriteMore(_) => Kind::Write,
        }
    }
}

/// Whether a cell is the last of its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// More cells follow.
    More,
    /// It is the last cell.
    Last {
        /// Immediate data.
        immediate: Option<u32>,
        /// CRC-32C over what stands between header and checksums in all cells of the packet, in the order of transmission:
        /// address block, payload of the cells before, immediate data, payload of this cell.
        crc: u32,
    },
}

/// A piece of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// The position.
    pub position: CellPosition,
    /// Whether it is the last cell.
    pub tail: Tail,
    /// The channel is acknowledged.
    pub acknowledged: bool,
    /// The receiver's consumer gets a solicited event.
    pub solicited: bool,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// Reads what is between a header and the cell's checksum; its length was computed from the header.
    pub(super) fn parse(header: &Header, bytes: &'a [u8]) -> Result<Data<'a>, Malformed> {
        let write = header.kind == Kind::Write;
        let mut rest = bytes;
        let mut take = |len: usize| {
            let (front, back) = rest.split_at_checked(len).unwrap_or((&[], rest));
            rest = back;
            front
        };
        let block = if write && header.has(FIRST) {
            Some(AddressBlock::parse(take(AddressBlock::LEN))?)
        } else {
            // Only the first cell has a block; here it only marks a write.
            write.then_some(NULL_BLOCK)
        };
        let word = |bytes: &[u8]| bytes.first_chunk::<4>().copied().unwrap_or_default();
        let immediate = header
            .has(IMMEDIATE)
            .then(|| u32::from_be_bytes(word(take(IMMEDIATE_LEN))));
        let payload = take(usize::from(header.payload));
        let tail = if header.has(LAST) {
            let crc = u32::from_le_bytes(word(take(CRC_LEN)));
            Tail::Last { immediate, crc }
        } else {
            Tail::More
        };
        Ok(Data {
            position: CellPosition::of(header.cell, block),
            tail,
            acknowledged: header.has(ACKNOWLEDGED),
            solicited: header.has(SOLICITED),
            payload,
        })
    }

    pub(super) fn cell_len(&self) -> usize {
        let block = match self.position {
            CellPosition::WriteFirst(_) => AddressBlock::LEN,
            _ => 0,
        };
        let tail = match self.tail {
            Tail::More => 0,
            Tail::Last { immediate, .. } => {
                CRC_LEN
                    + if immediate.is_some() {
                        IMMEDIATE_LEN
                    } else {
                        0
                    }
            }
        };
        Header::LEN + block + self.payload.len() + tail + CRC_LEN
    }
}

const NULL_BLOCK: AddressBlock = AddressBlock {
    at: To::new(0),
    handle: Stag::new(0),
    len: 0,
};

/// A data cell whose payload the caller appends itself: [`OpenCell::emit_head`], then the payload, then
/// [`close`](super::emit_trailer).
#[derive(Debug, Clone, Copy)]
pub struct OpenCell<'a> {
    /// Ports and work queue pairs of both sides.
    pub route: CellRoute,
    /// The channel is connected.
    pub connected: bool,
    /// The packet.
    pub packet: PacketSeq,
    /// The cell; its payload and checksum are ignored.
    pub data: Data<'a>,
}

impl OpenCell<'_> {
    /// Appends everything before a payload of `len` bytes. The packet's checksum covers the bytes behind the 32-byte header.
    pub fn emit_head(&self, len: u16, out: &mut Vec<u8>) {
        let data = &self.data;
        let mut flags = 0;
        let mut block = None;
        let mut immediate = None;
        if data.position.cell() == 0 {
            flags |= FIRST;
        }
        if let CellPosition::WriteFirst(to) = &data.position {
            block = Some(to.emit());
        }
        if let Tail::Last { immediate: imm, .. } = data.tail {
            flags |= LAST;
            immediate = imm;
        }
        for (set, flag) in [
            (immediate.is_some(), IMMEDIATE),
            (data.acknowledged, ACKNOWLEDGED),
            (self.connected, CONNECTED),
            (data.solicited, SOLICITED),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let header = Header {
            kind: data.position.kind(),
            flags,
            payload: len,
            route: self.route,
            packet: self.packet,
            cell: data.position.cell(),
        };
        out.extend_from_slice(&header.emit());
        if let Some(block) = block {
            out.extend_from_slice(&block);
        }
        if let Some(immediate) = immediate {
            out.extend_from_slice(&immediate.to_be_bytes());
        }
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " cell={} payload={}",
            self.position.cell(),
            self.payload.len()
        )?;
        if let CellPosition::WriteFirst(block) = &self.position {
            write!(
                f,
                " at={} handle={} len={}",
                block.at, block.handle, block.len
            )?;
        }
        if let Tail::Last { immediate, crc } = self.tail {
            if let Some(immediate) = immediate {
                write!(f, " imm={immediate:#010x}")?;
            }
            write!(f, " last crc={crc:#010x}")?;
        }
        f.write_str(if self.acknowledged { " ackreq" } else { "" })?;
        f.write_str(if self.solicited { " se" } else { "" })
    }
}
