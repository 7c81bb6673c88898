//! Frames between the interface and the link, a bounded number each turn.
//! It promises that a frame which finds no room waits with the kernel, which slows its senders down.
//! It refuses to look into frames.

use verbena_lan::{LONGEST, Put, Took, VNET, Vnet};

use super::{Host, HostError, Phase};
use crate::link::Link;

/// Frames in one direction before the other has its turn.
const TURN: usize = 64;

/// What passed, and room for one frame each way.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) out: u64,
    pub(super) came: u64,
    pub(super) dropped: u64,
    room: Vec<u8>,
    packet: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            out: 0,
            came: 0,
            dropped: 0,
            room: vec![0; LONGEST + 1],
            packet: Vec::with_capacity(VNET + LONGEST),
        }
    }
}

impl Host {
    /// Frames are taken from the interface: there is room, or nobody to send them to, so that none grows old in its queue.
    pub(super) fn reads_frames(&self) -> bool {
        let room = self.link.as_ref().is_some_and(Link::has_room);
        room || self.phase != Phase::Up
    }

    /// Frames of the interface go to the unit; true if there was one.
    pub(super) fn take_frames(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < TURN && self.reads_frames() {
            let Some(queue) = self.tap.queues().first() else {
                break;
            };
            let (vnet, len) = match queue.take(&mut self.frames.room)? {
                Took::Frame(vnet, len) => (vnet, len),
                Took::Nothing => break,
                Took::Lost => {
                    self.frames.dropped += 1;
                    turn += 1;
                    continue;
                }
            };
            turn += 1;
            let frame = self.frames.room.get(..len).unwrap_or_default();
            let sent = match (&mut self.link, self.phase) {
                (Some(link), Phase::Up) => link.send(&vnet.emit(), frame).is_ok(),
                _ => false,
            };
            if sent {
                self.frames.out += 1;
            } else {
                self.frames.dropped += 1;
            }
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }

    /// Packets of the unit go to the interface; true if there was one.
    pub(super) fn take_packets(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < TURN {
            let packet = &mut self.frames.packet;
            let Some(link) = &mut self.link else {
                break;
            };
            match link.next_packet(packet) {
                Ok(true) => {}
                Ok(false) => break,
                Err(lost) => {
                    self.lose(&lost.to_string());
                    break;
                }
            }
            turn += 1;
            let parts = self.frames.packet.split_first_chunk();
            let parts = parts.and_then(|(head, frame)| Some((Vnet::parse(head).ok()?, frame)));
            let (Some((vnet, frame)), Some(queue)) = (parts, self.tap.queues().first()) else {
                self.frames.dropped += 1;
                continue;
            };
            match queue.put(&vnet, frame)? {
                Put::Sent => self.frames.came += 1,
                // A TAP has no queue that could be full in this direction.
                Put::Wait | Put::Refused => self.frames.dropped += 1,
            }
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }
}
