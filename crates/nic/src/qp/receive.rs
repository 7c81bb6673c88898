//! The receive side of a queue pair: reads from the carrier, parses what arrived, finds receives for messages, and delivers them.
//! A long run of payload is read directly into its memory, and with it only a short stage; a whole message that was expected next takes a
//! fast path with the same effects. A message takes exactly one receive, and a missing one is handled according to personality and
//! peer. Where payload goes is in [`super::place`].

use verbena_events::event::Outbox;
use verbena_mem::{Access, MemAccess, Placement, Targets};
use verbena_stream::{Claim, Delivery, PredictedKind, Prediction, Step, Stream, Time, Violation};
use verbena_wire::ext::Caps;
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Stag, To};

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::memory::{access_violation, scatter};
use super::owed::Owed;
use super::place::Placed;
use super::receive_state::{BlockReason, Blocked, HoldCheck, PeerProgress, UNTIMED};
use super::target::Selected;
use super::touch::sink_touched;
use super::wqe::Payload;
use crate::carrier::{Carrier, IoOutcome};
use crate::receive::Receive;
use crate::srq::Srq;
use crate::state::{Personality, QpType};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::SendOp;

/// Result of an attempt to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// So many bytes arrived; there may be more.
    Some(usize),
    /// There are none now.
    WouldBlock,
    /// A message waits for a receive, or payload for its memory: nothing is read until then or until the deadline.
    Held,
    /// No more bytes will arrive.
    Ended,
}

/// Whether there is something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendDemand {
    /// Nothing: [`transmit`](super::Qp::transmit) would find nothing to do.
    Nothing,
    /// Acknowledgements that can wait a little.
    Acks,
    /// Something, or the connection has changed: transmit.
    Send,
}

/// Result of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// What was received.
    pub receiving: Receiving,
    /// What is to be sent.
    pub demand: SendDemand,
}

/// From the carrier to parsed frames.
impl Inner {
    pub(super) fn pull(
        &mut self,
        init: &QpInit,
        carrier: &mut impl Carrier,
        scratch: &mut [u8],
        now: Time,
        out: &mut Outbox,
    ) -> Receiving {
        self.now = self.now.max(now);
        if self.wire.stream().is_none() || self.link.is_severed() {
            return Receiving::Ended;
        }
        if self.receive.is_blocked() {
            return Receiving::Held;
        }
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        let staged = !self.receive.stage().is_empty();
        let missing = self.receive.stage().missing();
        let mut direct = 0;
        // In a sequence of long runs only the next header is read along, so that the run behind it is read directly, too; a frame
        // with a CRC is read to the buffer in which it is checked, so that no part of it is copied there.
        let ahead = scratch.len().min(init.transfer.lookahead.max(1));
        let most = if self.receive.expects_bulk() {
            ahead
        } else {
            scratch.len()
        };
        let (room, moved) = {
            // Dropped at the end of the block: `drop(targets)` would copy it first.
            let mut targets = Targets::new();
            if staged {
                // The rest of what is staged is read behind it, so that it is parsed in place.
                targets.stage(self.receive.stage_mut().room(missing));
                targets.stage(&mut scratch[..most]);
            } else {
                let Some(named) = self.add_targets(init, &mut targets, out) else {
                    // The refusal has its own consequences; the bytes are read in the next attempt.
                    return if self.receive.is_blocked() {
                        Receiving::Held
                    } else {
                        Receiving::Some(0)
                    };
                };
                direct = named.bytes;
                if direct == 0 {
                    // A frame with a CRC is staged in any case: as much of it as there is.
                    let summed = !self.wire.stream().is_some_and(Stream::reads_directly);
                    let most = if summed { scratch.len() } else { most };
                    targets.stage(&mut scratch[..most]);
                } else {
                    self.receive.note_run(true);
                    if named.all {
                        targets.stage(&mut scratch[..ahead]);
                    }
                }
            }
            let room = targets.bytes();
            if room == 0 {
                // A socket that is asked for zero bytes answers as if the stream had ended.
                return Receiving::WouldBlock;
            }
            (room, carrier.read(&mut targets))
        };
        match moved {
            IoOutcome::Bytes(n) => {
                self.counters.bytes_in += n as u64;
                let at_once = n.min(direct);
                if at_once > 0 {
                    self.placed(at_once);
                    self.counters.bytes_direct += at_once as u64;
                }
                let behind = (n - at_once).min(if staged { missing } else { 0 });
                self.receive.stage_mut().grow(behind);
                let rest = n - at_once - behind;
                self.process_bytes(init, &scratch[..rest], now, out);
                if n < room {
                    // There was no more.
                    self.receive.stage_mut().free_idle_memory();
                }
                Receiving::Some(n)
            }
            IoOutcome::WouldBlock => {
                self.receive.stage_mut().free_idle_memory();
                Receiving::WouldBlock
            }
            IoOutcome::Eof => {
                self.presume_executed(init, carrier.undelivered());
                self.peer_disconnected(init, false, out);
                Receiving::Ended
            }
            IoOutcome::Broken => {
                self.peer_disconnected(init, true, out);
                Receiving::Ended
            }
            IoOutcome::Fault => {
                self.fail_unmapped_target(init, out);
                Receiving::Some(0)
            }
        }
    }

