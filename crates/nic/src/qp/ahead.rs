//! Segments with sequence numbers, in the order in which they arrive (M9, M10): a frame ahead of a gap is placed when it arrives where that is
//! allowed, and delivered when the stream reaches it. Nothing is placed or completed twice, and what cannot be placed is held.
//!
//! RFC 5041 §5.3 leaves the order of placement open, so `iwarp` places Writes and Sends ahead of a gap. In `roce` their memory changes in
//! the order of the requests, on which programs rely (docs/connections.md): they are held, and only responses to reads are placed.
//! In order, everything is processed as from a socket; a placed frame is replayed with its head.

use verbena_events::event::Outbox;
use verbena_mem::{Access, Arrival, MemAccess, Refusal, Seq, Verdict};
use verbena_stream::reassembly::Piece;
use verbena_stream::{AheadFrame, AheadPlace, Alignment, Stream, Time, Violation};
use verbena_wire::Rsn;
use verbena_wire::rdmap::Opcode;

use super::QpInit;
use super::ahead_state::{Ahead, PlacedFrame, PlacedTouch};
use super::inner::Inner;
use super::memory::{Right, access_violation, places};
use super::receive::Receiving;
use super::touch::Touching;
use super::wqe::Payload;
use crate::state::{Personality, QpType};
use crate::wr::Sge;

/// Receives that are claimed for messages ahead of a gap, at most. Messages beyond are held.
pub(super) const MAX_EARLY_RECEIVES: u32 = 256;
/// Memory of a buffer for held bytes that is kept between segments.
const KEPT_BUFFER: usize = 16 << 10;

/// A part of a segment that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Where its first byte is in the peer's stream; the first FPDU begins at 0.
    pub position: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Everything before this position has arrived, this segment counted (RCV.NXT).
    pub in_order: u64,
    /// How many bytes from there on the carrier accepts.
    pub window: u32,
    /// What is known of the peer's segments.
    pub alignment: Alignment,
}

/// Result of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentTaken {
    /// Whether more can be received, as after [`Qp::receive`](super::Qp::receive).
    pub receiving: Receiving,
    /// Bytes of it that were taken, from its front. The others must be treated as not received, and not be acknowledged.
    pub taken: usize,
    /// Everything before this position is processed: the carrier's window moves with it.
    pub processed: u64,
}

/// What became of a frame.
enum Early {
    Placed(PlacedTouch),
    /// It waits for its turn.
    Hold,
    /// M9: outside the window. It counts as not received.
    Drop,
    /// The stream is over.
    Ended,
}

impl Inner {
    /// Takes a part of a segment, and everything that it completes.
    pub(super) fn take_segment(
        &mut self,
        init: &QpInit,
        segment: &Segment<'_>,
        now: Time,
        out: &mut Outbox,
    ) -> SegmentTaken {
        self.now = self.now.max(now);
        let mut ahead = self.receive.take_ahead();
        let (receiving, taken) = if self.wire.stream().is_none() || self.link.is_severed() {
            // Nothing reads them any more.
            (Receiving::Ended, segment.bytes.len())
        } else {
            let taken = self.take_parts(init, &mut ahead, segment, now, out);
            (self.replay_all(init, &mut ahead, now, out), taken)
        };
        if !self.wire.stream().is_some_and(|s| s.state().is_open()) {
            ahead.clear();
        }
        let processed = ahead.pieces.next();
        self.receive.put_ahead(ahead);
        SegmentTaken {
            receiving,
            taken,
            processed,
        }
    }

    /// Takes the new parts of a segment; returns how many bytes of it were taken.
    fn take_parts(
        &mut self,
        init: &QpInit,
        ahead: &mut Ahead,
        segment: &Segment<'_>,
        now: Time,
        out: &mut Outbox,
    ) -> usize {
        let begin = segment.position;
        let Some(end) = begin.checked_add(segment.bytes.len() as u64) else {
            return 0;
        };
        let mut at = begin;
        while let Some((from, to)) = ahead.pieces.first_gap(at, end) {
            let (low, high) = ((from - begin) as usize, (to - begin) as usize);
            let bytes = segment.bytes.get(low..high).unwrap_or_default();
            self.counters.bytes_in += bytes.len() as u64;
            let taken = if from == ahead.pieces.next() && !self.receive.is_blocked() {
                ahead.pieces.advance(bytes.len() as u64);
                self.process_in_order(init, bytes, now, out);
                bytes.len()
            } else {
                self.take_ahead_of_gap(init, ahead, (from, bytes), segment, out)
            };
            if taken < bytes.len() {
                self.counters.bytes_in -= (bytes.len() - taken) as u64;
                return low + taken;
            }
            at = to;
        }
        segment.bytes.len()
    }

