//! Synthetic Ethernet frames around what a program has sent and received: TCP segments for a byte stream, whatever carried it, and UDP packets for RoCEv2.
//! Each segment begins with an FPDU, sequence numbers follow the positions in the stream, and checksums are right, except in a frame that was cut.
//! A stream whose beginning was not seen gets MPA startup frames with [`JOINED`] as private data: dissectors know streams by those.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use verbena::unstable::capture::record::{Kind, Record, StreamInfo};
use verbena_wire::roce::{ICRC_LEN, icrc};

/// Private data of startup frames that stand for those that were not captured.
pub const JOINED: &[u8] = b"joined by verbena pcap";
/// Connections whose sequence numbers are remembered; beyond that all are forgotten, and begin again as joined ones.
const MAX_CONNECTIONS: usize = 1 << 16;
/// TCP payload of a segment: the header fields of IP and TCP allow no more than 65535 bytes.
const MAX_SEGMENT: usize = 65_480;
const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Numbers of IPv4 packets that the kernel makes of one call, tried where the number is not known.
const NUMBERS: u16 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// Receives frames: their bytes as far as they are known, and their length.
pub trait FrameSink {
    /// One frame.
    fn frame(&mut self, nanos: u64, bytes: &[u8], len: usize) -> std::io::Result<()>;
}

/// The frames of one adapter.
#[derive(Debug, Default)]
pub struct Frames {
    connections: HashMap<u32, Connection>,
    /// The frame that is being made.
    buffer: Vec<u8>,
}

/// One direction of a connection.
#[derive(Debug, Default, Clone, Copy)]
struct Direction {
    /// The position at which the captured part begins.
    first: Option<u64>,
    /// The sequence number there.
    base: u32,
    /// The sequence number behind the last byte.
    next: u32,
}

#[derive(Debug)]
struct Connection {
    ends: (SocketAddr, SocketAddr),
    /// Sent and received.
    directions: [Direction; 2],
}

impl Frames {
    /// Makes the frames of a record.
    pub fn add(
        &mut self,
        record: &Record,
        data: &[u8],
        sink: &mut impl FrameSink,
    ) -> std::io::Result<()> {
        match record.kind {
            Kind::Packet { number } => self.add_packet(record, number, data, sink),
            Kind::Stream(info) => self.add_segments(record, info, data, sink),
        }
    }

    fn add_packet(
        &mut self,
        record: &Record,
        number: u16,
        data: &[u8],
        sink: &mut impl FrameSink,
    ) -> std::io::Result<()> {
        let (from, to) = ends(record, record.sent);
        let len = record.len as usize;
        let header = |buffer: &mut Vec<u8>, identification| {
            buffer.clear();
            put_ip(
                buffer,
                (from, to),
                17,
                UDP_LEN + len,
                identification,
                record.sent,
            );
            put_udp(buffer, (from, to), data, len);
        };
        let expected = data.split_last_chunk::<ICRC_LEN>();
        let mut found = None;
        if let (true, Some((rest, icrc_field))) = (data.len() == len && from.is_ipv4(), expected) {
            // The identification and the flag that the sender's kernel gave it: those with which the checksum is right.
            found = core::iter::once(number)
                .chain(0..NUMBERS)
                .flat_map(|number| [(number, DO_NOT_FRAGMENT), (number, 0)])
                .find(|identification| {
                    header(&mut self.buffer, *identification);
                    let headers = &self.buffer[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN + UDP_LEN];
                    icrc(headers, rest) == *icrc_field
                });
        }
        header(&mut self.buffer, found.unwrap_or((number, DO_NOT_FRAGMENT)));
        let whole = self.buffer.len() + len;
        self.buffer.extend_from_slice(data);
        sink.frame(record.nanos, &self.buffer, whole)
    }

