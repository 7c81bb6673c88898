//! Frames between the interface and the link, a bounded number each turn, without a copy in user space. A frame that finds no room stays in
//! the kernel's queue, which slows its senders down. Frames are not inspected here.

use verbena_lan::{LONGEST, Put, Queue, Took, VNET, Vnet};

use super::{Host, HostError, Phase};
use crate::carrier::Memory;
use crate::link::Link;

/// Frames in one direction per turn.
const TURN: usize = 64;

/// Counters, and a buffer for frames that are dropped.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) out: u64,
    pub(super) came: u64,
    pub(super) dropped: u64,
    room: Vec<u8>,
    /// The last read of the interface emptied it, and nothing has happened since that makes new frames likely.
    pub(super) is_dry: bool,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            out: 0,
            came: 0,
            dropped: 0,
            room: vec![0; LONGEST + 1],
            is_dry: false,
        }
    }
}

impl Host {
    /// Whether frames are read: there is room, or no connection; then they are dropped, so that none is sent late.
    pub(super) fn reads_frames(&self) -> bool {
        let room = self.link.as_ref().is_some_and(Link::has_room);
        room || self.phase != Phase::Up
    }

    /// Sends frames of the interface to the unit; true if there was one.
    pub(super) fn take_frames(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < TURN && !self.frames.is_dry && self.reads_frames() {
            let Some(queue) = self.cable.queue(self.options.lane) else {
                break;
            };
            let took = match (&mut self.link, self.phase) {
                (Some(link), Phase::Up) => send(link, queue)?,
                // No connection: dropped.
                _ => match queue.take(&mut self.frames.room)? {
                    Took::Nothing => Took::Nothing,
                    Took::Frame(..) | Took::Lost => Took::Lost,
                },
            };
            match took {
                Took::Frame(..) => self.frames.out += 1,
                Took::Lost => self.frames.dropped += 1,
                Took::Nothing => self.frames.is_dry = true,
            }
            turn += usize::from(!self.frames.is_dry);
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }

    /// Writes packets of the unit to the interface; true if there was one.
    pub(super) fn take_packets(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < TURN {
            let queue = self.cable.queue(self.options.lane);
            let (Some(link), Some(queue)) = (&mut self.link, queue) else {
                break;
            };
            let put = |memory: &dyn Memory, offset: usize, len: usize| {
                let mut head = [0; VNET];
                if len < VNET || !memory.read(offset, &mut head) {
                    return Ok(Put::Refused);
                }
                let Ok(vnet) = Vnet::parse(&head) else {
                    return Ok(Put::Refused);
                };
                queue.put_by(&vnet, |fd, header| {
                    memory.write_to(fd, header, offset + VNET, len - VNET)
                })
            };
            let put = match link.look_at_packet(put) {
                Ok(Some(put)) => put?,
                Ok(None) => break,
                Err(lost) => {
                    self.lose(&lost.to_string());
                    break;
                }
            };
            turn += 1;
            match put {
                Put::Sent => {
                    self.frames.came += 1;
                    // A frame delivered is often answered at once.
                    self.frames.is_dry = false;
                }
                // A TAP has no queue that could be full in this direction.
                Put::Wait | Put::Refused => self.frames.dropped += 1,
            }
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }
}

/// Reads a frame from the interface directly into the send buffer.
fn send(link: &mut Link, queue: &Queue) -> Result<Took, HostError> {
    let most = link.options().size as usize - VNET;
    let mut took = Ok(Took::Nothing);
    let sent = link.send_by(|memory, offset| {
        took = queue.take_by(most, |fd, header| {
            memory.read_from(fd, header, offset + VNET, most)
        });
        match &took {
            Ok(Took::Frame(vnet, len)) => {
                memory.write(offset, &vnet.emit());
                Some(VNET + len)
            }
            _ => None,
        }
    });
    // There was room; a frame that does not fit the unit's elements is dropped.
    match (took?, sent) {
        (Took::Frame(..), Err(_)) => Ok(Took::Lost),
        (took, _) => Ok(took),
    }
}