    fn process_in_order(&mut self, init: &QpInit, bytes: &[u8], now: Time, out: &mut Outbox) {
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        self.process_bytes(init, bytes, now, out);
    }

    /// Places or holds new bytes ahead of a gap; returns how many of them were taken.
    fn take_ahead_of_gap(
        &mut self,
        init: &QpInit,
        ahead: &mut Ahead,
        (position, bytes): (u64, &[u8]),
        segment: &Segment<'_>,
        out: &mut Outbox,
    ) -> usize {
        let stream = self.wire.stream();
        let found = match stream {
            // What is blocked is continued first: whether something before it fails is not known yet.
            Some(stream) if !self.receive.is_blocked() => {
                stream.frames_ahead(position, bytes, segment.alignment)
            }
            _ => Vec::new(),
        };
        let mut held = 0;
        for (at, frame) in found {
            let end = position + (at + frame.size()) as u64;
            let early = self.place_early(init, ahead, &frame, end, segment, out);
            let touch = match early {
                Early::Placed(touch) => touch,
                Early::Hold => continue,
                Early::Drop => {
                    let whole = bytes.get(held..at).unwrap_or_default();
                    let kept = hold(ahead, position + held as u64, whole);
                    return if kept { at } else { held };
                }
                Early::Ended => return bytes.len(),
            };
            if !hold(
                ahead,
                position + held as u64,
                bytes.get(held..at).unwrap_or_default(),
            ) {
                return held;
            }
            let record = PlacedFrame {
                head: frame.head().to_vec(),
                touch,
            };
            let begin = position + at as u64;
            if ahead
                .pieces
                .record(begin, frame.size() as u64, Box::new(record))
                .is_err()
            {
                return at;
            }
            held = at + frame.size();
        }
        let rest = bytes.get(held..).unwrap_or_default();
        if hold(ahead, position + held as u64, rest) {
            bytes.len()
        } else {
            held
        }
    }

    /// Places the payload of a frame ahead of a gap, if that is certain and allowed. The frame ends at `end`.
    fn place_early(
        &mut self,
        init: &QpInit,
        ahead: &mut Ahead,
        frame: &AheadFrame<'_>,
        end: u64,
        segment: &Segment<'_>,
        out: &mut Outbox,
    ) -> Early {
        let Some(stream) = self.wire.stream() else {
            return Early::Hold;
        };
        let found = match stream.place_ahead(frame, &mut ahead.reads) {
            Ok(found) => found,
            Err(violation) => return self.fail_early(init, frame, violation, out),
        };
        let reliable = init.qp_type == QpType::Rc;
        let Some(place) = found.filter(|_| reliable && ahead.pieces.may_place()) else {
            return Early::Hold;
        };
        // A response may still need the memory that a request overwrites.
        let for_requests = init.personality == Personality::Iwarp && !self.has_responses();
        match place {
            AheadPlace::Sink { rsn, offset } => {
                self.place_read_response(init, frame, (rsn, offset))
            }
            _ if !for_requests => Early::Hold,
            AheadPlace::Write { stag, to, last } => {
                let reach = MemAccess {
                    stag,
                    at: to.get(),
                    len: u64::from(frame.payload_len()),
                    pd: init.pd,
                    qp: init.number,
                    needs: Access::REMOTE_WRITE,
                };
                let arrival = Arrival {
                    last,
                    end: Seq::new(end.wrapping_sub(1) as u32),
                    next: Seq::new(segment.in_order as u32),
                    window: segment.window,
                };
                self.place_write(init, frame, &reach, &arrival, out)
            }
            AheadPlace::Claimed { offset } => match self.receive.claimed() {
                Some(receive) => place_message(init, &receive.scatter, frame, offset),
                None => Early::Hold,
            },
            AheadPlace::Receive { before, offset } => {
                if before >= MAX_EARLY_RECEIVES || init.srq.is_some() {
                    return Early::Hold;
                }
                match self.receive.early_receive(before, &mut self.heads) {
                    Some(receive) => place_message(init, &receive.scatter, frame, offset),
                    None => Early::Hold,
                }
            }
        }
    }

