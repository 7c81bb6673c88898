//! Receiving: passes the places of the next bytes to the carrier, and processes the count.
//! A long run of payload is read directly into its memory, and with it only a short stage. Nothing is read while a message waits for a
//! receive and its sender, a standard peer, cannot be asked to send it again.

use verbena_mem::Targets;
use verbena_stream::responder::Due;
use verbena_stream::{Stream, Time};

use super::QpInit;
use super::inner::Inner;
use super::link_state::LinkState;
use crate::carrier::{Carrier, IoOutcome};
use crate::state::QpState;
use verbena_events::event::Outbox;

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

impl Inner {
    /// Determined without trying to send: [`SendDemand::Send`] if in doubt.
    pub(super) fn send_demand(&self) -> SendDemand {
        let Some(stream) = &self.stream else {
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

    pub(super) fn pull(
        &mut self,
        init: &QpInit,
        carrier: &mut impl Carrier,
        scratch: &mut [u8],
        now: Time,
        out: &mut Outbox,
    ) -> Receiving {
        self.now = self.now.max(now);
        if self.stream.is_none() || self.link.is_severed() {
            return Receiving::Ended;
        }
        if self.receive.is_blocked() {
            return Receiving::Held;
        }
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
                    let summed = !self.stream.as_ref().is_some_and(Stream::reads_directly);
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
}
