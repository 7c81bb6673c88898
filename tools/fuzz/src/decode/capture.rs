//! Writes one TCP connection as a pcap file of bare IPv4 packets, with losses, duplicates and reordering on request.
//! Sequence numbers are those of the complete connection; checksums are empty, as in captures from offloading adapters.

use crate::source::bit;

/// Link type of packets that begin with their IP header.
const LINK_RAW: u32 = 101;
const FLAGS_ACK: u8 = 0x10;
const INITIATOR: u16 = 40000;
/// First sequence numbers; one side wraps soon.
const START: [u32; 2] = [0xffff_ff00, 1000];

/// A capture being written.
pub(super) struct Recorder {
    file: Vec<u8>,
    ports: [u16; 2],
    next: [u32; 2],
    cut: usize,
    disorder: u8,
    packets: u32,
    /// A packet that is written after the next one.
    held: Option<Vec<u8>>,
}

impl Recorder {
    /// A connection to this port, in segments of at most `cut` bytes.
    pub(super) fn new(port: u16, cut: usize, disorder: u8) -> Recorder {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4_u32.to_be_bytes());
        file.extend([0, 2, 0, 4]);
        file.extend([0; 8]);
        file.extend(65535_u32.to_be_bytes());
        file.extend(LINK_RAW.to_be_bytes());
        Recorder {
            file,
            ports: [INITIATOR, port],
            next: START,
            cut,
            disorder,
            packets: 0,
            held: None,
        }
    }

    /// `side` sends these bytes.
    pub(super) fn send(&mut self, side: usize, bytes: &[u8]) {
        for piece in bytes.chunks(self.cut) {
            self.packet(side, piece);
        }
    }

    /// Both sides send, by turns.
    pub(super) fn exchange(&mut self, first: &[u8], second: &[u8]) {
        let (mut a, mut b) = (first.chunks(self.cut), second.chunks(self.cut));
        loop {
            match (a.next(), b.next()) {
                (None, None) => return,
                (one, other) => {
                    one.into_iter().for_each(|piece| self.packet(0, piece));
                    other.into_iter().for_each(|piece| self.packet(1, piece));
                }
            }
        }
    }

    /// The file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.release();
        self.file
    }

    fn packet(&mut self, side: usize, piece: &[u8]) {
        let bytes = self.tcp(side, piece);
        self.next[side] = self.next[side].wrapping_add(piece.len() as u32);
        self.packets += 1;
        // The first two packets are kept in order; later ones may be duplicated, reordered or lost.
        let nth = self.packets.saturating_sub(2) % 8;
        if !bit(self.disorder, nth) || self.packets <= 2 {
            self.record(&bytes);
            return self.release();
        }
        match self.packets % 3 {
            0 => {
                self.record(&bytes);
                self.record(&bytes);
            }
            1 => self.held = Some(bytes),
            // Missing in the capture only: the receiver has it.
            _ => {}
        }
    }

    fn release(&mut self) {
        if let Some(bytes) = self.held.take() {
            self.record(&bytes);
        }
    }

    fn record(&mut self, packet: &[u8]) {
        let len = (packet.len() as u32).to_be_bytes();
        self.file.extend(self.packets.to_be_bytes());
        self.file.extend([0; 4]);
        self.file.extend(len);
        self.file.extend(len);
        self.file.extend(packet);
    }

    fn tcp(&self, side: usize, piece: &[u8]) -> Vec<u8> {
        let (here, there) = (side as u8, 1 - side as u8);
        let mut packet = vec![0x45, 0];
        packet.extend((40 + piece.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend([10, 0, 0, 1 + here, 10, 0, 0, 1 + there]);
        packet.extend(self.ports[side].to_be_bytes());
        packet.extend(self.ports[1 - side].to_be_bytes());
        packet.extend(self.next[side].to_be_bytes());
        packet.extend(self.next[1 - side].to_be_bytes());
        packet.extend([0x50, FLAGS_ACK, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(piece);
        packet
    }
}
