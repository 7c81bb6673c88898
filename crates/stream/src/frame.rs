//! One outgoing FPDU: header, payload, trailer (RFC 5044 §4).
//! Without checksum and markers the three parts can be sent as they are, payload gathered from its own memory; otherwise the
//! whole frame is written into a stage, where payload is copied once and summed while it is in the cache.
//! The payload itself comes from the caller.

mod plain;

pub use plain::Plain;

use verbena_wire::crc::{Crc32c, crc32c};
use verbena_wire::ddp::MAX_LEN;
use verbena_wire::mpa::fpdu::{CRC_LEN, LENGTH_LEN, Layout, Phase, pad_len};

/// Longest fixed-size body that is sent behind a DDP header: CAPS.
pub(crate) const MAX_BODY: usize = 68;
const HEAD_ROOM: usize = LENGTH_LEN + MAX_LEN + MAX_BODY;
/// Bytes of a long frame that are copied before they are summed; source and copy fit the first-level cache.
const PIECE: usize = 16 << 10;

/// One FPDU to send.
#[derive(Debug, Clone)]
pub struct Frame {
    layout: Layout,
    head: [u8; HEAD_ROOM],
    head_len: u8,
    pad: u8,
    crc: bool,
    marked: bool,
    /// Offset of the first payload byte in its message.
    payload_offset: u32,
    payload_len: u16,
}

/// Zeros for the pad and for the CRC field when checksums are off.
const ZEROS: [u8; 3 + CRC_LEN] = [0; 3 + CRC_LEN];

impl Frame {
    /// `head` = DDP header and fixed-size body.
    pub(crate) fn new(
        head: &[&[u8]],
        payload_offset: u32,
        payload_len: u16,
        phase: Option<Phase>,
        crc: bool,
    ) -> Frame {
        let mut bytes = [0; HEAD_ROOM];
        let mut at = LENGTH_LEN;
        for part in head {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let ulpdu_len = (at - LENGTH_LEN) as u16 + payload_len;
        bytes[..LENGTH_LEN].copy_from_slice(&ulpdu_len.to_be_bytes());
        Frame {
            layout: Layout::new(ulpdu_len, phase),
            head: bytes,
            head_len: at as u8,
            pad: pad_len(ulpdu_len) as u8,
            crc,
            marked: phase.is_some(),
            payload_offset,
            payload_len,
        }
    }

    /// Bytes on the wire.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Offset of the payload in its message.
    pub fn payload_offset(&self) -> u32 {
        self.payload_offset
    }

    /// Payload bytes.
    pub fn payload_len(&self) -> u16 {
        self.payload_len
    }

    /// The frame can be sent as head, payload, trailer without a stage.
    pub fn is_plain(&self) -> bool {
        !self.crc && self.layout.marker_count() == 0
    }

    /// The positions of later markers depend on its length: once made, it must be sent.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// A plain frame's bytes before the payload.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }

    /// A plain frame's bytes after the payload.
    pub fn trailer(&self) -> &[u8] {
        &ZEROS[..usize::from(self.pad) + CRC_LEN]
    }

    pub(crate) fn next_phase(&self) -> Option<Phase> {
        self.layout.next_phase()
    }

    /// Appends the whole frame to `stage`; `fill(offset, hole)` copies payload from that offset of the message.
    ///
    /// The checksum covers what was copied, not what the program may have written since.
    pub fn write(&self, stage: &mut Vec<u8>, mut fill: impl FnMut(u32, &mut [u8])) {
        self.append(stage, |offset, len, stage| {
            let at = stage.len();
            stage.resize(at + len, 0);
            fill(offset, &mut stage[at..]);
        });
    }

    /// The same for a caller that can append payload itself: `append(offset, len, stage)` adds `len` bytes from that offset of
    /// the message. No byte of the stage is written twice.
    pub fn append(&self, stage: &mut Vec<u8>, mut append: impl FnMut(u32, usize, &mut Vec<u8>)) {
        let start = stage.len();
        stage.reserve(self.size());
        let head = self.head();
        let (head_end, payload_end) = (head.len(), head.len() + usize::from(self.payload_len));
        let end = payload_end + usize::from(self.pad);
        let (mut body, mut marker) = (0, 0);
        // The checksum so far, and up to where; a short frame is summed in one call.
        let (mut sum, mut summed) = (None, start);
        while body < end {
            self.append_markers(stage, start, self.layout.locate(body), &mut marker);
            let run = self.layout.run_at(body);
            let done = if body < head_end {
                let run = run.min(head_end - body);
                stage.extend_from_slice(&head[body..body + run]);
                run
            } else if body < payload_end {
                let run = run.min(payload_end - body).min(PIECE);
                let offset = self.payload_offset.wrapping_add((body - head_end) as u32);
                append(offset, run, stage);
                run
            } else {
                let run = run.min(end - body);
                stage.extend_from_slice(&ZEROS[..run]);
                run
            };
            body += done;
            if self.crc && stage.len() - summed >= PIECE {
                sum.get_or_insert_with(Crc32c::new).update(&stage[summed..]);
                summed = stage.len();
            }
            debug_assert_eq!(stage.len() - start, self.layout.locate(body - 1) + 1);
        }
        self.append_markers(stage, start, self.layout.crc_at(), &mut marker);
        let rest = &stage[summed..];
        let crc = match sum {
            _ if !self.crc => 0,
            None => crc32c(rest),
            Some(mut sum) => {
                sum.update(rest);
                sum.finish()
            }
        };
        // The only little-endian field of the protocol (RFC 5044 §4.4).
        stage.extend_from_slice(&crc.to_le_bytes());
    }

    /// Appends the markers before frame offset `to`.
    fn append_markers(&self, stage: &mut Vec<u8>, start: usize, to: usize, next: &mut usize) {
        while stage.len() - start < to {
            let Some((_, marker)) = self.layout.marker(*next) else {
                return;
            };
            stage.extend_from_slice(&marker.emit());
            *next += 1;
        }
    }
}

#[cfg(test)]
mod tests;
