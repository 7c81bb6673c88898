//! A frame with its virtio-net header, and the batch into which frames are read. A frame of a batch has room for the longest
//! super-frame that an interface can deliver, is allocated with the batch, and is used for every read.

use core::fmt;

use crate::error::Unfit;
use crate::headers::{ETHERNET, TAG};
use crate::vnet::Vnet;

/// The longest frame: an IP packet of 64 KiB, and two VLAN tags.
pub const LONGEST: usize = 65_536 + ETHERNET + 2 * TAG;

/// Length of both addresses; a VLAN tag is inserted behind them.
pub(crate) const ADDRESSES: usize = 12;

/// Length of a buffer: the longest frame, a tag before it, and one byte more to detect truncation.
const ROOM: usize = TAG + LONGEST + 1;

/// One frame and its virtio-net header.
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

    /// Its virtio-net header.
    pub const fn vnet(&self) -> &Vnet {
        &self.vnet
    }

    /// The bytes from the destination address to the end of the payload.
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    /// The buffer for reading from a TAP: one byte longer than any frame.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        &mut self.room[TAG..]
    }

    /// Records a read of `len` bytes into [`Frame::whole`]; false if the buffer was filled, so that the frame may be truncated.
    pub(crate) fn came(&mut self, vnet: Vnet, len: usize) -> bool {
        self.vnet = vnet;
        (self.start, self.end) = (TAG, TAG + len);
        len <= LONGEST
    }

    /// The buffers for the addresses and for the rest, with a gap for a tag between them.
    pub(crate) fn parted(&mut self) -> (&mut [u8], &mut [u8]) {
        let (addresses, rest) = self.room.split_at_mut(ADDRESSES);
        (addresses, &mut rest[TAG..])
    }

    /// Records a read of `len` bytes into [`Frame::parted`] and a tag that came beside them; false if the length is out of range.
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

/// Buffers for several frames, which every read uses again.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Frame>,
    len: usize,
}

impl Batch {
    /// Buffers for `frames` frames (at least one), 64 KiB each.
    pub fn new(frames: usize) -> Batch {
        let frames = (0..frames.max(1)).map(|_| Frame::empty()).collect();
        Batch { frames, len: 0 }
    }

    /// The frames of the last read.
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }

    /// All buffers, for the next read; discards the frames of the last one.
    pub(crate) fn refill(&mut self) -> &mut [Frame] {
        self.len = 0;
        &mut self.frames
    }

    /// Keeps the frames among the first `of` for which `kept` is true, in order, and moves the other buffers behind them.
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
