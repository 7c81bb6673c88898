//! The 32-byte header of every cell, and the types of its fields. A [`Header`] has version 1, a known kind, flags that are valid
//! for it, queue pair numbers of 24 bits and reserved fields of zero.

use core::fmt;

use verbena_wire::{Malformed, Qpn, raw};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address_block::AddressBlock;
use super::{CRC_LEN, IMMEDIATE_LEN};

const VERSION: u8 = 1;

pub(super) const FIRST: u8 = 0x01;
pub(super) const LAST: u8 = 0x02;
pub(super) const IMMEDIATE: u8 = 0x04;
pub(super) const ACKNOWLEDGED: u8 = 0x08;
pub(super) const CONNECTED: u8 = 0x10;
pub(super) const SOLICITED: u8 = 0x20;
pub(super) const RESERVED: u8 = 0xc0;

/// The address of a port: six bytes, as in Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortAddress(pub [u8; 6]);

impl PortAddress {
    /// The destination of a Connect to any port. No port has it as its own: the group bit is set.
    pub const ANY: PortAddress = PortAddress([0xff; 6]);
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The number of a packet on its channel and in its direction. It wraps, so it has no order of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PacketSeq(u32);

impl PacketSeq {
    /// The number with this value.
    pub const fn new(value: u32) -> PacketSeq {
        PacketSeq(value)
    }

    /// The 32-bit value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the next packet; 0 follows the largest.
    #[must_use]
    pub const fn next(self) -> PacketSeq {
        self.plus(1)
    }

    /// The number before this one.
    #[must_use]
    pub const fn previous(self) -> PacketSeq {
        PacketSeq(self.0.wrapping_sub(1))
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> PacketSeq {
        PacketSeq(self.0.wrapping_add(count))
    }

    /// How many packets later than `earlier` this one is, modulo 2^32.
    pub const fn minus(self, earlier: PacketSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether `other` lies ahead by less than half the number space.
    pub const fn is_before(self, other: PacketSeq) -> bool {
        let distance = other.minus(self);
        distance != 0 && distance < 1 << 31
    }
}

impl fmt::Display for PacketSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Source and destination of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CellRoute {
    /// The port it is for.
    pub to: PortAddress,
    /// The port it comes from.
    pub from: PortAddress,
    /// The work queue pair it is for.
    pub to_wqp: Qpn,
    /// The work queue pair it comes from.
    pub from_wqp: Qpn,
}

impl fmt::Display for CellRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} -> {}/{}",
            self.from, self.from_wqp, self.to, self.to_wqp
        )
    }
}

/// The kind of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A piece of a packet for a receive.
    Send = 0,
    /// A piece of a packet for memory.
    Write = 1,
    /// Packets have arrived.
    Ack = 2,
    /// A packet is missing.
    Nak = 3,
    /// Asks for a connection.
    Connect = 4,
    /// Accepts a connection.
    Accept = 5,
    /// Rejects a connection.
    Reject = 6,
    /// Ends a connection.
    Disconnect = 7,
    /// Asks for the Connect again, with a cookie.
    Retry = 8,
}

