//! The send side of a queue pair: starts requests in order, frames them, and passes the frames to the carrier.
//! It observes fences, the read depth and one message at a time; a request whose memory is refused affects only its queue pair. Payload of
//! long plain frames is sent from its memory, and its right to be read is checked for every write. A frame of which the peer has a part
//! cannot be dropped: then the connection is aborted. Completion is in [`super::complete`], requests that send nothing are in
//! [`super::local_ops`].

use smallvec::smallvec;
use verbena_events::event::{Event, Outbox};
use verbena_mem::{Refusal, Sources};
use verbena_stream::responder::Due;
use verbena_stream::{BeginError, Message, Outgoing, Plain, Stream, Time};
use verbena_wire::{Rsn, Stag};

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::link_state::{LinkEvent, LinkState};
use super::memory::{Right, Source, access_violation, check_sink, gathers, source};
use super::owed::gather_part;
use super::receive::{Receiving, SendDemand};
use super::receive_state::ReceiveState;
use super::send_queue::SendQueue;
use super::transmit_buffer::{Granted, InPlacePayload, Origin, Refused, TransmitBuffer};
use super::wait::waits_for_memory;
use super::wqe::{Payload, Progress, Wqe};
use crate::carrier::{Carrier, IoOutcome};
use crate::state::{QpEvent, QpState};
use crate::trace;
use crate::wc::Status;
use crate::wr::{Flags, SendOp};

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

