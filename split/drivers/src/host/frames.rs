//! Frames between the interface and the link, a bounded number each turn, without a copy in user space. A frame that finds no room stays in
//! the kernel's queue, which slows its senders down. Frames are not inspected here.

use verbena_lan::{MAX_FRAME_LEN, Queue, ReadOutcome, VNET_HDR_LEN, Vnet, WriteOutcome};

use super::{Host, HostError, Phase};
use crate::carrier::Memory;
use crate::link::Link;

/// Frames in one direction per turn.
const MAX_FRAMES: usize = 64;

/// Counters, and a buffer for frames that are dropped.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) dropped: u64,
    scratch: Vec<u8>,
    /// The last read of the interface emptied it, and nothing has happened since that makes new frames likely.
    pub(super) is_drained: bool,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            sent: 0,
            received: 0,
            dropped: 0,
            scratch: vec![0; MAX_FRAME_LEN + 1],
            is_drained: false,
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
        while turn < MAX_FRAMES && !self.frames.is_drained && self.reads_frames() {
            let Some(queue) = self.shared_tap.queue(self.options.lane) else {
                break;
            };
            let took = match (&mut self.link, self.phase) {
                (Some(link), Phase::Up) => send(link, queue)?,
                // No connection: dropped.
                _ => match queue.read_frame(&mut self.frames.scratch)? {
                    ReadOutcome::WouldBlock => ReadOutcome::WouldBlock,
                    ReadOutcome::Frame(..) | ReadOutcome::Lost => ReadOutcome::Lost,
                },
            };
            match took {
                ReadOutcome::Frame(..) => self.frames.sent += 1,
                ReadOutcome::Lost => self.frames.dropped += 1,
                ReadOutcome::WouldBlock => self.frames.is_drained = true,
            }
            turn += usize::from(!self.frames.is_drained);
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }

    /// Writes packets of the unit to the interface; true if there was one.
    pub(super) fn take_packets(&mut self) -> Result<bool, HostError> {
        let mut turn = 0;
        while turn < MAX_FRAMES {
            let queue = self.shared_tap.queue(self.options.lane);
            let (Some(link), Some(queue)) = (&mut self.link, queue) else {
                break;
            };
            let put = |memory: &dyn Memory, offset: usize, len: usize| {
                let mut head = [0; VNET_HDR_LEN];
                if len < VNET_HDR_LEN || !memory.read(offset, &mut head) {
                    return Ok(WriteOutcome::Refused);
                }
                let Ok(vnet) = Vnet::parse(&head) else {
                    return Ok(WriteOutcome::Refused);
                };
                queue.write_frame_with(&vnet, |fd, header| {
                    memory.write_to(fd, header, offset + VNET_HDR_LEN, len - VNET_HDR_LEN)
                })
            };
            let put = match link.with_packet(put) {
                Ok(Some(put)) => put?,
                Ok(None) => break,
                Err(lost) => {
                    self.drop_connection(&lost.to_string());
                    break;
                }
            };
            turn += 1;
            match put {
                WriteOutcome::Sent => {
                    self.frames.received += 1;
                    // A frame delivered is often answered at once.
                    self.frames.is_drained = false;
                }
                // A TAP has no queue that could be full in this direction.
                WriteOutcome::WouldBlock | WriteOutcome::Refused => self.frames.dropped += 1,
            }
        }
        self.with_link(|link, carrier| link.drive(carrier));
        Ok(turn > 0)
    }
}

/// Reads a frame from the interface directly into the send buffer.
fn send(link: &mut Link, queue: &Queue) -> Result<ReadOutcome, HostError> {
    let most = link.options().size as usize - VNET_HDR_LEN;
    let mut took = Ok(ReadOutcome::WouldBlock);
    let sent = link.send_with(|memory, offset| {
        took = queue.read_frame_with(most, |fd, header| {
            memory.read_from(fd, header, offset + VNET_HDR_LEN, most)
        });
        match &took {
            Ok(ReadOutcome::Frame(vnet, len)) => {
                memory.write(offset, &vnet.emit());
                Some(VNET_HDR_LEN + len)
            }
            _ => None,
        }
    });
    // There was room; a frame that does not fit the unit's elements is dropped.
    match (took?, sent) {
        (ReadOutcome::Frame(..), Err(_)) => Ok(ReadOutcome::Lost),
        (took, _) => Ok(took),
    }
}