    fn place_write(
        &mut self,
        init: &QpInit,
        frame: &AheadFrame<'_>,
        reach: &MemAccess,
        arrival: &Arrival,
        out: &mut Outbox,
    ) -> Early {
        let reached = arrival.end.is_before(arrival.next);
        if !self.attributes.enabled.write || reached {
            return Early::Hold;
        }
        // What memory refuses is refused in its turn: it may be registered or invalidated by then.
        let Ok(place) = init.tpt.place_remote(reach) else {
            return Early::Hold;
        };
        let (place, touch) = if place.is_one_touch() {
            drop(place);
            match init.tpt.touch(reach, arrival) {
                Ok(Verdict::Place(place)) => (place, PlacedTouch::Seen(*reach)),
                Ok(Verdict::Ahead(place)) => {
                    match init.tpt.touched_ahead(reach.stag, arrival.end) {
                        Some(touch) => (place, PlacedTouch::Ahead(touch)),
                        // The entry is gone again.
                        None => return Early::Hold,
                    }
                }
                // M9: only a segment that the stream has reached spends an entry at once, and those are held.
                Ok(Verdict::Spends(..)) => return Early::Hold,
                Ok(Verdict::Dropped) => return Early::Drop,
                Err(refusal @ Refusal::Touched { .. }) => {
                    self.cause.note_refused(reach);
                    let violation = access_violation(Opcode::Write, reach.stag, &refusal);
                    return self.fail_early(init, frame, violation, out);
                }
                Err(_) => return Early::Hold,
            }
        } else {
            (place, PlacedTouch::No)
        };
        let mut at = 0;
        for run in frame.payload() {
            match place.write(at, run) {
                Ok(n) => at += n as u64,
                Err(_) => {
                    drop(place);
                    return Early::Hold;
                }
            }
        }
        Early::Placed(touch)
    }

    fn place_read_response(
        &mut self,
        init: &QpInit,
        frame: &AheadFrame<'_>,
        (rsn, offset): (Rsn, u32),
    ) -> Early {
        let Some(at) = self.sends.find(rsn) else {
            return Early::Hold;
        };
        let Payload::Gather(sges) = &self.sends[at].payload else {
            return Early::Hold;
        };
        // Sinks that overlap are filled in the order of their requests.
        let others = self.sends.iter().take(self.sends.begun()).enumerate();
        let shares = |other: &Payload| match other {
            Payload::Gather(theirs) => overlap(sges, theirs),
            _ => false,
        };
        if others
            .filter(|(other, wqe)| *other != at && wqe.op.has_sink())
            .any(|(_, wqe)| shares(&wqe.payload))
        {
            return Early::Hold;
        }
        let right = Right::of_sink(init, !self.wire.peer_features().read_v2);
        scatter_at(init, sges, frame, offset, right)
    }

    /// A frame ahead of a gap breaks a rule that does not depend on what is missing.
    fn fail_early(
        &mut self,
        init: &QpInit,
        frame: &AheadFrame<'_>,
        violation: Violation,
        out: &mut Outbox,
    ) -> Early {
        if let Some(stream) = self.wire.stream_mut() {
            stream.fail_ahead(violation, frame.offender());
        }
        self.handle_violation(init, &violation, out);
        Early::Ended
    }

