//! Captures made by hand: TCP connections as packets, in pcap or pcapng, over several link types. Packets are well-formed with consistent
//! numbers unless a test changes them; the payload is not interpreted.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// Towards the responder, and back.
pub(crate) const TO: usize = 0;
pub(crate) const BACK: usize = 1;

/// A connection whose packets are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    /// IP packets in capture order.
    pub(crate) packets: Vec<Vec<u8>>,
    pub(crate) ports: [u16; 2],
    /// The next sequence number of each side.
    pub(crate) seq: [u32; 2],
    pub ipv6: bool,
}

impl Net {
    /// A connection that has not been opened.
    pub(crate) fn new() -> Net {
        Net {
            packets: Vec::new(),
            ports: [40000, 7174],
            seq: [1000, 9000],
            ipv6: false,
        }
    }

    /// A connection after its handshake.
    pub(crate) fn open() -> Net {
        let mut net = Net::new();
        net.handshake();
        net
    }

    pub(crate) fn handshake(&mut self) {
        let [to, back] = self.seq;
        self.raw(TO, to, 0, SYN, &[]);
        self.raw(BACK, back, to.wrapping_add(1), SYN | ACK, &[]);
        self.seq = [to.wrapping_add(1), back.wrapping_add(1)];
        self.raw(TO, self.seq[TO], self.seq[BACK], ACK, &[]);
    }

    /// One side sends bytes in a single segment.
    pub(crate) fn send(&mut self, dir: usize, bytes: &[u8]) -> &mut Net {
        self.raw(dir, self.seq[dir], self.seq[1 - dir], ACK, bytes);
        self.seq[dir] = self.seq[dir].wrapping_add(bytes.len() as u32);
        self
    }

    /// One side sends bytes that are not in the capture.
    pub(crate) fn send_uncaptured(&mut self, dir: usize, bytes: &[u8]) -> &mut Net {
        self.seq[dir] = self.seq[dir].wrapping_add(bytes.len() as u32);
        self
    }

    pub(crate) fn fin(&mut self, dir: usize) -> &mut Net {
        self.raw(dir, self.seq[dir], self.seq[1 - dir], FIN | ACK, &[]);
        self.seq[dir] = self.seq[dir].wrapping_add(1);
        self
    }

    pub(crate) fn rst(&mut self, dir: usize) -> &mut Net {
        self.raw(dir, self.seq[dir], 0, RST, &[]);
        self
    }

    /// Adds any packet.
    pub(crate) fn raw(&mut self, dir: usize, seq: u32, ack: u32, flags: u8, payload: &[u8]) {
        let mut tcp = Vec::new();
        tcp.extend(self.ports[dir].to_be_bytes());
        tcp.extend(self.ports[1 - dir].to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let mut ip = Vec::new();
        if self.ipv6 {
            ip.extend([0x60, 0, 0, 0]);
            ip.extend((tcp.len() as u16).to_be_bytes());
            ip.extend([6, 64]);
            for host in [hosts[dir], hosts[1 - dir]] {
                ip.extend([0xfd; 12]);
                ip.extend(host);
            }
        } else {
            ip.extend([0x45, 0]);
            ip.extend((20 + tcp.len() as u16).to_be_bytes());
            ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            ip.extend(hosts[dir]);
            ip.extend(hosts[1 - dir]);
        }
        ip.extend(tcp);
        self.packets.push(ip);
    }

    /// The packets as a pcap file of raw IP.
    pub(crate) fn pcap(&self) -> Vec<u8> {
        pcap(DataLink::RAW, &self.packets)
    }

    /// The packets behind Ethernet headers with these VLAN tags, padded as short frames are.
    pub(crate) fn ethernet(&self, vlans: &[u16]) -> Vec<Vec<u8>> {
        let frame = |ip: &Vec<u8>| {
            let mut bytes = vec![2; 12];
            for vlan in vlans {
                bytes.extend([0x81, 0x00]);
                bytes.extend(vlan.to_be_bytes());
            }
            let version6 = ip[0] >> 4 == 6;
            bytes.extend(if version6 { [0x86, 0xdd] } else { [0x08, 0x00] });
            bytes.extend(ip);
            bytes.resize(bytes.len().max(60), 0);
            bytes
        };
        self.packets.iter().map(frame).collect()
    }
}

/// A pcap file.
pub(crate) fn pcap(link: DataLink, packets: &[Vec<u8>]) -> Vec<u8> {
    let header = PcapHeader {
        datalink: link,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("header");
    for (at, packet) in packets.iter().enumerate() {
        let packet = PcapPacket::new(moment(at), packet.len() as u32, packet);
        writer.write_packet(&packet).expect("packet");
    }
    writer.into_writer()
}

/// A pcapng file with times in nanoseconds.
pub(crate) fn pcapng(link: DataLink, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).expect("section");
    let interface = InterfaceDescriptionBlock {
        linktype: link,
        snaplen: 0,
        options: vec![InterfaceDescriptionOption::IfTsResol(9)],
    };
    writer.write_pcapng_block(interface).expect("interface");
    for (at, packet) in packets.iter().enumerate() {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: moment(at),
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: vec![],
        };
        writer.write_pcapng_block(block).expect("packet");
    }
    writer.into_inner()
}

fn moment(at: usize) -> Duration {
    Duration::from_secs(1_700_000_000) + Duration::from_millis(at as u64)
}
