//! A finished session as Ethernet frames: handshake, data with valid sequence numbers and checksums, close.
//! They are what a capture on the initiator's host would show of a link without loss.

use core::time::Duration;

use anyhow::{Context, Result};
use etherparse::PacketBuilder;
use verbena_stream::Time;

use crate::world::{EventKind, Transcript};

/// Documentation addresses (RFC 5737).
const ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];
/// Locally administered.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const FIRST_PORT: u16 = 40000;
const SERVER_PORT: u16 = 20049;
const MSS: usize = 1448;
const WINDOW: u16 = 65535;
const TTL: u8 = 64;
const STEP: Duration = Duration::from_micros(1);

#[derive(Clone, Copy, Default)]
struct Flags {
    syn: bool,
    fin: bool,
}

struct Connection {
    ports: [u16; 2],
    /// Next sequence number of each side.
    seq: [u32; 2],
    /// The last acknowledgement of each side; none before the handshake.
    ack: [Option<u32>; 2],
    packets: Vec<(Time, Vec<u8>)>,
}

/// The packets of a session that began at `start`.
pub(super) fn of(t: &Transcript, number: u16, start: Time) -> Result<Vec<(Time, Vec<u8>)>> {
    let mut connection = Connection {
        ports: [FIRST_PORT + number, SERVER_PORT],
        seq: [0x1000_0000, 0x2000_0000],
        ack: [None; 2],
        packets: Vec::new(),
    };
    connection.handshake(start)?;
    let mut rest = [&t.wire_bytes[0][..], &t.wire_bytes[1][..]];
    for event in &t.events {
        let side = event.side;
        match event.kind {
            EventKind::Sent(n) => {
                let (bytes, behind) = rest[side].split_at(n);
                rest[side] = behind;
                for segment in bytes.chunks(MSS) {
                    connection.packet(event.at, side, Flags::default(), segment)?;
                }
            }
            EventKind::Arrived(n) => {
                let ack = connection.ack[side].map(|a| a.wrapping_add(n as u32));
                connection.ack[side] = ack;
            }
            EventKind::Closed => connection.fin(event.at, side)?,
            EventKind::Eof => {
                connection.ack[side] = connection.ack[side].map(|a| a.wrapping_add(1));
                connection.packet(event.at, side, Flags::default(), &[])?;
            }
            _ => {}
        }
    }
    Ok(connection.packets)
}

impl Connection {
    fn handshake(&mut self, start: Time) -> Result<()> {
        let before = |micros: u64| Time::from_nanos(start.nanos() - 1000 * micros);
        let syn = Flags {
            syn: true,
            fin: false,
        };
        self.packet(before(60), 0, syn, &[])?;
        self.ack[1] = Some(self.seq[0]);
        self.packet(before(30), 1, syn, &[])?;
        self.ack[0] = Some(self.seq[1]);
        self.packet(before(1), 0, Flags::default(), &[])
    }

    fn fin(&mut self, at: Time, side: usize) -> Result<()> {
        let flags = Flags {
            syn: false,
            fin: true,
        };
        self.packet(at, side, flags, &[])
    }

    fn packet(&mut self, at: Time, side: usize, flags: Flags, payload: &[u8]) -> Result<()> {
        let other = 1 - side;
        let mut builder = PacketBuilder::ethernet2(MACS[side], MACS[other])
            .ipv4(ADDRESSES[side], ADDRESSES[other], TTL)
            .tcp(self.ports[side], self.ports[other], self.seq[side], WINDOW);
        if let Some(ack) = self.ack[side] {
            builder = builder.ack(ack);
        }
        if flags.syn {
            builder = builder.syn();
        }
        if flags.fin {
            builder = builder.fin();
        }
        if !payload.is_empty() {
            builder = builder.psh();
        }
        let mut bytes = Vec::with_capacity(builder.size(payload.len()));
        builder
            .write(&mut bytes, payload)
            .context("cannot build a packet")?;
        let advance = payload.len() as u32 + u32::from(flags.syn) + u32::from(flags.fin);
        self.seq[side] = self.seq[side].wrapping_add(advance);
        // Packets of the same time are one after the other.
        let earliest = self.packets.last().map(|(t, _)| *t + STEP);
        let at = earliest.map_or(at, |t| t.max(at));
        self.packets.push((at, bytes));
        Ok(())
    }
}
