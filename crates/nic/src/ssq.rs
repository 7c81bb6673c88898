//! A send queue that many reliable queue pairs, its channels, share (V6): one order of posting, of beginning and of completing.
//! It promises that a request begins on its channel after all before it have begun on theirs, that completions come in posting
//! order, and that a failed channel takes only its own requests along. It refuses to move bytes: whoever pumps it brings hands.
//!
//! A request waits here until its turn has come, and only then goes to its queue pair, which frames, repeats and completes it
//! as ever. The queue pairs complete into a queue that nobody else sees (`inbox`); from there completions are put back in
//! order and enter the consumer's. So a queue pair knows nothing of all this, and one that is no channel pays nothing for it.
//!
//! Locks: `order` is held for moments and never while a queue pair is called. Whoever pumps sits at the `desk`; others ring.

mod history;
mod order;
mod stall;

pub use history::{ChannelInfo, Fate, Record, SsqCounters, SsqInfo};

use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::Pd;

use crate::cq::{Arm, Cq};
use crate::desk::Desk;
use crate::error::Error;
use crate::event::Outbox;
use crate::qp::wqe::Wqe;
use crate::qp::{PostError, Qp};
use crate::wc::Wc;
use crate::wr::SendWr;
use order::Order;
use stall::Watch;

/// Completions that are looked at together.
const BATCH: usize = 16;

/// How much a shared send queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SsqLimits {
    /// Requests that have not completed, of all channels together.
    pub requests: usize,
    /// Completed requests that its history remembers.
    pub history: usize,
    /// How long a channel that does not move may hold up others, before it is failed.
    pub stall: Duration,
}

impl Default for SsqLimits {
    fn default() -> SsqLimits {
        SsqLimits {
            requests: 128,
            history: 128,
            stall: Duration::from_secs(1),
        }
    }
}

/// Whoever pumps sends for a queue pair: called with each that was handed a request, and has a stream to send it on.
pub type SendHand<'a> = &'a mut dyn FnMut(&Arc<Qp>, &mut Outbox);

/// A shared send queue.
#[derive(Debug)]
pub struct Ssq {
    number: u32,
    pd: Pd,
    /// Where its channels complete.
    inbox: Arc<Cq>,
    /// Where it completes.
    cq: Arc<Cq>,
    limits: SsqLimits,
    order: Mutex<Order>,
    /// Of those who could pump it one does. What is behind the lock is what only that one needs.
    desk: Desk<Pump>,
}

#[derive(Debug, Default)]
struct Pump {
    /// The channel that was handed a request last, if it could not begin it.
    lagging: Option<Arc<Qp>>,
    /// Who holds up others: in completing, in beginning.
    watches: [Option<Watch>; 2],
}

impl Ssq {
    /// An empty queue without channels, which completes in `cq`.
    pub(crate) fn new(number: u32, pd: Pd, cq: Arc<Cq>, limits: SsqLimits) -> Result<Ssq, Error> {
        // Each request under way has one completion at most, so that it never overflows.
        let inbox = Arc::new(Cq::feeding(number, limits.requests.max(1))?);
        inbox.arm(Arm::Next);
        Ok(Ssq {
            number,
            pd,
            inbox,
            cq,
            limits,
            order: Mutex::new(Order::new(limits)),
            desk: Desk::new(Pump::default()),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its domain.
    pub fn pd(&self) -> Pd {
        self.pd
    }

    /// Where it completes.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// How much it holds.
    pub fn limits(&self) -> SsqLimits {
        self.limits
    }

    pub(crate) fn inbox(&self) -> &Arc<Cq> {
        &self.inbox
    }

    /// A queue pair that completes in our inbox is a channel from now on; at most `window` of its requests are under way at once.
    pub(crate) fn join(&self, qp: &Arc<Qp>, window: usize) {
        self.order.lock().join(qp, window);
    }

    /// A channel is gone: what it had is flushed. The queue must be pumped afterwards.
    pub(crate) fn leave(&self, channel: u32) {
        self.order.lock().leave(channel);
    }

    /// A channel was emptied by its owner: what was posted for it before is flushed. The queue must be pumped afterwards.
    pub(crate) fn empty(&self, channel: u32) {
        self.order.lock().empty(channel);
        // Whoever took a request from the order before that has found by now that the channel takes none: it cannot turn up
        // in the channel's next life.
        self.desk.look(|_| ());
    }

    /// Takes requests for a channel again, or takes no more; what was posted goes on. False if there is no such channel.
    pub(crate) fn open(&self, channel: u32, open: bool) -> bool {
        self.order.lock().open(channel, open)
    }

    /// Adds a request for the channel with this number. It waits for nobody; the queue must be pumped afterwards.
    pub fn post(&self, channel: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.order.lock().post(channel, wr)
    }

    /// Goes on as far as possible: completes what has ended and hands over what has its turn. If somebody is at it already,
    /// that one sees to it.
    pub fn pump(&self, hand: SendHand<'_>, out: &mut Outbox) {
        self.desk.ring(|pump| self.turn(pump, hand, out));
    }

    fn turn(&self, pump: &mut Pump, hand: SendHand<'_>, out: &mut Outbox) {
        self.collect(out);
        if pump.lagging.take_if(|qp| qp.has_begun_all()).is_none() && pump.lagging.is_some() {
            return;
        }
        loop {
            let Some((qp, wqe)) = self.order.lock().next(None) else {
                return;
            };
            self.hand_over(&qp, wqe, out);
            // Those that follow on the same channel leave together: it keeps their order by itself.
            loop {
                let next = self.order.lock().next(Some(qp.number()));
                let Some((qp, wqe)) = next else { break };
                self.hand_over(&qp, wqe, out);
            }
            hand(&qp, out);
            // Before the next one is handed over: V6, transmission is in posting order.
            let begun = qp.has_begun_all();
            self.collect(out);
            if !begun {
                pump.lagging = Some(qp);
                return;
            }
        }
    }

    fn hand_over(&self, qp: &Arc<Qp>, wqe: Wqe, out: &mut Outbox) {
        let number = wqe.id;
        if !qp.feed(wqe, out) {
            self.order.lock().lose(number);
        }
    }

    /// Takes what the channels have completed, and completes it in order.
    fn collect(&self, out: &mut Outbox) {
        let mut done = [Wc::BLANK; BATCH];
        let mut idle = Vec::new();
        // First, so that whatever comes after the last look wakes us.
        self.inbox.arm(Arm::Next);
        loop {
            let count = self.inbox.poll(&mut done);
            let mut order = self.order.lock();
            for wc in &done[..count] {
                idle.extend(order.end(wc));
            }
            if count == 0 {
                order.complete(&self.cq, out);
                break;
            }
        }
        for qp in idle {
            // Memory grows with the queue, not with the channels.
            qp.rest(out);
        }
    }

    /// What it is and holds.
    pub(crate) fn info(&self, channels: u32) -> SsqInfo {
        let order = self.order.lock();
        SsqInfo {
            pd: self.pd,
            limits: self.limits,
            waiting: order.len(),
            channels,
            counters: order.counters(),
        }
    }

    /// What one of its channels has done.
    pub(crate) fn channel(&self, channel: u32) -> Option<ChannelInfo> {
        self.order.lock().channel(channel)
    }

    /// What became of the last requests, oldest first; of one channel, if it is named.
    pub fn history(&self, channel: Option<u32>) -> Vec<Record> {
        self.order.lock().history(channel)
    }
}

#[cfg(test)]
mod tests;
