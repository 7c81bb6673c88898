//! Frames in segments that arrive ahead of a gap (RFC 5041 §5.3, RFC 5044 §4.3): where one begins, whether it is valid, and where its payload goes.
//! Placing changes no state of the stream: a message is delivered when the stream reaches its frames, by the same machine that receives in
//! order, which is given the head of a placed frame again. What is not certain is held by the caller until then.

use verbena_wire::ddp::{Header, MAX_LEN, MIN_LEN, peek_len};
use verbena_wire::ext::Features;
use verbena_wire::mpa::fpdu::{LENGTH_LEN, Layout, Phase};
use verbena_wire::mpa::marker::Marker;
use verbena_wire::rdmap::EchoHeader;
use verbena_wire::{Msn, Rsn, Stag, To};

use crate::deframe::{check_crc, check_markers};
use crate::delivery::{Delivery, Place, Run};
use crate::reads::ReadsAhead;
use crate::rx::{Look, body_len};
use crate::stream::{Event, State, Stream};
use crate::terminate::Offender;
use crate::time::Time;
use crate::violation::Violation;

/// Bytes from one marker to the next (RFC 5044 §4.3).
const MARKER_SPACING: u64 = 512;

/// What is known of a peer's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alignment {
    /// They may begin anywhere: only a marker shows where a frame begins.
    #[default]
    Unknown,
    /// They begin with a frame. A checksum or a marker confirms it where there is one; otherwise their frames must end with them.
    Frames,
}

/// A valid frame of a segment.
#[derive(Debug, Clone, Copy)]
pub struct AheadFrame<'a> {
    bytes: &'a [u8],
    layout: Layout,
    header: Header,
    /// ULPDU bytes before the payload.
    head_len: usize,
}

/// Where the payload of a frame ahead of a gap goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AheadPlace {
    /// An RDMA Write.
    Write {
        /// The buffer.
        stag: Stag,
        /// The address in it.
        to: To,
        /// It is the last segment of its message.
        last: bool,
    },
    /// The receive of the Send that is being received.
    Claimed {
        /// Bytes from the message's start.
        offset: u32,
    },
    /// A receive that is not claimed yet.
    Receive {
        /// How many receives are claimed before it.
        before: u32,
        /// Bytes from the message's start.
        offset: u32,
    },
    /// An outstanding read of this side.
    Sink {
        /// Its number.
        rsn: Rsn,
        /// Bytes from the response's start.
        offset: u32,
    },
}

impl<'a> AheadFrame<'a> {
    /// The frame at the front of these bytes, which are at `position` of a stream whose first frame was at 0; `None` if it is incomplete
    /// or invalid in any way.
    fn parse(position: u64, bytes: &'a [u8], markers: bool, crc: bool) -> Option<AheadFrame<'a>> {
        let phase = if markers {
            let behind = position % MARKER_SPACING;
            if behind == Marker::LEN as u64 {
                // A marker directly before the length field belongs to the frame, which therefore begins with the marker.
                return None;
            }
            let distance = (MARKER_SPACING - behind) % MARKER_SPACING;
            Some(Phase::new(distance as u16)?)
        } else {
            None
        };
        let lead = if phase == Some(Phase::START) {
            Marker::LEN
        } else {
            0
        };
        let field = bytes.get(lead..)?.first_chunk::<LENGTH_LEN>()?;
        let layout = Layout::new(u16::from_be_bytes(*field), phase);
        let bytes = bytes.get(..layout.size())?;
        if crc {
            check_crc(bytes, &layout).ok()?;
        }
        check_markers(bytes, &layout, 0, layout.size()).ok()?;
        let mut raw = [0; MAX_LEN];
        let ulpdu_len = usize::from(layout.ulpdu_len());
        copy_ulpdu(bytes, &layout, raw.get_mut(..MIN_LEN.min(ulpdu_len))?);
        let header_len = peek_len(raw[0]);
        let raw = raw.get_mut(..header_len)?;
        if ulpdu_len < header_len {
            return None;
        }
        copy_ulpdu(bytes, &layout, raw);
        let header = Header::parse(raw).ok()?;
        let body = body_len(&header, (ulpdu_len - header_len) as u32).ok()?;
        let head_len = header_len + body;
        (head_len <= ulpdu_len).then_some(AheadFrame {
            bytes,
            layout,
            header,
            head_len,
        })
    }

    /// Bytes of the whole frame.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Its DDP header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Everything before the payload, with which [`Stream::open_placed`] receives it in its turn.
    pub fn head(&self) -> &'a [u8] {
        let last = LENGTH_LEN + self.head_len - 1;
        self.bytes
            .get(..=self.layout.locate(last))
            .unwrap_or(self.bytes)
    }

    /// Payload bytes.
    pub fn payload_len(&self) -> u32 {
        (usize::from(self.layout.ulpdu_len()) - self.head_len) as u32
    }

    /// The payload, in parts between markers.
    pub fn payload(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, layout) = (self.bytes, self.layout);
        let end = LENGTH_LEN + usize::from(layout.ulpdu_len());
        let mut body = LENGTH_LEN + self.head_len;
        core::iter::from_fn(move || {
            let len = layout.run_at(body).min(end.saturating_sub(body));
            let at = layout.locate(body);
            body += len;
            bytes.get(at..at + len).filter(|run| !run.is_empty())
        })
    }

    /// It, for a Terminate.
    pub fn offender(&self) -> Option<Offender> {
        let mut raw = [0; MAX_LEN];
        copy_ulpdu(self.bytes, &self.layout, &mut raw[..self.header.len()]);
        EchoHeader::copy_from(&raw).map(|header| Offender {
            segment_len: self.layout.ulpdu_len(),
            header,
            read_request: None,
        })
    }

    /// A marker is in it, which points to its beginning.
    fn is_marked(&self) -> bool {
        self.layout.marker_count() > 0
    }
}