    fn add_segments(
        &mut self,
        record: &Record,
        info: StreamInfo,
        data: &[u8],
        sink: &mut impl FrameSink,
    ) -> std::io::Result<()> {
        let ends = (record.local, record.peer);
        let known = self.connections.get(&info.connection);
        if known.is_none_or(|known| known.ends != ends) {
            if self.connections.len() >= MAX_CONNECTIONS {
                self.connections.clear();
            }
            let connection = self.begin(record, info, sink)?;
            self.connections.insert(info.connection, connection);
        }
        let Some(connection) = self.connections.get_mut(&info.connection) else {
            return Ok(());
        };
        let [sent, received] = &mut connection.directions;
        let (own, other) = match record.sent {
            true => (sent, received),
            false => (received, sent),
        };
        let first = *own.first.get_or_insert(info.position);
        // Sequence numbers wrap.
        let sequence = own
            .base
            .wrapping_add(info.position.wrapping_sub(first) as u32);
        own.next = sequence.wrapping_add(record.len);
        let acknowledged = other.next;
        let mut at = 0;
        let len = record.len as usize;
        while at < len {
            let step = (len - at).min(MAX_SEGMENT);
            let known = data.get(at..).unwrap_or_default();
            let known = known.get(..step).unwrap_or(known);
            let numbers = (sequence.wrapping_add(at as u32), acknowledged);
            self.segment(record, record.sent, PSH | ACK, numbers, (known, step), sink)?;
            at += step;
        }
        Ok(())
    }

    /// The handshake of TCP, and startup frames if those were not captured.
    fn begin(
        &mut self,
        record: &Record,
        info: StreamInfo,
        sink: &mut impl FrameSink,
    ) -> std::io::Result<Connection> {
        let from_initiator = info.is_initiator;
        let none: (&[u8], usize) = (&[], 0);
        self.segment(record, from_initiator, SYN, (0, 0), none, sink)?;
        self.segment(record, !from_initiator, SYN | ACK, (0, 1), none, sink)?;
        self.segment(record, from_initiator, ACK, (1, 1), none, sink)?;
        let mut direction = Direction {
            first: Some(0),
            base: 1,
            next: 1,
        };
        if !(info.is_startup && info.position == 0) {
            let (mine, theirs) = match from_initiator {
                true => (info.markers_received, info.markers_sent),
                false => (info.markers_sent, info.markers_received),
            };
            let request = startup(b"MPA ID Req Frame", mine, info.crc);
            let reply = startup(b"MPA ID Rep Frame", theirs, info.crc);
            let behind = 1 + request.len() as u32;
            let flags = PSH | ACK;
            let whole = |frame: &[u8; 20 + JOINED.len()]| frame.len();
            let (one, other) = ((&request[..], whole(&request)), (&reply[..], whole(&reply)));
            self.segment(record, from_initiator, flags, (1, 1), one, sink)?;
            self.segment(record, !from_initiator, flags, (1, behind), other, sink)?;
            direction = Direction {
                first: None,
                base: behind,
                next: behind,
            };
        }
        Ok(Connection {
            ends: (record.local, record.peer),
            directions: [direction; 2],
        })
    }

    fn segment(
        &mut self,
        record: &Record,
        sent: bool,
        flags: u8,
        (sequence, acknowledged): (u32, u32),
        (data, len): (&[u8], usize),
        sink: &mut impl FrameSink,
    ) -> std::io::Result<()> {
        let (from, to) = ends(record, sent);
        let buffer = &mut self.buffer;
        buffer.clear();
        put_ip(
            buffer,
            (from, to),
            6,
            TCP_LEN + len,
            (0, DO_NOT_FRAGMENT),
            sent,
        );
        let at = buffer.len();
        buffer.extend(from.port().to_be_bytes());
        buffer.extend(to.port().to_be_bytes());
        buffer.extend(sequence.to_be_bytes());
        buffer.extend(acknowledged.to_be_bytes());
        buffer.extend([((TCP_LEN / 4) << 4) as u8, flags]);
        buffer.extend(u16::MAX.to_be_bytes());
        buffer.extend([0; 4]);
        let whole = buffer.len() + len;
        buffer.extend_from_slice(data);
        if data.len() == len {
            let sum = transport_checksum((from, to), 6, &buffer[at..]);
            put_at(buffer, at + 16, sum);
        }
        sink.frame(record.nanos, buffer, whole)
    }
}

/// Source and destination of a frame that this side sent, or that the peer sent.
fn ends(record: &Record, sent: bool) -> (SocketAddr, SocketAddr) {
    match sent {
        true => (record.local, record.peer),
        false => (record.peer, record.local),
    }
}

