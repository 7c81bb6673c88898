//! Frames between hosts and the LAN through the switch, a bounded number each turn. The headers by which a frame is forwarded are copied
//! out of the memory that the host can write before they are checked. Offloads are done in software for a host that does not accept them,
//! and a host without room does not block others: its frames are queued up to a limit, then dropped.

use std::time::{Duration, Instant};

use verbena_lan::{
    MAX_FRAME_LEN, PortId, Switch, VNET_HDR_LEN, Vnet, WriteOutcome, apply_offloads,
};

use super::{HostId, LanPort, Unit, UnitError};
use crate::carrier::Memory;
use crate::unit::connected_host::{ConnectedHost, HostState};

/// Packets of one host per turn.
const MAX_PACKETS: usize = 64;
/// Frames of the LAN read at once.
pub(super) const BATCH: usize = 64;
/// Batches of the LAN per turn.
const BATCHES: usize = 2;

/// Buffers for one packet, for the segments of one, and for the ports that one goes to.
#[derive(Debug)]
pub(super) struct FrameBuffers {
    pub(super) packet: Vec<u8>,
    pieces: Vec<u8>,
    pub(super) to: Vec<PortId>,
}

impl Default for FrameBuffers {
    fn default() -> FrameBuffers {
        FrameBuffers {
            packet: Vec::with_capacity(VNET_HDR_LEN + MAX_FRAME_LEN),
            pieces: Vec::new(),
            to: Vec::new(),
        }
    }
}

impl Unit {
    /// Serves events and packets of every host; true if there were any.
    pub(super) fn serve_hosts(&mut self, now: Instant) -> bool {
        let ids: Vec<HostId> = self.hosts.keys().copied().collect();
        let mut any = self.take_disk_results();
        for id in ids {
            any |= self.serve_events(id);
            any |= match self.hosts.get(&id).is_some_and(|host| host.disk.is_some()) {
                true => self.serve_disk(id),
                false => self.take_packets(id, now),
            };
            let relieved = self.hosts.get_mut(&id).map(ConnectedHost::send_waiting);
            any |= relieved == Some(true);
            self.with_host(id, |host, carrier| host.link.drive(carrier));
        }
        any
    }

    /// Forwards packets of a host; true if there was one.
    fn take_packets(&mut self, id: HostId, now: Instant) -> bool {
        let mut turn = 0;
        while turn < MAX_PACKETS {
            let Some(host) = self.hosts.get_mut(&id) else {
                break;
            };
            // Until it has set an address, the switch would accept any source address.
            let port = host.port.filter(|_| host.mac.is_some());
            let ways = Forwarder {
                switch: &mut self.switch,
                lan: &self.lan,
                lan_id: self.lan_id,
                buffers: &mut self.buffers,
                age: now.saturating_duration_since(self.start),
            };
            let looked = host.link.with_packet(|memory, offset, len| {
                port.map_or(ForwardOutcome::NotAFrame, |port| {
                    ways.forward(port, memory, offset, len)
                })
            });
            let fate = match looked {
                Ok(Some(fate)) => fate,
                Ok(None) => break,
                Err(lost) => {
                    self.drop_host(id, &lost.to_string());
                    break;
                }
            };
            turn += 1;
            match fate {
                ForwardOutcome::Lan(put) => self.count_write(&put),
                ForwardOutcome::NoPort => {}
                ForwardOutcome::Copied(vnet) => self.send_copied(&vnet),
                // Sent before the host has set an address, or not a frame.
                ForwardOutcome::NotAFrame => host.unfit += 1,
            }
        }
        turn > 0
    }

    /// Sends the copied packet to the ports that the switch selected.
    pub(super) fn send_copied(&mut self, vnet: &Vnet) {
        let packet = core::mem::take(&mut self.buffers.packet);
        let to = core::mem::take(&mut self.buffers.to);
        for port in &to {
            self.send(*port, vnet, packet.get(VNET_HDR_LEN..).unwrap_or_default());
        }
        (self.buffers.packet, self.buffers.to) = (packet, to);
    }

