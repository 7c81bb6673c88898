//! The responder of a queue pair: reads and atomics of the peer that were executed, and whose responses are not framed in full.
//! Responses are sent in order of their requests. A response has the bytes from before every later request: what such a request is
//! about to change is copied first, up to `Transfer::snapshot_max` bytes in all responses together.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use verbena_mem::{Gather, Placement, Spend};
use verbena_stream::{Message, Outgoing, Time};
use verbena_wire::Stag;

use super::QpInit;
use super::owed::{Owed, gather_part};
use super::snapshot::Snapshot;
use super::transmit_buffer::TransmitBuffer;

/// A read or an atomic of the peer that is executed, and whose response is not framed in full.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) owed: Owed,
    /// Bytes that later requests have changed since.
    pub(super) snapshot: Snapshot,
    /// One-touch memory that is spent with the response (M9).
    #[serde(skip)]
    pub(super) spend: Option<Spend>,
}

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
        self.snapshot.copy_overlap(&source, from, target, room)
    }

    /// Copies all bytes from `from` on; false if that takes more than `room`.
    fn preserve_all(&mut self, init: &QpInit, from: u32, room: &mut usize) -> bool {
        let Some(source) = self.remaining(init, from) else {
            return true;
        };
        let len = source.len() as u32;
        self.snapshot.copy(&source, from, (from, len), room)
    }

    /// The memory of the response from `from` on. `None` if nothing is left, or if it may not be read any more: then the
    /// response is refused in its turn.
    fn remaining<'a>(&self, init: &'a QpInit, from: u32) -> Option<Gather<'a>> {
        let len = self.owed.read_len().checked_sub(from)?;
        (len > 0).then(|| gather_part(init, &self.owed, from, len).ok())?
    }
}

/// Whether the oldest answer waits behind a local request that is half sent and cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum AnswerWait {
    /// It does not.
    #[default]
    No,
    /// Until then.
    Until(Time),
    /// It has waited long enough.
    Expired,
}

/// Responses that are not framed in full. Invariant: the current one is older than all that are owed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Responder {
    /// Those that have not begun, oldest first.
    owed: VecDeque<Response>,
    /// The one that is being sent.
    current: Option<(Response, Outgoing)>,
    wait: AnswerWait,
    /// A response was begun last, so a request comes next.
    answered_last: bool,
    /// One-touch memory of responses that were dropped. It is invalidated where no grant is held (M9).
    #[serde(skip)]
    spent: Vec<Spend>,
}

impl Responder {
    /// Every response has begun.
    #[inline]
    pub(super) fn has_begun_all(&self) -> bool {
        self.owed.is_empty()
    }

