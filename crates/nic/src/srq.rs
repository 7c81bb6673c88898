//! A receive queue shared by many queue pairs, with a limit event that is raised once when it runs low.
//! Queue pairs that found it empty wait in order; each posted receive is reserved for the first of them. Waiters are kept by number,
//! and the caller that posts is told which one to wake.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use verbena_events::event::{Event, Outbox};
use verbena_mem::Pd;
use verbena_sync::locks::Mutex;

use crate::receive::{PostError, Receive, ReceiveQueue};
use crate::trace::{self, ObserverCell, TraceEvent};
use crate::wr::ReceiveWr;

/// Why a message that does not wait gets no receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeError {
    /// There is none.
    None,
    /// The next one is too small.
    TooSmall,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    number: u32,
    pd: Pd,
    observer: ObserverCell,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: ReceiveQueue,
    /// The limit event is raised once when fewer receives than this wait; 0 is disarmed.
    limit: usize,
    /// Queue pairs that found the queue empty, in order of arrival.
    waiters: WaitQueue,
    /// Waiters that have been woken and have not taken their receive yet; one receive is reserved for each.
    reserved: HashSet<u32>,
}

/// Waiters in order of arrival; joining, leaving and serving cost O(log n).
#[derive(Debug, Default)]
struct WaitQueue {
    next_ticket: u64,
    by_ticket: BTreeMap<u64, u32>,
    tickets: HashMap<u32, u64>,
}

impl WaitQueue {
    fn join(&mut self, qpn: u32) {
        if let Entry::Vacant(vacant) = self.tickets.entry(qpn) {
            vacant.insert(self.next_ticket);
            self.by_ticket.insert(self.next_ticket, qpn);
            self.next_ticket += 1;
        }
    }

    fn leave(&mut self, qpn: u32) {
        if let Some(ticket) = self.tickets.remove(&qpn) {
            self.by_ticket.remove(&ticket);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let (_, qpn) = self.by_ticket.pop_first()?;
        self.tickets.remove(&qpn);
        Some(qpn)
    }
}

impl Srq {
    /// An empty queue.
    pub fn new(number: u32, pd: Pd, depth: usize, pieces: usize) -> Srq {
        Srq {
            number,
            pd,
            observer: ObserverCell::default(),
            inner: Mutex::new(Inner {
                queue: ReceiveQueue::new(depth, pieces),
                limit: 0,
                waiters: WaitQueue::default(),
                reserved: HashSet::new(),
            }),
        }
    }

    /// The same queue with the observer of its function.
    pub(crate) fn with_observer(self, observer: &ObserverCell) -> Srq {
        Srq {
            observer: observer.clone(),
            ..self
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its domain.
    pub fn pd(&self) -> Pd {
        self.pd
    }

    /// Receives that wait.
    pub fn len(&self) -> usize {
        self.inner.lock().queue.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a receive; returns the queue pair that must be woken for it, if one waits.
    pub fn post(&self, wr: &ReceiveWr<'_>) -> Result<Option<u32>, PostError> {
        let mut inner = self.inner.lock();
        inner.queue.post(wr)?;
        if trace::is_active() {
            self.trace_post(wr);
        }
        let woken = inner.waiters.pop();
        inner.reserved.extend(woken);
        Ok(woken)
    }

    /// Before it can be taken: the caller holds the lock.
    #[cold]
    #[inline(never)]
    fn trace_post(&self, wr: &ReceiveWr<'_>) {
        let lens = wr.scatter.iter().map(|sge| sge.len);
        self.observer.record(&TraceEvent::PostReceive {
            qp: 0,
            srq: self.number,
            wc_qpn: 0,
            id: wr.id,
            len: lens.fold(0, u32::saturating_add),
        });
    }

    /// Takes a receive for a queue pair; without one it joins the waiters.
    ///
    /// Receives that are reserved for other queue pairs are not taken.
    pub fn take(&self, qpn: u32, outbox: &mut Outbox) -> Option<Receive> {
        let mut inner = self.inner.lock();
        let taken = self.take_for(&mut inner, qpn, outbox);
        if taken.is_none() {
            inner.waiters.join(qpn);
        }
        taken
    }

    /// The same, without joining the waiters.
    pub(crate) fn take_at_once(&self, qpn: u32, outbox: &mut Outbox) -> Option<Receive> {
        self.take_for(&mut self.inner.lock(), qpn, outbox)
    }

    fn take_for(&self, inner: &mut Inner, qpn: u32, outbox: &mut Outbox) -> Option<Receive> {
        let promised = inner.reserved.remove(&qpn);
        if !promised && inner.queue.len() <= inner.reserved.len() {
            return None;
        }
        self.take_front(inner, outbox)
    }

    /// Takes the next receive that is not reserved, if it holds `len` bytes, for a message that does not wait. Does not join the
    /// waiters.
    pub(crate) fn take_now(&self, len: u32, outbox: &mut Outbox) -> Result<Receive, TakeError> {
        let mut inner = self.inner.lock();
        if inner.queue.len() <= inner.reserved.len() {
            return Err(TakeError::None);
        }
        let fits = inner.queue.front().is_some_and(|r| r.capacity() >= len);
        if !fits {
            return Err(TakeError::TooSmall);
        }
        self.take_front(&mut inner, outbox).ok_or(TakeError::None)
    }

    fn take_front(&self, inner: &mut Inner, outbox: &mut Outbox) -> Option<Receive> {
        let receive = inner.queue.take()?;
        if inner.limit > 0 && inner.queue.len() < inner.limit {
            inner.limit = 0;
            outbox.push(Event::SrqLimit { srq: self.number });
        }
        Some(receive)
    }

    /// Takes a receive back that no message has used; returns the queue pair that must be woken, if one waits.
    pub fn give_back(&self, receive: Receive) -> Option<u32> {
        let mut inner = self.inner.lock();
        inner.queue.put_back(receive);
        let woken = inner.waiters.pop();
        inner.reserved.extend(woken);
        woken
    }

    /// A queue pair needs no receive any more; returns the queue pair that gets the receive reserved for it and must be woken.
    pub fn leave(&self, qpn: u32) -> Option<u32> {
        let mut inner = self.inner.lock();
        inner.waiters.leave(qpn);
        if !inner.reserved.remove(&qpn) {
            return None;
        }
        let heir = inner.waiters.pop();
        inner.reserved.extend(heir);
        heir
    }

    /// Those that wait or have a reserved receive, and whose numbers begin with this one.
    pub(crate) fn waiters_from(&self, first: u32) -> Vec<u32> {
        let inner = self.inner.lock();
        let all = inner.waiters.tickets.keys().chain(&inner.reserved);
        all.copied().filter(|waiter| *waiter >= first).collect()
    }

    /// A receive is reserved for this queue pair.
    pub(crate) fn has_reservation(&self, qpn: u32) -> bool {
        self.inner.lock().reserved.contains(&qpn)
    }

    /// Most receives that may wait.
    pub fn depth(&self) -> usize {
        self.inner.lock().queue.depth()
    }

    /// Most scatter elements of one receive.
    pub fn max_sge(&self) -> usize {
        self.inner.lock().queue.max_sge()
    }

    /// The limit event is raised below this many receives; 0 if it is not armed.
    pub fn limit(&self) -> usize {
        self.inner.lock().limit
    }

    /// Arms the limit event, or disarms it with 0; false if the queue can never hold that many.
    pub fn set_limit(&self, limit: usize) -> bool {
        let mut inner = self.inner.lock();
        let possible = limit <= inner.queue.depth();
        if possible {
            inner.limit = limit;
        }
        possible
    }
}

#[cfg(test)]
mod tests;
