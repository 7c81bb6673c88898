//! A frame with its virtio-net header, and the batch into which frames are read. A frame of a batch has room for the longest
//! super-frame that an interface can deliver, is allocated with the batch, and is used for every read.

use core::fmt;

use crate::error::FrameError;
use crate::headers::{ETH_HLEN, VLAN_HLEN};
use crate::vnet::Vnet;

/// The longest frame: an IP packet of 64 KiB, and two VLAN tags.
pub const MAX_FRAME_LEN: usize = 65_536 + ETH_HLEN + 2 * VLAN_HLEN;

/// Length of both addresses; a VLAN tag is inserted behind them.
pub(crate) const ADDRESSES_LEN: usize = 12;

/// Length of a buffer: the longest frame, a tag before it, and one byte more to detect truncation.
const BUFFER_LEN: usize = VLAN_HLEN + MAX_FRAME_LEN + 1;

/// One frame and its virtio-net header.
#[derive(Clone)]
pub struct Frame {
    vnet: Vnet,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Frame {
    /// A frame with a copy of these bytes.
    pub fn new(vnet: Vnet, bytes: &[u8]) -> Result<Frame, FrameError> {
        let len = bytes.len();
        if len > MAX_FRAME_LEN {
            return Err(FrameError::Long {
                len,
                most: MAX_FRAME_LEN,
            });
        }
        Ok(Frame {
            vnet,
            buffer: bytes.into(),
            start: 0,
            end: len,
        })
    }

    fn empty() -> Frame {
        Frame {
            vnet: Vnet::PLAIN,
            buffer: vec![0; BUFFER_LEN].into(),
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
        &self.buffer[self.start..self.end]
    }

    /// The buffer for reading from a TAP: one byte longer than any frame.
    pub(crate) fn tap_buffer(&mut self) -> &mut [u8] {
        &mut self.buffer[VLAN_HLEN..]
    }

    /// Records a read of `len` bytes into [`Frame::tap_buffer`]; false if the buffer was filled, so that the frame may be truncated.
    pub(crate) fn set_received(&mut self, vnet: Vnet, len: usize) -> bool {
        self.vnet = vnet;
        (self.start, self.end) = (VLAN_HLEN, VLAN_HLEN + len);
        len <= MAX_FRAME_LEN
    }

    /// The buffers for the addresses and for the rest, with a gap for a tag between them.
    pub(crate) fn split_buffer(&mut self) -> (&mut [u8], &mut [u8]) {
        let (addresses, rest) = self.buffer.split_at_mut(ADDRESSES_LEN);
        (addresses, &mut rest[VLAN_HLEN..])
    }

    /// Records a read of `len` bytes into [`Frame::split_buffer`] and a tag that came beside them; false if the length is out of range.
    pub(crate) fn set_received_split(
        &mut self,
        vnet: Vnet,
        len: usize,
        tag: Option<[u8; VLAN_HLEN]>,
    ) -> bool {
        if !(ADDRESSES_LEN..=MAX_FRAME_LEN - VLAN_HLEN).contains(&len) {
            return false;
        }
        self.end = len + VLAN_HLEN;
        match tag {
            Some(tag) => {
                self.buffer[ADDRESSES_LEN..ADDRESSES_LEN + VLAN_HLEN].copy_from_slice(&tag);
                (self.start, self.vnet) = (0, vnet.shifted(VLAN_HLEN as u16));
            }
            None => {
                self.buffer.copy_within(..ADDRESSES_LEN, VLAN_HLEN);
                (self.start, self.vnet) = (VLAN_HLEN, vnet);
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
    pub(crate) fn retain(&mut self, kept: impl Fn(usize) -> bool, of: usize) {
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
