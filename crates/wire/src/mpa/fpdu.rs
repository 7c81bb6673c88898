//! The frame around every segment: length, ULPDU, pad, checksum, and the markers between them
//! (RFC 5044 §4). [`Layout`] computes the position of each part in constant time, so that neither
//! sender nor receiver walks the frame to find it; it holds no bytes.

use core::fmt;
use serde::{Deserialize, Serialize};

use super::marker::Marker;
use crate::crc::{crc32c, crc32c_wire};

#[cfg(test)]
mod tests;

/// Bytes of the ULPDU length field.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the checksum field, which is there even when checksums are off.
pub const CRC_LEN: usize = 4;
/// Longest ULPDU the length field can name.
pub const MAX_ULPDU: usize = 65535;
/// Longest ULPDU for which every marker can point back to the frame's start. RFC 5044 does not
/// forbid a longer one, but its last marker's pointer no longer fits the 16-bit field.
pub const MAX_ULPDU_WITH_MARKERS: usize = 65018;

/// Distance between the first bytes of two markers (RFC 5044 §4.3).
const MARKER_SPACING: usize = 512;
/// Body bytes between two markers.
const MARKER_STRIDE: usize = MARKER_SPACING - Marker::LEN;
/// Smallest MULPDU, whatever the segment size (RFC 5044 §4.5).
const MIN_MULPDU: usize = 128;

const _: () = assert!(MAX_ULPDU == u16::MAX as usize);
const _: () = assert!(MARKER_SPACING.is_multiple_of(4) && MARKER_STRIDE.is_multiple_of(4));
// One byte more would need another marker, whose pointer does not fit 16 bits.
const _: () = {
    let longest = Layout::new(MAX_ULPDU_WITH_MARKERS as u16, Some(Phase::START));
    let beyond = Layout::new(MAX_ULPDU_WITH_MARKERS as u16 + 1, Some(Phase::START));
    assert!(longest.crc_at() <= 1 << 16 && beyond.crc_at() > 1 << 16);
};

/// Zero bytes that follow a ULPDU of this length so that the frame is a multiple of four.
pub const fn pad_len(ulpdu_len: u16) -> usize {
    (LENGTH_LEN + ulpdu_len as usize).wrapping_neg() & 3
}

/// Bytes from the first byte of a frame to the next marker position: a multiple of four below 512.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Phase(u16);

impl Phase {
    /// The first frame of a stream, which opens with a marker (RFC 5044 §4.3).
    pub const START: Self = Self(0);

    /// The phase with this distance; `None` if no frame can start there.
    pub const fn new(distance: u16) -> Option<Self> {
        if distance as usize >= MARKER_SPACING || !distance.is_multiple_of(4) {
            return None;
        }
        Some(Self(distance))
    }

    /// The distance in bytes.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The phase after `bytes` more bytes of the stream; `bytes` is a multiple of four.
    const fn advance(self, bytes: usize) -> Self {
        Self(((self.0 as usize).wrapping_sub(bytes) % MARKER_SPACING) as u16)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Positions of all parts of one frame.
///
/// The *body* is what the checksum covers apart from markers: length field, ULPDU and pad. With
/// markers, marker `k` stands `phase + 512 k` bytes into the frame and directly before body byte
/// `phase + 508 k`; it belongs to the frame if that byte is in the body or is the first of the
/// checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    ulpdu_len: u16,
    phase: Option<Phase>,
}

impl Layout {
    /// The layout of a frame around `ulpdu_len` bytes; no phase means no markers in this direction.
    pub const fn new(ulpdu_len: u16, phase: Option<Phase>) -> Self {
        Self { ulpdu_len, phase }
    }

    /// The ULPDU's length.
    pub const fn ulpdu_len(&self) -> u16 {
        self.ulpdu_len
    }

    /// Length field, ULPDU and pad.
    pub const fn body_len(&self) -> usize {
        LENGTH_LEN + self.ulpdu_len as usize + pad_len(self.ulpdu_len)
    }

    /// The whole frame with markers and checksum.
    pub const fn size(&self) -> usize {
        self.crc_at() + CRC_LEN
    }

    /// Frame offset of the checksum; everything before it is covered.
    pub const fn crc_at(&self) -> usize {
        self.body_len() + Marker::LEN * self.marker_count()
    }

    /// Markers in this frame, one directly before the length or the checksum included.
    pub const fn marker_count(&self) -> usize {
        self.markers_before(self.body_len())
    }