/// A startup frame of revision 1 (RFC 5044 §7.1).
fn startup(key: &[u8; 16], markers: bool, crc: bool) -> [u8; 20 + JOINED.len()] {
    let mut frame = [0; 20 + JOINED.len()];
    let flags = if markers { 0x80 } else { 0 } | if crc { 0x40 } else { 0 };
    let tail = [flags, 1, 0, JOINED.len() as u8];
    let bytes = key.iter().chain(&tail).chain(JOINED);
    for (to, from) in frame.iter_mut().zip(bytes) {
        *to = *from;
    }
    frame
}

/// Ethernet and IP headers in front of `len` bytes. Locally administered addresses: 02:00:00:00:00:01 is this side.
fn put_ip(
    buffer: &mut Vec<u8>,
    (from, to): (SocketAddr, SocketAddr),
    protocol: u8,
    len: usize,
    (identification, flags): (u16, u16),
    sent: bool,
) {
    let (source, destination) = if sent { (1, 2) } else { (2, 1) };
    buffer.extend([2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source]);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            buffer.extend([0x08, 0x00]);
            let at = buffer.len();
            buffer.extend([0x45, 0]);
            buffer.extend(clamp(IPV4_LEN + len));
            buffer.extend(identification.to_be_bytes());
            buffer.extend(flags.to_be_bytes());
            buffer.extend([64, protocol, 0, 0]);
            buffer.extend(from.octets());
            buffer.extend(to.octets());
            let sum = fold(sum(0, &buffer[at..]));
            put_at(buffer, at + 10, sum);
        }
        (from, to) => {
            buffer.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            buffer.extend(clamp(len));
            buffer.extend([protocol, 64]);
            for ip in [from, to] {
                buffer.extend(as_v6(ip));
            }
        }
    }
}

fn put_udp(buffer: &mut Vec<u8>, (from, to): (SocketAddr, SocketAddr), data: &[u8], len: usize) {
    let at = buffer.len();
    buffer.extend(from.port().to_be_bytes());
    buffer.extend(to.port().to_be_bytes());
    buffer.extend(clamp(UDP_LEN + len));
    buffer.extend([0, 0]);
    if data.len() == len {
        let start = pseudo_header((from, to), 17, UDP_LEN + len);
        let all = sum(sum(start, &buffer[at..]), data);
        // Zero would mean that there is none.
        let checksum = match fold(all) {
            0 => u16::MAX,
            other => other,
        };
        put_at(buffer, at + 6, checksum);
    }
}

