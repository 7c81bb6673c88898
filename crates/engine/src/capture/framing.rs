//! Where frames begin in one direction of a byte stream: an MPA startup frame first, then FPDUs (RFC 5044), whose lengths lead from one to the next.
//! Every byte passes, so that frames that find no room in the ring do not lose the place. Of a frame that is not complete, as many
//! bytes are kept as will be captured.

use verbena_mem::{Sources, Targets, Unmapped};
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout, Phase};
use verbena_wire::mpa::marker::Marker;

/// Bytes of a startup frame before its private data.
const STARTUP_LEN: usize = 20;
/// Room that is kept for the next frame.
const IDLE_CAPACITY: usize = 512;

/// Bytes that a call has moved.
pub(crate) trait Moved {
    /// Appends `len` bytes behind the first `skip`.
    fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped>;
}

impl Moved for Sources<'_> {
    fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        Sources::append_at(self, skip, len, to)
    }
}

impl Moved for Targets<'_> {
    fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        Targets::append_at(self, skip, len, to)
    }
}

impl Moved for &[u8] {
    fn append_at(&self, skip: usize, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        to.extend(self.iter().skip(skip).take(len));
        Ok(())
    }
}

/// A whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Framed<'a> {
    /// Bytes of the direction before it.
    pub(super) position: u64,
    pub(super) len: usize,
    /// Its first bytes.
    pub(super) bytes: &'a [u8],
    pub(super) is_startup: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Where a frame begins is not known.
    Unknown,
    /// A frame begins behind so many bytes.
    Skip(usize),
    /// In the fields that say how long the frame is.
    Head,
    /// So many bytes of the frame are still to come.
    Body { left: usize, len: usize },
}

/// One direction.
#[derive(Debug)]
pub(super) struct Framing {
    state: State,
    /// The startup frame has not passed.
    in_startup: bool,
    /// Of the next FPDU; none without markers.
    phase: Option<Phase>,
    /// Bytes that have passed.
    position: u64,
    /// The first bytes of the current frame.
    kept: Vec<u8>,
    /// The beginning of the current frame passed before the capture began.
    is_cut: bool,
}

impl Framing {
    /// A direction that nothing is known of.
    pub(super) fn unknown() -> Framing {
        Framing {
            state: State::Unknown,
            in_startup: false,
            phase: None,
            position: 0,
            kept: Vec::new(),
            is_cut: false,
        }
    }

    /// A direction from its first byte on.
    pub(super) fn from_start() -> Framing {
        Framing {
            state: State::Head,
            in_startup: true,
            ..Framing::unknown()
        }
    }

    /// A direction in which an FPDU with this phase begins behind so many bytes.
    pub(super) fn behind(bytes: usize, phase: Option<Phase>) -> Framing {
        Framing {
            state: match bytes {
                0 => State::Head,
                bytes => State::Skip(bytes),
            },
            phase,
            ..Framing::unknown()
        }
    }

    #[cfg(test)]
    fn set_phase(&mut self, phase: Option<Phase>) {
        self.phase = phase;
    }

    /// The same, with `position` bytes before it.
    pub(super) fn at(self, position: u64) -> Framing {
        Framing { position, ..self }
    }

    /// So many bytes have passed.
    pub(super) fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The same, but a frame that has begun is not captured.
    pub(super) fn without_begun(mut self) -> Framing {
        self.is_cut = !self.kept.is_empty() || matches!(self.state, State::Body { .. });
        self
    }