    /// Processes received bytes and everything that follows from them.
    pub(super) fn process_bytes(
        &mut self,
        init: &QpInit,
        bytes: &[u8],
        now: Time,
        out: &mut Outbox,
    ) {
        let mut rest = bytes;
        // Staged bytes are older. They are completed only as far as needed: the rest is parsed in place.
        while !self.receive.stage().is_empty() {
            let (more, later) = rest.split_at(rest.len().min(self.receive.stage().missing()));
            self.receive.stage_mut().put(more);
            rest = later;
            if self.receive.stage().missing() > 0 {
                return;
            }
            let stage = core::mem::take(self.receive.stage_mut());
            let (used, need) = self.parse_input(init, stage.bytes(), now, out);
            let staged = self.receive.stage_mut();
            *staged = stage;
            staged.consume(used);
            staged.set_need(need);
            // Nothing parsed and nothing missing: something else must happen first.
            if self.receive.is_blocked() || (used == 0 && self.receive.stage().missing() == 0) {
                break;
            }
        }
        if self.receive.stage().is_empty() {
            let (used, need) = self.parse_input(init, rest, now, out);
            self.receive.stage_mut().set_need(need);
            rest = &rest[used..];
        }
        self.receive.stage_mut().put(rest);
    }

    /// Processes as much of `input` as can be parsed; returns how much that was, and how many bytes the rest needs.
    fn parse_input(
        &mut self,
        init: &QpInit,
        input: &[u8],
        now: Time,
        out: &mut Outbox,
    ) -> (usize, usize) {
        let (mut at, mut need) = (0, 0);
        loop {
            let rest = input.get(at..).unwrap_or_default();
            if init.xrcd.is_none()
                && let Some(used) = self.take_predicted(init, rest, out)
            {
                at += used;
                if at == input.len() {
                    break;
                }
                continue;
            }
            let Some(stream) = self.wire.stream_mut() else {
                break;
            };
            let (used, step) = match stream.handle(rest, now) {
                Ok(handled) => handled,
                Err(violation) => {
                    self.handle_violation(init, &violation, out);
                    return (input.len(), 0);
                }
            };
            at += used;
            let go_on = match step {
                Step::More(bytes) => {
                    need = bytes;
                    false
                }
                Step::Claim { opcode, .. } => self.claim(init, opcode, now, out),
                Step::Place(run) => {
                    let rest = input.get(at..).unwrap_or_default();
                    let n = rest.len().min(run.len as usize);
                    let placed = self.place(init, run, &rest[..n], out);
                    // V5: payload whose memory is pending stays where it is.
                    at += if placed == Placed::Held { 0 } else { n };
                    n > 0 && placed == Placed::Done
                }
                // Behind a message the stream is at the start of a frame, and needs no step for that.
                Step::Deliver(delivery) => self.deliver(init, &delivery, out) && at < input.len(),
            };
            if !go_on {
                break;
            }
        }
        (at, need)
    }
}

