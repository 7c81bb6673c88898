//! Interface and packet blocks of a pcapng section. Times have the interface's own resolution, and each packet has the link type of its
//! interface. Block framing is done by the reader; all other blocks are skipped.

use std::io::Read;
use std::time::Duration;

use pcap_file::PcapError;
use pcap_file::pcapng::PcapNgReader;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_TS_RESOLUTION: u16 = 9;

/// The current section of a file.
#[derive(Debug)]
pub(super) struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u32,
    snaplen: u32,
    /// Time units per second.
    units: u64,
}

/// The position of a packet in its block.
struct PacketPosition {
    interface: usize,
    time: u64,
    from: usize,
    len: usize,
}

impl Section {
    pub(super) fn new(big_endian: bool) -> Section {
        Section {
            big_endian,
            interfaces: Vec::new(),
        }
    }

    /// Copies the next packet of any interface; returns its time and link type.
    pub(super) fn next_packet<R: Read>(
        &mut self,
        reader: &mut PcapNgReader<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<(Duration, u32)>, PcapError> {
        while let Some(block) = reader.next_raw_block().transpose()? {
            let body: &[u8] = &block.body;
            let found = match block.type_ {
                SECTION_HEADER => {
                    *self = Section::new(body.first() == Some(&0x1a));
                    continue;
                }
                INTERFACE => {
                    self.interfaces.push(self.interface(body));
                    continue;
                }
                ENHANCED_PACKET => self.enhanced_packet(body),
                OLD_PACKET => self.old_packet(body),
                SIMPLE_PACKET => self.simple_packet(body),
                _ => continue,
            };
            let found = found.ok_or(PcapError::InvalidField("packet block too short"))?;
            let interface = self.interfaces.get(found.interface);
            let Some(interface) = interface else {
                return Err(PcapError::InvalidField("packet of an undeclared interface"));
            };
            let bytes = body.get(found.from..).and_then(|b| b.get(..found.len));
            let Some(bytes) = bytes else {
                return Err(PcapError::InvalidField("packet longer than its block"));
            };
            data.clear();
            data.extend_from_slice(bytes);
            return Ok(Some((interface.time(found.time), interface.link)));
        }
        Ok(None)
    }

    fn interface(&self, body: &[u8]) -> Interface {
        Interface {
            link: self.u16(body, 0).unwrap_or_default().into(),
            snaplen: self.u32(body, 4).unwrap_or_default(),
            units: self.units(body),
        }
    }

    /// Microseconds, unless an option has another resolution.
    fn units(&self, body: &[u8]) -> u64 {
        const DEFAULT: u64 = 1_000_000;
        let mut at = 8;
        while let (Some(code), Some(len)) = (self.u16(body, at), self.u16(body, at + 2)) {
            if code == OPTION_END {
                break;
            }
            if code == OPTION_TS_RESOLUTION {
                let Some(&byte) = body.get(at + 4) else {
                    break;
                };
                let (base, power) = if byte & 0x80 == 0 {
                    (10u64, byte)
                } else {
                    (2, byte & 0x7f)
                };
                return base.checked_pow(power.into()).unwrap_or(DEFAULT);
            }
            at += 4 + usize::from(len).next_multiple_of(4);
        }
        DEFAULT
    }

    fn enhanced_packet(&self, body: &[u8]) -> Option<PacketPosition> {
        let high = u64::from(self.u32(body, 4)?);
        let low = u64::from(self.u32(body, 8)?);
        Some(PacketPosition {
            interface: self.u32(body, 0)? as usize,
            time: high << 32 | low,
            from: 20,
            len: self.u32(body, 12)? as usize,
        })
    }

    fn old_packet(&self, body: &[u8]) -> Option<PacketPosition> {
        let interface = self.u16(body, 0)?.into();
        Some(PacketPosition {
            interface,
            ..self.enhanced_packet(body)?
        })
    }

    /// A simple packet has no time and no interface: it belongs to the first one, and is truncated to its snap length.
    fn simple_packet(&self, body: &[u8]) -> Option<PacketPosition> {
        let original = self.u32(body, 0)?;
        let len = match self.interfaces.first().map_or(0, |i| i.snaplen) {
            0 => original,
            snap => original.min(snap),
        };
        Some(PacketPosition {
            interface: 0,
            time: 0,
            from: 4,
            len: len as usize,
        })
    }

    fn u16(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let field = *bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u16::from_be_bytes(field)
        } else {
            u16::from_le_bytes(field)
        })
    }

    fn u32(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let field = *bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(field)
        } else {
            u32::from_le_bytes(field)
        })
    }
}

impl Interface {
    fn time(&self, units: u64) -> Duration {
        let part = u128::from(units % self.units) * 1_000_000_000 / u128::from(self.units);
        Duration::from_secs(units / self.units) + Duration::from_nanos(part as u64)
    }
}
