//! Frames between hosts and the LAN, by way of the switch; a bounded number each turn.
//! It promises that a frame is copied out of a host's reach before it is judged, and that offloads are done by hand for
//! whoever does not take them over. It refuses to wait for a slow host.

use std::time::Instant;

use verbena_lan::{LONGEST, PortId, Put, VNET, Vnet, fit};

use super::{GuestId, Unit, UnitError};
use crate::service::Counts;
use crate::unit::guest::{Guest, Standing};

/// Packets of one host before the next has its turn.
const TURN: usize = 64;
/// Batches of the LAN before hosts have theirs.
const BATCHES: usize = 2;

/// Room for one packet, for pieces of one, and for the ports that one goes to.
#[derive(Debug)]
pub(super) struct Rooms {
    packet: Vec<u8>,
    pieces: Vec<u8>,
    to: Vec<PortId>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms {
            packet: Vec::with_capacity(VNET + LONGEST),
            pieces: Vec::new(),
            to: Vec::new(),
        }
    }
}

impl Unit {
    /// Events and packets of every host; true if there were any.
    pub(super) fn serve_guests(&mut self, now: Instant) -> bool {
        let ids: Vec<GuestId> = self.guests.keys().copied().collect();
        let mut any = false;
        for id in ids {
            any |= self.serve_events(id);
            any |= self.take_packets(id, now);
            let relieved = self.guests.get_mut(&id).map(Guest::relieve);
            any |= relieved == Some(true);
            self.with_guest(id, |guest, carrier| guest.link.drive(carrier));
        }
        any
    }

    /// Packets of a host go where the switch says; true if there was one.
    fn take_packets(&mut self, id: GuestId, now: Instant) -> bool {
        let mut packet = core::mem::take(&mut self.rooms.packet);
        let mut turn = 0;
        while turn < TURN {
            let took = self.with_guest(id, |guest, _| guest.link.next_packet(&mut packet));
            if took != Some(true) {
                break;
            }
            turn += 1;
            let port = self.guests.get(&id).and_then(|guest| guest.port);
            let parts = packet.split_first_chunk();
            let parts = parts.and_then(|(head, frame)| Some((Vnet::parse(head).ok()?, frame)));
            match (port, parts) {
                (Some(port), Some((vnet, frame))) => self.forward(port, &vnet, frame, now),
                // It sends before it has begun, or something that is no frame.
                _ => {
                    if let Some(guest) = self.guests.get_mut(&id) {
                        guest.unfit += 1;
                    }
                }
            }
        }
        self.rooms.packet = packet;
        turn > 0
    }

    /// Frames of the LAN go to hosts; true if there were any.
    pub(super) fn take_lan(&mut self) -> Result<bool, UnitError> {
        let mut any = false;
        for _ in 0..BATCHES {
            let Some(mut batch) = self.batch.take() else {
                break;
            };
            let taken = self.lan.read(&mut batch);
            let now = Instant::now();
            for frame in batch.frames() {
                self.forward(self.lan_id, frame.vnet(), frame.bytes(), now);
            }
            self.batch = Some(batch);
            let taken = taken?;
            self.lan_counts.came += taken.frames as u64;
            self.lan_counts.dropped += taken.lost as u64;
            if taken.frames + taken.lost == 0 {
                break;
            }
            any = true;
        }
        if any {
            self.drive_all();
        }
        Ok(any)
    }

    fn drive_all(&mut self) {
        let ids: Vec<GuestId> = self.guests.keys().copied().collect();
        for id in ids {
            self.with_guest(id, |guest, carrier| guest.link.drive(carrier));
        }
    }

    fn forward(&mut self, from: PortId, vnet: &Vnet, frame: &[u8], now: Instant) {
        let mut to = core::mem::take(&mut self.rooms.to);
        let age = now.saturating_duration_since(self.start);
        // Refused only for a port that is gone; then it goes to nobody.
        if self.switch.forward(from, frame, age, &mut to).is_err() {
            to.clear();
        }
        for port in &to {
            if *port == self.lan_id {
                self.put_lan(vnet, frame);
            } else if let Some(guest) = self.ports.get(port)
                && let Some(guest) = self.guests.get_mut(guest)
                && guest.standing == Standing::Up
            {
                let takes = guest.takes;
                let each = |vnet: &Vnet, frame: &[u8]| guest.deliver(vnet, frame);
                if fit(vnet, frame, takes, &mut self.rooms.pieces, each).is_err() {
                    guest.unfit += 1;
                }
            }
        }
        self.rooms.to = to;
    }

    fn put_lan(&mut self, vnet: &Vnet, frame: &[u8]) {
        match self.lan.put(vnet, frame) {
            Ok(Put::Sent) => self.lan_counts.out += 1,
            // No room, or refused: lost, as on any cable. An error is found out by whoever reads.
            Ok(Put::Wait | Put::Refused) | Err(_) => self.lan_counts.dropped += 1,
        }
    }

    /// What was counted for a host.
    pub(super) fn counts(&self, guest: &Guest) -> Counts {
        let statistics = guest
            .port
            .and_then(|port| self.switch.statistics(port).ok());
        let statistics = statistics.unwrap_or_default();
        Counts {
            frames_in: statistics.received.frames,
            bytes_in: statistics.received.bytes,
            frames_out: statistics.sent.frames,
            bytes_out: statistics.sent.bytes,
            full: guest.full,
            refused: statistics.malformed + statistics.spoofed,
            unfit: guest.unfit,
            violations: guest.link.counters().violations,
        }
    }
}