/// Fast path: a whole Send, Write or acknowledgement that was expected next is placed and completed at once. If anything is unusual it does
/// at most claim the receive, and leaves the frame to the general path, which handles every error.
impl Inner {
    /// Takes the frame at the front of the stage if it is an expected one; returns its bytes.
    #[inline]
    fn take_predicted(&mut self, init: &QpInit, stage: &[u8], out: &mut Outbox) -> Option<usize> {
        let stream = self.wire.stream()?;
        let foreseen = stream.predict(stage)?;
        let is_ack = matches!(foreseen.kind, PredictedKind::Ack(_));
        // A response may still need the memory that it overwrites.
        if !is_ack && self.has_responses() || !stream.is_intact(stage, &foreseen) {
            return None;
        }
        match foreseen.kind {
            PredictedKind::Ack(_) => self.accept_predicted(&foreseen),
            PredictedKind::Write { stag, to, last, .. } => {
                if !last && let Some(used) = self.take_write_run(init, stage, &foreseen) {
                    return Some(used);
                }
                self.take_write(init, &foreseen, (stag, to), last)?;
            }
            PredictedKind::Send { solicited } => self.take_send(init, &foreseen, solicited, out)?,
        }
        Some(foreseen.size)
    }

    fn accept_predicted(&mut self, foreseen: &Prediction<'_>) {
        if let Some(stream) = self.wire.stream_mut() {
            stream.commit_prediction(foreseen);
        }
    }

    /// Takes the segments of one Write that have arrived together, under one grant; returns the bytes of their frames. None if one
    /// of them needs another path: they are taken one by one then.
    #[inline(never)]
    fn take_write_run(
        &mut self,
        init: &QpInit,
        stage: &[u8],
        first: &Prediction<'_>,
    ) -> Option<usize> {
        let PredictedKind::Write { stag, to, .. } = first.kind else {
            return None;
        };
        let run = self.wire.stream()?.predict_run(stage, first)?;
        let place = self.place_of_write(init, (stag, to), run.len())?;
        let mut at = 0;
        for payload in run.payloads() {
            at += place.write(at as u64, payload).ok()?;
        }
        self.receive
            .note_run(first.payload.len() >= init.transfer.direct_min as usize);
        if let Some(stream) = self.wire.stream_mut() {
            stream.commit_run(&run);
        }
        Some(run.size())
    }

    /// Where a predicted Write goes; none if the general path must decide.
    fn place_of_write<'a>(
        &self,
        init: &'a QpInit,
        (stag, to): (Stag, To),
        len: u32,
    ) -> Option<Placement<'a>> {
        let reach = MemAccess {
            stag,
            at: to.get(),
            len: u64::from(len),
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_WRITE,
        };
        if !self.attributes.enabled.write {
            return None;
        }
        // M9: whether it is the first to end at a one-touch entry is decided by the general path.
        let place = init.tpt.place_remote(&reach).ok()?;
        (!place.is_one_touch()).then_some(place)
    }

    fn take_write(
        &mut self,
        init: &QpInit,
        foreseen: &Prediction<'_>,
        (stag, to): (Stag, To),
        last: bool,
    ) -> Option<()> {
        let len = foreseen.payload.len() as u32;
        let place = self.place_of_write(init, (stag, to), len)?;
        place.write(0, foreseen.payload).ok()?;
        self.receive.note_run(len >= init.transfer.direct_min);
        self.accept_predicted(foreseen);
        if last {
            self.receive.set_write_dropped(false);
            self.counters.messages_in += 1;
        }
        Some(())
    }

    fn take_send(
        &mut self,
        init: &QpInit,
        foreseen: &Prediction<'_>,
        solicited: bool,
        out: &mut Outbox,
    ) -> Option<()> {
        // A receive whose message was dropped is still claimed.
        let works = !self.state.flushes();
        let take = works.then_some(|srq: &Srq| srq.take_at_once(init.number, out));
        let receive = self.receive.find_receive(init, &mut self.heads, take)?;
        let len = foreseen.payload.len() as u32;
        let fits = receive.capacity() >= len;
        let good = fits && receive.fault.is_none();
        if !good || scatter(init, &receive.scatter, foreseen.payload).is_err() {
            // It stays claimed for this message: the general path finds it here.
            self.receive.set_claimed(receive);
            return None;
        }
        if len > 0 {
            self.receive.note_run(len >= init.transfer.direct_min);
        }
        self.accept_predicted(foreseen);
        self.receive.set_write_dropped(false);
        self.counters.messages_in += 1;
        let wc = Wc {
            id: receive.id,
            qpn: init.wc_qpn,
            status: Status::Success,
            op: WcOp::Receive,
            len,
            solicited,
            ..Wc::default()
        };
        let entered = self.complete_sends(init, out);
        let received = init.recv_cq.push(wc, out);
        if !entered || !received {
            self.fail_cq_overflow(init, out);
        }
        Some(())
    }
}

