//! The transmit buffer: what is framed and not yet accepted by the carrier, as bytes in a buffer, and between them payload that is
//! still in its owner's memory. Bytes are sent in the order in which they were framed, and payload in place is looked up anew for every
//! write. Where each frame begins is recorded, since a frame once begun must be finished; behind the last bytes nothing is framed.

use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use smallvec::SmallVec;
use verbena_mem::{Gather, Refusal, Sources};
use verbena_stream::{Frame, Plain};

use super::owed::Owed;

/// A buffer larger than this is freed when it is empty: an idle queue pair holds no memory for data.
const MAX_IDLE_CAPACITY: usize = 1024;

/// Accepted bytes are dropped from the front once they are this many and most of the buffer.
const COMPACT_MIN: usize = 64 << 10;

/// What the payload belongs to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Origin {
    /// The request with this number since the connection began.
    Request(u64),
    /// The answer to this request of the peer.
    Answer(Owed),
}

/// Payload between two bytes of the buffer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct InPlacePayload {
    pub(super) origin: Origin,
    /// Bytes from the message's start.
    pub(super) offset: u32,
    pub(super) len: u32,
    /// Where its frame begins in the buffer.
    frame_at: usize,
    /// The position in the buffer before which it is sent.
    at: usize,
}

impl InPlacePayload {
    fn owed(&self) -> Option<&Owed> {
        match &self.origin {
            Origin::Answer(owed) => Some(owed),
            Origin::Request(_) => None,
        }
    }
}

/// Grants on the elements of one cut.
pub(super) type Granted<'a> = SmallVec<[Gather<'a>; 2]>;

/// Payload that is refused now.
pub(super) struct Refused {
    pub(super) cut: InPlacePayload,
    pub(super) refusal: Refusal,
    /// The peer has the beginning of its frame already.
    pub(super) begun: bool,
}

/// Frames to be sent. Invariant: cuts are in order of `at`, and none is before `taken`; `accepted + len() <= framed`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TransmitBuffer {
    bytes: Vec<u8>,
    taken: usize,
    in_place: VecDeque<InPlacePayload>,
    /// Bytes of all cuts.
    in_place_bytes: usize,
    /// Control frames behind a cut, none of them begun. They are numbered, so they are sent even if the cut is not.
    controls: VecDeque<Range<usize>>,
    /// Stream bytes framed so far, those that were dropped included.
    framed: u64,
    /// Stream bytes accepted by the carrier so far.
    accepted: u64,
    /// Bytes that the connection of a stream that is over sends before it is closed.
    #[serde(skip)]
    final_bytes: Vec<u8>,
    /// Those are the last bytes of the stream: nothing is framed after them.
    #[serde(skip)]
    ended: bool,
}

