//! Requests of a peer take effect in order of arrival: a Read or an atomic is checked on arrival, and the response
//! to a Read has the bytes from before every later request of its queue pair.
//!
//! Responses are sent when the carrier has room, so a later request may arrive first. If it is about to change memory that such a
//! response still needs, those bytes are copied ([`super::snapshot`]) and it continues. A queue pair copies at most
//! `Transfer::snapshot_max` bytes; above that the stream is not read until responses have been sent. Nothing else waits.

use core::time::Duration;

use verbena_mem::{Access, MemAccess};
use verbena_stream::{Delivery, Place, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::answer::AnswerError;
use super::inner::Inner;
use super::memory::{Right, places};
use super::receive_state::{BlockReason, Blocked};
use super::responder::Owed;
use super::wait::wait_for_entry;
use crate::state::QpEvent;
use verbena_events::event::{Event, Outbox};

/// How long a stream is held for responses of which nothing is sent. A peer that is stopped for a while continues later; two
/// that hold each other never would.
pub(super) const RESPONSES_WAIT: Duration = Duration::from_secs(60);

impl Inner {
    /// Responses may still need memory: a request that changes memory checks them first.
    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        !self.responder.is_idle() || self.transmit.has_answers()
    }

    /// A Read or an atomic has arrived: it is checked, and an atomic is executed. False if the stream is over, or is not read
    /// further until the request can be checked.
    pub(super) fn admit(
        &mut self,
        init: &QpInit,
        owed: Owed,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        loop {
            let violation = match self.check_request(init, owed) {
                Ok(Some(response)) => {
                    self.responder.push(response);
                    return true;
                }
                Ok(None) => {
                    self.hold_for_responses();
                    self.defer(delivery);
                    return false;
                }
                // V5: the registration ended meanwhile, and is never pending again.
                Err(AnswerError::Pending(stag, _)) if !wait_for_entry(init, stag) => continue,
                Err(AnswerError::Pending(stag, violation)) => {
                    self.block_for_memory(init, stag, violation);
                    self.defer(delivery);
                    return false;
                }
                Err(AnswerError::Never(violation)) => violation,
            };
            self.refuse_request(init, violation, out);
            return false;
        }
    }

    /// Refuses the request that was delivered last; nothing behind it is executed.
    pub(super) fn refuse_request(&mut self, init: &QpInit, violation: Violation, out: &mut Outbox) {
        if let Some(stream) = &mut self.stream {
            stream.fail(violation);
        }
        self.handle_violation(init, &violation, out);
    }

    /// `len` bytes are about to be placed. False if the stream is held first.
    #[cold]
    pub(super) fn preserve_run(&mut self, init: &QpInit, place: Place, len: u32) -> bool {
        let kept = match place {
            Place::Write { stag, to } => {
                let reach = MemAccess {
                    stag,
                    at: to.get(),
                    len: u64::from(len),
                    pd: init.pd,
                    qp: init.number,
                    needs: Access::REMOTE_WRITE,
                };
                // A refusal is handled where the bytes are placed.
                let target = init.tpt.place_remote(&reach).ok();
                target
                    .is_none_or(|target| self.responder.preserve(init, &mut self.transmit, &target))
            }
            Place::Receive { offset } => self.preserve_receive(init, offset, len),
            // Not a request of the peer.
            Place::Sink { .. } | Place::Discard => true,
        };
        if !kept {
            self.hold_for_responses();
        }
        kept
    }

    fn preserve_receive(&mut self, init: &QpInit, offset: u32, len: u32) -> bool {
        let Some(receive) = self.receive.claimed() else {
            return true;
        };
        let mut kept = true;
        let range = (offset, len);
        let (responder, framed) = (&mut self.responder, &mut self.transmit);
        // As above.
        let _ = places(init, &receive.scatter, range, Right::Local, |target| {
            kept = responder.preserve(init, framed, &target);
            kept
        });
        kept
    }

    /// The entry is about to be invalidated by the peer: responses keep a copy of all that they need of it. False if there is no
    /// room for that; then the stream is held.
    pub(super) fn preserve_entry(&mut self, init: &QpInit, stag: Stag) -> bool {
        let framed = &mut self.transmit;
        let kept = self.responder.preserve_entry(init, framed, stag);
        if !kept {
            self.hold_for_responses();
        }
        kept
    }

    /// Stops reading the stream until responses have been sent.
    fn hold_for_responses(&mut self) {
        let (framed, accepted) = (self.transmit.framed(), self.transmit.accepted());
        let reason = BlockReason::Responses { framed, accepted };
        self.receive.block(self.now + RESPONSES_WAIT, reason);
    }

    /// Keeps a request that has arrived in full, to be executed later.
    pub(super) fn defer(&mut self, delivery: &Delivery) {
        if let Some(stream) = &mut self.stream {
            stream.defer_request();
        }
        self.receive.defer(delivery);
    }

    /// Continues where the stream was held.
    pub(super) fn resume(&mut self, init: &QpInit, out: &mut Outbox) {
        self.receive.unblock();
        if let Some(delivery) = self.take_deferred()
            && !self.deliver(init, &delivery, out)
        {
            return;
        }
        self.process_bytes(init, &[], self.now, out);
    }

    /// The request that was deferred.
    pub(super) fn take_deferred(&mut self) -> Option<Box<Delivery>> {
        let delivery = self.receive.take_deferred()?;
        if let Some(stream) = &mut self.stream {
            stream.end_deferral();
        }
        Some(delivery)
    }

    /// Bytes were sent: a stream that is held for responses may continue.
    pub(super) fn retry_held(&mut self, init: &QpInit, out: &mut Outbox) {
        let Some(Blocked {
            reason: BlockReason::Responses { framed, accepted },
            until,
        }) = self.receive.blocked()
        else {
            return;
        };
        if (framed, accepted) == (self.transmit.framed(), self.transmit.accepted()) {
            return;
        }
        self.resume(init, out);
        match self.receive.blocked() {
            // Framing alone does not show that the peer reads.
            Some(blocked) if accepted == self.transmit.accepted() => {
                self.receive.set_block_deadline(blocked.until.min(until))
            }
            Some(_) => {}
            None => out.wake_for_memory([init.number]),
        }
    }

    /// The peer has taken nothing for too long, and its own next request waits for that.
    pub(super) fn responses_overdue(&mut self, init: &QpInit, out: &mut Outbox) {
        self.cause.get_or_insert_with(|| {
            "the peer does not receive the responses to its reads, and its next request overwrites what they read".to_owned()
        });
        if let Some(stream) = &mut self.stream {
            stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        }
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }

    /// Drops what is being sent, except answers that must be sent before the Terminate.
    pub(super) fn keep_owed_answers(&mut self) {
        let stream = self.stream.as_ref().filter(|s| s.owes_responses());
        let owed = stream.map_or(0, |s| s.accounting().reads_in.len());
        self.sends.take_current();
        self.responder.keep(owed);
    }

    /// The connection is broken: a stream that is held for responses continues without them.
    pub(super) fn give_up_held_responses(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.receive.blocked().is_some_and(Blocked::for_responses) {
            self.sends.take_current();
            self.responder.keep(0);
            self.transmit.clear();
            self.resume(init, out);
        }
    }
}