    /// Every response is framed in full.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.owed.is_empty() && self.current.is_none()
    }

    /// A response was begun last, so a request comes next; true once.
    pub(super) fn take_turn(&mut self) -> bool {
        core::mem::take(&mut self.answered_last)
    }

    /// A request of the peer was executed.
    pub(super) fn push(&mut self, response: Response) {
        self.owed.push_back(response);
    }

    /// The message of the oldest response that has not begun.
    pub(super) fn next_message(&self) -> Option<Message> {
        self.owed.front().map(|response| response.owed.message())
    }

    /// The oldest response has begun.
    pub(super) fn begin(&mut self, outgoing: Outgoing) {
        self.wait = AnswerWait::No;
        self.answered_last = true;
        self.current = self.owed.pop_front().map(|response| (response, outgoing));
    }

    /// The response that is being sent; it is put back unless it is done.
    pub(super) fn take_current(&mut self) -> Option<(Response, Outgoing)> {
        // Checked first: taking nothing would copy as many bytes.
        self.current.as_ref()?;
        self.current.take()
    }

    /// Continues with this response later.
    pub(super) fn put_current(&mut self, mut response: Response, outgoing: Outgoing) {
        response.snapshot.drop_before(outgoing.sent());
        self.current = Some((response, outgoing));
    }

    /// A request is about to change this memory: responses keep a copy. False if there is no room for it.
    pub(super) fn preserve(
        &mut self,
        init: &QpInit,
        framed: &mut TransmitBuffer,
        target: &Placement<'_>,
    ) -> bool {
        let overwritten = |source: &Gather<'_>| {
            let mut any = false;
            source.overlaps(target, |_, _| any = true);
            any
        };
        copy_framed(init, framed, |source, _| overwritten(source));
        let mut room = self.snapshot_room(init);
        if let Some((response, outgoing)) = &mut self.current
            && !response.preserve(init, outgoing.sent(), target, &mut room)
        {
            return false;
        }
        self.owed
            .iter_mut()
            .all(|response| response.preserve(init, 0, target, &mut room))
    }

    /// The entry is about to be invalidated by the peer: responses keep a copy of all that they need of it. False if there is no
    /// room for that.
    pub(super) fn preserve_entry(
        &mut self,
        init: &QpInit,
        framed: &mut TransmitBuffer,
        stag: Stag,
    ) -> bool {
        let of_entry = |owed: &Owed| owed.source().0 == stag;
        copy_framed(init, framed, |_, owed| of_entry(owed));
        let mut room = self.snapshot_room(init);
        if let Some((response, outgoing)) = &mut self.current
            && of_entry(&response.owed)
            && !response.preserve_all(init, outgoing.sent(), &mut room)
        {
            return false;
        }
        self.owed
            .iter_mut()
            .filter(|response| of_entry(&response.owed))
            .all(|response| response.preserve_all(init, 0, &mut room))
    }

    fn snapshot_room(&self, init: &QpInit) -> usize {
        init.transfer
            .snapshot_max
            .saturating_sub(self.snapshot_cost())
    }

    /// The memory of all snapshots.
    pub(super) fn snapshot_cost(&self) -> usize {
        self.responses().map(|r| r.snapshot.cost()).sum()
    }

    /// All responses, oldest first.
    fn responses(&self) -> impl Iterator<Item = &Response> {
        let current = self.current.iter().map(|(response, _)| response);
        current.chain(&self.owed)
    }

    /// Drops all responses but the oldest `keep`, the current one among them.
    pub(super) fn keep(&mut self, mut keep: usize) {
        if self.current.is_some() && keep > 0 {
            keep -= 1;
        } else {
            self.drop_current();
        }
        let keep = keep.min(self.owed.len());
        for response in self.owed.drain(keep..) {
            self.spent.extend(response.spend);
        }
    }

    /// Drops the response that is being sent.
    pub(super) fn drop_current(&mut self) {
        if let Some((response, _)) = self.current.take() {
            self.spent.extend(response.spend);
        }
    }

    /// A response that was taken out is refused.
    pub(super) fn drop_response(&mut self, response: Response) {
        self.spent.extend(response.spend);
    }

    /// A response that is owed spends one-touch memory, or one that was dropped (M9).
    pub(super) fn spends_one_touch(&self) -> bool {
        !self.spent.is_empty() || self.responses().any(|r| r.spend.is_some())
    }

    /// Invalidates the one-touch memory of responses that were dropped. The caller holds no grant.
    #[inline]
    pub(super) fn release_spent(&mut self) {
        if !self.spent.is_empty() {
            self.spent.clear();
        }
    }

    /// The oldest response cannot begin: true if it waits, until `until` at the latest, false if it has waited for too long.
    pub(super) fn waits(&mut self, until: Time) -> bool {
        match self.wait {
            AnswerWait::No => {
                self.wait = AnswerWait::Until(until);
                true
            }
            AnswerWait::Until(_) => true,
            AnswerWait::Expired => false,
        }
    }

    /// The oldest response waits, or has waited for too long.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait != AnswerWait::No
    }

    /// Processes the timeout of that wait: the response is refused in its turn.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if matches!(self.wait, AnswerWait::Until(until) if now >= until) {
            self.wait = AnswerWait::Expired;
        }
    }

    /// When that wait ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.wait {
            AnswerWait::Until(until) if !self.owed.is_empty() => Some(until),
            _ => None,
        }
    }

    /// The response that is being sent is not done, and has sent no more than it carries.
    pub(super) fn invariants(&self) -> bool {
        self.current.as_ref().is_none_or(|(_, outgoing)| {
            !outgoing.is_done() && outgoing.sent() <= outgoing.message().payload_len()
        })
    }
}

/// Copies the payload of framed responses if `changes` returns true for any; that is no more than is framed ahead of the carrier.
fn copy_framed(
    init: &QpInit,
    framed: &mut TransmitBuffer,
    changes: impl Fn(&Gather<'_>, &Owed) -> bool,
) {
    framed.copy_answers(
        |owed, offset, len| gather_part(init, owed, offset, len).ok(),
        changes,
    );
}
