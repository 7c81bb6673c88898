//! Reads packet captures of other adapters back into the startup frames and messages of each connection.
//! Messages are in the order in which they were complete on the wire. Only what the captures contain is supported: Ethernet, IP without
//! options, TCP.

use std::collections::{BTreeMap, HashMap};

/// The sending side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentBy {
    Initiator,
    Responder,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Exchange {
    pub request: Vec<u8>,
    pub reply: Vec<u8>,
    pub messages: Vec<Message>,
}

/// All segments of one message.
#[derive(Debug, Clone)]
pub struct Message {
    pub from: SentBy,
    pub segments: Vec<Segment>,
}

/// One FPDU.
#[derive(Debug, Clone)]
pub struct Segment {
    pub ulpdu: Vec<u8>,
    /// The CRC field on the wire; zero where checksums are off.
    pub crc: u32,
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn be16(bytes: &[u8], at: usize) -> usize {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()).into()
}

impl Segment {
    pub fn is_tagged(&self) -> bool {
        self.ulpdu[0] & 0x80 != 0
    }

    pub fn is_last(&self) -> bool {
        self.ulpdu[0] & 0x40 != 0
    }

    /// The RDMAP opcode (RFC 5040 §4.2).
    pub fn opcode(&self) -> u8 {
        self.ulpdu[1] & 0xf
    }

    /// Bytes of the DDP header.
    pub fn header(&self) -> usize {
        if self.is_tagged() { 14 } else { 18 }
    }

    pub fn payload(&self) -> &[u8] {
        &self.ulpdu[self.header()..]
    }

    /// Takes one FPDU from the front of a stream, if it is complete.
    pub fn take(bytes: &[u8]) -> Option<(Segment, usize)> {
        if bytes.len() < 2 {
            return None;
        }
        let len = be16(bytes, 0);
        let padded = (2 + len).next_multiple_of(4);
        if bytes.len() < padded + 4 {
            return None;
        }
        let segment = Segment {
            ulpdu: bytes[2..2 + len].to_vec(),
            // RFC 5044 §4.4: as in iSCSI, the least significant byte first.
            crc: u32::from_le_bytes(bytes[padded..padded + 4].try_into().unwrap()),
        };
        Some((segment, padded + 4))
    }

    /// As it is on the wire; the checksum is correct if there is one.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = (self.ulpdu.len() as u16).to_be_bytes().to_vec();
        out.extend(&self.ulpdu);
        out.resize(out.len().next_multiple_of(4), 0);
        let crc = if self.crc == 0 {
            0
        } else {
            verbena_wire::crc::crc32c(&out)
        };
        out.extend(crc.to_le_bytes());
        out
    }
}

impl Message {
    pub fn opcode(&self) -> u8 {
        self.segments[0].opcode()
    }

    pub fn payload(&self) -> Vec<u8> {
        self.segments
            .iter()
            .flat_map(|s| s.payload().iter().copied())
            .collect()
    }

    pub fn first(&self) -> &[u8] {
        &self.segments[0].ulpdu
    }

    /// The empty RDMA Write that opens a stream, or a nudge.
    pub fn is_empty_write(&self) -> bool {
        self.opcode() == 0 && self.payload().is_empty() && be32(self.first(), 2) == 1
    }
}

/// One direction of a connection while it is read.
#[derive(Default)]
struct Half {
    begins: u32,
    bytes: Vec<u8>,
    /// Segments received ahead of a missing one.
    out_of_order: BTreeMap<usize, Vec<u8>>,
    /// Bytes parsed so far.
    read: usize,
    startup: Vec<u8>,
    incomplete: Vec<Segment>,
}

impl Half {
    fn add(&mut self, seq: u32, data: &[u8]) {
        let at = seq.wrapping_sub(self.begins).wrapping_sub(1) as usize;
        self.out_of_order.insert(at, data.to_vec());
        while let Some((&at, _)) = self.out_of_order.first_key_value() {
            if at > self.bytes.len() {
                return;
            }
            let data = self.out_of_order.remove(&at).unwrap();
            let known = self.bytes.len() - at;
            if known < data.len() {
                self.bytes.extend(&data[known..]);
            }
        }
    }

