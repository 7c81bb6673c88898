//! FPDU reception: finds frames in the byte stream, strips markers, checks checksums (RFC 5044 §4).
//! With checksums on, a frame is parsed only when all of it is in the stage and its checksum is right, so that no damaged header
//! determines where payload goes; with checksums off, payload may bypass the stage.

use serde::{Deserialize, Serialize};
use verbena_wire::crc::crc32c;
use verbena_wire::mpa::fpdu::{CRC_LEN, LENGTH_LEN, Layout, Phase};
use verbena_wire::mpa::marker::Marker;

use crate::violation::Violation;

/// Bytes from one marker to the next (RFC 5044 §4.3).
const MARKER_SPACING: usize = 512;

/// How many bytes the stage must hold, from its front, to go on.
pub(crate) type Need = usize;

/// The receive framing of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Deframer {
    phase: Option<Phase>,
    crc: bool,
    frame: Option<Frame>,
}

/// The frame being received. Invariant: `at <= layout.size()`, `body <= layout.body_len()`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Frame {
    layout: Layout,
    /// Frame bytes consumed.
    at: usize,
    /// Body bytes (length field, ULPDU, pad) consumed.
    body: usize,
    /// Body offset at which the ULPDU ends.
    end: usize,
}

/// The next part of a frame's payload.
pub(crate) enum Next {
    /// The stage must hold this many bytes.
    Need(Need),
    /// A marker of this many stage bytes was consumed.
    Passed(usize),
    /// This many payload bytes follow in one run.
    Run(usize),
    /// The payload has ended.
    End,
}

impl Deframer {
    pub(crate) fn new(markers: bool, crc: bool) -> Deframer {
        Deframer {
            phase: markers.then_some(Phase::START),
            crc,
            frame: None,
        }
    }

    /// Checksums are on.
    pub(crate) fn has_crc(&self) -> bool {
        self.crc
    }

    /// Markers are on: the frame's bytes are not contiguous.
    pub(crate) fn has_markers(&self) -> bool {
        self.phase.is_some()
    }

    /// Bytes of the current frame that were not consumed, and the phase of the frame that follows it.
    pub(crate) fn next_frame(&self) -> (usize, Option<Phase>) {
        match self.frame {
            Some(frame) => (frame.layout.size() - frame.at, frame.layout.next_phase()),
            None => (0, self.phase),
        }
    }

    /// Checksums are looked at from now on, or not: those of a frame that is replayed were.
    pub(crate) fn set_crc(&mut self, crc: bool) {
        self.crc = crc;
    }