/// Copies the first bytes of a ULPDU, as many as `out` takes and the frame has.
fn copy_ulpdu(bytes: &[u8], layout: &Layout, out: &mut [u8]) {
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = bytes
            .get(layout.locate(LENGTH_LEN + at))
            .copied()
            .unwrap_or_default();
    }
}

/// The valid frames in a part of a stream that begins at `position`, each with its offset in `bytes`. What is before, between and behind
/// them is not certain to be any.
fn frames<'a>(
    position: u64,
    bytes: &'a [u8],
    (markers, crc): (bool, bool),
    alignment: Alignment,
) -> Vec<(usize, AheadFrame<'a>)> {
    let parse = |at: usize| {
        let rest = bytes.get(at..)?;
        AheadFrame::parse(position + at as u64, rest, markers, crc)
    };
    let mut found = Vec::new();
    let mut end = None;
    let confirmed = |frame: &AheadFrame<'_>| frame.is_marked() || alignment == Alignment::Frames;
    if parse(0).is_some_and(|frame| confirmed(&frame)) {
        end = Some(0);
    } else if markers {
        end = marked_starts(position, bytes).find(|at| parse(*at).is_some());
    }
    while let Some(at) = end {
        let Some(frame) = parse(at) else {
            break;
        };
        found.push((at, frame));
        end = Some(at + frame.size());
    }
    // Without a checksum and a marker only the lengths confirm that frames begin here.
    let certain = crc || found.iter().any(|(_, frame)| frame.is_marked());
    if !certain && end != Some(bytes.len()) {
        found.clear();
    }
    found
}

/// Offsets in `bytes` at which, by the markers in it, frames begin.
fn marked_starts(position: u64, bytes: &[u8]) -> impl Iterator<Item = usize> {
    let first = position.next_multiple_of(MARKER_SPACING) - position;
    let markers = (first as usize..bytes.len()).step_by(MARKER_SPACING as usize);
    markers.filter_map(move |at| {
        let marker = Marker::parse(bytes.get(at..)?).ok()?;
        let place = position + at as u64;
        let length = match marker.fpdu_ptr {
            0 => return Some(at),
            back => place.checked_sub(u64::from(back))?,
        };
        // A marker directly before the length field belongs to the frame.
        let lead = if length % MARKER_SPACING == Marker::LEN as u64 {
            Marker::LEN as u64
        } else {
            0
        };
        usize::try_from((length - lead).checked_sub(position)?).ok()
    })
}

/// Segments ahead of a gap.
impl Stream {
    /// The valid frames in bytes at `position` of the stream, which counts from its first frame, each with its offset.
    ///
    /// A peer that has announced that its segments begin with FPDUs is believed where there are checksums.
    pub fn frames_ahead<'a>(
        &self,
        position: u64,
        bytes: &'a [u8],
        alignment: Alignment,
    ) -> Vec<(usize, AheadFrame<'a>)> {
        // Without a checksum, payload of an FPDU that had to be cut could pass for a frame.
        let (_, crc) = self.framing_options();
        let alignment = if crc && self.has(Features::ALIGNED) {
            Alignment::Frames
        } else {
            alignment
        };
        if self.state() == State::Running {
            frames(position, bytes, self.framing_options(), alignment)
        } else {
            Vec::new()
        }
    }

    /// Where the payload of a frame ahead of a gap goes; `None` if that is not certain before the stream reaches it.
    ///
    /// M10: a read request ahead takes an entry of the read queue, and one that finds none free, or repeats a number, is a violation.
    pub fn place_ahead(
        &self,
        frame: &AheadFrame<'_>,
        reads: &mut ReadsAhead,
    ) -> Result<Option<AheadPlace>, Violation> {
        match self.look_ahead(frame.header(), frame.payload_len()) {
            Look::Place(place) => Ok(Some(place)),
            Look::Hold => Ok(None),
            Look::Request {
                msn,
                expected,
                free,
            } => reads.take(msn, expected, free).map(|()| None),
        }
    }

    /// Begins a frame that was placed when it arrived, and that the stream has reached: its head is received as
    /// [`handle`](Stream::handle) would, and its payload is not. If it needs a receive, its number is returned, and
    /// [`claim`](Stream::claim) is called before [`close_placed`](Stream::close_placed).
    pub fn open_placed(&mut self, head: &[u8]) -> Result<Option<Msn>, Violation> {
        match self.begin_placed(head) {
            Ok(claim) => Ok(claim),
            Err(violation) => {
                self.fail(violation);
                Err(violation)
            }
        }
    }

    /// The payload of the frame, as [`handle`](Stream::handle) would name its place.
    pub fn placed_run(&self) -> Option<Run> {
        let run = self.unplaced_run();
        run.filter(|run| run.place != Place::Discard && run.len > 0)
    }

    /// Ends the frame: returns the message that it completes.
    pub fn close_placed(&mut self, now: Time) -> Result<Option<Delivery>, Violation> {
        match self.end_placed(now) {
            Ok(delivery) => {
                self.enter(Event::Opened);
                if let Some(delivery) = &delivery {
                    self.act_on(delivery);
                }
                Ok(delivery)
            }
            Err(violation) => {
                self.fail(violation);
                Err(violation)
            }
        }
    }

    /// A frame that was placed cannot be continued here: the stream is in the middle of another one.
    pub fn refuse_misaligned(&mut self) -> Violation {
        self.fail(Violation::Misaligned);
        Violation::Misaligned
    }
}

#[cfg(test)]
mod tests;
