//! Frames between the interface and the link, a bounded number each turn, without a copy of ours.
//! It promises that a frame which finds no room waits with the kernel, which slows its senders down.
//! It refuses to look into frames.

use verbena_lan::{LONGEST, Put, Queue, Took, VNET, Vnet};

use super::{Host, HostError, Phase};
use crate::carrier::Memory;
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
    /// The interface had no more frames when it was asked last, and nothing has happened since that would change it.
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
    /// Frames are taken from the interface: there is room, or nobody to send them to, so that none grows old in its queue.
    pub(super) fn reads_frames(&self) -> bool {
        let room = self.link.as_ref().is_some_and(Link::has_room);
        room || self.phase != Phase::Up
    }

    /// Frames of the interface go to the unit; true if there was one.
    pub(super) fn take_frames(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < TURN && !self.frames.is_dry && self.reads_frames() {
            let Some(queue) = self.cable.queue(self.options.lane) else {
                break;
            };
            let took = match (&mut self.link, self.phase) {
                (Some(link), Phase::Up) => send(link, queue)?,
                // Nobody to send it to.
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

    /// Packets of the unit go to the interface; true if there was one.
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
                    // Whoever is told something answers at once, more often than not.
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

/// Takes a frame from the interface to where it leaves from.
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
    // There was room; what does not fit the unit's buffers is lost.
    match (took?, sent) {
        (Took::Frame(..), Err(_)) => Ok(Took::Lost),
        (took, _) => Ok(took),
    }
}
