//! A frame with its header, and the batch in which frames are read and written.
//! It promises to hold any frame that an interface can hand over, super-frames included, and to allocate only when made.
//! It refuses to look into a frame.

use core::fmt;

use crate::error::Unfit;
use crate::headers::{ETHERNET, TAG};
use crate::vnet::Vnet;

/// The longest frame: an IP packet of 64 KiB, and two VLAN tags.
pub const LONGEST: usize = 65_536 + ETHERNET + 2 * TAG;

/// Both addresses: a tag goes in behind them.
pub(crate) const ADDRESSES: usize = 12;

/// Room for a tag before the longest frame, and for the byte more that shows that one was longer.
const ROOM: usize = TAG + LONGEST + 1;

/// One frame, and what it leaves to offloads.
#[derive(Clone)]
pub struct Frame {
    vnet: Vnet,
    room: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Frame {
    /// A frame with a copy of these bytes.
    pub fn new(vnet: Vnet, bytes: &[u8]) -> Result<Frame, Unfit> {
        let len = bytes.len();
        if len > LONGEST {
            return Err(Unfit::Long { len, most: LONGEST });
        }
        Ok(Frame {
            vnet,
            room: bytes.into(),
            start: 0,
            end: len,
        })
    }

    fn empty() -> Frame {
        Frame {
            vnet: Vnet::PLAIN,
            room: vec![0; ROOM].into(),
            start: 0,
            end: 0,
        }
    }

    /// What it leaves to offloads.
    pub const fn vnet(&self) -> &Vnet {
        &self.vnet
    }

    /// From the destination's address to the last byte of payload.
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    /// All of the room, for a TAP: one byte longer than any frame.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        &mut self.room[TAG..]
    }

    /// So many bytes came into [`Frame::whole`]; false if it was filled, and so may not be all.
    pub(crate) fn came(&mut self, vnet: Vnet, len: usize) -> bool {
        self.vnet = vnet;
        (self.start, self.end) = (TAG, TAG + len);
        len <= LONGEST
    }

    /// The room for the addresses and for the rest, with a gap for a tag between them.
    pub(crate) fn parted(&mut self) -> (&mut [u8], &mut [u8]) {
        let (addresses, rest) = self.room.split_at_mut(ADDRESSES);
        (addresses, &mut rest[TAG..])
    }

    /// So many bytes came into [`Frame::parted`], and this tag beside them; false if they were too many or too few.
    pub(crate) fn came_parted(&mut self, vnet: Vnet, len: usize, tag: Option<[u8; TAG]>) -> bool {
        if !(ADDRESSES..=LONGEST - TAG).contains(&len) {
            return false;
        }
        self.end = len + TAG;
        match tag {
            Some(tag) => {
                self.room[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
                (self.start, self.vnet) = (0, vnet.shifted(TAG as u16));
            }
            None => {
                self.room.copy_within(..ADDRESSES, TAG);
                (self.start, self.vnet) = (TAG, vnet);
            }
        }
        true
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.bytes().len();
        write!(f, "Frame({len} bytes, {:?})", self.vnet)
    }
}

/// Room for several frames, used again and again.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Frame>,
    len: usize,
}

impl Batch {
    /// Room for so many frames (at least one), 64 KiB each.
    pub fn new(frames: usize) -> Batch {
        let frames = (0..frames.max(1)).map(|_| Frame::empty()).collect();
        Batch { frames, len: 0 }
    }

    /// The frames that the last read brought.
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }

    /// All of the room; what is in it is gone.
    pub(crate) fn refill(&mut self) -> &mut [Frame] {
        self.len = 0;
        &mut self.frames
    }

    /// Room that was used for nothing goes behind the rest.
    pub(crate) fn keep(&mut self, kept: impl Fn(usize) -> bool, of: usize) {
        self.len = 0;
        for at in 0..of.min(self.frames.len()) {
            if kept(at) {
                self.frames.swap(self.len, at);
                self.len += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