    /// `n` bytes pass; `each` gets every frame that they complete, with no more than `snap_len` of its bytes.
    pub(super) fn pass(
        &mut self,
        n: usize,
        moved: &impl Moved,
        snap_len: usize,
        mut each: impl FnMut(Framed<'_>),
    ) {
        let mut at = 0;
        while at < n {
            let here = n - at;
            let step = match self.state {
                State::Unknown => here,
                State::Skip(left) => here.min(left),
                State::Head => here.min(self.head_len().saturating_sub(self.kept.len())),
                State::Body { left, .. } => here.min(left),
            };
            let keeps = match self.state {
                State::Unknown | State::Skip(_) => 0,
                State::Head => step,
                State::Body { .. } => step.min(snap_len.saturating_sub(self.kept.len())),
            };
            if keeps > 0 && moved.append_at(at, keeps, &mut self.kept).is_err() {
                // The owner has unmapped the memory: the connection fails.
                *self = Framing::unknown();
                return;
            }
            at += step;
            self.position += step as u64;
            self.advance(step, snap_len, &mut each);
        }
    }

    fn advance(&mut self, step: usize, snap_len: usize, each: &mut impl FnMut(Framed<'_>)) {
        self.state = match self.state {
            State::Unknown => return,
            State::Skip(left) if left > step => State::Skip(left - step),
            State::Skip(_) => State::Head,
            State::Head if self.kept.len() < self.head_len() => return,
            State::Head => {
                let len = self.frame_len();
                let left = len.saturating_sub(self.kept.len());
                State::Body { left, len }
            }
            State::Body { left, len } => State::Body {
                left: left - step,
                len,
            },
        };
        let State::Body { left: 0, len } = self.state else {
            return;
        };
        let bytes = &self.kept[..self.kept.len().min(snap_len)];
        if !core::mem::take(&mut self.is_cut) {
            each(Framed {
                // A direction that was joined begins at the frame.
                position: self.position.saturating_sub(len as u64),
                len,
                bytes,
                is_startup: self.in_startup,
            });
        }
        if !core::mem::take(&mut self.in_startup) {
            self.phase = self.layout().and_then(|layout| layout.next_phase());
        }
        self.kept.clear();
        self.kept.shrink_to(IDLE_CAPACITY);
        self.state = State::Head;
    }

    /// Bytes that say how long a frame is.
    fn head_len(&self) -> usize {
        match (self.in_startup, self.phase) {
            (true, _) => STARTUP_LEN,
            // A marker right before the frame belongs to it (RFC 5044 §4.3).
            (false, Some(Phase::START)) => Marker::LEN + LENGTH_LEN,
            (false, _) => LENGTH_LEN,
        }
    }

    /// The big-endian number at the end of the head.
    fn length_field(&self) -> u16 {
        let head = self.kept.get(..self.head_len()).unwrap_or_default();
        head.last_chunk()
            .map_or(0, |field| u16::from_be_bytes(*field))
    }

    fn layout(&self) -> Option<Layout> {
        (!self.in_startup).then(|| Layout::new(self.length_field(), self.phase))
    }

    fn frame_len(&self) -> usize {
        match self.layout() {
            Some(layout) => layout.size(),
            None => STARTUP_LEN + usize::from(self.length_field()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_wire::mpa::fpdu::emit_fpdu;

    /// A startup frame with private data, and frames of these lengths.
    fn stream(lens: &[usize], mut phase: Option<Phase>) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = vec![7; STARTUP_LEN + 5];
        bytes[18..20].copy_from_slice(&[0, 5]);
        let mut starts = vec![0];
        for len in lens {
            starts.push(bytes.len());
            phase = emit_fpdu(&vec![*len as u8; *len], phase, false, &mut bytes);
        }
        (bytes, starts)
    }

    /// The positions and lengths of frames that `bytes` complete, passed in pieces.
    fn frames(framing: &mut Framing, bytes: &[u8], piece: usize) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            framing.pass(piece.len(), &piece, 100, |frame| {
                assert_eq!(frame.bytes.len(), frame.len.min(100));
                found.push((frame.position, frame.len));
            });
        }
        found
    }

    #[test]
    fn frames_are_found_at_every_split() {
        for phase in [None, Some(Phase::START)] {
            let (bytes, starts) = stream(&[18, 0, 1, 700, 65535, 14], phase);
            let end = bytes.len();
            let ends = starts.iter().skip(1).chain([&end]);
            let expected: Vec<(u64, usize)> = starts
                .iter()
                .zip(ends)
                .map(|(start, end)| (*start as u64, end - start))
                .collect();
            for piece in [1, 2, 3, 5, 19, 20, 21, 511, 512, 513, 70_000] {
                let mut framing = Framing::from_start();
                framing.set_phase(phase);
                assert_eq!(frames(&mut framing, &bytes, piece), expected, "{piece}");
            }
        }
    }

    #[test]
    fn join_in_a_frame_begins_with_the_next() {
        let (bytes, starts) = stream(&[300, 40, 50], None);
        for at in starts[1] + 1..starts[2] {
            let mut framing = Framing::behind(starts[2] - at, None);
            let found = frames(&mut framing, &bytes[at..], 64);
            let lens: Vec<usize> = found.iter().map(|(_, len)| *len).collect();
            assert_eq!(lens, [starts[3] - starts[2], bytes.len() - starts[3]]);
        }
    }

    #[test]
    fn unknown_direction_has_no_frames() {
        let (bytes, _) = stream(&[300], None);
        assert_eq!(frames(&mut Framing::unknown(), &bytes, 10), []);
    }
}
