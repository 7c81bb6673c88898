//! Capture files: packets with their time and link type, from pcap and pcapng. Every packet before a damaged part is returned, and then the
//! damage is reported in one line.

mod pcapng;

use std::io::{self, Chain, Cursor, Read};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::{Endianness, PcapError, TsResolution};

use pcapng::Section;

/// Bytes that distinguish the formats.
const MAGIC_LEN: usize = 4;

/// The input: the magic number that was read already, and the rest.
type Input<R> = Chain<Cursor<Vec<u8>>, R>;

/// A packet of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Its time of capture, since the epoch.
    pub time: Duration,
    /// Its link type, as numbered by tcpdump's registry.
    pub link: u32,
    /// Its captured bytes.
    pub data: &'a [u8],
}

/// Why a capture cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A system call failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("is empty")]
    Empty,
    /// An unknown format.
    #[error("is neither pcap nor pcapng (it begins with {0})")]
    Unknown(String),
    /// A compressed capture.
    #[error("is compressed with gzip: unpack it first")]
    Gzip,
    /// The file ends before its first packet could begin.
    #[error("ends inside its file header")]
    CutHeader,
    /// The file ends inside a packet.
    #[error("ends in the middle of packet {}; what came before it was decoded", .packets + 1)]
    Truncated {
        /// Complete packets before it.
        packets: u64,
    },
    /// An invalid record.
    #[error("is damaged after packet {packets}: {what}")]
    Damaged {
        /// Complete packets before it.
        packets: u64,
        /// The problem.
        what: String,
    },
}

/// An opened capture file.
pub struct Capture<R: Read> {
    format: Format<R>,
    packets: u64,
    /// The current packet.
    data: Vec<u8>,
}

enum Format<R: Read> {
    Pcap(Box<PcapReader<Input<R>>>),
    PcapNg(Box<PcapNgReader<Input<R>>>, Section),
}

impl<R: Read> Capture<R> {
    /// Opens a capture, with the format of its first bytes.
    pub fn open(mut input: R) -> Result<Capture<R>, Damage> {
        let mut magic = Vec::new();
        input
            .by_ref()
            .take(MAGIC_LEN as u64)
            .read_to_end(&mut magic)?;
        let kind = magic.clone();
        let input = Cursor::new(magic).chain(input);
        let format = match kind.as_slice() {
            [] => return Err(Damage::Empty),
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => {
                let reader = PcapReader::new(input).map_err(header_damage)?;
                Format::Pcap(Box::new(reader))
            }
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                let reader = PcapNgReader::new(input).map_err(header_damage)?;
                let section = Section::new(reader.section().endianness == Endianness::Big);
                Format::PcapNg(Box::new(reader), section)
            }
            [0x1f, 0x8b, ..] => return Err(Damage::Gzip),
            other => return Err(Damage::Unknown(hex(other))),
        };
        Ok(Capture {
            format,
            packets: 0,
            data: Vec::new(),
        })
    }

    /// The next packet; `None` at the end of an undamaged file.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Damage> {
        let packets = self.packets;
        let found = match &mut self.format {
            Format::Pcap(reader) => next_pcap(reader, &mut self.data),
            Format::PcapNg(reader, section) => section.next_packet(reader, &mut self.data),
        };
        let Some((time, link)) = found.map_err(|e| damage(e, packets))? else {
            return Ok(None);
        };
        self.packets += 1;
        Ok(Some(Packet {
            time,
            link,
            data: &self.data,
        }))
    }
}

/// Copies the next packet of a pcap file; returns its time and link type.
fn next_pcap<R: Read>(
    reader: &mut PcapReader<R>,
    data: &mut Vec<u8>,
) -> Result<Option<(Duration, u32)>, PcapError> {
    let header = reader.header();
    // The raw form: the crate's checked one rejects packets longer than the snap length, which truncated packets are.
    let Some(packet) = reader.next_raw_packet().transpose()? else {
        return Ok(None);
    };
    let nanos = match header.ts_resolution {
        TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
        TsResolution::NanoSecond => u64::from(packet.ts_frac),
    };
    data.clear();
    data.extend_from_slice(&packet.data);
    let time = Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(nanos);
    Ok(Some((time, header.datalink.into())))
}

fn header_damage(error: PcapError) -> Damage {
    match damage(error, 0) {
        Damage::Truncated { .. } => Damage::CutHeader,
        other => other,
    }
}

fn damage(error: PcapError, packets: u64) -> Damage {
    match error {
        PcapError::IncompleteBuffer => Damage::Truncated { packets },
        PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Damage::Truncated { packets }
        }
        PcapError::IoError(e) => Damage::Io(e),
        other => Damage::Damaged {
            packets,
            what: other.to_string(),
        },
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
