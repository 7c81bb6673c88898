//! The receive side of a queue pair: places bytes where the rights allow, and acts on what has arrived.
//! It promises that memory is checked for every run (M7), that a message completes exactly one receive,
//! and that a missing receive is treated as the personality and the peer demand. It refuses to send.

use verbena_mem::{Access, Reach};
use verbena_stream::{Claim, Place, Run, Step, Time, Violation};
use verbena_wire::ext::Caps;
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Stag};

use super::QpInit;
use super::answer::access;
use super::inner::{Inner, empty};
use super::memory::scatter;
use super::wqe::Payload;
use crate::event::Outbox;
use crate::state::{Personality, QpType};
use crate::wc::Status;

/// How long a standard peer's message may wait for a receive before the stream is ended.
pub(super) const PATIENCE: core::time::Duration = core::time::Duration::from_secs(1);

/// A deadline that must be computed as soon as somebody tells the time.
pub(super) const UNTIMED: Time = Time::ZERO;

impl Inner {
    /// Takes bytes and everything that follows from them.
    pub(super) fn take_bytes(&mut self, init: &QpInit, bytes: &[u8], now: Time, out: &mut Outbox) {
        self.now = self.now.max(now);
        if self.stream.is_none() {
            // Nobody will ever understand them: a stream that is gone took its place in the bytes with it.
            return;
        }
        self.counters.bytes_in += bytes.len() as u64;
        // What arrives whole is understood where it lies; only what is left over is staged.
        let mut stage = core::mem::take(&mut self.stage);
        let staged = !stage.is_empty();
        if staged {
            stage.extend_from_slice(bytes);
        }
        let input = if staged { &stage[..] } else { bytes };
        let mut at = 0;
        while let Some(stream) = &mut self.stream {
            let rest = input.get(at..).unwrap_or_default();
            let (used, step) = match stream.handle(rest, now) {
                Ok(handled) => handled,
                Err(violation) => {
                    self.violated(init, &violation, out);
                    at = input.len();
                    break;
                }
            };
            at += used;
            let go_on = match step {
                Step::More(_) => false,
                Step::Claim { opcode, .. } => self.claim(init, opcode, now, out),
                Step::Place(run) => {
                    let rest = input.get(at..).unwrap_or_default();
                    let n = rest.len().min(run.len as usize);
                    at += n;
                    n > 0 && self.place(init, run, &rest[..n], out)
                }
                Step::Deliver(delivery) => self.deliver(init, &delivery, out),
            };
            if !go_on {
                break;
            }
        }
        match (staged, input.len() - at) {
            (true, 0) => empty(&mut stage),
            (true, _) => drop(stage.drain(..at)),
            (false, _) => stage.extend_from_slice(&bytes[at..]),
        }
        self.stage = stage;
    }

