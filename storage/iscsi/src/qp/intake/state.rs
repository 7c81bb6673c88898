//! The state of the receiving side: bytes read and not yet processed, and the position within a PDU. The stage is compacted when space
//! is asked for, and never grows.

use core::fmt;

use verbena_storage_wire::iscsi::Bhs;
use verbena_wire::crc::Crc32c;

use crate::qp::verdict::Verdict;

/// Size of the stage, for headers and for PDUs that are delivered. The longest header, with 1020 bytes of AHS, fits several times.
pub(super) const STAGE_SIZE: usize = 8 << 10;

/// Bytes read and not yet processed, and the position within a PDU.
pub(in crate::qp) struct Intake {
    pub(super) stage: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(in crate::qp) body: Option<Body>,
}

/// The data segment of a PDU whose header was processed.
pub(in crate::qp) struct Body {
    pub(in crate::qp) bhs: Bhs,
    pub(in crate::qp) verdict: Verdict,
    /// Bytes of the header and AHS, without the digest.
    pub(in crate::qp) head: u32,
    /// Bytes of data.
    pub(in crate::qp) len: u32,
    /// Bytes of data received.
    pub(in crate::qp) done: u32,
    /// Bytes of padding and digest after the data.
    pub(super) trailer_len: usize,
    pub(super) crc: Option<Crc32c>,
}

impl Intake {
    pub(in crate::qp) fn new() -> Intake {
        Intake {
            stage: vec![0; STAGE_SIZE].into(),
            start: 0,
            end: 0,
            body: None,
        }
    }

    pub(super) fn staged(&self) -> &[u8] {
        self.stage.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start >= self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Free space for up to `most` bytes after those staged.
    pub(super) fn room(&mut self, most: usize) -> &mut [u8] {
        if self.start > 0 {
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = self.stage.len().min(self.end.saturating_add(most));
        self.stage.get_mut(self.end..end).unwrap_or_default()
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let staged = self.end - self.start;
        f.debug_struct("Intake")
            .field("staged", &staged)
            .finish_non_exhaustive()
    }
}
