//! A shared send queue (V6): a posted request is transmitted by the posting thread as soon as its turn has come.
//! Posting never waits for a connection that another thread is transmitting on. The queue cannot be destroyed while it has channels.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::PostError;
use verbena_nic::qp::PostSendError;
use verbena_nic::ssq::{ChannelInfo, SsqInfo};
use verbena_nic::{Outbox, QpState, Record, SendWr, SsqLimits};
use verbena_sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;
use crate::error::Error;
use crate::poll::queue::{CompletionQueue, Queue};
use crate::verbs::ssq_driver::SsqDriver;

/// A shared send queue.
#[derive(Debug)]
pub struct SharedSendQueue {
    core: Arc<Core>,
    driver: Arc<SsqDriver>,
    /// Its completion queue.
    queue: Arc<Queue>,
    /// Its number may have been reused by now.
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
        let sharer = SsqDriver::new(core, ssq).inspect_err(|_| {
            // It has no channel yet: destroying it cannot fail.
            let _ = core.function.destroy_ssq(number, &mut Outbox::new());
        })?;
        Ok(SharedSendQueue {
            core: core.clone(),
            driver: sharer,
            queue: cq.0.clone(),
            destroyed: AtomicBool::new(false),
        })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.driver.ssq.number()
    }

    fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// A destroyed queue is not looked up by number, which may have been reused.
    fn check(&self) -> Result<(), Error> {
        self.core.check()?;
        let destroyed = self.destroyed.load(Ordering::Acquire);
        (!destroyed).then_some(()).ok_or(Error::Closed)
    }

    /// Posts requests to one channel. On error: how many were posted before the one that failed, and its error.
    pub fn post(&self, channel: u32, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        if !self.core.is_alive() {
            return Err(PostSendError {
                posted: 0,
                source: PostError::State(QpState::Reset),
            });
        }
        if self.core.is_closing() {
            return Err(PostSendError {
                posted: 0,
                source: PostError::State(QpState::Err),
            });
        }
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            let posted = self.driver.ssq.post(channel, wr);
            posted
                .err()
                .map(|source| PostSendError { posted: at, source })
        });
        self.pump();
        refused.map_or(Ok(()), Err)
    }

    /// Posts one request to each of several channels, in this order. On error: how many were posted before, and the error.
    pub fn post_each(
        &self,
        channels: impl IntoIterator<Item = u32>,
        wr: &SendWr<'_>,
    ) -> Result<(), PostSendError> {
        if !self.core.is_alive() {
            return Err(PostSendError {
                posted: 0,
                source: PostError::State(QpState::Reset),
            });
        }
        if self.core.is_closing() {
            return Err(PostSendError {
                posted: 0,
                source: PostError::State(QpState::Err),
            });
        }
        let refused = channels.into_iter().enumerate().find_map(|(at, channel)| {
            let posted = self.driver.ssq.post(channel, wr);
            posted
                .err()
                .map(|source| PostSendError { posted: at, source })
        });
        self.pump();
        refused.map_or(Ok(()), Err)
    }

    fn pump(&self) {
        let mut out = Outbox::new();
        self.driver.pump(&mut out);
        self.core.deliver(&mut out);
    }

    /// Opens a channel for requests, or closes it; requests already posted continue.
    pub fn open(&self, channel: u32, open: bool) -> Result<(), Error> {
        self.check()?;
        let function = &self.core.function;
        Ok(function.set_channel_open(self.number(), channel, open)?)
    }

    /// Its attributes and fill level.
    pub fn query(&self) -> Result<SsqInfo, Error> {
        self.check()?;
        Ok(self.core.function.query_ssq(self.number())?)
    }

    /// The counters of one of its channels.
    pub fn query_channel(&self, channel: u32) -> Result<ChannelInfo, Error> {
        self.check()?;
        let function = &self.core.function;
        Ok(function.query_channel(self.number(), channel)?)
    }

    /// The outcome of its last requests, oldest first; of one channel, if given.
    pub fn history(&self, channel: Option<u32>) -> Result<Vec<Record>, Error> {
        self.check()?;
        Ok(self.driver.ssq.history(channel))
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
        self.driver.retire();
        self.core.deliver(&mut out);
        Ok(())
    }
}

/// The send queue of a queue pair.
#[derive(Debug, Clone, Copy)]
pub enum SendQueue<'a> {
    /// An own queue, completing here.
    Own(&'a CompletionQueue),
    /// A queue shared with other queue pairs (V6).
    Shared(&'a SharedSendQueue),
}

impl SendQueue<'_> {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        match self {
            SendQueue::Own(queue) => &queue.0,
            SendQueue::Shared(ssq) => ssq.queue(),
        }
    }
}

impl Drop for SharedSendQueue {
    fn drop(&mut self) {
        if self.core.is_alive() && !self.destroyed.load(Ordering::Acquire) {
            // Holders of channels keep it as long as those exist.
            let destroyed = self.end();
            debug_assert!(destroyed.is_ok(), "a queue in use is held");
        }
    }
}