    /// Messages that are complete now.
    fn messages(&mut self, from: SentBy) -> Vec<Message> {
        let mut done = Vec::new();
        if self.startup.is_empty() {
            let head = self.bytes.len() >= 20;
            let len = if head { 20 + be16(&self.bytes, 18) } else { 20 };
            if self.bytes.len() < len {
                return done;
            }
            self.startup = self.bytes[..len].to_vec();
            self.read = len;
        }
        while let Some((segment, len)) = Segment::take(&self.bytes[self.read..]) {
            self.read += len;
            let last = segment.is_last();
            self.incomplete.push(segment);
            if last {
                let segments = core::mem::take(&mut self.incomplete);
                done.push(Message { from, segments });
            }
        }
        done
    }
}

/// An address with its port.
type Endpoint = Vec<u8>;

/// The TCP part of a packet.
struct Tcp<'a> {
    from: Endpoint,
    to: Endpoint,
    seq: u32,
    flags: u8,
    data: &'a [u8],
}

fn tcp(packet: &[u8]) -> Option<Tcp<'_>> {
    let ip = &packet[14..];
    let (ends, head, len) = match be16(packet, 12) {
        0x0800 if ip[9] == 6 => {
            let head = usize::from(ip[0] & 0xf) * 4;
            ((&ip[12..16], &ip[16..20]), head, be16(ip, 2))
        }
        0x86dd if ip[6] == 6 => ((&ip[8..24], &ip[24..40]), 40, 40 + be16(ip, 4)),
        _ => return None,
    };
    let tcp = &ip[head..len];
    Some(Tcp {
        from: [ends.0, &tcp[..2]].concat(),
        to: [ends.1, &tcp[2..4]].concat(),
        seq: be32(tcp, 4),
        flags: tcp[13],
        data: &tcp[usize::from(tcp[12] >> 4) * 4..],
    })
}

/// A connection while it is read: both directions, and the messages complete so far.
#[derive(Default)]
struct PartialExchange {
    halves: [Half; 2],
    messages: Vec<Message>,
}

/// Every connection of a capture of the tests of `verbena decode`.
pub fn exchanges(name: &str) -> Vec<Exchange> {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join(format!("../../tools/cli/tests/fixtures/{name}.pcap"));
    let file = std::fs::read(path).unwrap();
    assert_eq!(&file[..4], b"\xd4\xc3\xb2\xa1", "little-endian");
    let mut order = Vec::new();
    let mut all: HashMap<(Endpoint, Endpoint), PartialExchange> = HashMap::new();
    let mut at = 24;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        let packet = &file[at + 16..at + 16 + len];
        at += 16 + len;
        let Some(Tcp {
            from,
            to,
            seq,
            flags,
            data,
        }) = tcp(packet)
        else {
            continue;
        };
        let (syn, ack) = (flags & 2 != 0, flags & 16 != 0);
        let forth = (from.clone(), to.clone());
        if syn && !ack && !all.contains_key(&forth) {
            all.insert(forth.clone(), Default::default());
            order.push(forth.clone());
        }
        let (key, side) = if all.contains_key(&forth) {
            (forth, 0)
        } else {
            ((to, from), 1)
        };
        let Some(PartialExchange { halves, messages }) = all.get_mut(&key) else {
            continue;
        };
        let half = &mut halves[side];
        if syn {
            half.begins = seq;
        } else if !data.is_empty() {
            half.add(seq, data);
            let from = [SentBy::Initiator, SentBy::Responder][side];
            messages.extend(half.messages(from));
        }
    }
    let finish = |key| {
        let PartialExchange { halves, messages } = all.remove(&key)?;
        let [forth, back] = halves;
        for half in [&forth, &back] {
            assert!(
                half.incomplete.is_empty() && half.out_of_order.is_empty(),
                "{name}: cut"
            );
        }
        Some(Exchange {
            request: forth.startup,
            reply: back.startup,
            messages,
        })
    };
    order.into_iter().filter_map(finish).collect()
}