    /// The frame that was opened is complete, although the rest of it is not in the stage.
    pub(crate) fn close_checked(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.phase = frame.layout.next_phase();
        }
    }

    /// A frame has begun, given that `staged` bytes are in the stage.
    pub(crate) fn is_mid_frame(&self, staged: usize) -> bool {
        staged > 0 || self.frame.is_some_and(|f| f.at > 0)
    }

    /// Opens the frame at the front of the stage: its ULPDU length, or how much must be there first.
    pub(crate) fn open(&mut self, stage: &[u8]) -> Result<Result<u16, Need>, Violation> {
        // A marker right before the frame belongs to it; the length field follows (RFC 5044 §4.3).
        let lead = if self.phase == Some(Phase::START) {
            Marker::LEN
        } else {
            0
        };
        let Some(field) = array::<LENGTH_LEN>(stage, lead) else {
            return Ok(Err(lead + LENGTH_LEN));
        };
        let ulpdu_len = u16::from_be_bytes(field);
        let layout = Layout::new(ulpdu_len, self.phase);
        if self.crc {
            if stage.len() < layout.size() {
                return Ok(Err(layout.size()));
            }
            check_crc(stage, &layout)?;
        }
        self.frame = Some(Frame {
            layout,
            at: 0,
            body: 0,
            end: LENGTH_LEN + usize::from(ulpdu_len),
        });
        Ok(Ok(ulpdu_len))
    }

    /// Copies ULPDU bytes `from..from + out.len()` of the frame that starts the stage.
    pub(crate) fn peek(
        &self,
        stage: &[u8],
        from: usize,
        out: &mut [u8],
    ) -> Result<Result<(), Need>, Violation> {
        let Some(frame) = &self.frame else {
            return Ok(Err(LENGTH_LEN));
        };
        let (mut body, mut done) = (LENGTH_LEN + from, 0);
        while done < out.len() {
            let run = frame.layout.run_at(body).min(out.len() - done);
            let at = frame.layout.locate(body);
            let (Some(to), Some(source)) = (out.get_mut(done..done + run), stage.get(at..at + run))
            else {
                return Ok(Err(frame.layout.locate(body + run - 1) + 1));
            };
            to.copy_from_slice(source);
            body += run;
            done += run;
        }
        Ok(Ok(()))
    }

    /// Consumes the frame's first `ulpdu` ULPDU bytes, markers included; returns stage bytes used.
    pub(crate) fn consume_head(&mut self, stage: &[u8], ulpdu: usize) -> Result<usize, Violation> {
        let Some(frame) = &mut self.frame else {
            return Ok(0);
        };
        let body = LENGTH_LEN + ulpdu;
        let used = frame.layout.locate(body - 1) + 1;
        check_markers(stage, &frame.layout, 0, used)?;
        frame.at = used;
        frame.body = body;
        Ok(used)
    }

    /// The next part of the payload.
    pub(crate) fn next_run(&mut self, stage: &[u8]) -> Result<Next, Violation> {
        let Some(frame) = &mut self.frame else {
            return Ok(Next::End);
        };
        if frame.body >= frame.end {
            return Ok(Next::End);
        }
        let at = frame.layout.locate(frame.body);
        let marker = at - frame.at;
        if marker == 0 {
            let run = frame.layout.run_at(frame.body);
            return Ok(Next::Run(run.min(frame.end - frame.body)));
        }
        if stage.len() < marker {
            return Ok(Next::Need(marker));
        }
        check_markers(stage, &frame.layout, frame.at, at)?;
        frame.at = at;
        Ok(Next::Passed(marker))
    }

    /// `n` payload bytes of the current run were copied.
    pub(crate) fn advance(&mut self, n: usize) {
        if let Some(frame) = &mut self.frame {
            debug_assert!(
                frame.body + n <= frame.end,
                "more placed than the run holds"
            );
            frame.at += n;
            frame.body += n;
        }
    }

    /// Ends the frame: pad, a last marker, checksum. Returns stage bytes used, or how many must be there.
    pub(crate) fn close(&mut self, stage: &[u8]) -> Result<Result<usize, Need>, Violation> {
        let Some(frame) = self.frame else {
            return Ok(Ok(0));
        };
        let rest = frame.layout.size() - frame.at;
        if stage.len() < rest {
            return Ok(Err(rest));
        }
        check_markers(stage, &frame.layout, frame.at, frame.layout.size())?;
        self.phase = frame.layout.next_phase();
        self.frame = None;
        Ok(Ok(rest))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The checksum at the end of a frame without markers is right.
pub(crate) fn has_right_crc(frame: &[u8]) -> bool {
    let Some((covered, field)) = frame.split_last_chunk::<CRC_LEN>() else {
        return false;
    };
    // The only little-endian field of the protocol (RFC 5044 §4.4).
    crc32c(covered) == u32::from_le_bytes(*field)
}

pub(crate) fn check_crc(stage: &[u8], layout: &Layout) -> Result<(), Violation> {
    let covered = stage.get(..layout.crc_at()).unwrap_or_default();
    let field = array::<CRC_LEN>(stage, layout.crc_at()).unwrap_or_default();
    // The only little-endian field of the protocol (RFC 5044 §4.4).
    let (expected, got) = (crc32c(covered), u32::from_le_bytes(field));
    if expected == got {
        Ok(())
    } else {
        Err(Violation::Crc { expected, got })
    }
}

/// Checks the markers at frame offsets `from..to`; the stage begins at frame offset `from`.
pub(crate) fn check_markers(
    stage: &[u8],
    layout: &Layout,
    from: usize,
    to: usize,
) -> Result<(), Violation> {
    let Some((first, _)) = layout.marker(0) else {
        return Ok(());
    };
    // Markers have equal distances (RFC 5044 §4.3), so those before `from` are skipped by division.
    let passed = from.saturating_sub(first).div_ceil(MARKER_SPACING);
    for k in passed..layout.marker_count() {
        let Some((at, expected)) = layout.marker(k) else {
            break;
        };
        if at >= to {
            break;
        }
        let Ok(got) = Marker::parse(stage.get(at - from..).unwrap_or_default()) else {
            break;
        };
        // RFC 5044 §8 error 3: the marker and the lengths disagree.
        if got.fpdu_ptr != expected.fpdu_ptr {
            return Err(Violation::Marker {
                expected: expected.fpdu_ptr,
                got: got.fpdu_ptr,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