    /// Processes what the stream has reached, until there is a gap or something must happen first.
    fn replay_all(
        &mut self,
        init: &QpInit,
        ahead: &mut Ahead,
        now: Time,
        out: &mut Outbox,
    ) -> Receiving {
        let before = ahead.pieces.next();
        while !self.receive.is_blocked() {
            ahead.buffer.clear();
            match ahead.pieces.pop(&mut ahead.buffer) {
                None => break,
                Some(Piece::Held(_)) => {
                    self.process_in_order(init, &ahead.buffer, now, out);
                }
                Some(Piece::Placed(_, frame)) => self.replay(init, *frame, now, out),
            }
        }
        if ahead.buffer.capacity() > KEPT_BUFFER {
            ahead.buffer = Vec::new();
        }
        if self.receive.is_blocked() {
            Receiving::Held
        } else {
            Receiving::Some((ahead.pieces.next() - before) as usize)
        }
    }

    /// The stream has reached a frame whose payload is placed.
    fn replay(&mut self, init: &QpInit, frame: PlacedFrame, now: Time, out: &mut Outbox) {
        let Some(stream) = self.wire.stream_mut().filter(|s| s.state().is_open()) else {
            return;
        };
        if !self.receive.stage().is_empty() || !stream.is_between_frames() {
            let violation = stream.refuse_misaligned();
            return self.handle_violation(init, &violation, out);
        }
        let opened = match stream.open_placed(&frame.head) {
            Ok(claim) => claim,
            Err(violation) => return self.handle_violation(init, &violation, out),
        };
        if opened.is_some() && !self.claim(init, Opcode::Send, now, out) {
            return;
        }
        // The right may have ended in between, by a request that is before it in the stream.
        let run = self.wire.stream().and_then(Stream::placed_run);
        if let Some(run) = run {
            let touching = match frame.touch {
                PlacedTouch::No => {
                    let checked = self.check_placed(init, run);
                    if let Err(violation) = checked {
                        if let Some(stream) = self.wire.stream_mut() {
                            stream.fail(violation);
                        }
                        return self.handle_violation(init, &violation, out);
                    }
                    None
                }
                PlacedTouch::Seen(reach) => Some(Touching::Seen(reach)),
                PlacedTouch::Ahead(touch) => {
                    // M9: the stream has reached it. No grant is held here.
                    drop(touch);
                    self.receive.take_touching();
                    None
                }
            };
            if let Some(touching) = touching {
                self.receive.set_touching(touching);
            }
        }
        let Some(stream) = self.wire.stream_mut() else {
            return;
        };
        match stream.close_placed(now) {
            Ok(Some(delivery)) => {
                self.deliver(init, &delivery, out);
            }
            Ok(None) => {}
            Err(violation) => self.handle_violation(init, &violation, out),
        }
    }
}

/// Holds bytes; false if there is no room for them.
fn hold(ahead: &mut Ahead, position: u64, bytes: &[u8]) -> bool {
    bytes.is_empty() || ahead.pieces.hold(position, bytes).is_ok()
}

/// Places the payload of a Send in its receive.
fn place_message(init: &QpInit, sges: &[Sge], frame: &AheadFrame<'_>, offset: u32) -> Early {
    scatter_at(init, sges, frame, offset, Right::Local)
}

/// Places the payload of a frame at an offset of a list of elements; it is held if it does not fit or memory refuses it.
fn scatter_at(
    init: &QpInit,
    sges: &[Sge],
    frame: &AheadFrame<'_>,
    offset: u32,
    right: Right,
) -> Early {
    let len = frame.payload_len();
    let capacity = sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>();
    if u64::from(offset) + u64::from(len) > capacity {
        return Early::Hold;
    }
    let mut at = offset;
    for run in frame.payload() {
        let (mut rest, mut copied) = (run, Ok(0));
        let placed = places(init, sges, (at, run.len() as u32), right, |place| {
            copied = place.write(0, rest);
            rest = &rest[copied.unwrap_or(0)..];
            copied.is_ok() && !rest.is_empty()
        });
        if placed.is_err() || copied.is_err() {
            return Early::Hold;
        }
        at += run.len() as u32;
    }
    Early::Placed(PlacedTouch::No)
}

/// Two lists of elements name the same bytes of an entry.
fn overlap(a: &[Sge], b: &[Sge]) -> bool {
    let shares = |x: &Sge, y: &Sge| {
        x.stag == y.stag
            && x.addr < y.addr.saturating_add(y.len.into())
            && y.addr < x.addr.saturating_add(x.len.into())
    };
    a.iter().any(|x| b.iter().any(|y| shares(x, y)))
}
