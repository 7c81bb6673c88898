//! The requests of a shared send queue in posting order, with the state of each (V6).
//! A request ends once, and leaves the queue when all earlier ones have ended; then there is room for another. Queue pairs are not
//! called here: [`Order::next`] says which one gets its request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use verbena_events::event::Outbox;

use super::SsqLimits;
use super::history::{ChannelInfo, Record, SsqCounters, SsqOutcome};
use crate::cq::Cq;
use crate::qp::wqe::Wqe;
use crate::qp::{PostError, Qp};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::{Flags, SendWr};

/// A request.
#[derive(Debug)]
struct Entry {
    channel: u32,
    /// The channel's queue pair number in completions.
    wc_qpn: u32,
    id: u64,
    flags: Flags,
    op: WcOp,
    len: u32,
    /// It waits for the peer's response.
    awaits_response: bool,
    /// Present until the request is given to its channel.
    wqe: Option<Wqe>,
    ended: Option<Status>,
}

impl Entry {
    fn outcome(&self) -> SsqOutcome {
        match (self.ended, &self.wqe) {
            (Some(status), _) => SsqOutcome::Ended(status),
            (None, Some(_)) => SsqOutcome::Waiting,
            (None, None) => SsqOutcome::Given,
        }
    }
}

#[derive(Debug)]
struct Channel {
    qp: Arc<Qp>,
    open: bool,
    window: usize,
    /// Its requests in the queue, and those of them that it was given and that have not ended.
    waiting: usize,
    given: usize,
    counters: SsqCounters,
}

/// A channel that holds up others.
#[derive(Debug)]
pub(super) struct StalledChannel {
    pub(super) qp: Arc<Qp>,
    /// Its oldest request waits for the peer's response.
    pub(super) awaits_response: bool,
}

#[derive(Debug)]
pub(super) struct Order {
    limits: SsqLimits,
    channels: HashMap<u32, Channel>,
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// Entries that were given to their channel or ended before.
    passed: usize,
    completed: VecDeque<Record>,
    counters: SsqCounters,
}

