//! The send queue of a queue pair: requests in posting order, how many of them have begun, and the message that is being sent.
//! Requests begin and complete in order, and no request behind `begun` has sent anything. It knows no stream and no memory: the caller
//! begins messages and reports what the peer has acknowledged.

use core::ops::{Index, IndexMut};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use verbena_stream::{Message, Outgoing};
use verbena_wire::Rsn;

use super::failure::RequestInfo;
use super::register::RegisterError;
use super::wqe::{PeerFeatures, Progress, Wqe};
use crate::state::QpState;
use crate::wc::Status;
use crate::wr::Flags;

/// How far requests that need no response have succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) enum CompletionPoint {
    /// The peer has acknowledged all before this number, and the carrier has accepted so many bytes: a request that has not been
    /// sent completely needs its memory, whatever the peer acknowledges.
    Acked(Rsn, u64),
    /// The carrier has accepted so many bytes of the stream.
    Accepted(u64),
}

impl CompletionPoint {
    fn covers(self, wqe: &Wqe) -> bool {
        let Progress::Sent { end } = wqe.progress else {
            return false;
        };
        let executed = match self {
            CompletionPoint::Acked(acked, bytes) => {
                bytes >= end && wqe.last_rsn().is_some_and(|rsn| rsn.is_before(acked))
            }
            CompletionPoint::Accepted(bytes) => bytes >= end,
        };
        executed && !wqe.op.wants_response()
    }
}

/// Send requests that have not completed. A position counts from the oldest of them; a number counts since the connection began.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SendQueue {
    /// In posting order; the first `begun` of them have been begun.
    queue: VecDeque<Wqe>,
    begun: usize,
    /// Requests that have completed: the number of the front of `queue`.
    completed: u64,
    /// The message that is being sent: a part of the request that was begun last.
    current: Option<Outgoing>,
    /// The next response identifier.
    next_id: u32,
    /// The request with this number cannot continue and fails when all before it have ended.
    failing: Option<u64>,
    /// A draining queue finishes the requests before this one: those that had begun when it was told to drain.
    drain_to: u64,
    /// `SqDrained` has been raised since the queue began to drain.
    drained: bool,
    /// The last registration that failed, and may be tried again (M4).
    #[serde(skip)]
    register_error: Option<(u64, RegisterError)>,
}

impl Default for SendQueue {
    fn default() -> SendQueue {
        SendQueue {
            queue: VecDeque::new(),
            begun: 0,
            completed: 0,
            current: None,
            next_id: 1,
            failing: None,
            drain_to: 0,
            drained: false,
            register_error: None,
        }
    }
}

impl Index<usize> for SendQueue {
    type Output = Wqe;

    fn index(&self, at: usize) -> &Wqe {
        &self.queue[at]
    }
}

impl IndexMut<usize> for SendQueue {
    fn index_mut(&mut self, at: usize) -> &mut Wqe {
        &mut self.queue[at]
    }
}

impl SendQueue {
    /// Requests that have not completed.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Every request has completed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests that have been begun and have not completed.
    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    /// Every request has been begun.
    #[inline]
    pub(super) fn has_begun_all(&self) -> bool {
        self.begun == self.queue.len()
    }