/// Receives for messages.
impl Inner {
    /// A message needs a receive; false if the stream must wait for one.
    pub(super) fn claim(
        &mut self,
        init: &QpInit,
        opcode: Opcode,
        now: Time,
        out: &mut Outbox,
    ) -> bool {
        match self.select_srq(init, out) {
            Selected::Ready => {}
            Selected::Elsewhere => return self.relay_claim(init, now, out),
            Selected::Held | Selected::Refused => return false,
        }
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        let immediate = matches!(opcode, Opcode::Immediate | Opcode::ImmediateSe);
        if self.receive.take_write_dropped() && immediate {
            // Immediate data reports that its Write was placed; this one's was dropped.
            return self.answer_claim(init, Claim::Drop, out);
        }
        // A failed queue pair takes nothing more from the shared queue, and does not wait for it.
        let works = !self.state.flushes();
        let take = works.then_some(|srq: &Srq| srq.take(init.number, out));
        let receive = self.receive.find_receive(init, &mut self.heads, take);
        let answer = match receive {
            Some(Receive {
                fault: Some(status),
                id,
                ..
            }) => {
                self.complete_faulty_receive(init, id, status, out);
                self.mark_executed(init);
                self.fail_fatal(init, out);
                return false;
            }
            Some(receive) => {
                self.receive.unblock();
                self.receive.begin_srq_hold(init, now);
                let capacity = receive.capacity();
                self.receive.set_claimed(receive);
                Claim::Granted { capacity }
            }
            None if init.qp_type == QpType::Uc => {
                // A dropped message does not wait.
                self.receive.leave_srq_waiters(init, out);
                Claim::Drop
            }
            // iWARP has no receiver-not-ready: a missing receive ends the stream.
            None if init.personality == Personality::Iwarp => {
                self.no_receive(init, out);
                return false;
            }
            None => match self.missing_receive(init, now) {
                Some(claim) => claim,
                None => return false,
            },
        };
        self.answer_claim(init, answer, out)
    }

    /// What a missing receive means here; `None` to stop reading for a while.
    pub(super) fn missing_receive(&mut self, init: &QpInit, now: Time) -> Option<Claim> {
        self.note_refusal(now);
        let timer = self.attributes.rnr_timer;
        // A peer that completes on acceptance has released its data and cannot send again: it is kept waiting like a
        // standard peer.
        let can_resend = |caps: &Caps| caps.personality == Personality::Roce;
        let own_peer = self
            .wire
            .stream()
            .is_some_and(|s| s.peer_caps().is_some_and(can_resend));
        if !own_peer {
            let until = now + init.transfer.receive_wait;
            self.receive.block(until, BlockReason::Receive);
            return None;
        }
        self.counters.rnr_sent += 1;
        Some(Claim::NotReady { timer })
    }

    /// A message found no receive, and its sender cannot be asked to wait any longer (RFC 5040 §5.1).
    pub(super) fn no_receive(&mut self, init: &QpInit, out: &mut Outbox) {
        let Some(stream) = self.wire.stream_mut() else {
            return;
        };
        let violation = Violation::NoReceive {
            msn: stream.claimed_msn(),
        };
        stream.fail(violation);
        self.handle_violation(init, &violation, out);
    }

    pub(super) fn answer_claim(&mut self, init: &QpInit, claim: Claim, out: &mut Outbox) -> bool {
        let Some(stream) = self.wire.stream_mut() else {
            return false;
        };
        match stream.claim(claim) {
            Ok(()) => true,
            Err(violation) => {
                self.handle_violation(init, &violation, out);
                false
            }
        }
    }

