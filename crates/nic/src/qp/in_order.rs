//! Requests of a peer take effect in order of arrival: a Read or an atomic is checked on arrival, and the response
//! to a Read has the bytes from before every later request of its queue pair.
//!
//! Responses are sent when the carrier has room, so a later request may arrive first. If it is about to change memory that such a
//! response still needs, those bytes are copied ([`super::snapshot`]) and it continues. A queue pair copies at most
//! `Transfer::snapshot_max` bytes; above that the stream is not read until responses have been sent. Nothing else waits.

use core::time::Duration;

use verbena_mem::{Access, Gather, MemAccess, Placement};
use verbena_stream::{Delivery, Place, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::answer::{AnswerError, gather_part};
use super::inner::{Current, Inner, Owed, Response};
use super::memory::{Right, places};
use super::snapshot::PART_COST;
use super::wait::{BlockReason, Blocked, wait_for_entry};
use crate::state::QpEvent;
use verbena_events::event::{Event, Outbox};

/// How long a stream is held for responses of which nothing is sent. A peer that is stopped for a while continues later; two
/// that hold each other never would.
pub(super) const RESPONSES_WAIT: Duration = Duration::from_secs(60);

impl Response {
    pub(super) fn new(owed: Owed) -> Response {
        Response {
            owed,
            snapshot: Default::default(),
            spend: None,
        }
    }

    /// Copies the bytes from `from` on that `target` overwrites; false if that takes more than `room`.
    fn preserve(
        &mut self,
        init: &QpInit,
        from: u32,
        target: &Placement<'_>,
        room: &mut usize,
    ) -> bool {
        let Some(source) = self.remaining(init, from) else {
            return true;
        };
        let mut kept = true;
        source.overlaps(target, |at, len| {
            kept = kept && self.copy(&source, from, (from + at as u32, len as u32), room);
        });
        kept
    }

    /// Copies all bytes from `from` on; false if that takes more than `room`.
    fn preserve_all(&mut self, init: &QpInit, from: u32, room: &mut usize) -> bool {
        let Some(source) = self.remaining(init, from) else {
            return true;
        };
        let len = source.len() as u32;
        self.copy(&source, from, (from, len), room)
    }

    /// The memory of the response from `from` on. `None` if nothing is left, or if it may not be read any more: then the
    /// response is refused in its turn.
    fn remaining<'a>(&self, init: &'a QpInit, from: u32) -> Option<Gather<'a>> {
        let len = self.owed.read_len().checked_sub(from)?;
        (len > 0).then(|| gather_part(init, &self.owed, from, len).ok())?
    }

    fn copy(
        &mut self,
        source: &Gather<'_>,
        from: u32,
        (offset, len): (u32, u32),
        room: &mut usize,
    ) -> bool {
        for (at, len) in self.snapshot.missing(offset, len) {
            let Some(left) = room.checked_sub(len as usize + PART_COST) else {
                return false;
            };
            *room = left;
            let mut bytes = Vec::with_capacity(len as usize);
            // Memory that is not mapped is refused when the response is framed.
            let copied = source.append_to(u64::from(at - from), len as usize, &mut bytes);
            if copied.is_ok() {
                self.snapshot.put(at, bytes);
            }
        }
        true
    }
}