fn put_at(buffer: &mut [u8], at: usize, value: u16) {
    if let Some(field) = buffer.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// A length field; nothing longer than a packet can be gets here.
fn clamp(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

fn as_v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn transport_checksum(ends: (SocketAddr, SocketAddr), protocol: u8, segment: &[u8]) -> u16 {
    fold(sum(pseudo_header(ends, protocol, segment.len()), segment))
}

fn pseudo_header((from, to): (SocketAddr, SocketAddr), protocol: u8, len: usize) -> u64 {
    let start = u64::from(protocol) + len as u64;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum(sum(start, &from.octets()), &to.octets()),
        (from, to) => sum(sum(start, &as_v6(from)), &as_v6(to)),
    }
}

/// Adds 16-bit words; an odd length is allowed for the last part.
fn sum(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    start + words.sum::<u64>() + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const _: () = assert!(MAX_SEGMENT + TCP_LEN + IPV4_LEN <= u16::MAX as usize);
const _: () = assert!(IPV6_LEN == 8 + 2 * 16);

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use verbena_wire::roce::{Path, icrc_of_segment};

    use super::*;

    #[derive(Default)]
    struct Kept(Vec<(Vec<u8>, usize)>);

    impl FrameSink for Kept {
        fn frame(&mut self, _: u64, bytes: &[u8], len: usize) -> std::io::Result<()> {
            self.0.push((bytes.to_vec(), len));
            Ok(())
        }
    }

    const STREAM: StreamInfo = StreamInfo {
        connection: 1,
        qp: 2,
        position: 0,
        is_initiator: true,
        is_startup: false,
        crc: true,
        markers_sent: false,
        markers_received: false,
    };

    fn record(kind: Kind, ends: [&str; 2], sent: bool, len: usize, kept: usize) -> Record {
        let [local, peer] = ends.map(|end| end.parse().unwrap());
        Record {
            nanos: 7,
            dropped: 0,
            local,
            peer,
            sent,
            kind,
            len: len as u32,
            kept: kept as u32,
        }
    }

    /// Flags, sequence number and payload of a frame whose checksums are right.
    fn parse(frame: &[u8]) -> (u8, u32, Vec<u8>) {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
            panic!("no TCP");
        };
        let expected = match packet.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                let ip = ip.header();
                tcp.calc_checksum_ipv4(ip.source(), ip.destination())
                    .unwrap()
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header();
                tcp.calc_checksum_ipv6(ip.source(), ip.destination())
                    .unwrap()
            }
            NetSlice::Arp(_) => panic!("no IP"),
        };
        assert_eq!(tcp.checksum(), expected);
        let flags = frame[frame.len() - tcp.payload().len() - TCP_LEN + 13];
        (flags, tcp.sequence_number(), tcp.payload().to_vec())
    }

    #[test]
    fn joined_stream_gets_a_startup() {
        for ends in [["192.0.2.1:9", "192.0.2.2:10"], ["[::1]:9", "[::2]:10"]] {
            let (mut frames, mut kept) = (Frames::default(), Kept::default());
            for (sent, position, len) in [(true, 1000, 40), (false, 0, 6), (true, 1044, 3)] {
                let kind = Kind::Stream(StreamInfo { position, ..STREAM });
                let record = record(kind, ends, sent, len, len);
                frames.add(&record, &vec![5; len], &mut kept).unwrap();
            }
            let all: Vec<_> = kept.0.iter().map(|(bytes, _)| parse(bytes)).collect();
            let flags: Vec<u8> = all.iter().map(|(flags, ..)| *flags).collect();
            assert_eq!(flags, [0x02, 0x12, 0x10, 0x18, 0x18, 0x18, 0x18, 0x18]);
            assert_eq!(&all[3].2[..17], b"MPA ID Req Frame\x40");
            assert_eq!(&all[4].2[20..], JOINED);
            // Four bytes between the first and the last frame of the direction were not captured.
            let sequences: Vec<u32> = all.iter().map(|(_, sequence, _)| *sequence).collect();
            assert_eq!(sequences[3..], [1, 1, 43, 43, 87]);
        }
    }

    #[test]
    fn longest_frame_is_two_segments() {
        let (mut frames, mut kept) = (Frames::default(), Kept::default());
        let ends = ["192.0.2.1:9", "192.0.2.2:10"];
        let kind = Kind::Stream(StreamInfo {
            is_startup: true,
            ..STREAM
        });
        let data = vec![3; 65_541];
        let whole = record(kind, ends, true, data.len(), data.len());
        frames.add(&whole, &data, &mut kept).unwrap();
        let lens: Vec<usize> = kept.0[3..].iter().map(|(b, _)| parse(b).2.len()).collect();
        assert_eq!(lens, [MAX_SEGMENT, 61]);
        // One that was cut has its own length, and no checksum.
        kept.0.clear();
        let cut = record(kind, ends, true, data.len(), 100);
        frames.add(&cut, &data[..100], &mut kept).unwrap();
        assert_eq!(kept.0[0].0.len(), 54 + 100);
        assert_eq!(kept.0[0].1, 54 + MAX_SEGMENT);
        assert_eq!((kept.0[1].0.len(), kept.0[1].1), (54, 54 + 61));
    }

    #[test]
    fn packet_gets_the_identification_of_its_checksum() {
        let ends = ["192.0.2.1:4791", "192.0.2.2:4791"];
        let path = Path {
            src: "192.0.2.2".parse().unwrap(),
            dst: "192.0.2.1".parse().unwrap(),
            src_port: 4791,
            dst_port: 4791,
        };
        let mut packet = vec![9; 60];
        let field = icrc_of_segment(path, 5, &packet);
        packet.extend(field);
        let (mut frames, mut kept) = (Frames::default(), Kept::default());
        let arrived = record(Kind::Packet { number: 0 }, ends, false, 64, 64);
        frames.add(&arrived, &packet, &mut kept).unwrap();
        let frame = &kept.0[0].0;
        assert_eq!(frame[18..20], [0, 5], "the identification");
        let parsed = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = parsed.transport else {
            panic!("no UDP");
        };
        assert_eq!(udp.payload(), packet);
    }
}
