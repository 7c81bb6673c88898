//! Cells: the units into which packets of a channel are cut, and the short cells that acknowledge and connect (docs/cells.md, P3).
//! A parsed cell has a correct checksum, lengths within its bytes and a valid combination of flags; the payload is borrowed.
//! Order and placement of cells are checked by the channel adapter (split/cells).
//!
//! Unlike in the headers of the RFCs, a set reserved bit is an error; another use of these bits needs another version.

mod address_block;
mod control;
mod data;
mod header;

pub use address_block::AddressBlock;
pub use control::{
    Cookie, DisconnectReason, MAX_PRIVATE, NakReason, RETRY_CELL, RejectReason, Terms,
};
pub use data::{CellPosition, Data, OpenCell, Tail};
pub use header::{CellRoute, Header, Kind, PacketSeq, PortAddress};

use core::fmt;

use header::{ACKNOWLEDGED, CONNECTED, Raw};
use verbena_wire::Malformed;
use verbena_wire::crc::{crc32c, crc32c_wire};

#[cfg(test)]
mod tests;

/// Bytes of either checksum.
pub const CRC_LEN: usize = 4;
/// Bytes of immediate data.
pub const IMMEDIATE_LEN: usize = 4;

/// Most bytes of a cell that are not payload: the only cell of an RDMA write with immediate data.
pub const MAX_OVERHEAD: usize = Header::LEN + AddressBlock::LEN + IMMEDIATE_LEN + CRC_LEN + CRC_LEN;

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell<'a> {
    /// Ports and work queue pairs of both sides.
    pub route: CellRoute,
    /// The channel is connected.
    pub connected: bool,
    /// The packet it belongs to, or the one it is about.
    pub packet: PacketSeq,
    /// The content.
    pub body: Body<'a>,
}

/// The content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A piece of a packet.
    Data(Data<'a>),
    /// This packet and all before it have arrived.
    Ack,
    /// This packet is missing, all before it have arrived.
    Nak(NakReason),
    /// Asks for a connection; the cell's packet is the first that will come.
    Connect {
        /// What this side supports.
        terms: Terms<'a>,
        /// The cookie of the listener's Retry, once there was one.
        cookie: Option<Cookie>,
    },
    /// Accepts the connection; the cell's packet is the first that will come in this direction.
    Accept {
        /// The packet of the Connect that is answered.
        echo: PacketSeq,
        /// What this side supports.
        terms: Terms<'a>,
    },
    /// Rejects the connection.
    Reject {
        /// The packet of the Connect that is answered.
        echo: PacketSeq,
        /// Why.
        reason: RejectReason,
        /// Private data of the consumer.
        private: &'a [u8],
    },
    /// Ends a connection. The cell's packet is the first that this side sent, except for [`DisconnectReason::NoChannel`].
    Disconnect(DisconnectReason),
    /// Asks for the Connect again with this cookie; the listener keeps no state of the first one.
    Retry {
        /// The packet of the Connect that is answered.
        echo: PacketSeq,
        /// The cookie.
        cookie: Cookie,
    },
}