impl TransmitBuffer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken + self.in_place_bytes
    }

    /// Stream bytes framed so far: where the next frame begins in the stream.
    #[inline]
    pub(super) fn framed(&self) -> u64 {
        self.framed
    }

    /// Stream bytes accepted by the carrier so far.
    #[inline]
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The invariant holds, and cuts lie in the buffer.
    pub(super) fn invariants(&self) -> bool {
        let mut at = self.taken;
        let ordered = self.in_place.iter().all(|cut| {
            let fits = at <= cut.at && cut.frame_at <= cut.at && cut.at <= self.bytes.len();
            at = cut.at;
            fits
        });
        let bytes: usize = self.in_place.iter().map(|cut| cut.len as usize).sum();
        let end = self.bytes.len();
        let controls = self
            .controls
            .iter()
            .all(|c| c.start <= c.end && c.end <= end);
        let left = (end.saturating_sub(self.taken) + bytes) as u64;
        let sent = self.accepted.checked_add(left);
        let counted = sent.is_some_and(|sent| sent <= self.framed);
        ordered && self.taken <= end && bytes == self.in_place_bytes && controls && counted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Payload that was left in place and has not been accepted in full.
    pub(super) fn in_place_count(&self) -> usize {
        self.in_place.len()
    }

    /// Payload of answers was left in place and has not been accepted in full.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        !self.in_place.is_empty() && self.in_place.iter().any(|cut| cut.owed().is_some())
    }

    /// Copies the payload of all answers, if `changes` returns true for any of it; `find` grants payload. Refused payload stays as
    /// it is, and is refused in its turn.
    pub(super) fn copy_answers<'a>(
        &mut self,
        find: impl Fn(&Owed, u32, u32) -> Option<Gather<'a>>,
        changes: impl Fn(&Gather<'_>, &Owed) -> bool,
    ) {
        let grant = |cut: &InPlacePayload| {
            let owed = cut.owed()?;
            Some((find(owed, cut.offset, cut.len)?, owed.to_owned()))
        };
        let concerned =
            |cut: &InPlacePayload| grant(cut).is_some_and(|(g, owed)| changes(&g, &owed));
        if !self.in_place.iter().any(concerned) {
            return;
        }
        let (mut bytes, mut at) = (
            Vec::with_capacity(self.bytes.len() + self.in_place_bytes),
            0,
        );
        // Where payload was inserted, and how much.
        let mut grown: Vec<(usize, usize)> = Vec::new();
        let mut cuts = VecDeque::with_capacity(self.in_place.len());
        for mut cut in self.in_place.drain(..) {
            bytes.extend_from_slice(&self.bytes[at..cut.at]);
            at = cut.at;
            let shift: usize = grown.iter().map(|(_, len)| len).sum();
            let end = bytes.len();
            let copied = grant(&cut)
                .and_then(|(payload, _)| payload.append_to(0, cut.len as usize, &mut bytes).ok());
            if let Some(len) = copied {
                debug_assert_eq!(len, cut.len as usize, "granted in full");
                grown.push((cut.at, len));
                self.in_place_bytes -= len;
            } else {
                bytes.truncate(end);
                cut.at += shift;
                cut.frame_at += shift;
                cuts.push_back(cut);
            }
        }
        bytes.extend_from_slice(&self.bytes[at..]);
        for control in &mut self.controls {
            let before = grown.iter().take_while(|(at, _)| *at <= control.start);
            let shift: usize = before.map(|(_, len)| len).sum();
            *control = control.start + shift..control.end + shift;
        }
        (self.bytes, self.in_place) = (bytes, cuts);
    }

    /// Where the next frame begins in the buffer.
    pub(super) fn frame_start(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the last frame, which began there and has no payload in place.
    pub(super) fn truncate(&mut self, began: usize) {
        self.framed -= (self.bytes.len() - began) as u64;
        self.bytes.truncate(began);
    }

    /// Adds a frame; `append` copies its payload.
    pub(super) fn put(&mut self, frame: &Frame, append: impl FnMut(u32, usize, &mut Vec<u8>)) {
        let at = self.bytes.len();
        frame.append(&mut self.bytes, append);
        self.count_frame(at);
    }

    /// Adds a plain frame; `append` copies its payload.
    #[inline]
    pub(super) fn put_plain(&mut self, frame: &Plain, append: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        frame.append(&mut self.bytes, append);
        self.count_frame(at);
    }

    /// The frame from `at` on is framed.
    #[inline]
    fn count_frame(&mut self, at: usize) {
        self.framed += (self.bytes.len() - at) as u64;
    }

    /// Adds a control frame: it may be between any two frames, and stays if those around it are dropped.
    pub(super) fn put_control(&mut self, frame: &Frame) {
        let at = self.bytes.len();
        frame.append(&mut self.bytes, |_, _, _| ());
        self.note_control(at);
    }

    /// Adds an acknowledgement, which is a control frame.
    #[inline]
    pub(super) fn put_ack(&mut self, ack: &Plain) {
        let at = self.bytes.len();
        ack.append(&mut self.bytes, |_| ());
        self.note_control(at);
    }

    fn note_control(&mut self, at: usize) {
        self.count_frame(at);
        if !self.in_place.is_empty() {
            self.controls.push_back(at..self.bytes.len());
        }
    }

    /// The payload of a frame may stay in place until it is sent: it has no CRC, and no marker after it depends on it
    /// should it be refused.
    pub(super) fn takes_in_place(frame: &Frame, direct_min: u32) -> bool {
        let long = u32::from(frame.payload_len()) >= direct_min.max(1);
        long && frame.is_plain() && !frame.is_marked()
    }

    /// Adds a frame whose payload stays in place.
    pub(super) fn put_in_place(&mut self, frame: &Frame, origin: Origin) {
        let frame_at = self.bytes.len();
        self.bytes.extend_from_slice(frame.head());
        let len = u32::from(frame.payload_len());
        self.in_place.push_back(InPlacePayload {
            origin,
            offset: frame.payload_offset(),
            len,
            frame_at,
            at: self.bytes.len(),
        });
        self.in_place_bytes += len as usize;
        self.bytes.extend_from_slice(frame.trailer());
        self.framed += u64::from(len);
        self.count_frame(frame_at);
    }

    /// Adds as many bytes as `sources` takes; `find` grants the bytes of a cut.
    ///
    /// Returns payload that is refused; then only the bytes before its frame are added.
    pub(super) fn sources<'a>(
        &'a self,
        sources: &mut Sources<'a>,
        find: impl Fn(&InPlacePayload) -> Result<Granted<'a>, Refusal>,
    ) -> Option<Refused> {
        let mut at = self.taken;
        for cut in &self.in_place {
            let granted = match find(cut) {
                Ok(granted) => granted,
                Err(refusal) => {
                    sources.borrow_bytes(self.bytes.get(at..cut.frame_at).unwrap_or_default());
                    return Some(self.refused(cut, refusal));
                }
            };
            if !sources.borrow_bytes(&self.bytes[at..cut.at]) {
                return None;
            }
            at = cut.at;
            for gather in granted {
                let len = gather.len() as usize;
                if sources.gather(gather) < len {
                    return None;
                }
            }
        }
        sources.borrow_bytes(&self.bytes[at..]);
        None
    }

    fn refused(&self, cut: &InPlacePayload, refusal: Refusal) -> Refused {
        Refused {
            cut: *cut,
            refusal,
            begun: self.taken > cut.frame_at,
        }
    }

    /// The next payload in place.
    pub(super) fn front(&self) -> Option<&InPlacePayload> {
        self.in_place.front()
    }

    /// `n` bytes were accepted; returns how many of them were payload in place.
    pub(super) fn advance(&mut self, mut n: usize) -> usize {
        self.accepted += n as u64;
        let before = self.in_place_bytes;
        while n > 0 {
            let Some(cut) = self.in_place.front_mut() else {
                self.taken += n;
                break;
            };
            let own = n.min(cut.at - self.taken);
            self.taken += own;
            n -= own;
            let payload = n.min(cut.len as usize);
            if self.taken == cut.at {
                n -= payload;
                cut.offset = cut.offset.wrapping_add(payload as u32);
                cut.len -= payload as u32;
                self.in_place_bytes -= payload;
                if cut.len == 0 {
                    self.in_place.pop_front();
                }
            }
        }
        debug_assert!(self.taken <= self.bytes.len(), "more taken than framed");
        while self.controls.front().is_some_and(|c| c.start < self.taken) {
            self.controls.pop_front();
        }
        let direct = before - self.in_place_bytes;
        self.compact();
        direct
    }

    /// Nothing more is sent for now.
    pub(super) fn free_idle_memory(&mut self) {
        if self.is_empty() && self.bytes.capacity() > MAX_IDLE_CAPACITY {
            self.bytes = Vec::new();
        }
    }

    /// Drops accepted bytes where that is cheap.
    fn compact(&mut self) {
        if self.is_empty() {
            self.taken = 0;
            self.controls.clear();
            self.bytes.clear();
            return;
        }
        // The header of a frame that the peer has in part stays: it shows that the frame is begun.
        let gone = self
            .in_place
            .front()
            .map_or(self.taken, |cut| cut.frame_at.min(self.taken));
        if gone > COMPACT_MIN && gone > self.bytes.len() / 2 {
            self.bytes.drain(..gone);
            self.taken -= gone;
            for cut in &mut self.in_place {
                cut.at -= gone;
                cut.frame_at -= gone;
            }
            for control in &mut self.controls {
                *control = control.start - gone..control.end - gone;
            }
        }
    }

    /// Drops all frames that are left, except control frames behind payload in place.
    pub(super) fn drop_frames(&mut self) {
        let mut bytes = Vec::new();
        for control in &self.controls {
            bytes.extend_from_slice(&self.bytes[control.clone()]);
        }
        self.replace(bytes);
    }

    /// Copies all payload, which then needs no registered memory. From refused payload on everything is dropped,
    /// except control frames.
    pub(super) fn copy_payload<'a>(
        &mut self,
        find: impl Fn(&InPlacePayload) -> Result<Granted<'a>, Refusal>,
    ) -> Option<Refused> {
        if self.in_place.is_empty() {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.len());
        let (mut at, mut refused) = (self.taken, None);
        for cut in &self.in_place {
            let before = bytes.len();
            let copied = find(cut).and_then(|granted| {
                bytes.extend_from_slice(&self.bytes[at..cut.at]);
                for gather in &granted {
                    gather.append_to(0, gather.len() as usize, &mut bytes)?;
                }
                Ok(())
            });
            match copied {
                Ok(()) => at = cut.at,
                Err(refusal) => {
                    bytes.truncate(before);
                    bytes.extend_from_slice(self.bytes.get(at..cut.frame_at).unwrap_or_default());
                    for control in self.controls.iter().filter(|c| c.start >= cut.at) {
                        bytes.extend_from_slice(&self.bytes[control.clone()]);
                    }
                    refused = Some(self.refused(cut, refusal));
                    break;
                }
            }
        }
        if refused.is_none() {
            bytes.extend_from_slice(&self.bytes[at..]);
        }
        self.replace(bytes);
        refused
    }

    /// Drops everything that is left.
    pub(super) fn clear(&mut self) {
        self.replace(Vec::new());
    }

    /// These bytes are left to be sent, and no payload is in place.
    fn replace(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.taken = 0;
        (self.in_place, self.in_place_bytes) = (VecDeque::new(), 0);
        self.controls = VecDeque::new();
    }

    /// Everything that is left, once no payload is in place any more.
    pub(super) fn take(&mut self) -> Vec<u8> {
        debug_assert!(self.in_place.is_empty(), "payload was left in place");
        let left = self.bytes.split_off(self.taken);
        self.clear();
        left
    }

    /// Drops everything, as if nothing had been framed.
    pub(super) fn restart(&mut self) {
        self.clear();
        (self.framed, self.accepted) = (0, 0);
    }

    /// Another stream begins.
    pub(super) fn begin_stream(&mut self) {
        (self.final_bytes, self.ended) = (Vec::new(), false);
    }

    /// These are the last bytes of the stream.
    pub(super) fn end(&mut self, last: Vec<u8>) {
        self.final_bytes.extend(last);
        self.ended = true;
    }

    /// Nothing is framed any more.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The bytes that the connection sends before it is closed.
    pub(super) fn final_bytes(&self) -> Vec<u8> {
        self.final_bytes.clone()
    }
}

#[cfg(test)]
mod tests;
