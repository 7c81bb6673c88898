//! The receive side of a queue pair: parses received bytes, and finds receives for messages.
//! Bytes are parsed in place if a frame arrived whole, a message takes exactly one receive, and a missing receive is handled
//! according to personality and peer. Payload is moved elsewhere.

use verbena_stream::{Claim, Step, Time, Violation};
use verbena_wire::ext::Caps;
use verbena_wire::rdmap::Opcode;

use super::QpInit;
use super::inner::Inner;
use super::place::Placed;
use super::receive_state::{BlockReason, Blocked, UNTIMED};
use crate::srq::Srq;
use crate::state::{Personality, QpType};
use verbena_events::event::Outbox;

impl Inner {
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
            if let Some(used) = self.take_predicted(init, rest, out) {
                at += used;
                if at == input.len() {
                    break;
                }
                continue;
            }
            let Some(stream) = &mut self.stream else {
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
                Step::Deliver(delivery) => self.deliver(init, &delivery, out),
            };
            if !go_on {
                break;
            }
        }
        (at, need)
    }

    /// A message needs a receive; false if the stream must wait for one.
    fn claim(&mut self, init: &QpInit, opcode: Opcode, now: Time, out: &mut Outbox) -> bool {
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

    /// A message found no receive, and its sender cannot be asked to wait any longer (RFC 5040 §5.1).
    pub(super) fn no_receive(&mut self, init: &QpInit, out: &mut Outbox) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let violation = Violation::NoReceive {
            msn: stream.claimed_msn(),
        };
        stream.fail(violation);
        self.handle_violation(init, &violation, out);
    }

    /// What a missing receive means here; `None` to stop reading for a while.
    fn missing_receive(&mut self, init: &QpInit, now: Time) -> Option<Claim> {
        let timer = self.attributes.rnr_timer;
        // A peer that completes on acceptance has released its data and cannot send again: it is kept waiting like a
        // standard peer.
        let can_resend = |caps: &Caps| caps.personality == Personality::Roce;
        let own_peer = self
            .stream
            .as_ref()
            .is_some_and(|s| s.peer_caps().is_some_and(can_resend));
        if !own_peer {
            let until = now + init.transfer.receive_wait;
            self.receive.block(until, BlockReason::Receive);
            return None;
        }
        self.counters.rnr_sent += 1;
        Some(Claim::NotReady { timer })
    }

    fn answer_claim(&mut self, init: &QpInit, claim: Claim, out: &mut Outbox) -> bool {
        let Some(stream) = &mut self.stream else {
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
        if let Some(stream) = &mut self.stream {
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
}
