//! Frames between hosts and the LAN, by way of the switch; a bounded number each turn.
//! It promises that what a frame is judged by is copied out of a host's reach first, and that offloads are done by hand for
//! whoever does not take them over. It refuses to wait for a slow host.

use std::time::{Duration, Instant};

use verbena_lan::{LONGEST, PortId, Put, Switch, VNET, Vnet, fit};

use super::{GuestId, LanPort, Unit, UnitError};
use crate::carrier::Memory;
use crate::unit::guest::{Guest, Standing};

/// Packets of one host before the next has its turn.
const TURN: usize = 64;
/// Frames of the LAN that are taken at once.
pub(super) const BATCH: usize = 64;
/// Batches of the LAN before hosts have theirs.
const BATCHES: usize = 2;

/// Room for one packet, for pieces of one, and for the ports that one goes to.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) packet: Vec<u8>,
    pieces: Vec<u8>,
    pub(super) to: Vec<PortId>,
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
        let mut turn = 0;
        while turn < TURN {
            let Some(guest) = self.guests.get_mut(&id) else {
                break;
            };
            // Until it has set an address the switch would believe any.
            let port = guest.port.filter(|_| guest.mac.is_some());
            let ways = Ways {
                switch: &mut self.switch,
                lan: &self.lan,
                lan_id: self.lan_id,
                rooms: &mut self.rooms,
                age: now.saturating_duration_since(self.start),
            };
            let looked = guest.link.look_at_packet(|memory, offset, len| {
                port.map_or(Fate::Unfit, |port| ways.judge(port, memory, offset, len))
            });
            let fate = match looked {
                Ok(Some(fate)) => fate,
                Ok(None) => break,
                Err(lost) => {
                    self.lose(id, &lost.to_string());
                    break;
                }
            };
            turn += 1;
            match fate {
                Fate::Lan(put) => self.count_put(&put),
                Fate::Nowhere => {}
                Fate::Copied(vnet) => self.spread(&vnet),
                // It sends before it has an address, or something that is no frame.
                Fate::Unfit => guest.unfit += 1,
            }
        }
        turn > 0
    }

    /// A packet that was copied goes to the ports that the switch named.
    pub(super) fn spread(&mut self, vnet: &Vnet) {
        let packet = core::mem::take(&mut self.rooms.packet);
        let to = core::mem::take(&mut self.rooms.to);
        for port in &to {
            self.send(*port, vnet, packet.get(VNET..).unwrap_or_default());
        }
        (self.rooms.packet, self.rooms.to) = (packet, to);
    }

    /// Frames of the LAN go to hosts; true if there were any.
    pub(super) fn take_lan(&mut self) -> Result<bool, UnitError> {
        let mut any = self.take_tap()?;
        for _ in 0..BATCHES {
            if self.is_lan_dry || !self.reads_lan() {
                break;
            }
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
            any |= taken.frames + taken.lost > 0;
            self.is_lan_dry = taken.frames + taken.lost < BATCH;
        }
        if any {
            self.drive_all();
        }
        Ok(any)
    }

    /// Frames of the LAN are taken. Not those of a TAP if they can only be for a host that has no room: then they wait in its queue.
    /// With several hosts none waits for another. On an interface of others much is for nobody, and must not fill the socket.
    pub(super) fn reads_lan(&self) -> bool {
        let mut guests = self.guests.values();
        match (&self.lan, guests.next(), guests.next()) {
            (LanPort::Tap(_), Some(only), None) => only.standing != Standing::Up || only.is_idle(),
            _ => true,
        }
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
            self.send(*port, vnet, frame);
        }
        self.rooms.to = to;
    }

    /// A frame for one port.
    fn send(&mut self, port: PortId, vnet: &Vnet, frame: &[u8]) {
        if port == self.lan_id {
            let put = self.lan.put(vnet, frame);
            self.count_put(&put);
        } else if let Some(id) = self.ports.get(&port)
            && let Some(guest) = self.guests.get_mut(id)
            && guest.standing == Standing::Up
        {
            self.favourite = Some(*id);
            let takes = guest.takes;
            let each = |vnet: &Vnet, frame: &[u8]| guest.deliver(vnet, frame);
            if fit(vnet, frame, takes, &mut self.rooms.pieces, each).is_err() {
                guest.unfit += 1;
            }
        }
    }

    fn count_put(&mut self, put: &verbena_lan::Result<Put>) {
        match put {
            Ok(Put::Sent) => {
                self.lan_counts.out += 1;
                // Whoever is told something answers at once, more often than not.
                self.is_lan_dry = false;
            }
            // No room, or refused: lost, as on any cable. An error is found out by whoever reads.
            Ok(Put::Wait | Put::Refused) | Err(_) => self.lan_counts.dropped += 1,
        }
    }
}

/// What became of a packet.
enum Fate {
    /// It went to the LAN only, from where it lay.
    Lan(verbena_lan::Result<Put>),
    /// To nobody.
    Nowhere,
    /// It was copied, and the ports it goes to are noted.
    Copied(Vnet),
    /// It is no frame.
    Unfit,
}

/// What judging a packet needs of a unit, beside the host it is of.
struct Ways<'a> {
    switch: &'a mut Switch,
    lan: &'a LanPort,
    lan_id: PortId,
    rooms: &'a mut Rooms,
    age: Duration,
}

/// What is judged by, and so must be the same when it is sent.
const JUDGED: usize = VNET + 14;

impl Ways<'_> {
    /// Judges a packet by a copy of its headers. To the LAN it goes from where it lies, behind that copy, so that a host which
    /// writes to it meanwhile changes nothing that was judged.
    fn judge(self, from: PortId, memory: &dyn Memory, offset: usize, len: usize) -> Fate {
        let mut head = [0; JUDGED];
        if len < JUDGED || !memory.read(offset, &mut head) {
            return Fate::Unfit;
        }
        let (vnet, ethernet) = head.split_at(VNET);
        let vnet = vnet.first_chunk().map(Vnet::parse);
        let Some(Ok(vnet)) = vnet else {
            return Fate::Unfit;
        };
        // Only what was summed here, or by the LAN's card, need not be summed again.
        let vnet = vnet.unclaimed();
        let Rooms { packet, to, .. } = self.rooms;
        let counted = len - VNET;
        let verdict = self
            .switch
            .forward_head(from, ethernet, counted, self.age, to);
        match (verdict, &to[..]) {
            (Err(_), _) | (_, []) => Fate::Nowhere,
            (Ok(_), [only]) if *only == self.lan_id => {
                Fate::Lan(self.lan.put_by(&vnet, |fd, header| {
                    let mut start = [0; JUDGED];
                    let (first, rest) = start.split_at_mut(VNET);
                    first.copy_from_slice(header);
                    rest.copy_from_slice(ethernet);
                    memory.write_to(fd, &start, offset + JUDGED, len - JUDGED)
                }))
            }
            _ => {
                packet.resize(len, 0);
                memory.read(offset, packet);
                // As it was judged, whatever it says now.
                if let Some(start) = packet.first_chunk_mut() {
                    *start = head;
                }
                Fate::Copied(vnet)
            }
        }
    }
}