impl Inner {
    /// Responses may still need memory: a request that changes memory checks them first.
    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        !self.owed.is_empty()
            || matches!(self.current, Some(Current::Answer(..)))
            || self.send_buffer.has_answers()
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
                    self.owed.push_back(response);
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
                target.is_none_or(|target| self.preserve(init, &target))
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
        let Some(receive) = self.claimed.take() else {
            return true;
        };
        let mut kept = true;
        let range = (offset, len);
        // As above.
        let _ = places(init, &receive.scatter, range, Right::Local, |target| {
            kept = self.preserve(init, &target);
            kept
        });
        self.claimed = Some(receive);
        kept
    }

    /// A request is about to change this memory: responses keep a copy. False if there is no room for it.
    pub(super) fn preserve(&mut self, init: &QpInit, target: &Placement<'_>) -> bool {
        let overwritten = |source: &Gather<'_>| {
            let mut any = false;
            source.overlaps(target, |_, _| any = true);
            any
        };
        self.copy_framed(init, |source, _| overwritten(source));
        let mut room = self.snapshot_room(init);
        if let Some(Current::Answer(response, outgoing)) = &mut self.current
            && !response.preserve(init, outgoing.sent(), target, &mut room)
        {
            return false;
        }
        self.owed
            .iter_mut()
            .all(|response| response.preserve(init, 0, target, &mut room))
    }

    /// The entry is about to be invalidated by the peer: responses keep a copy of all that they need of it. False if there is no
    /// room for that; then the stream is held.
    pub(super) fn preserve_entry(&mut self, init: &QpInit, stag: Stag) -> bool {
        let of_entry = |owed: &Owed| owed.source().0 == stag;
        self.copy_framed(init, |_, owed| of_entry(owed));
        let mut room = self.snapshot_room(init);
        let mut kept = true;
        if let Some(Current::Answer(response, outgoing)) = &mut self.current
            && of_entry(&response.owed)
        {
            kept = response.preserve_all(init, outgoing.sent(), &mut room);
        }
        kept = kept
            && self
                .owed
                .iter_mut()
                .filter(|response| of_entry(&response.owed))
                .all(|response| response.preserve_all(init, 0, &mut room));
        if !kept {
            self.hold_for_responses();
        }
        kept
    }

    /// Copies the payload of framed responses if `changes` returns true for any; that is no more than is framed ahead of the carrier.
    fn copy_framed(&mut self, init: &QpInit, changes: impl Fn(&Gather<'_>, &Owed) -> bool) {
        self.send_buffer.copy_answers(
            |owed, offset, len| gather_part(init, owed, offset, len).ok(),
            changes,
        );
    }

    fn snapshot_room(&self, init: &QpInit) -> usize {
        let current = match &self.current {
            Some(Current::Answer(response, _)) => response.snapshot.cost(),
            _ => 0,
        };
        let owed: usize = self.owed.iter().map(|r| r.snapshot.cost()).sum();
        init.transfer.snapshot_max.saturating_sub(current + owed)
    }

    /// Stops reading the stream until responses have been sent.
    fn hold_for_responses(&mut self) {
        let (framed, accepted) = (self.framed, self.accepted);
        self.blocked = Some(Blocked {
            until: self.now + RESPONSES_WAIT,
            reason: BlockReason::Responses { framed, accepted },
        });
    }

    /// Keeps a request that has arrived in full, to be executed later.
    pub(super) fn defer(&mut self, delivery: &Delivery) {
        if let Some(stream) = &mut self.stream {
            stream.defer_request();
        }
        self.deferred = Some(Box::new(delivery.clone()));
    }

    /// Continues where the stream was held.
    pub(super) fn resume(&mut self, init: &QpInit, out: &mut Outbox) {
        self.blocked = None;
        if let Some(delivery) = self.take_deferred()
            && !self.deliver(init, &delivery, out)
        {
            return;
        }
        self.process_bytes(init, &[], self.now, out);
    }

    /// The request that was deferred.
    pub(super) fn take_deferred(&mut self) -> Option<Box<Delivery>> {
        let delivery = self.deferred.take()?;
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
        }) = self.blocked
        else {
            return;
        };
        if (framed, accepted) == (self.framed, self.accepted) {
            return;
        }
        self.resume(init, out);
        match &mut self.blocked {
            // Framing alone does not show that the peer reads.
            Some(blocked) if accepted == self.accepted => blocked.until = blocked.until.min(until),
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
        let mut owed = stream.map_or(0, |s| s.accounting().reads_in.len());
        match self.current {
            Some(Current::Answer(..)) if owed > 0 => owed -= 1,
            _ => self.drop_current(),
        }
        self.drop_responses(owed);
    }

    /// The connection is broken: a stream that is held for responses continues without them.
    pub(super) fn give_up_held_responses(&mut self, init: &QpInit, out: &mut Outbox) {
        if matches!(self.blocked, Some(b) if matches!(b.reason, BlockReason::Responses { .. })) {
            self.drop_current();
            self.drop_responses(0);
            self.send_buffer.clear();
            self.resume(init, out);
        }
    }

    /// Drops all responses but the first `keep` that have not begun. One-touch memory that they spend is invalidated when no
    /// grant is held (M9).
    pub(super) fn drop_responses(&mut self, keep: usize) {
        let keep = keep.min(self.owed.len());
        for response in self.owed.drain(keep..) {
            self.touches.spent.extend(response.spend);
        }
    }

    /// Drops what is being sent.
    pub(super) fn drop_current(&mut self) {
        if let Some(Current::Answer(response, _)) = self.current.take() {
            self.touches.spent.extend(response.spend);
        }
    }
}
