//! What is in the ring of a capture: a header of fixed size and then bytes, one record for each frame of a stream and for each packet. A reader checks every
//! field: the process that writes is not trusted.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a header.
pub const HEADER_LEN: usize = 80;
/// Bytes behind a header, at most: the longest frame with markers, or the longest packet.
pub const MAX_DATA: usize = 1 << 17;

const SENT: u8 = 1;
const INITIATOR: u8 = 2;
const CRC: u8 = 4;
const MARKERS_SENT: u8 = 8;
const MARKERS_RECEIVED: u8 = 16;
const STARTUP: u8 = 32;

/// A frame of a stream, or a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it was moved, in nanoseconds since 1970.
    pub nanos: u64,
    /// Frames of this capture that found no room so far.
    pub dropped: u64,
    /// The address of this side.
    pub local: SocketAddr,
    /// The address of the other side.
    pub peer: SocketAddr,
    /// It was sent; otherwise it was received.
    pub sent: bool,
    /// What it is part of.
    pub kind: Kind,
    /// Its length, of which fewer bytes may follow.
    pub len: u32,
    /// Bytes that follow.
    pub kept: u32,
}

/// What a record is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A byte stream: one MPA startup frame or one FPDU.
    Stream(StreamInfo),
    /// RoCEv2: a UDP payload. Its number among those that the kernel made of one call, which is the identification of its IPv4 header.
    Packet {
        /// The identification.
        number: u16,
    },
}

/// The place of a frame in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// Distinguishes connections of one adapter.
    pub connection: u32,
    /// The number of its queue pair in the adapter; 0 before the startup is over.
    pub qp: u32,
    /// Bytes of this direction before it, since the connection began or the capture joined it.
    pub position: u64,
    /// This side sent the MPA Request.
    pub is_initiator: bool,
    /// A startup frame.
    pub is_startup: bool,
    /// Frames have a checksum.
    pub crc: bool,
    /// Frames that this side sends have markers.
    pub markers_sent: bool,
    /// Frames that this side receives have markers.
    pub markers_received: bool,
}

impl Record {
    pub(super) fn emit(&self) -> [u8; HEADER_LEN] {
        let mut flags = if self.sent { SENT } else { 0 };
        let (kind, words, position) = match self.kind {
            Kind::Packet { number } => (1, [0, 0], u64::from(number)),
            Kind::Stream(info) => {
                let set = [
                    (info.is_initiator, INITIATOR),
                    (info.crc, CRC),
                    (info.markers_sent, MARKERS_SENT),
                    (info.markers_received, MARKERS_RECEIVED),
                    (info.is_startup, STARTUP),
                ];
                for (_, flag) in set.iter().filter(|(is_set, _)| *is_set) {
                    flags |= flag;
                }
                (0, [info.connection, info.qp], info.position)
            }
        };
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend(self.kept.to_le_bytes());
        bytes.extend([kind, flags]);
        bytes.extend(self.local.port().to_le_bytes());
        bytes.extend(self.peer.port().to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(self.nanos.to_le_bytes());
        bytes.extend(self.dropped.to_le_bytes());
        bytes.extend(position.to_le_bytes());
        for end in [self.local, self.peer] {
            let ip = match end.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend(ip.octets());
        }
        let mut header = [0; HEADER_LEN];
        for (to, from) in header.iter_mut().zip(bytes) {
            *to = from;
        }
        header
    }

    /// Parses a header; `None` if no adapter writes such a one.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Record> {
        let mut rest = &bytes[..];
        let kept = u32::from_le_bytes(take(&mut rest)?);
        let [kind, flags] = take(&mut rest)?;
        let local_port = u16::from_le_bytes(take(&mut rest)?);
        let peer_port = u16::from_le_bytes(take(&mut rest)?);
        let [_, _] = take(&mut rest)?;
        let len = u32::from_le_bytes(take(&mut rest)?);
        let connection = u32::from_le_bytes(take(&mut rest)?);
        let qp = u32::from_le_bytes(take(&mut rest)?);
        let nanos = u64::from_le_bytes(take(&mut rest)?);
        let dropped = u64::from_le_bytes(take(&mut rest)?);
        let position = u64::from_le_bytes(take(&mut rest)?);
        let local = Ipv6Addr::from(take::<16>(&mut rest)?).to_canonical();
        let peer = Ipv6Addr::from(take::<16>(&mut rest)?).to_canonical();
        let has = |flag| flags & flag != 0;
        let kind = match kind {
            0 => Kind::Stream(StreamInfo {
                connection,
                qp,
                position,
                is_initiator: has(INITIATOR),
                is_startup: has(STARTUP),
                crc: has(CRC),
                markers_sent: has(MARKERS_SENT),
                markers_received: has(MARKERS_RECEIVED),
            }),
            1 => Kind::Packet {
                number: u16::try_from(position).ok()?,
            },
            _ => return None,
        };
        let fits = kept <= len && len as usize <= MAX_DATA && local.is_ipv4() == peer.is_ipv4();
        fits.then_some(Record {
            nanos,
            dropped,
            local: SocketAddr::new(local, local_port),
            peer: SocketAddr::new(peer, peer_port),
            sent: has(SENT),
            kind,
            len,
            kept,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, later) = rest.split_first_chunk()?;
    *rest = later;
    Some(*first)
}

const _: () = assert!(HEADER_LEN == 12 + 4 + 2 * 4 + 3 * 8 + 2 * 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Record {
        Record {
            nanos: 1 << 60,
            dropped: 3,
            local: "192.0.2.1:4000".parse().unwrap(),
            peer: "192.0.2.2:5000".parse().unwrap(),
            sent: true,
            kind: Kind::Stream(StreamInfo {
                connection: 5,
                qp: 6,
                position: 1 << 40,
                is_initiator: true,
                is_startup: false,
                crc: true,
                markers_sent: false,
                markers_received: true,
            }),
            len: 1000,
            kept: 64,
        }
    }

    #[test]
    fn record_survives_its_header() {
        let packet = Record {
            kind: Kind::Packet { number: 63 },
            local: "[2001:db8::1]:4791".parse().unwrap(),
            peer: "[2001:db8::2]:4791".parse().unwrap(),
            sent: false,
            ..frame()
        };
        for record in [frame(), packet] {
            assert_eq!(Record::parse(&record.emit()), Some(record));
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        let longer = Record {
            kept: 1001,
            ..frame()
        };
        let huge = Record {
            len: MAX_DATA as u32 + 1,
            ..frame()
        };
        let mixed = Record {
            peer: "[2001:db8::2]:4791".parse().unwrap(),
            ..frame()
        };
        for record in [longer, huge, mixed] {
            assert_eq!(Record::parse(&record.emit()), None, "{record:?}");
        }
        let mut kind = frame().emit();
        kind[4] = 2;
        assert_eq!(Record::parse(&kind), None);
    }
}