impl Kind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Kind; 9] = [
        Kind::Send,
        Kind::Write,
        Kind::Ack,
        Kind::Nak,
        Kind::Connect,
        Kind::Accept,
        Kind::Reject,
        Kind::Disconnect,
        Kind::Retry,
    ];

    /// It carries a piece of a packet.
    pub const fn is_data(self) -> bool {
        matches!(self, Kind::Send | Kind::Write)
    }

    /// Flags that it may have.
    const fn flags(self) -> u8 {
        match self {
            Kind::Send | Kind::Write => !RESERVED,
            Kind::Connect | Kind::Accept => CONNECTED | ACKNOWLEDGED,
            Kind::Ack | Kind::Nak | Kind::Reject | Kind::Disconnect | Kind::Retry => CONNECTED,
        }
    }

    /// Flags that it must have.
    const fn needs(self) -> u8 {
        match self {
            Kind::Send | Kind::Write | Kind::Ack | Kind::Nak => 0,
            Kind::Connect | Kind::Accept | Kind::Reject | Kind::Disconnect | Kind::Retry => {
                CONNECTED
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Send => "send",
            Kind::Write => "write",
            Kind::Ack => "ack",
            Kind::Nak => "nak",
            Kind::Connect => "connect",
            Kind::Accept => "accept",
            Kind::Reject => "reject",
            Kind::Disconnect => "disconnect",
            Kind::Retry => "retry",
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Raw {
    version_kind: u8,
    flags: u8,
    payload: U16,
    to: [u8; 6],
    from: [u8; 6],
    to_wqp: U32,
    from_wqp: U32,
    packet: U32,
    cell: U16,
    reserved: U16,
}

impl Raw {
    pub(super) fn parse(bytes: &[u8]) -> Result<Raw, Malformed> {
        raw::prefix("cell", bytes)
    }

    pub(super) fn kind(&self) -> Result<Kind, Malformed> {
        let version = self.version_kind >> 4;
        if version != VERSION {
            return Err(Malformed::CellVersion { got: version });
        }
        let got = self.version_kind & 0x0f;
        let kind = Kind::ALL.get(usize::from(got)).copied();
        kind.ok_or(Malformed::CellKind { got })
    }

    /// Bytes of the whole cell, computed from this header.
    pub(super) fn cell_len(&self, kind: Kind) -> usize {
        let has = |flag| self.flags & flag != 0;
        let mut len = Header::LEN + usize::from(self.payload.get()) + CRC_LEN;
        if kind == Kind::Write && has(FIRST) {
            len += AddressBlock::LEN;
        }
        if has(IMMEDIATE) {
            len += IMMEDIATE_LEN;
        }
        if has(LAST) {
            len += CRC_LEN;
        }
        len
    }

    /// The validated header; to be called after the checksum was verified.
    pub(super) fn header(&self, kind: Kind) -> Result<Header, Malformed> {
        let flags = self.flags;
        // Immediate data is in the last cell only, and exactly the first cell has number 0.
        let lone = flags & IMMEDIATE != 0 && flags & LAST == 0;
        if flags & !kind.flags() != 0 || kind.needs() & !flags != 0 || lone {
            return Err(Malformed::CellFlags {
                kind: kind as u8,
                flags,
            });
        }
        let cell = self.cell.get();
        let starts = flags & FIRST != 0 || !kind.is_data();
        if starts != (cell == 0) {
            return Err(Malformed::CellSequence {
                first: flags & FIRST != 0,
                got: cell,
            });
        }
        if self.reserved.get() != 0 {
            let got = u32::from(self.reserved.get());
            return Err(Malformed::CellReserved { got });
        }
        let wqp = |word: U32| {
            let got = word.get();
            Qpn::new(got).ok_or(Malformed::CellReserved { got })
        };
        Ok(Header {
            kind,
            flags,
            payload: self.payload.get(),
            route: CellRoute {
                to: PortAddress(self.to),
                from: PortAddress(self.from),
                to_wqp: wqp(self.to_wqp)?,
                from_wqp: wqp(self.from_wqp)?,
            },
            packet: PacketSeq(self.packet.get()),
            cell,
        })
    }
}

/// A validated header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) payload: u16,
    pub(super) route: CellRoute,
    pub(super) packet: PacketSeq,
    pub(super) cell: u16,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 32;

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn emit(&self) -> [u8; Header::LEN] {
        zerocopy::transmute!(Raw {
            version_kind: VERSION << 4 | self.kind as u8,
            flags: self.flags,
            payload: U16::new(self.payload),
            to: self.route.to.0,
            from: self.route.from.0,
            to_wqp: U32::new(self.route.to_wqp.get()),
            from_wqp: U32::new(self.route.from_wqp.get()),
            packet: U32::new(self.packet.0),
            cell: U16::new(self.cell),
            reserved: U16::new(0),
        })
    }
}
