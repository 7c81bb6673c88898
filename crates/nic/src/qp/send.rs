//! The send side of a queue pair: starts requests in order, frames them, and restarts them at the peer's READY.
//! It observes fences, the read depth and one message at a time; a request whose memory is refused affects only its queue pair.
//! Completion is in [`super::complete`].

use verbena_mem::{Bind, Misuse, Refusal};
use verbena_stream::{BeginError, Outgoing, Plain, Stream};
use verbena_wire::Rsn;

use super::QpInit;
use super::inner::Inner;
use super::link_state::LinkEvent;
use super::memory::{Right, Source, check_sink, source};
use super::register::register;
use super::transmit_buffer::{Origin, TransmitBuffer};
use super::wait::{wait_for_entry, waits_for_memory};
use super::wqe::{Payload, Progress, Wqe};
use crate::wc::Status;
use crate::wr::SendOp;
use verbena_events::event::Outbox;

impl Inner {
    /// What is framed already and control frames that are due; nothing new is begun.
    pub(super) fn take_final_bytes(&mut self, init: &QpInit) -> Vec<u8> {
        self.copy_payload(init);
        if self.link.is_severed() {
            return Vec::new();
        }
        if let Some(stream) = &mut self.stream {
            // Answers are not sent any more.
            stream.drop_responses();
        }
        while let Some(frame) = self.stream.as_mut().and_then(|s| s.poll_control(true)) {
            self.transmit.put_control(&frame);
        }
        self.announce_close();
        self.transmit.take()
    }

    /// Tells the peer that this side closes in good order, so that it does not take the end of the stream for the end of
    /// the process.
    fn announce_close(&mut self) {
        if let Some(frame) = self.stream.as_mut().and_then(Stream::closing_ack) {
            self.transmit.put_control(&frame);
        }
    }

    /// The bytes that the connection sends before it is closed: those of a stream that was dropped by a reset, or the announcement
    /// that this one closes. Repeated calls return the same bytes: the first caller that closes sends them, and nothing follows them.
    pub(super) fn closing_bytes(&mut self) -> Vec<u8> {
        // Another stream may have begun meanwhile, and continues.
        let closes = self.stream.is_some() && self.wants_close() && !self.link.is_severed();
        if closes && !self.transmit.has_ended() {
            self.frame_acks();
            self.announce_close();
            let last = self.transmit.take();
            self.transmit.end(last);
        }
        self.transmit.final_bytes()
    }

    /// Frames acknowledgements that could have waited.
    pub(super) fn frame_acks(&mut self) {
        if self.transmit.has_ended() {
            return;
        }
        if let Some(Ok(ack)) = self.stream.as_mut().map(|s| s.poll_ack(true)) {
            self.put_ack(ack);
            return;
        }
        while let Some(frame) = self.stream.as_mut().and_then(|s| s.poll_control(true)) {
            self.transmit.put_control(&frame);
        }
    }

    fn put_ack(&mut self, ack: Option<Plain>) {
        if let Some(plain) = ack {
            self.transmit.put_ack(&plain);
        }
    }