    /// Frame offset and content of marker `k`.
    pub const fn marker(&self, k: usize) -> Option<(usize, Marker)> {
        let Some(Phase(phase)) = self.phase else {
            return None;
        };
        if k >= self.marker_count() {
            return None;
        }
        let at = phase as usize + MARKER_SPACING * k;
        // RFC 5044 §4.2: the pointer counts from the length field, which a leading marker moves
        // back by its own size; the pointer of that leading marker is 0. Above
        // MAX_ULPDU_WITH_MARKERS the last pointer wraps, on both sides alike.
        let lead = if phase == 0 { Marker::LEN } else { 0 };
        let fpdu_ptr = at.saturating_sub(lead) as u16;
        Some((at, Marker { fpdu_ptr }))
    }

    /// Frame offset of a body byte. The end of the body, and anything behind it, is where the
    /// checksum stands.
    pub const fn locate(&self, body_offset: usize) -> usize {
        let inside = self.clamp(body_offset);
        inside + Marker::LEN * self.markers_before(inside)
    }

    /// Body bytes that lie in one piece from this one on: up to the next marker or the end.
    pub const fn run_at(&self, body_offset: usize) -> usize {
        let inside = self.clamp(body_offset);
        let rest = self.body_len() - inside;
        let Some(Phase(phase)) = self.phase else {
            return rest;
        };
        let next = phase as usize + MARKER_STRIDE * self.markers_before(inside);
        if next - inside < rest {
            next - inside
        } else {
            rest
        }
    }

    /// The phase of the frame that follows.
    pub const fn next_phase(&self) -> Option<Phase> {
        match self.phase {
            Some(phase) => Some(phase.advance(self.size())),
            None => None,
        }
    }

    /// Markers in front of this body byte.
    const fn markers_before(&self, body_offset: usize) -> usize {
        match self.phase {
            Some(Phase(phase)) if body_offset >= phase as usize => {
                (body_offset - phase as usize) / MARKER_STRIDE + 1
            }
            _ => 0,
        }
    }

    const fn clamp(&self, body_offset: usize) -> usize {
        let end = self.body_len();
        if body_offset < end { body_offset } else { end }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FPDU ulpdu={} size={}", self.ulpdu_len, self.size())?;
        match self.phase {
            Some(phase) => write!(f, " markers={} phase={phase}", self.marker_count()),
            None => Ok(()),
        }
    }
}

/// Appends the whole frame around `ulpdu` to `out` and returns the phase of the next frame.
///
/// With `crc` off the checksum field is zero. A ULPDU above [`MAX_ULPDU`] bytes has no frame:
/// nothing is appended and the phase is returned unchanged.
pub fn emit_fpdu(
    ulpdu: &[u8],
    phase: Option<Phase>,
    crc: bool,
    out: &mut Vec<u8>,
) -> Option<Phase> {
    let Ok(ulpdu_len) = u16::try_from(ulpdu.len()) else {
        return phase;
    };
    let layout = Layout::new(ulpdu_len, phase);
    let start = out.len();
    out.reserve(layout.size());
    let mut body = Vec::with_capacity(layout.body_len());
    body.extend_from_slice(&ulpdu_len.to_be_bytes());
    body.extend_from_slice(ulpdu);
    body.resize(layout.body_len(), 0);
    let mut placed = 0;
    for k in 0..=layout.marker_count() {
        if let Some((_, marker)) = k.checked_sub(1).and_then(|k| layout.marker(k)) {
            out.extend_from_slice(&marker.emit());
        }
        let stop = match layout.marker(k) {
            Some((at, _)) => at.saturating_sub(Marker::LEN * k),
            None => layout.body_len(),
        };
        out.extend_from_slice(body.get(placed..stop).unwrap_or_default());
        placed = stop;
    }
    let sum = if crc {
        crc32c(out.get(start..).unwrap_or_default())
    } else {
        0
    };
    out.extend_from_slice(&crc32c_wire(sum));
    layout.next_phase()
}

/// Longest ULPDU that fits one TCP segment of `emss` bytes (RFC 5044 §4.5), but never less than
/// 128 nor more than the length field, or the pointer of the last marker, can name.
pub const fn mulpdu(emss: usize, markers: bool) -> u16 {
    let marker_bytes = if markers {
        Marker::LEN * emss.div_ceil(MARKER_SPACING)
    } else {
        0
    };
    let most = if markers {
        MAX_ULPDU_WITH_MARKERS
    } else {
        MAX_ULPDU
    };
    let fit = emss.saturating_sub(LENGTH_LEN + CRC_LEN + marker_bytes + emss % 4);
    if fit < MIN_MULPDU {
        MIN_MULPDU as u16
    } else if fit > most {
        most as u16
    } else {
        fit as u16
    }
}
