//! A shared send queue with hands (V6): what is posted leaves on the thread that posted it, as soon as its turn has come.
//! It promises that posting never waits for a connection that another thread is pumping, and that a queue in use stays.
//! It refuses to know its channels; they name it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_mem::Pd;
use verbena_nic::qp::PostError;
use verbena_nic::ssq::{ChannelInfo, SsqInfo};
use verbena_nic::{Outbox, QpState, Record, SendWr, SsqLimits};

use crate::core::Core;
use crate::error::Error;
use crate::queue::{CompletionQueue, Queue};
use crate::sharer::Sharer;

/// A shared send queue.
#[derive(Debug)]
pub struct SharedSendQueue {
    core: Arc<Core>,
    sharer: Arc<Sharer>,
    /// Where it completes.
    queue: Arc<Queue>,
    /// Its number may be another's by now.
    destroyed: AtomicBool,
}

impl SharedSendQueue {
    pub(crate) fn new(
        core: &Arc<Core>,
        pd: Pd,
        cq: &CompletionQueue,
        limits: SsqLimits,
    ) -> Result<SharedSendQueue, Error> {
        core.check_own(cq.0.core())?;
        let ssq = core.function.create_ssq(pd, cq.number(), limits)?;
        let number = ssq.number();
        let sharer = Sharer::new(core, ssq).inspect_err(|_| {
            // It has no channel yet, so that it can be destroyed.
            let _ = core.function.destroy_ssq(number, &mut Outbox::new());
        })?;
        Ok(SharedSendQueue {
            core: core.clone(),
            sharer,
            queue: cq.0.clone(),
            destroyed: AtomicBool::new(false),
        })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.sharer.ssq.number()
    }

    fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// What was destroyed has no name any more: its number may be another's.
    fn check(&self) -> Result<(), Error> {
        self.core.check()?;
        let destroyed = self.destroyed.load(Ordering::Acquire);
        (!destroyed).then_some(()).ok_or(Error::Closed)
    }

    /// Posts requests for one channel; the number of those that were posted before one was refused, and why.
    pub fn post(&self, channel: u32, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        if !self.core.lives() {
            return Err((0, PostError::State(QpState::Reset)));
        }
        if self.core.is_closing() {
            return Err((0, PostError::State(QpState::Err)));
        }
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            let posted = self.sharer.ssq.post(channel, wr);
            posted.err().map(|error| (at, error))
        });
        self.pump();
        refused.map_or(Ok(()), Err)
    }

    /// Posts one request for each of several channels, in this order; how many were posted before one was refused, and why.
    pub fn post_each(
        &self,
        channels: impl IntoIterator<Item = u32>,
        wr: &SendWr<'_>,
    ) -> Result<(), (usize, PostError)> {
        if !self.core.lives() {
            return Err((0, PostError::State(QpState::Reset)));
        }
        if self.core.is_closing() {
            return Err((0, PostError::State(QpState::Err)));
        }
        let refused = channels.into_iter().enumerate().find_map(|(at, channel)| {
            let posted = self.sharer.ssq.post(channel, wr);
            posted.err().map(|error| (at, error))
        });
        self.pump();
        refused.map_or(Ok(()), Err)
    }

    fn pump(&self) {
        let mut out = Outbox::new();
        self.sharer.pump(&mut out);
        self.core.deliver(&mut out);
    }

    /// Takes requests for a channel again, or takes no more; what was posted goes on.
    pub fn open(&self, channel: u32, open: bool) -> Result<(), Error> {
        self.check()?;
        let function = &self.core.function;
        Ok(function.open_channel(self.number(), channel, open)?)
    }

    /// What it is and holds.
    pub fn query(&self) -> Result<SsqInfo, Error> {
        self.check()?;
        Ok(self.core.function.query_ssq(self.number())?)
    }

    /// What one of its channels has done.
    pub fn query_channel(&self, channel: u32) -> Result<ChannelInfo, Error> {
        self.check()?;
        let function = &self.core.function;
        Ok(function.query_channel(self.number(), channel)?)
    }

    /// What became of its last requests, oldest first; of one channel, if it is named.
    pub fn history(&self, channel: Option<u32>) -> Result<Vec<Record>, Error> {
        self.check()?;
        Ok(self.sharer.ssq.history(channel))
    }

    /// Destroys it now, if it has no channel.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check()?;
        self.end()
    }

    fn end(&self) -> Result<(), Error> {
        let mut out = Outbox::new();
        self.core.function.destroy_ssq(self.number(), &mut out)?;
        self.destroyed.store(true, Ordering::Release);
        self.sharer.retire();
        self.core.deliver(&mut out);
        Ok(())
    }
}

/// Where the sends of a queue pair come from, and complete.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sends<'a> {
    /// A queue of its own.
    Own(&'a CompletionQueue),
    /// One that it shares with others (V6).
    Shared(&'a SharedSendQueue),
}

impl Sends<'_> {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        match self {
            Sends::Own(queue) => &queue.0,
            Sends::Shared(ssq) => ssq.queue(),
        }
    }
}

impl Drop for SharedSendQueue {
    fn drop(&mut self) {
        if self.core.lives() && !self.destroyed.load(Ordering::Acquire) {
            // Whoever makes channels of it keeps it as long as they live.
            let destroyed = self.end();
            debug_assert!(destroyed.is_ok(), "a queue in use is held");
        }
    }
}