    /// Requests that have completed since the connection began.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Requests in posting order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Wqe> {
        self.queue.iter()
    }

    /// The request at a position.
    pub(super) fn get(&self, at: usize) -> Option<&Wqe> {
        self.queue.get(at)
    }

    /// The number of the request at a position.
    pub(super) fn number(&self, at: usize) -> u64 {
        self.completed + at as u64
    }

    /// The position of the request with this number; beyond the end if it has completed.
    pub(super) fn position(&self, number: u64) -> usize {
        let at = number.checked_sub(self.completed);
        at.map_or(usize::MAX, |at| at as usize)
    }

    /// The position of the begun request that has this request sequence number.
    pub(super) fn find(&self, rsn: Rsn) -> Option<usize> {
        self.queue
            .iter()
            .take(self.begun)
            .position(|w| w.rsn.contains(&Some(rsn)))
    }

    /// The oldest request found no receive, or is behind one that did.
    pub(super) fn is_front_refused(&self, n: Rsn) -> bool {
        self.queue.front().is_some_and(|wqe| wqe.is_refused(n))
    }

    /// Every request before this position has ended.
    pub(super) fn is_first(&self, at: usize) -> bool {
        self.queue.iter().take(at).all(Wqe::is_done)
    }

    /// Adds a request.
    #[inline]
    pub(super) fn push(&mut self, wqe: Wqe) {
        self.queue.push_back(wqe);
    }

    /// FENCE waits for reads and atomics, LOCAL_FENCE for everything before.
    pub(super) fn fences_hold(&self, at: usize) -> bool {
        let flags = self.queue[at].flags;
        let mut before = self.queue.iter().take(at).filter(|w| !w.is_done());
        if flags.contains(Flags::LOCAL_FENCE) {
            return before.next().is_none();
        }
        !flags.contains(Flags::FENCE) || !before.any(|w| w.op.wants_response())
    }

    /// The request that was begun last has another part to send.
    pub(super) fn has_unsent_part(&self) -> bool {
        let last = self.begun.checked_sub(1).and_then(|at| self.queue.get(at));
        last.is_some_and(|wqe| matches!(wqe.progress, Progress::Waiting { .. }))
    }

    /// The position of the request to begin or to continue with its next part, if there is one and the state allows it.
    pub(super) fn next_to_begin(&self, state: QpState) -> Option<usize> {
        let at = self.begun - usize::from(self.has_unsent_part());
        // A draining queue finishes what it began and starts nothing.
        let finishes = self.number(at) < self.drain_to;
        let drains = matches!(state, QpState::Sqd | QpState::Sqe);
        let may_start = state == QpState::Rts || (drains && finishes);
        let fails = self.failing.is_some_and(|n| self.number(at) >= n);
        (may_start && at < self.queue.len() && !fails).then_some(at)
    }

    /// The next request, if it is to be begun with its first part and nothing has to be considered but the request itself.
    #[inline]
    pub(super) fn next_unbegun(&mut self, state: QpState) -> Option<&mut Wqe> {
        if state != QpState::Rts || self.failing.is_some() || self.has_unsent_part() {
            return None;
        }
        self.queue.get_mut(self.begun)
    }

    /// The message of one part of a request, with an identifier for its response.
    pub(super) fn message(&self, at: usize, part: u8, peer: PeerFeatures) -> Option<Message> {
        self.queue[at].message(part, peer, self.next_id)
    }

    /// A part of the request at `at` has begun.
    pub(super) fn begin(&mut self, at: usize, part: u8, outgoing: Outgoing) {
        let wqe = &mut self.queue[at];
        wqe.rsn[usize::from(part)] = outgoing.rsn();
        wqe.progress = Progress::Sending { part };
        self.begun = at + 1;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.current = Some(outgoing);
    }

    /// The next request was begun; the caller has set its progress.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.begun += 1;
    }

    /// The request at `at` needs no message any more: it has ended.
    pub(super) fn pass(&mut self, at: usize) {
        self.begun = self.begun.max(at + 1);
    }

    /// The message that is being sent; it is put back unless it is done.
    pub(super) fn take_current(&mut self) -> Option<Outgoing> {
        // Checked first: taking nothing would copy as many bytes.
        self.current.as_ref()?;
        self.current.take()
    }

    /// Continues with this message later.
    pub(super) fn put_current(&mut self, outgoing: Outgoing) {
        self.current = Some(outgoing);
    }

    /// A message is being sent.
    #[inline]
    pub(super) fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// The part that was being sent is framed in full, up to offset `end` of the stream.
    pub(super) fn part_sent(&mut self, end: u64, peer: PeerFeatures) {
        let Some(wqe) = self.begun.checked_sub(1).map(|at| &mut self.queue[at]) else {
            return;
        };
        let Progress::Sending { part } = wqe.progress else {
            return;
        };
        wqe.progress = if part + 1 < wqe.parts(peer) {
            Progress::Waiting { part: part + 1 }
        } else {
            Progress::Sent { end }
        };
    }

    /// The peer is ready for request `n` again: everything from there on is restarted.
    pub(super) fn rewind(&mut self, n: Rsn) {
        for at in 0..self.begun {
            if self.queue[at].rewind(n) {
                let partly =
                    matches!(self.queue[at].progress, Progress::Waiting { part } if part > 0);
                for later in at + 1..self.begun {
                    self.queue[later].rewind(n);
                }
                self.begun = at + usize::from(partly);
                return;
            }
        }
    }

    /// Marks the requests that have succeeded, up to the first that has not: requests end in order.
    pub(super) fn mark_executed(&mut self, point: CompletionPoint) {
        for wqe in self.queue.iter_mut().take(self.begun) {
            if point.covers(wqe) {
                wqe.progress = Progress::Done(Status::Success);
            } else if wqe.progress != Progress::Done(Status::Success) {
                break;
            }
        }
    }

    /// The request at `at` has ended; false if there is none.
    pub(super) fn end(&mut self, at: usize, status: Status) -> bool {
        let Some(wqe) = self.queue.get_mut(at) else {
            return false;
        };
        wqe.progress = Progress::Done(status);
        true
    }

    /// Ends the oldest begun request that has not ended.
    pub(super) fn end_first_begun(&mut self, status: Status) {
        let begun = self.queue.iter_mut().take(self.begun);
        if let Some(wqe) = begun.into_iter().find(|w| !w.is_done()) {
            wqe.progress = Progress::Done(status);
        }
    }

    /// Ends the oldest request that has not ended.
    pub(super) fn end_first(&mut self, status: Status) {
        if let Some(wqe) = self.queue.iter_mut().find(|w| !w.is_done()) {
            wqe.progress = Progress::Done(status);
        }
    }

    /// Requests that have not succeeded.
    pub(super) fn count_unfinished(&self) -> usize {
        let succeeded = |wqe: &&Wqe| wqe.progress == Progress::Done(Status::Success);
        self.queue.len() - self.queue.iter().filter(succeeded).count()
    }

    /// The oldest request that ended with a status of its own.
    pub(super) fn failed_request(&self) -> Option<(RequestInfo, Status)> {
        self.queue.iter().enumerate().find_map(|(at, wqe)| {
            let Progress::Done(status) = wqe.progress else {
                return None;
            };
            let failed = !matches!(status, Status::Success | Status::WrFlushErr);
            failed.then(|| (RequestInfo::new(wqe, self.number(at)), status))
        })
    }

    /// The oldest request that has not ended.
    pub(super) fn oldest_unfinished(&self) -> Option<RequestInfo> {
        let at = self.queue.iter().position(|wqe| !wqe.is_done())?;
        Some(RequestInfo::new(&self.queue[at], self.number(at)))
    }

    /// The position of the first of `count` requests that has not ended.
    pub(super) fn first_pending(&self, count: usize) -> Option<usize> {
        self.queue.iter().take(count).position(|w| !w.is_done())
    }

    /// Removes the oldest request if it has ended.
    #[inline]
    pub(super) fn pop_ended(&mut self, point: CompletionPoint) -> Option<(Wqe, Status)> {
        let wqe = self.queue.front()?;
        let status = match wqe.progress {
            Progress::Done(status) => status,
            _ if point.covers(wqe) => Status::Success,
            _ => return None,
        };
        let wqe = self.queue.pop_front()?;
        self.begun = self.begun.saturating_sub(1);
        self.completed += 1;
        Some((wqe, status))
    }

    /// Removes the oldest request; it is flushed unless it has ended.
    pub(super) fn pop_flushed(&mut self) -> Option<(Wqe, Status)> {
        let wqe = self.queue.pop_front()?;
        self.begun = self.begun.saturating_sub(1);
        self.completed += 1;
        let status = match wqe.progress {
            Progress::Done(status) => status,
            _ => Status::WrFlushErr,
        };
        Some((wqe, status))
    }

    /// A request cannot continue: it fails in its turn, unless one before it does.
    pub(super) fn set_failing(&mut self, number: u64) {
        self.failing = Some(self.failing.map_or(number, |n| n.min(number)));
    }

    /// The position of the request that fails in its turn.
    #[inline]
    pub(super) fn failing(&self) -> Option<usize> {
        let number = self.failing?;
        Some(number.saturating_sub(self.completed) as usize)
    }

    /// The request with this number has succeeded: neither it nor one before it fails any more. True if one had to.
    pub(super) fn forget_failing(&mut self, succeeded: u64) -> bool {
        self.failing
            .take_if(|number| *number <= succeeded)
            .is_some()
    }

    /// The request that had to fail fails now.
    pub(super) fn clear_failing(&mut self) {
        self.failing = None;
    }

    /// The queue drains from now on: it finishes what has begun. Without effect unless its state is a draining one.
    pub(super) fn drain(&mut self) {
        self.drained = false;
        self.drain_to = self.number(self.begun);
    }

    /// The queue stops at this request, whose registration failed: it and those behind it end in their turn.
    pub(super) fn stop_at(&mut self, at: usize, why: RegisterError) {
        self.drained = false;
        self.drain_to = self.number(at);
        self.register_error = Some((self.queue[at].id, why));
        let mut status = Status::MwBindErr;
        for wqe in self.queue.range_mut(at..) {
            wqe.progress = Progress::Done(status);
            status = Status::WrFlushErr;
        }
    }

    /// The last registration that failed and may be tried again.
    pub(super) fn register_error(&self) -> Option<(u64, RegisterError)> {
        self.register_error
    }

    /// Everything that a draining queue finishes has completed; true once.
    pub(super) fn notice_drained(&mut self, state: QpState) -> bool {
        let drains = matches!(state, QpState::Sqd | QpState::Sqe);
        let done = drains && self.completed >= self.drain_to && !self.drained;
        self.drained |= done;
        done
    }

    /// Frees the memory for requests if there are none.
    pub(super) fn free_idle_memory(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// For tests: requests that there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Its cursors fit its contents, as they do between two turns.
    pub(super) fn invariants(&self) -> bool {
        let unbegun = |wqe: &Wqe| {
            matches!(
                wqe.progress,
                Progress::Waiting { part: 0 } | Progress::Done(_)
            )
        };
        let sending = self.begun.checked_sub(1).and_then(|at| self.queue.get(at));
        let sends = |wqe: &Wqe| matches!(wqe.progress, Progress::Sending { .. });
        self.begun <= self.queue.len()
            && self.queue.iter().skip(self.begun).all(unbegun)
            && (self.current.is_none() || sending.is_some_and(sends))
    }
}

#[cfg(test)]
mod tests;