    /// A receive was posted: a message that waits for it continues.
    pub(super) fn receive_posted(&mut self, init: &QpInit, out: &mut Outbox) {
        self.receive.hold_reservation(init, self.now);
        if let Some(stream) = self.wire.stream_mut() {
            stream.receive_posted();
        }
        if self.receive.blocked().is_some_and(Blocked::for_receive) {
            self.receive.unblock();
            self.process_bytes(init, &[], self.now, out);
            // If the next message waits now, the time is not known here: the deadline is computed at the next timeout.
            self.receive.set_block_deadline(UNTIMED);
            self.settle(init, out);
        }
    }

    /// Compares the progress for a receive that is held.
    pub(super) fn check_hold(&mut self, init: &QpInit, now: Time, out: &mut Outbox) {
        let works = !self.state.flushes();
        let (connected, message) = (self.wire.is_connected(), self.wire.progress());
        let bytes_in = self.counters.bytes_in;
        match self
            .receive
            .check_hold(init, works && connected, message, bytes_in, now)
        {
            None | Some(HoldCheck::Held) => {}
            // The receive of a dropped message (unreliable connections) is returned to the shared queue.
            Some(HoldCheck::Unused) if works => self.receive.return_claimed(init, out),
            Some(HoldCheck::Unused) => {}
            Some(HoldCheck::Expired(before)) => self.fail_hold_expired(init, before, out),
        }
    }

    fn fail_hold_expired(&mut self, init: &QpInit, before: PeerProgress, out: &mut Outbox) {
        let cause = match before {
            // Packets of an unreliable connection may be lost, and the rest of the message with them.
            PeerProgress::Message(_)
                if self.wire.roce().is_some() && init.qp_type == QpType::Uc =>
            {
                return self.receive.return_claimed(init, out);
            }
            PeerProgress::Message(_) => {
                "the peer began a message for a shared receive and did not go on"
            }
            // It is slow, and bytes that it sent before it received READY come first. The receive is returned to the queue.
            PeerProgress::Reserved { bytes_in } if self.counters.bytes_in > bytes_in => {
                return self.receive.leave_srq_waiters(init, out);
            }
            PeerProgress::Reserved { .. } => {
                "the peer was sent READY for a shared receive and did not resume"
            }
            PeerProgress::LocallyBlocked => return,
        };
        let seconds = init.transfer.shared_receive_wait.as_secs_f32();
        self.cause.record(FailureKind::PeerStopped, || {
            format!("{cause} for {seconds} s")
        });
        self.fail_fatal(init, out);
    }
}

/// Messages that have arrived in full. A Send or immediate data completes exactly one receive, and a response ends exactly the request it
/// belongs to. The bytes have been placed before.
impl Inner {
    /// Processes something that has arrived in full; false if the stream is over, or is not read further for now.
    pub(super) fn deliver(&mut self, init: &QpInit, delivery: &Delivery, out: &mut Outbox) -> bool {
        if init.xrcd.is_some() {
            return self.deliver_to_target(init, delivery, out);
        }
        self.deliver_message(init, delivery, out)
    }