/// Frames to the carrier.
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
            if let Some(full) = self.wire.stream().and_then(Stream::full_frame_size) {
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
                let find = finder(init, &self.receive, &self.sends);
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
            if !self.frame_next(init, out) {
                return false;
            }
            go_on = self.transmit.len().is_multiple_of(full);
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
                self.cause.record(FailureKind::LocalMemory, || {
                    format!("our own memory: {refusal}")
                });
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
        self.cause.record(FailureKind::LocalMemory, || {
            "registered memory is not mapped".to_owned()
        });
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
        let find = finder(init, &self.receive, &self.sends);
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
        let Some(stream) = self.wire.stream_mut() else {
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

    /// Determined without trying to send: [`SendDemand::Send`] if in doubt.
    pub(super) fn send_demand(&self) -> SendDemand {
        let Some(stream) = self.wire.stream() else {
            return SendDemand::Send;
        };
        let quiet = self.state == QpState::Rts
            && self.link == LinkState::Open
            && self.transmit.is_empty()
            && !self.sends.has_current()
            && self.responder.is_idle()
            && self.sends.has_begun_all()
            && self.deadline().is_none();
        match stream.control_due() {
            _ if !quiet => SendDemand::Send,
            Due::Now => SendDemand::Send,
            Due::Soon => SendDemand::Acks,
            Due::Nothing => SendDemand::Nothing,
        }
    }
}

/// Requests to frames.
impl Inner {
    /// Makes one more frame, or one more step towards it; false when there is nothing to do.
    fn frame_next(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let Some(stream) = self
            .wire
            .stream_mut()
            .filter(|_| !self.transmit.has_ended())
        else {
            return false;
        };
        match stream.poll_ack(false) {
            Ok(None) => {}
            Ok(ack) => {
                self.put_ack(ack);
                return true;
            }
            Err(_) => {
                if let Some(frame) = stream.poll_control(false) {
                    self.transmit.put_control(&frame);
                    return true;
                }
            }
        }
        if !self.sends.has_current() && self.responder.is_idle() {
            if self.frame_short(init, out) {
                return true;
            }
            if self.sends.has_begun_all() && !self.sends.has_unsent_part() {
                return false;
            }
        }
        if let Some(outgoing) = self.sends.take_current() {
            self.continue_request(init, outgoing, out)
        } else if let Some((response, outgoing)) = self.responder.take_current() {
            self.continue_answer(init, response, outgoing, out)
        } else {
            // Requests and responses take turns.
            let request_first = self.responder.take_turn();
            (request_first && self.begin_request(init, out))
                || self.begin_answer()
                || (!request_first && self.begin_request(init, out))
        }
    }

    /// Frames acknowledgements that could have waited.
    fn frame_acks(&mut self) {
        if self.transmit.has_ended() {
            return;
        }
        if let Some(Ok(ack)) = self.wire.stream_mut().map(|s| s.poll_ack(true)) {
            self.put_ack(ack);
            return;
        }
        while let Some(frame) = self.wire.stream_mut().and_then(|s| s.poll_control(true)) {
            self.transmit.put_control(&frame);
        }
    }

    fn put_ack(&mut self, ack: Option<Plain>) {
        if let Some(plain) = ack {
            self.transmit.put_ack(&plain);
        }
    }

    /// Frames the next request if that takes one short plain frame and nothing prevents it; false if nothing was done.
    #[inline]
    fn frame_short(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let wqe = self.sends.next_unbegun(self.state);
        let (Some(wqe), Some(stream)) = (wqe, self.wire.stream_mut()) else {
            return false;
        };
        let Some(message) = message_of(init, wqe) else {
            return false;
        };
        // All its memory is granted before anything is numbered: a frame once made must be finished.
        let Ok(source) = source(init, wqe, 0, wqe.len) else {
            return false;
        };
        let Some((plain, rsn)) = stream.frame_single(&message) else {
            return false;
        };
        let (began, mut copied) = (self.transmit.frame_start(), Ok(()));
        self.transmit.put_plain(&plain, |stage| {
            copied = source.append(0, wqe.len as usize, stage);
        });
        drop(source);
        if let Err(lost) = copied {
            let refusal = Refusal::from(lost);
            wqe.rsn[0] = Some(rsn);
            self.transmit.truncate(began);
            self.sends.advance();
            self.cause.record(FailureKind::LocalMemory, || {
                format!("our own memory: {refusal}")
            });
            let number = self.sends.number(self.sends.begun() - 1);
            self.defer_failure(init, number, out);
            return true;
        }
        self.counters.messages_out += 1;
        wqe.rsn[0] = Some(rsn);
        wqe.progress = Progress::Sent {
            end: self.transmit.framed(),
        };
        self.sends.advance();
        if trace::is_active() {
            self.trace_segmented(init, self.sends.begun() - 1);
        }
        true
    }

    /// Begins the next part of the next request, if it may start now.
    pub(super) fn begin_request(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let Some(at) = self.sends.next_to_begin(self.state) else {
            return false;
        };
        if self.sends[at].is_done() {
            // A local operation between requests that are restarted is not done twice.
            self.sends.pass(at);
            return true;
        }
        if !self.sends.fences_hold(at) {
            return false;
        }
        if self.sends[at].op.is_local() {
            return self.run_local(init, at, out);
        }
        if !self.register_before_send(init, at, out) {
            return self.sends.get(at).is_none_or(Wqe::is_done);
        }
        let peer = self.wire.peer_features();
        if waits_for_memory(init, &self.sends[at], peer) {
            return false;
        }
        let started = self.check_start(init, at);
        if let Err(status) = started.and_then(|()| self.load_word(init, at)) {
            return self.fail_in_turn(init, at, status, out);
        }
        if self.wire.roce().is_some() {
            return self.begin_message(init, at, out);
        }
        let Progress::Waiting { part } = self.sends[at].progress else {
            return false;
        };
        let message = self.sends.message(at, part, peer);
        let (Some(message), Some(stream)) = (message, self.wire.stream_mut()) else {
            return false;
        };
        let wqe = &self.sends[at];
        if wqe.flags.contains(Flags::NAMES_SRQ) && stream.name_srq(wqe.srqn) {
            // It begins behind the control frame with the number.
            return true;
        }
        match stream.begin(message) {
            Ok(outgoing) => {
                self.sends.begin(at, part, outgoing);
                self.counters.messages_out += 1;
                true
            }
            Err(BeginError::Unsupported(_) | BeginError::TooLong) => {
                self.fail_in_turn(init, at, Status::LocQpOpErr, out)
            }
            Err(_) => false,
        }
    }

    /// Checks what can fail before anything is sent.
    fn check_start(&self, init: &QpInit, at: usize) -> Result<(), Status> {
        let wqe = &self.sends[at];
        let immediate = matches!(
            wqe.op,
            SendOp::Send {
                immediate: Some(_),
                ..
            } | SendOp::Write {
                immediate: Some(_),
                ..
            }
        );
        if (immediate || wqe.op.is_atomic()) && !self.attributes.rfc7306 {
            return Err(Status::LocQpOpErr);
        }
        if let Payload::Gather(sges) = &wqe.payload
            && wqe.op.has_sink()
        {
            let classic =
                matches!(wqe.op, SendOp::Read { .. }) && !self.wire.peer_features().read_v2;
            let right = Right::of_sink(init, classic);
            check_sink(init, sges, right).map_err(|_| Status::LocProtErr)?;
        }
        Ok(())
    }

    /// Reads the data of an Atomic Write, which is part of its header.
    fn load_word(&mut self, init: &QpInit, at: usize) -> Result<(), Status> {
        let wqe = &mut self.sends[at];
        if !wqe.must_load_word() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(8);
        let refused = |refusal: Refusal| {
            self.cause.record(FailureKind::LocalMemory, || {
                format!("our own memory: {refusal}")
            });
            Status::LocProtErr
        };
        let copied = source(init, wqe, 0, 8)
            .and_then(|from| from.append(0, 8, &mut bytes).map_err(Refusal::from));
        copied.map_err(refused)?;
        let word = bytes.try_into().map_err(|_| Status::LocProtErr)?;
        wqe.load_word(word);
        Ok(())
    }

    /// The next frames of the current request, as many as are sent together: nothing else becomes due between them.
    fn continue_request(
        &mut self,
        init: &QpInit,
        mut outgoing: Outgoing,
        out: &mut Outbox,
    ) -> bool {
        let (Some(stream), Some(at)) = (self.wire.stream_mut(), self.sends.begun().checked_sub(1))
        else {
            return false;
        };
        let number = self.sends.number(at);
        let outgo = &mut self.transmit;
        let request = (number, &self.sends[at]);
        match make_frames(init, stream, request, &mut outgoing, outgo) {
            Err(refusal) => {
                // Markers count every byte that was framed.
                if refusal == Refusal::Unmapped && stream.sends_markers() {
                    self.link.handle(LinkEvent::Sever);
                }
                self.cause.record(FailureKind::LocalMemory, || {
                    format!("our own memory: {refusal}")
                });
                // Until its turn comes answers are sent: a peer that waits for one may be what this side waits for.
                stream.give_up_request();
                self.defer_failure(init, number, out);
            }
            // The peer discards it: it is restarted when the peer is ready.
            Ok(false) => {}
            Ok(true) => {
                if outgoing.is_done() {
                    let (end, peer) = (self.transmit.framed(), self.wire.peer_features());
                    self.sends.part_sent(end, peer);
                    if trace::is_active() && !self.sends.has_unsent_part() {
                        self.trace_segmented(init, at);
                    }
                } else {
                    self.sends.put_current(outgoing);
                }
            }
        }
        true
    }

    /// The peer is ready for request `n` again: everything from there on is restarted.
    pub(super) fn rewind(&mut self, n: Rsn) {
        if let Some(mut outgoing) = self.sends.take_current() {
            // Tells the stream that the current message will not be finished.
            let left = self
                .wire
                .stream_mut()
                .and_then(|s| s.next_frame(&mut outgoing));
            debug_assert!(left.is_none(), "a refused message emits no frame");
        }
        self.sends.rewind(n);
    }
}

/// The last bytes of a stream.
impl Inner {
    /// What is framed already and control frames that are due; nothing new is begun.
    pub(super) fn take_final_bytes(&mut self, init: &QpInit) -> Vec<u8> {
        self.copy_payload(init);
        if self.link.is_severed() {
            return Vec::new();
        }
        if let Some(stream) = self.wire.stream_mut() {
            // Answers are not sent any more.
            stream.drop_responses();
        }
        while let Some(frame) = self.wire.stream_mut().and_then(|s| s.poll_control(true)) {
            self.transmit.put_control(&frame);
        }
        self.announce_close();
        self.transmit.take()
    }

    /// Tells the peer that this side closes in good order, so that it does not take the end of the stream for the end of
    /// the process.
    fn announce_close(&mut self) {
        if let Some(frame) = self.wire.stream_mut().and_then(Stream::closing_ack) {
            self.transmit.put_control(&frame);
        }
    }

    /// The bytes that the connection sends before it is closed: those of a stream that was dropped by a reset, or the announcement
    /// that this one closes. Repeated calls return the same bytes: the first caller that closes sends them, and nothing follows them.
    pub(super) fn closing_bytes(&mut self) -> Vec<u8> {
        // Another stream may have begun meanwhile, and continues.
        let closes = self.wire.stream().is_some() && self.wants_close() && !self.link.is_severed();
        if closes && !self.transmit.has_ended() {
            self.frame_acks();
            self.announce_close();
            let last = self.transmit.take();
            self.transmit.end(last);
        }
        self.transmit.final_bytes()
    }
}

/// Grants payload by its origin.
fn finder<'a, 'b>(
    init: &'a QpInit,
    receive: &'a ReceiveState,
    sends: &'b SendQueue,
) -> impl Fn(&InPlacePayload) -> Result<Granted<'a>, Refusal> + use<'a, 'b> {
    move |cut| match &cut.origin {
        Origin::Answer(owed) => {
            let init = receive.target().parts_or(init);
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

/// Adds the next frames of a request to `outgo` while it has room; false if the peer discards the message.
///
/// All memory that a frame could need is granted before it is made: a frame once made must be finished, unless its memory is not
/// mapped any more and the request fails.
// Inlined, it costs short messages, which do not come here, 40 instructions.
#[inline(never)]
fn make_frames(
    init: &QpInit,
    stream: &mut Stream,
    (number, wqe): (u64, &Wqe),
    outgoing: &mut Outgoing,
    outgo: &mut TransmitBuffer,
) -> Result<bool, Refusal> {
    let (begin, len) = (outgoing.sent(), outgoing.message().payload_len());
    let one = u32::from(stream.max_ulpdu());
    let (source, granted) = match len - begin {
        0 => (Source::Inline(&[]), 0),
        left => {
            let room = init.transfer.batch.saturating_sub(outgo.len());
            let several = left.min(u32::try_from(room).unwrap_or(u32::MAX).max(one));
            // What the first frame does not need must not keep it back.
            let several = source(init, wqe, begin, several).map(|granted| (granted, several));
            several.or_else(|_| {
                let one = left.min(one);
                Ok::<_, Refusal>((source(init, wqe, begin, one)?, one))
            })?
        }
    };
    loop {
        let Some(frame) = stream.next_frame(outgoing) else {
            return Ok(false);
        };
        let in_place = TransmitBuffer::takes_in_place(&frame, init.transfer.direct_min);
        if in_place && !matches!(source, Source::Inline(_)) {
            outgo.put_in_place(&frame, Origin::Request(number));
            return Ok(true);
        }
        let (began, mut copied) = (outgo.frame_start(), Ok(()));
        outgo.put(&frame, |offset, len, stage| {
            copied = copied.and(source.append(offset, len, stage));
        });
        if copied.is_err() {
            outgo.truncate(began);
        }
        copied?;
        let next = outgoing.sent().saturating_add(one).min(len);
        let is_granted = next - begin <= granted;
        if outgoing.is_done() || !is_granted || outgo.len() >= init.transfer.batch {
            return Ok(true);
        }
    }
}

/// The one message of a request that could take the fast path.
fn message_of(init: &QpInit, wqe: &Wqe) -> Option<Message> {
    let fenced = wqe.flags.contains(Flags::FENCE) || wqe.flags.contains(Flags::LOCAL_FENCE);
    // XRC: the peer may have to be told its number first.
    let names_srq = wqe.flags.contains(Flags::NAMES_SRQ);
    let fresh = wqe.progress == Progress::Waiting { part: 0 };
    // Longer payload is sent from its memory.
    let long =
        wqe.len >= init.transfer.direct_min.max(1) && matches!(wqe.payload, Payload::Gather(_));
    if fenced || names_srq || long || !fresh {
        return None;
    }
    match wqe.op {
        SendOp::Send {
            invalidate: None,
            immediate: None,
        } => Some(Message::Send {
            solicited: wqe.flags.contains(Flags::SOLICITED),
            invalidate: None,
            len: wqe.len,
        }),
        SendOp::Write {
            remote,
            immediate: None,
        } => Some(Message::Write {
            stag: remote.stag,
            to: remote.to,
            len: wqe.len,
        }),
        _ => None,
    }
}
