//! Sending: makes frames, passes their bytes to the carrier, and processes the count.
//! Payload of long plain frames is sent from its memory, and its right to be read is checked for every write. A frame of which the
//! peer has a part cannot be dropped: then the connection is aborted.

use smallvec::smallvec;
use verbena_mem::{Refusal, Sources};
use verbena_stream::{Stream, Time};
use verbena_wire::Stag;

use super::QpInit;
use super::answer::access_violation;
use super::inner::Inner;
use super::link_state::LinkEvent;
use super::memory::gathers;
use super::pull::Receiving;
use super::responder::gather_part;
use super::send_queue::SendQueue;
use super::transmit_buffer::{Granted, InPlacePayload, Origin, Refused};
use crate::carrier::{Carrier, IoOutcome};
use crate::state::QpEvent;
use crate::wc::Status;
use verbena_events::event::{Event, Outbox};

/// Frames whose payload is in place, ahead of the carrier: no more than one write takes.
const MAX_IN_PLACE: usize = 16;

/// Reads from a connection that takes no more bytes: its receive buffer holds less.
const MAX_LAST_READS: usize = 1 << 14;

/// Result of an attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Everything that may be sent has been.
    Idle,
    /// The carrier takes no more for now.
    Blocked,
    /// Nothing can be sent any more.
    Ended,
}

/// When acknowledgements that could wait a little are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Now.
    Now,
    /// Along with other frames. The caller ensures that they are sent soon in any case.
    Piggyback,
}

impl Inner {
    pub(super) fn push(
        &mut self,
        init: &QpInit,
        carrier: &mut impl Carrier,
        acks: Acks,
        now: Time,
        out: &mut Outbox,
    ) -> Sending {
        self.now = self.now.max(now);
        let sending = self.send_frames(init, carrier, acks, out);
        if self.receive.is_blocked() {
            self.retry_held(init, out);
        }
        sending
    }

    #[inline(always)]
    fn send_frames(
        &mut self,
        init: &QpInit,
        carrier: &mut impl Carrier,
        acks: Acks,
        out: &mut Outbox,
    ) -> Sending {
        loop {
            // Acknowledgements are sent before new requests: a request may be the program's answer to what is acknowledged, and
            // programs expect their own request to complete before the answer to it arrives, as on hardware adapters.
            if !self.sends.has_begun_all() {
                self.frame_acks();
            }
            let mut more = true;
            if let Some(full) = self.stream.as_ref().and_then(Stream::full_frame_size) {
                more = self.frame_segments(init, full, out);
            } else {
                while more && self.has_room(init) {
                    more = self.frame_next(init, out);
                }
            }
            // Acknowledgements that are due go with the last frames: a peer must not take executed requests for lost.
            if acks == Acks::Now || !self.transmit.is_empty() || self.state.flushes() {
                self.frame_acks();
            }
            if self.link.is_severed() {
                return Sending::Ended;
            }
            if self.transmit.is_empty() {
                self.transmit.free_idle_memory();
                return Sending::Idle;
            }
            let (refused, bytes, moved) = {
                // Dropped at the end of the block: `drop(sources)` would copy it first.
                let mut sources = Sources::new();
                let find = finder(init, &self.sends);
                let refused = self.transmit.sources(&mut sources, find);
                let bytes = sources.bytes();
                let moved = if bytes == 0 {
                    IoOutcome::WouldBlock
                } else {
                    carrier.write(&sources)
                };
                (refused, bytes, moved)
            };
            let sent = match moved {
                IoOutcome::Bytes(n) => n,
                IoOutcome::WouldBlock => 0,
                IoOutcome::Eof | IoOutcome::Broken => {
                    self.write_failed(init, carrier, self.now, out);
                    return Sending::Ended;
                }
                IoOutcome::Fault => {
                    self.unmapped(init, out);
                    return Sending::Ended;
                }
            };
            let direct = self.transmit.advance(sent);
            self.counters.bytes_out += sent as u64;
            self.counters.bytes_direct += direct as u64;
            if sent < bytes {
                return Sending::Blocked;
            }
            if let Some(refused) = refused {
                // Everything before its frame has been sent.
                self.transmit.drop_frames();
                if refused.begun {
                    self.link.handle(LinkEvent::Sever);
                }
                self.refuse(init, &refused.cut, &refused.refusal, out);
            } else if !more {
                // Nothing was left to frame, and nothing is added under the lock.
                self.transmit.free_idle_memory();
                return Sending::Idle;
            }
        }
    }

