//! The timer for signals that interrupt moderation holds (E6), on one of the shards. It is set for the next signal that is due, and costs
//! nothing while none is held.

use std::sync::{Arc, Weak};

use verbena_stream::Time;
use verbena_sync::locks::OnceLock;

use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, Shards, next_token};
use crate::sys::Ready;

/// What has held signals.
pub(crate) trait Tick: Send + Sync {
    /// Fires the held signals that are due, and serves the queues that are polled instead of signalled.
    fn tick(&self, now: Time);
}

/// The timer of an adapter.
pub(crate) struct Ticker {
    interrupts: Weak<dyn Tick>,
    timer: OnceLock<(Arc<Shard>, u64)>,
}

impl Ticker {
    pub(crate) fn new(interrupts: Weak<dyn Tick>) -> Arc<Ticker> {
        let timer = OnceLock::new();
        Arc::new(Ticker { interrupts, timer })
    }

    /// Sets the timer; fails if the shards are stopping.
    pub(crate) fn set(self: &Arc<Self>, shards: &Shards, when: Time) -> Result<(), Error> {
        if self.timer.get().is_none() {
            let (shard, token) = (shards.pick()?, next_token());
            shard.serve(token, self.clone())?;
            if self.timer.set((shard.clone(), token)).is_err() {
                // Another thread was first.
                shard.forget(token);
            }
        }
        if let Some((shard, token)) = self.timer.get() {
            if shard.is_stopping() {
                return Err(Error::Closed);
            }
            shard.set_timer(when, *token);
        }
        Ok(())
    }
}

impl ShardTask for Ticker {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        if let Some(interrupts) = self.interrupts.upgrade() {
            interrupts.tick(now);
        }
    }

    fn stop(self: Arc<Self>) {}
}