    /// A message wants a receive; false if the stream must wait for one.
    fn claim(&mut self, init: &QpInit, opcode: Opcode, now: Time, out: &mut Outbox) -> bool {
        let immediate = matches!(opcode, Opcode::Immediate | Opcode::ImmediateSe);
        if core::mem::take(&mut self.write_dropped) && immediate {
            // Immediate data says that its Write is there; this one's is not.
            return self.answer_claim(init, Claim::Drop, out);
        }
        let receive = match &init.srq {
            Some(srq) => srq.take(init.number, out),
            None => self.receives.take(),
        };
        let answer = match receive {
            Some(receive) => {
                self.blocked = None;
                let capacity = receive.capacity();
                self.claimed = Some(receive);
                Claim::Granted { capacity }
            }
            None if init.qp_type == QpType::Uc => {
                // What is dropped does not wait.
                self.leave_line(init, out);
                Claim::Drop
            }
            // An honest iWARP adapter does not ask for patience.
            None if init.personality == Personality::Iwarp => {
                self.no_receive(init, out);
                return false;
            }
            None => match self.missing_receive(now) {
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
        self.violated(init, &violation, out);
    }

    /// What a missing receive means here; `None` to stop reading for a while.
    fn missing_receive(&mut self, now: Time) -> Option<Claim> {
        let timer = self.rnr_timer;
        // A peer that completes on acceptance has given its data back and cannot send again: it is kept waiting as a
        // standard peer is.
        let can_resend = |caps: &Caps| caps.personality == Personality::Roce;
        let own_peer = self
            .stream
            .as_ref()
            .is_some_and(|s| s.peer_caps().is_some_and(can_resend));
        if !own_peer {
            self.blocked.get_or_insert(now + PATIENCE);
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
                self.violated(init, &violation, out);
                false
            }
        }
    }

    /// A receive was posted: whoever waits for it goes on.
    pub(super) fn receive_is_there(&mut self, init: &QpInit, out: &mut Outbox) {
        if let Some(stream) = &mut self.stream {
            stream.receive_posted();
        }
        if self.blocked.is_some() {
            self.take_bytes(init, &[], self.now, out);
            // If the next message waits now, it does so since a moment that nobody told us: ask for the time at once.
            self.blocked = self.blocked.map(|_| UNTIMED);
            self.settle(init, out);
        }
    }

    /// Moves bytes to their place; false if memory refused and the stream is over.
    fn place(&mut self, init: &QpInit, run: Run, bytes: &[u8], out: &mut Outbox) -> bool {
        let verdict = match run.place {
            Place::Discard => Ok(()),
            Place::Write { stag, to } => self.place_write(init, stag, to.get(), bytes),
            Place::Receive { offset } => match &self.claimed {
                Some(receive) => scatter(init, &receive.scatter, offset, bytes)
                    .map_err(|_| Violation::ReceiveBuffer),
                None => Ok(()),
            },
            Place::Sink { offset } => return self.place_sink(init, offset, bytes, out),
        };
        let Some(stream) = &mut self.stream else {
            return false;
        };
        match verdict {
            Ok(()) => stream.placed(bytes.len() as u32),
            // An unreliable connection drops what memory refuses a peer and tells nobody; a receive that its own side
            // put into bad memory is another matter, and must end.
            Err(violation)
                if init.qp_type == QpType::Uc && violation != Violation::ReceiveBuffer =>
            {
                stream.drop_message();
                stream.placed(bytes.len() as u32);
            }
            Err(violation) => {
                stream.fail(violation);
                self.violated(init, &violation, out);
                return false;
            }
        }
        true
    }

    fn place_write(
        &self,
        init: &QpInit,
        stag: Stag,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        if !self.enabled.write {
            return Err(Violation::NotEnabled(Opcode::Write));
        }
        let reach = Reach {
            stag,
            at,
            len: bytes.len() as u64,
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_WRITE,
        };
        match init.tpt.place_remote(&reach) {
            Ok(place) => {
                place.write(0, bytes);
                Ok(())
            }
            Err(refusal) => Err(access(Opcode::Write, stag, &refusal)),
        }
    }

    /// The answer to our oldest read: into the pieces of its request.
    fn place_sink(&mut self, init: &QpInit, offset: u32, bytes: &[u8], out: &mut Outbox) -> bool {
        let head = self
            .stream
            .as_ref()
            .and_then(|s| s.ledger().reads_out.head());
        let at = head.and_then(|read| self.find(read.rsn));
        let placed = match at.map(|at| &self.sends[at].payload) {
            Some(Payload::Gather(sges)) => scatter(init, sges, offset, bytes),
            _ => Ok(()),
        };
        if let Err(refusal) = placed {
            self.cause
                .get_or_insert_with(|| format!("the sink of a read: {refusal}"));
            self.strike(init, at.unwrap_or(0), Status::LocProtErr, out);
            return false;
        }
        if let Some(stream) = &mut self.stream {
            stream.placed(bytes.len() as u32);
        }
        true
    }

    /// The request whose part has this number.
    pub(super) fn find(&self, rsn: Rsn) -> Option<usize> {
        self.sends
            .iter()
            .take(self.begun)
            .position(|w| w.rsn.contains(&Some(rsn)))
    }
}