    /// Makes one more frame, or one more step towards it; false when there is nothing to do.
    pub(super) fn frame_next(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.transmit.has_ended()) else {
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
        } else if self.responder.take_turn() {
            self.begin_request(init, out) || self.begin_answer()
        } else {
            self.begin_answer() || self.begin_request(init, out)
        }
    }

    /// Begins the next part of the next request, if it may start now.
    fn begin_request(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
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
        let peer = self.peer_features();
        if waits_for_memory(init, &self.sends[at], peer) {
            return false;
        }
        if let Err(status) = self.check_start(init, at) {
            return self.fail_in_turn(init, at, status, out);
        }
        let Progress::Waiting { part } = self.sends[at].progress else {
            return false;
        };
        let message = self.sends.message(at, part, peer);
        let (Some(message), Some(stream)) = (message, &mut self.stream) else {
            return false;
        };
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
        let atomic = matches!(wqe.op, SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. });
        if (immediate || atomic) && !self.attributes.rfc7306 {
            return Err(Status::LocQpOpErr);
        }
        if let Payload::Gather(sges) = &wqe.payload
            && wqe.op.wants_response()
        {
            let classic = matches!(wqe.op, SendOp::Read { .. }) && !self.peer_features().read_v2;
            let right = Right::of_sink(init, classic);
            check_sink(init, sges, right).map_err(|_| Status::LocProtErr)?;
        }
        Ok(())
    }

    /// Bind, local invalidate, register: done at once, in their turn; false if nothing was done.
    pub(super) fn run_local(&mut self, init: &QpInit, at: usize, out: &mut Outbox) -> bool {
        let status = match self.sends[at].op {
            SendOp::Register(ticket) => match register(init, ticket) {
                Ok(()) => Status::Success,
                Err(why) => return self.registration_failed(init, at, why, out),
            },
            SendOp::Bind(bind) => {
                // Domain and queue pair are those of this queue pair, whatever the request says: they decide which peers may use the window (M8).
                let (pd, qp) = (init.pd, init.number);
                match init.tpt.bind(&Bind { pd, qp, ..bind }) {
                    Ok(_) => Status::Success,
                    // V5: it is retried when its memory is registered.
                    Err(Misuse::Pending(stag)) if wait_for_entry(init, stag) => return false,
                    Err(Misuse::Pending(_)) => return self.run_local(init, at, out),
                    Err(_) => Status::MwBindErr,
                }
            }
            SendOp::LocalInvalidate(stag) => match init.tpt.invalidate_local(stag, init.pd) {
                Ok(()) => Status::Success,
                Err(_) => Status::LocProtErr,
            },
            _ => return false,
        };
        if status != Status::Success {
            return self.fail_in_turn(init, at, status, out);
        }
        self.sends.end(at, status);
        self.sends.pass(at);
        true
    }

    /// The next frame of the current request.
    fn continue_request(
        &mut self,
        init: &QpInit,
        mut outgoing: Outgoing,
        out: &mut Outbox,
    ) -> bool {
        let (Some(stream), Some(at)) = (&mut self.stream, self.sends.begun().checked_sub(1)) else {
            return false;
        };
        let number = self.sends.number(at);
        let outgo = &mut self.transmit;
        let request = (number, &self.sends[at]);
        match make_frame(init, stream, request, &mut outgoing, outgo) {
            Err(refusal) => {
                // Markers count every byte that was framed.
                if refusal == Refusal::Unmapped && stream.sends_markers() {
                    self.link.handle(LinkEvent::Sever);
                }
                self.cause
                    .get_or_insert_with(|| format!("our own memory: {refusal}"));
                // Until its turn comes answers are sent: a peer that waits for one may be what this side waits for.
                stream.give_up_request();
                self.defer_failure(init, number, out);
            }
            // The peer discards it: it is restarted when the peer is ready.
            Ok(false) => {}
            Ok(true) => {
                if outgoing.is_done() {
                    let (end, peer) = (self.transmit.framed(), self.peer_features());
                    self.sends.part_sent(end, peer);
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
                .stream
                .as_mut()
                .and_then(|s| s.next_frame(&mut outgoing));
            debug_assert!(left.is_none(), "a refused message emits no frame");
        }
        self.sends.rewind(n);
    }
}

/// Adds the next frame of a request to `outgo`; false if the peer discards the message.
///
/// All memory that a frame could need is granted before it is made: a frame once made must be finished, unless its memory is not
/// mapped any more and the request fails.
fn make_frame(
    init: &QpInit,
    stream: &mut Stream,
    (number, wqe): (u64, &Wqe),
    outgoing: &mut Outgoing,
    outgo: &mut TransmitBuffer,
) -> Result<bool, Refusal> {
    let left = outgoing.message().payload_len() - outgoing.sent();
    let source = if left == 0 {
        Source::Inline(&[])
    } else {
        let most = u32::from(stream.max_ulpdu());
        source(init, wqe, outgoing.sent(), left.min(most))?
    };
    let Some(frame) = stream.next_frame(outgoing) else {
        return Ok(false);
    };
    let in_place = TransmitBuffer::takes_in_place(&frame, init.transfer.direct_min);
    if in_place && !matches!(source, Source::Inline(_)) {
        outgo.put_in_place(&frame, Origin::Request(number));
    } else {
        let (began, mut copied) = (outgo.frame_start(), Ok(()));
        outgo.put(&frame, |offset, len, stage| {
            copied = copied.and(source.append(offset, len, stage));
        });
        if copied.is_err() {
            outgo.truncate(began);
        }
        copied?;
    }
    Ok(true)
}