impl<'a> Cell<'a> {
    /// Reads the cell at the front of `bytes`; the number is its length.
    ///
    /// A cell whose checksum is wrong is [`Malformed::CellCrc`], which also has the length from its header.
    pub fn parse(bytes: &'a [u8]) -> Result<(Cell<'a>, usize), Malformed> {
        let raw = Raw::parse(bytes)?;
        let kind = raw.kind()?;
        // Before the checksum is verified, only the lengths are used.
        let len = raw.cell_len(kind);
        let whole = bytes.get(..len).ok_or(Malformed::Truncated {
            what: "cell",
            need: len,
            got: bytes.len(),
        })?;
        let (summed, crc) = whole
            .split_last_chunk::<CRC_LEN>()
            .unwrap_or((&[], &[0; 4]));
        let expected = crc32c(summed);
        if crc32c_wire(expected) != *crc {
            let got = u32::from_le_bytes(*crc);
            return Err(Malformed::CellCrc { expected, got, len });
        }
        let header = raw.header(kind)?;
        let behind = summed.get(Header::LEN..).unwrap_or_default();
        let body = if kind.is_data() {
            Body::Data(Data::parse(&header, behind)?)
        } else {
            control::parse(&header, behind)?
        };
        let cell = Cell {
            route: header.route,
            connected: header.flags & CONNECTED != 0,
            packet: header.packet,
            body,
        };
        Ok((cell, len))
    }

    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Data(data) => data.cell_len(),
            body => Header::LEN + control::payload_len(body) + CRC_LEN,
        }
    }

    /// Always false: every cell has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends the cell. A payload beyond 65535 bytes, which no cell has, is cut there.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match &self.body {
            Body::Data(data) => {
                let payload = data
                    .payload
                    .get(..usize::from(u16::MAX))
                    .unwrap_or(data.payload);
                let open = OpenCell {
                    route: self.route,
                    connected: self.connected,
                    packet: self.packet,
                    data: Data { payload, ..*data },
                };
                open.emit_head(payload.len() as u16, out);
                out.extend_from_slice(payload);
                let crc = match data.tail {
                    Tail::Last { crc, .. } => Some(crc),
                    Tail::More => None,
                };
                emit_trailer(start, crc, out);
            }
            body => {
                let mut flags = if self.connected { CONNECTED } else { 0 };
                if let Body::Connect { terms, .. } | Body::Accept { terms, .. } = body
                    && terms.acknowledged
                {
                    flags |= ACKNOWLEDGED;
                }
                let header = Header {
                    kind: body.kind(),
                    flags,
                    payload: control::payload_len(body) as u16,
                    route: self.route,
                    packet: self.packet,
                    cell: 0,
                };
                out.extend_from_slice(&header.emit());
                control::emit(body, out);
                emit_trailer(start, None, out);
            }
        }
    }
}

impl Body<'_> {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Data(data) => data.position.kind(),
            Body::Ack => Kind::Ack,
            Body::Nak(_) => Kind::Nak,
            Body::Connect { .. } => Kind::Connect,
            Body::Accept { .. } => Kind::Accept,
            Body::Reject { .. } => Kind::Reject,
            Body::Disconnect(_) => Kind::Disconnect,
            Body::Retry { .. } => Kind::Retry,
        }
    }
}

/// Ends the cell that began at `start`: appends the packet's checksum, if it is the last cell, and the cell's own.
pub fn emit_trailer(start: usize, packet_crc: Option<u32>, out: &mut Vec<u8>) {
    if let Some(crc) = packet_crc {
        out.extend_from_slice(&crc32c_wire(crc));
    }
    let crc = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc32c_wire(crc));
}

/// The cells of a datagram, one behind the other.
///
/// A cell with a wrong checksum is skipped by the length in its header; the cells behind it have checksums of their own. Any
/// other error ends the iteration, since the position of the next cell is unknown. Zeros behind the last cell are the padding
/// of a short Ethernet frame and are ignored.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Cells<'a> {
    /// The cells of these bytes.
    pub fn new(bytes: &'a [u8]) -> Cells<'a> {
        Cells { rest: bytes }
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = Result<Cell<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.iter().all(|byte| *byte == 0) {
            return None;
        }
        let (item, len) = match Cell::parse(self.rest) {
            Ok((cell, len)) => (Ok(cell), len),
            Err(error @ Malformed::CellCrc { len, .. }) => (Err(error), len),
            Err(error) => (Err(error), self.rest.len()),
        };
        self.rest = self.rest.get(len..).unwrap_or_default();
        Some(item)
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.body.kind();
        write!(f, "{kind} {} packet={}", self.route, self.packet)?;
        f.write_str(if self.connected { " connected" } else { "" })?;
        match &self.body {
            Body::Data(data) => data.fmt(f),
            Body::Ack => Ok(()),
            Body::Nak(reason) => write!(f, " reason={reason}"),
            Body::Connect { terms, cookie } => {
                terms.fmt(f)?;
                f.write_str(cookie.map_or("", |_| " cookie"))
            }
            Body::Accept { echo, terms } => write!(f, " echo={echo}{terms}"),
            Body::Reject {
                echo,
                reason,
                private,
            } => write!(f, " echo={echo} reason={reason} private={}", private.len()),
            Body::Disconnect(ending) => write!(f, " reason={ending}"),
            Body::Retry { echo, .. } => write!(f, " echo={echo}"),
        }
    }
}