    /// The same with the parts that the message is for.
    pub(super) fn deliver_message(
        &mut self,
        init: &QpInit,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        match *delivery {
            Delivery::Send {
                opcode,
                len,
                invalidate,
                immediate,
                ..
            } => {
                if let Some(stag) = invalidate
                    && self.has_responses()
                    && !self.preserve_entry(init, stag)
                {
                    self.defer(delivery);
                    return false;
                }
                if let Some(stag) = invalidate
                    && let Err(refusal) = init.tpt.invalidate_remote(stag, init.pd, init.number)
                {
                    let violation = access_violation(opcode, stag, &refusal);
                    // An unreliable connection drops a message that memory refused; the receive stays for the next message.
                    if init.qp_type == QpType::Uc {
                        return self.count_refusal(init, &violation, out);
                    }
                    if let Some(stream) = self.wire.stream_mut() {
                        stream.fail(violation);
                    }
                    self.handle_violation(init, &violation, out);
                    return false;
                }
                let immediate = immediate.map(|i| i.imm());
                let wc = self.receive_wc(init, WcOp::Receive, len, immediate, opcode.solicited());
                self.complete_receive(
                    init,
                    Wc {
                        invalidated: invalidate,
                        ..wc
                    },
                    out,
                );
            }
            Delivery::Immediate {
                opcode,
                data,
                write_len,
                ..
            } => {
                let (op, len) = (WcOp::ReceiveWriteImm, write_len.unwrap_or(0));
                let wc = self.receive_wc(init, op, len, Some(data.imm()), opcode.solicited());
                self.complete_receive(init, wc, out);
            }
            Delivery::Write { .. } => {
                self.receive.set_write_dropped(false);
                if let Err(violation) = self.receive.take_touching().finish(init) {
                    self.refuse_request(init, violation, out);
                    return false;
                }
                self.counters.messages_in += 1;
            }
            Delivery::ReadRequest {
                header, request, ..
            } => return self.admit(init, Owed::Read(header, request), delivery, out),
            Delivery::ReadV2Request {
                header, request, ..
            } => return self.admit(init, Owed::ReadV2(header, request), delivery, out),
            Delivery::AtomicRequest {
                header, request, ..
            } => return self.admit(init, Owed::Atomic(header, request, 0), delivery, out),
            Delivery::ReadDone(read) => return self.read_done(init, read.rsn, out),
            Delivery::AtomicDone(read, response) => {
                return self.atomic_done(init, read.rsn, response.original, out);
            }
            Delivery::Active(psn) => return self.peer_active(init, psn, out),
            Delivery::Rnr(_) => self.counters.rnr_received += 1,
            Delivery::Ready(n) => self.rewind(n),
            Delivery::Terminate(ref terminate, _) => {
                self.peer_terminated(init, terminate, out);
                return false;
            }
            Delivery::Caps(caps) => return self.handle_peer_caps(init, &caps, out),
            Delivery::Discarded(Opcode::Write) => {
                self.receive.set_write_dropped(init.qp_type == QpType::Uc);
                self.receive.take_touching();
            }
            Delivery::Discarded(_)
            | Delivery::Rtr
            | Delivery::Acked(_)
            | Delivery::Resumed(_)
            | Delivery::Srq(_) => {}
        }
        true
    }

    pub(super) fn receive_wc(
        &self,
        init: &QpInit,
        op: WcOp,
        len: u32,
        immediate: Option<u32>,
        solicited: bool,
    ) -> Wc {
        Wc {
            id: self.receive.claimed().map_or(0, |r| r.id),
            qpn: init.wc_qpn,
            status: Status::Success,
            op,
            len,
            immediate,
            solicited,
            ..Wc::default()
        }
    }

    pub(super) fn complete_receive(&mut self, init: &QpInit, wc: Wc, out: &mut Outbox) {
        self.counters.messages_in += 1;
        let entered = self.complete_sends(init, out);
        let received = self.receive.take_claimed().is_none() || init.recv_cq.push(wc, out);
        if !entered || !received {
            self.fail_cq_overflow(init, out);
        }
    }

    fn read_done(&mut self, init: &QpInit, rsn: Rsn, out: &mut Outbox) -> bool {
        let Some(at) = self.sends.find(rsn) else {
            return true;
        };
        if let SendOp::Read {
            local_invalidate: Some(stag),
            ..
        } = self.sends[at].op
            && init.tpt.invalidate_local(stag, init.pd).is_err()
        {
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        let classic = !self.wire.peer_features().read_v2;
        if let Err(refusal) = sink_touched(init, &self.sends[at].payload, classic) {
            self.cause.record(FailureKind::LocalMemory, || {
                format!("the sink of a read: {refusal}")
            });
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        self.sends.end(at, Status::Success);
        true
    }

    fn atomic_done(&mut self, init: &QpInit, rsn: Rsn, original: u64, out: &mut Outbox) -> bool {
        let Some(at) = self.sends.find(rsn) else {
            return true;
        };
        let placed = match &self.sends[at].payload {
            Payload::Gather(sges) if self.sends[at].op.has_sink() => {
                scatter(init, sges, &original.to_ne_bytes())
            }
            _ => Ok(()),
        };
        if let Err(refusal) = placed {
            self.cause.record(FailureKind::LocalMemory, || {
                format!("the result of an atomic: {refusal}")
            });
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        self.sends.end(at, Status::Success);
        true
    }
}