    /// Forwards frames of the LAN to hosts; true if there were any.
    pub(super) fn forward_from_lan(&mut self) -> Result<bool, UnitError> {
        let mut any = self.forward_from_tap()?;
        for _ in 0..BATCHES {
            if self.is_lan_drained || !self.reads_lan() {
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
            self.lan_counts.received += taken.frames as u64;
            self.lan_counts.dropped += taken.lost as u64;
            any |= taken.frames + taken.lost > 0;
            self.is_lan_drained = taken.frames + taken.lost < BATCH;
        }
        if any {
            self.drive_all();
        }
        Ok(any)
    }

    /// Whether frames of the LAN are read. Those of a TAP are not if its only host has no room: they wait in the TAP's queue. With several
    /// hosts they are, so that no host waits for another. A packet socket is always read: many of its frames are for no host, and would fill it.
    pub(super) fn reads_lan(&self) -> bool {
        let mut guests = self.hosts.values().filter(|host| host.disk.is_none());
        match (&self.lan, guests.next(), guests.next()) {
            (LanPort::Tap(_), Some(only), None) => only.state != HostState::Up || only.is_idle(),
            _ => true,
        }
    }

    fn drive_all(&mut self) {
        let ids: Vec<HostId> = self.hosts.keys().copied().collect();
        for id in ids {
            self.with_host(id, |host, carrier| host.link.drive(carrier));
        }
    }

    fn forward(&mut self, from: PortId, vnet: &Vnet, frame: &[u8], now: Instant) {
        let mut to = core::mem::take(&mut self.buffers.to);
        let age = now.saturating_duration_since(self.start);
        // Fails only for a port that was removed; then the frame goes to no port.
        if self.switch.forward(from, frame, age, &mut to).is_err() {
            to.clear();
        }
        for port in &to {
            self.send(*port, vnet, frame);
        }
        self.buffers.to = to;
    }

    /// Sends a frame to one port.
    fn send(&mut self, port: PortId, vnet: &Vnet, frame: &[u8]) {
        if port == self.lan_id {
            let put = self.lan.write_frame(vnet, frame);
            self.count_write(&put);
        } else if let Some(id) = self.ports.get(&port)
            && let Some(host) = self.hosts.get_mut(id)
            && host.state == HostState::Up
        {
            self.last_destination = Some(*id);
            let takes = host.accepts;
            let each = |vnet: &Vnet, frame: &[u8]| host.deliver(vnet, frame);
            if apply_offloads(vnet, frame, takes, &mut self.buffers.pieces, each).is_err() {
                host.unfit += 1;
            }
        }
    }

    fn count_write(&mut self, put: &verbena_lan::Result<WriteOutcome>) {
        match put {
            Ok(WriteOutcome::Sent) => {
                self.lan_counts.sent += 1;
                // A frame sent is often answered at once.
                self.is_lan_drained = false;
            }
            // Dropped, as on any link. An error of the interface is reported by the next read.
            Ok(WriteOutcome::WouldBlock | WriteOutcome::Refused) | Err(_) => {
                self.lan_counts.dropped += 1;
            }
        }
    }
}

/// Result of forwarding a packet.
enum ForwardOutcome {
    /// It was written to the LAN only, directly from the host's pool.
    Lan(verbena_lan::Result<WriteOutcome>),
    /// It goes to no port.
    NoPort,
    /// It was copied to `buffers.packet`, and its ports are in `buffers.to`.
    Copied(Vnet),
    /// It is not a frame.
    NotAFrame,
}

/// The parts of a unit that forwarding a packet needs, besides the host.
struct Forwarder<'a> {
    switch: &'a mut Switch,
    lan: &'a LanPort,
    lan_id: PortId,
    buffers: &'a mut FrameBuffers,
    age: Duration,
}

/// Bytes by which a packet is forwarded: those sent must be the ones checked.
const HEADERS_LEN: usize = VNET_HDR_LEN + 14;

impl Forwarder<'_> {
    /// Forwards a packet by a copy of its headers. To the LAN, that copy and the rest of the packet in place are written, so that a host
    /// that changes the packet meanwhile does not change what was checked.
    fn forward(
        self,
        from: PortId,
        memory: &dyn Memory,
        offset: usize,
        len: usize,
    ) -> ForwardOutcome {
        let mut head = [0; HEADERS_LEN];
        if len < HEADERS_LEN || !memory.read(offset, &mut head) {
            return ForwardOutcome::NotAFrame;
        }
        let (vnet, ethernet) = head.split_at(VNET_HDR_LEN);
        let vnet = vnet.first_chunk().map(Vnet::parse);
        let Some(Ok(vnet)) = vnet else {
            return ForwardOutcome::NotAFrame;
        };
        // Checksums count as verified only by the unit or by the LAN's card, not by the host's word.
        let vnet = vnet.without_data_valid();
        let FrameBuffers { packet, to, .. } = self.buffers;
        let counted = len - VNET_HDR_LEN;
        let verdict = self
            .switch
            .forward_head(from, ethernet, counted, self.age, to);
        match (verdict, &to[..]) {
            (Err(_), _) | (_, []) => ForwardOutcome::NoPort,
            (Ok(_), [only]) if *only == self.lan_id => {
                ForwardOutcome::Lan(self.lan.write_frame_with(&vnet, |fd, header| {
                    let mut start = [0; HEADERS_LEN];
                    let (first, rest) = start.split_at_mut(VNET_HDR_LEN);
                    first.copy_from_slice(header);
                    rest.copy_from_slice(ethernet);
                    memory.write_to(fd, &start, offset + HEADERS_LEN, len - HEADERS_LEN)
                }))
            }
            _ => {
                packet.resize(len, 0);
                memory.read(offset, packet);
                // The headers that were checked, even if the host has changed them since.
                if let Some(start) = packet.first_chunk_mut() {
                    *start = head;
                }
                ForwardOutcome::Copied(vnet)
            }
        }
    }
}