impl Order {
    pub(super) fn new(limits: SsqLimits) -> Order {
        Order {
            limits,
            channels: HashMap::new(),
            entries: VecDeque::new(),
            first: 0,
            passed: 0,
            completed: VecDeque::new(),
            counters: SsqCounters::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn counters(&self) -> SsqCounters {
        self.counters
    }

    pub(super) fn join(&mut self, qp: &Arc<Qp>, window: usize) {
        let channel = Channel {
            qp: qp.clone(),
            open: true,
            window: window.max(1),
            waiting: 0,
            given: 0,
            counters: SsqCounters::default(),
        };
        self.channels.insert(qp.number(), channel);
    }

    pub(super) fn leave(&mut self, number: u32) {
        self.channels.remove(&number);
        self.flush_channel(number);
    }

    /// A channel was reset or destroyed: every request for it that has not ended is flushed, started or not.
    pub(super) fn flush_channel(&mut self, number: u32) {
        for entry in &mut self.entries {
            if entry.channel == number && entry.ended.is_none() {
                entry.wqe = None;
                entry.ended = Some(Status::WrFlushErr);
            }
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.given = 0;
        }
    }

    pub(super) fn set_open(&mut self, number: u32, open: bool) -> bool {
        let channel = self.channels.get_mut(&number);
        channel.map(|channel| channel.open = open).is_some()
    }

    pub(super) fn post(&mut self, number: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        let channel = self.channels.get_mut(&number).filter(|c| c.open);
        let channel = channel.ok_or(PostError::Channel(number))?;
        let mut wqe = channel.qp.check_send(wr)?;
        if self.entries.len() >= self.limits.requests {
            return Err(PostError::Full(self.limits.requests));
        }
        // The channel completes it under the entry's number, and always with a completion; the program's flags are applied in `complete`.
        wqe.id = self.first + self.entries.len() as u64;
        wqe.flags = wr.flags.without(Flags::NOTIFY) | Flags::SIGNALED;
        channel.waiting += 1;
        channel.counters.posted += 1;
        self.counters.posted += 1;
        self.entries.push_back(Entry {
            channel: number,
            wc_qpn: channel.qp.init().wc_qpn,
            id: wr.id,
            flags: wr.flags,
            op: wqe.wc_op(),
            len: wqe.len,
            awaits_response: wr.op.wants_response(),
            wqe: Some(wqe),
            ended: None,
        });
        Ok(())
    }

    /// The next request whose turn it is; if a channel is given, only if it is for that channel.
    pub(super) fn next(&mut self, of: Option<u32>) -> Option<(Arc<Qp>, Wqe)> {
        loop {
            let entry = self.entries.get_mut(self.passed)?;
            if entry.wqe.is_none() {
                // Its channel was reset or destroyed before its turn.
                self.passed += 1;
                continue;
            }
            let channel = self.channels.get_mut(&entry.channel)?;
            let full = channel.given >= channel.window;
            if full || of.is_some_and(|of| of != entry.channel) {
                return None;
            }
            let wqe = entry.wqe.take()?;
            self.passed += 1;
            channel.given += 1;
            channel.counters.given += 1;
            self.counters.given += 1;
            return Some((channel.qp.clone(), wqe));
        }
    }

    /// A channel has completed a request; returns the channel if that was the last one it was given.
    pub(super) fn end(&mut self, wc: &Wc) -> Option<Arc<Qp>> {
        let entry = self.given(wc.id)?;
        (entry.op, entry.len) = (wc.op, wc.len);
        self.ended(wc.id, wc.status)
    }

    /// A channel rejected a request because of its state: it is flushed.
    pub(super) fn reject(&mut self, number: u64) {
        self.ended(number, Status::WrFlushErr);
    }

    /// A channel has no requests left and completes no more, because it was reset: those it was given are flushed.
    pub(super) fn flush_given(&mut self, channel: u32) {
        for at in 0..self.passed {
            if self.entries[at].channel == channel {
                self.ended(self.first + at as u64, Status::WrFlushErr);
            }
        }
    }

    /// The request with this number, if its channel has it.
    fn given(&mut self, number: u64) -> Option<&mut Entry> {
        let at = number.checked_sub(self.first)?;
        let entry = self.entries.get_mut(usize::try_from(at).ok()?)?;
        (entry.outcome() == SsqOutcome::Given).then_some(entry)
    }

    fn ended(&mut self, number: u64, status: Status) -> Option<Arc<Qp>> {
        let entry = self.given(number)?;
        entry.ended = Some(status);
        let of = entry.channel;
        let channel = self.channels.get_mut(&of)?;
        channel.given -= 1;
        (channel.given == 0).then(|| channel.qp.clone())
    }

    /// Completes the requests that have ended at the front.
    pub(super) fn complete(&mut self, cq: &Cq, out: &mut Outbox) {
        while let Some(status) = self.entries.front().and_then(|entry| entry.ended) {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.record_completed(&entry, status);
            self.first += 1;
            self.passed = self.passed.saturating_sub(1);
            // There is room before the completion is visible: posting needs the lock that is held here.
            let notify = entry.flags.contains(Flags::NOTIFY);
            if status == Status::Success && !notify && !entry.flags.contains(Flags::SIGNALED) {
                continue;
            }
            let wc = Wc {
                id: entry.id,
                qpn: entry.wc_qpn,
                status,
                op: entry.op,
                len: entry.len,
                ..Wc::default()
            };
            // A completion queue without room raises its overflow itself, and its queue pairs fail, the channels among them.
            let _ = if notify {
                cq.push_and_notify(wc, out)
            } else {
                cq.push(wc, out)
            };
        }
    }

    fn record_completed(&mut self, entry: &Entry, status: Status) {
        let channel = self.channels.get_mut(&entry.channel);
        let counted = channel.map(|channel| {
            channel.waiting -= 1;
            &mut channel.counters
        });
        for counters in [Some(&mut self.counters), counted].into_iter().flatten() {
            counters.completed += 1;
            match status {
                Status::Success => counters.bytes += u64::from(entry.len),
                _ => counters.failed += 1,
            }
        }
        if self.limits.history == 0 {
            return;
        }
        if self.completed.len() == self.limits.history {
            self.completed.pop_front();
        }
        let outcome = SsqOutcome::Completed(status);
        self.completed.push_back(record(self.first, entry, outcome));
    }

    /// The channel whose request is the next to complete and has not ended, while requests of others wait behind it.
    pub(super) fn completion_blocker(&self) -> Option<StalledChannel> {
        let entry = self
            .entries
            .front()
            .filter(|e| e.outcome() == SsqOutcome::Given)?;
        let channel = self.channels.get(&entry.channel)?;
        let others = self.entries.len() > channel.waiting;
        others.then(|| StalledChannel {
            qp: channel.qp.clone(),
            awaits_response: entry.awaits_response,
        })
    }

    /// The channel that keeps requests of others from starting: `lagging`, or one whose window is full.
    pub(super) fn start_blocker(&self, lagging: Option<u32>) -> Option<StalledChannel> {
        let mut waiting = self.entries.iter().skip(self.passed);
        let mut waiting = waiting.by_ref().filter(|e| e.wqe.is_some()).peekable();
        let number = lagging.or(waiting.peek().map(|e| e.channel))?;
        let channel = self.channels.get(&number)?;
        if !waiting.any(|e| e.channel != number) {
            return None;
        }
        let mut given = self.entries.iter().filter(|e| e.channel == number);
        let asks = given
            .find(|e| e.outcome() == SsqOutcome::Given)?
            .awaits_response;
        let qp = channel.qp.clone();
        Some(StalledChannel {
            qp,
            awaits_response: asks,
        })
    }

    /// Requests wait that a channel may hold up.
    pub(super) fn is_waiting(&self) -> bool {
        self.passed < self.entries.len() || self.completion_blocker().is_some()
    }

    /// A channel was failed because it held up others.
    pub(super) fn count_stall(&mut self, channel: u32) {
        self.counters.stalls += 1;
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.counters.stalls += 1;
        }
    }

    pub(super) fn channel(&self, number: u32) -> Option<ChannelInfo> {
        self.channels.get(&number).map(|channel| ChannelInfo {
            open: channel.open,
            waiting: channel.waiting,
            given: channel.given,
            window: channel.window,
            counters: channel.counters,
        })
    }

    pub(super) fn history(&self, channel: Option<u32>) -> Vec<Record> {
        let present = self.entries.iter().zip(self.first..);
        let present = present.map(|(entry, number)| record(number, entry, entry.outcome()));
        let asked = |record: &Record| channel.is_none_or(|channel| channel == record.channel);
        let all = self.completed.iter().copied().chain(present);
        all.filter(asked).collect()
    }
}

fn record(number: u64, entry: &Entry, outcome: SsqOutcome) -> Record {
    Record {
        number,
        channel: entry.channel,
        id: entry.id,
        op: entry.op,
        len: entry.len,
        outcome,
    }
}