    fn has_room(&self, init: &QpInit) -> bool {
        self.transmit.len() < init.transfer.batch.max(1)
            && self.transmit.in_place_count() < MAX_IN_PLACE
    }

    /// Frames for one write whose frames end with their segments: `full` ones and perhaps a shorter one after them. False when
    /// nothing more is to be framed.
    fn frame_segments(&mut self, init: &QpInit, full: usize, out: &mut Outbox) -> bool {
        // The rest of a short write would shift the frames after it.
        let mut go_on = self.transmit.is_empty();
        while go_on && self.has_room(init) {
            let before = self.transmit.len();
            if !self.frame_next(init, out) {
                return false;
            }
            let framed = self.transmit.len() - before;
            go_on = framed == 0 || framed >= full;
        }
        true
    }

    /// The connection takes no more bytes. What the peer sent before it ended is still in the carrier, acknowledgements among
    /// it, and counts.
    #[cold]
    fn write_failed(
        &mut self,
        init: &QpInit,
        carrier: &mut impl Carrier,
        now: Time,
        out: &mut Outbox,
    ) {
        let mut scratch = [0; 2048];
        for _ in 0..MAX_LAST_READS {
            match self.pull(init, carrier, &mut scratch, now, out) {
                Receiving::Some(_) if !self.link.is_gone() => {}
                _ => break,
            }
        }
        self.peer_disconnected(init, true, out);
    }

    /// Payload that was framed may not be read any more.
    fn refuse(&mut self, init: &QpInit, cut: &InPlacePayload, refusal: &Refusal, out: &mut Outbox) {
        match cut.origin {
            Origin::Request(number) => {
                self.cause
                    .get_or_insert_with(|| format!("our own memory: {refusal}"));
                self.defer_failure(init, number, out);
            }
            Origin::Answer(owed) => {
                let violation = access_violation(owed.header().opcode, owed.source().0, refusal);
                self.refuse_answer(init, &owed, cut.offset, violation, out);
            }
        }
    }

    /// Granted memory is not mapped: its owner unmapped registered memory.
    fn unmapped(&mut self, init: &QpInit, out: &mut Outbox) {
        self.cause
            .get_or_insert_with(|| "registered memory is not mapped".to_owned());
        let cut = self.transmit.front().copied();
        self.link.handle(LinkEvent::Sever);
        self.transmit.clear();
        match cut.map(|cut| cut.origin) {
            Some(Origin::Request(number)) => {
                self.fail_request(init, self.sends.position(number), Status::LocProtErr, out);
            }
            _ => {
                out.push(Event::QpFatal { qp: init.number });
                self.end(init, QpEvent::Failed, out);
            }
        }
    }

    /// Requests release their memory: frames made of them must not need it any more.
    pub(super) fn copy_payload(&mut self, init: &QpInit) {
        let find = finder(init, &self.sends);
        let Some(Refused {
            cut,
            refusal,
            begun,
        }) = self.transmit.copy_payload(find)
        else {
            return;
        };
        if begun {
            self.link.handle(LinkEvent::Sever);
        }
        let Some(stream) = &mut self.stream else {
            return;
        };
        // Frames are missing now, so no answer may follow.
        match cut.origin {
            Origin::Request(_) => stream.drop_responses(),
            Origin::Answer(owed) => {
                let violation = access_violation(owed.header().opcode, owed.source().0, &refusal);
                stream.fail_for(violation, Some(owed.offender(cut.offset)));
            }
        }
    }
}

/// Grants payload by its origin.
fn finder<'a, 'b>(
    init: &'a QpInit,
    sends: &'b SendQueue,
) -> impl Fn(&InPlacePayload) -> Result<Granted<'a>, Refusal> + use<'a, 'b> {
    move |cut| match &cut.origin {
        Origin::Answer(owed) => {
            let gather = gather_part(init, owed, cut.offset, cut.len)?;
            Ok(smallvec![gather])
        }
        Origin::Request(number) => {
            match sends.get(sends.position(*number)) {
                Some(wqe) => gathers(init, wqe, cut.offset, cut.len),
                // Requests end after their frames have been sent or copied, so this does not happen; if it did, sending a frame
                // without its payload would be worse.
                None => Err(Refusal::Stag { stag: Stag::new(0) }),
            }
        }
    }
}
