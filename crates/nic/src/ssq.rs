//! A send queue shared by many reliable queue pairs, its channels (V6): one order of posting, of starting and of completing.
//! A request starts on its channel after all earlier ones have started on theirs, completions are in posting order, and a failed
//! channel affects only its own requests. Bytes are not moved here: the caller of [`pump`](Ssq::pump) passes a closure that sends.
//!
//! A request waits here until its turn, and only then goes to its queue pair, which frames, repeats and completes it as usual.
//! The queue pairs complete into an internal queue (`inbox`); from there completions are put in order and pushed into the
//! program's queue. So a queue pair has no code for channels, and one that is not a channel has no cost.
//!
//! Locks: `order` is held briefly and never while a queue pair is called. One thread pumps at a time, under `lock`; others ring it.

mod history;
mod order;
mod stall;

pub use history::{ChannelInfo, Record, SsqCounters, SsqInfo, SsqOutcome};

use core::time::Duration;
use std::sync::Arc;

use verbena_mem::Pd;
use verbena_sync::locks::Mutex;

use crate::cq::{Arm, Cq};
use crate::error::Error;
use crate::qp::wqe::Wqe;
use crate::qp::{PostError, Qp};
use crate::wc::Wc;
use crate::wr::SendWr;
use order::Order;
use stall::Watch;
use verbena_events::event::Outbox;
use verbena_sync::combining_lock::CombiningLock;

/// Completions that are polled together.
const BATCH: usize = 16;

/// Limits of a shared send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SsqLimits {
    /// Requests that have not completed, of all channels together.
    pub requests: usize,
    /// Completed requests in its history.
    pub history: usize,
    /// How long a channel without progress may hold up others before it is failed.
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

/// Sends for a queue pair that was given requests; the caller of `pump` owns its stream.
pub type SendFn<'a> = &'a mut dyn FnMut(&Arc<Qp>, &mut Outbox);

/// A shared send queue.
#[derive(Debug)]
pub struct Ssq {
    number: u32,
    pd: Pd,
    /// Completions of its channels.
    inbox: Arc<Cq>,
    /// Its completions.
    cq: Arc<Cq>,
    limits: SsqLimits,
    order: Mutex<Order>,
    /// Only one thread pumps at a time; the state it needs is behind this lock.
    lock: CombiningLock<Pump>,
}

#[derive(Debug, Default)]
struct Pump {
    /// The channel that was given a request last, if it could not start it.
    lagging: Option<Arc<Qp>>,
    /// The channels that hold up others: in completing, in starting.
    watches: [Option<Watch>; 2],
}

impl Ssq {
    /// An empty queue without channels, which completes in `cq`.
    pub(crate) fn new(number: u32, pd: Pd, cq: Arc<Cq>, limits: SsqLimits) -> Result<Ssq, Error> {
        // Each request given to a channel has at most one completion, so the queue never overflows.
        let inbox = Arc::new(Cq::for_ssq(number, limits.requests.max(1))?);
        inbox.arm(Arm::Next);
        Ok(Ssq {
            number,
            pd,
            inbox,
            cq,
            limits,
            order: Mutex::new(Order::new(limits)),
            lock: CombiningLock::new(Pump::default()),
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

    /// The completion queue of its requests.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Its limits.
    pub fn limits(&self) -> SsqLimits {
        self.limits
    }

    pub(crate) fn inbox(&self) -> &Arc<Cq> {
        &self.inbox
    }

    /// Makes a queue pair that completes in the inbox a channel; at most `window` of its requests are given to it at once.
    pub(crate) fn join(&self, qp: &Arc<Qp>, window: usize) {
        self.order.lock().join(qp, window);
    }

    /// A channel is destroyed: its requests are flushed. The queue must be pumped afterwards.
    pub(crate) fn leave(&self, channel: u32) {
        self.order.lock().leave(channel);
    }

    /// A channel was reset: requests posted for it before are flushed. The queue must be pumped afterwards.
    pub(crate) fn flush_channel(&self, channel: u32) {
        self.order.lock().flush_channel(channel);
        // A thread that took a request from the order before that holds `lock`; when this returns, the channel has rejected the
        // request, so it cannot be executed after the reset.
        self.lock.read(|_| ());
    }

    /// Accepts requests for a channel again, or no more; posted ones continue. False if there is no such channel.
    pub(crate) fn set_open(&self, channel: u32, open: bool) -> bool {
        self.order.lock().set_open(channel, open)
    }

    /// Adds a request for the channel with this number. It does not block; the queue must be pumped afterwards.
    pub fn post(&self, channel: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.order.lock().post(channel, wr)
    }

    /// Completes what has ended and gives out the requests whose turn it is, as far as possible. If another thread does so
    /// already, that thread repeats it.
    pub fn pump(&self, carrier: SendFn<'_>, out: &mut Outbox) {
        self.lock
            .run_or_delegate(|pump| self.turn(pump, carrier, out));
    }

    fn turn(&self, pump: &mut Pump, carrier: SendFn<'_>, out: &mut Outbox) {
        self.collect(out);
        if pump.lagging.take_if(|qp| qp.has_begun_all()).is_none() && pump.lagging.is_some() {
            return;
        }
        loop {
            let Some((qp, wqe)) = self.order.lock().next(None) else {
                return;
            };
            self.give_to_channel(&qp, wqe, out);
            // Consecutive requests for the same channel are given out together: the channel keeps their order.
            loop {
                let next = self.order.lock().next(Some(qp.number()));
                let Some((qp, wqe)) = next else { break };
                self.give_to_channel(&qp, wqe, out);
            }
            carrier(&qp, out);
            // Before the next one is given out: V6, transmission is in posting order.
            let begun = qp.has_begun_all();
            self.collect(out);
            if !begun {
                pump.lagging = Some(qp);
                return;
            }
        }
    }

    fn give_to_channel(&self, qp: &Arc<Qp>, wqe: Wqe, out: &mut Outbox) {
        let number = wqe.id;
        if !qp.post_from_ssq(wqe, out) {
            self.order.lock().reject(number);
        }
    }

    /// Polls the channels' completions, and completes them in order.
    fn collect(&self, out: &mut Outbox) {
        let mut done = [Wc::default(); BATCH];
        let mut idle = Vec::new();
        // Armed before polling, so that an entry after the last poll wakes the queue.
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
            // Memory grows with the queue, not with the number of channels.
            qp.free_send_memory(out);
        }
    }

    /// Its attributes and counters.
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

    /// Attributes and counters of one of its channels.
    pub(crate) fn channel(&self, channel: u32) -> Option<ChannelInfo> {
        self.order.lock().channel(channel)
    }

    /// The last requests, oldest first; only those of one channel, if it is given.
    pub fn history(&self, channel: Option<u32>) -> Vec<Record> {
        self.order.lock().history(channel)
    }
}

#[cfg(test)]
mod tests;
