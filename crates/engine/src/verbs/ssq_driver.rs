//! Drives a shared send queue (V6): on the thread where one of its requests ended, and by a shard's timer.
//! Requests whose turn has come are transmitted at once. The timer runs only while a channel may block others; which channel is
//! stalled is decided by the queue (`nic`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, Qp, Ssq};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::RwLock;

use crate::core::Core;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Ready};

/// All shared send queues of an engine.
#[derive(Debug, Default)]
pub(crate) struct SsqDrivers(RwLock<HashMap<u32, Weak<SsqDriver>>>);

impl SsqDrivers {
    pub(crate) fn find(&self, number: u32) -> Option<Arc<SsqDriver>> {
        self.0.read().get(&number)?.upgrade()
    }
}

/// A shared send queue and its timer.
pub(crate) struct SsqDriver {
    core: Arc<Core>,
    pub(crate) ssq: Arc<Ssq>,
    shard: Arc<Shard>,
    token: u64,
    /// A timer is set.
    timer_set: AtomicBool,
}

impl SsqDriver {
    pub(crate) fn new(core: &Arc<Core>, ssq: Arc<Ssq>) -> Result<Arc<SsqDriver>, Error> {
        let sharer = Arc::new(SsqDriver {
            core: core.clone(),
            ssq,
            shard: core.shards.pick()?,
            token: next_token(),
            timer_set: AtomicBool::new(false),
        });
        sharer.shard.serve(sharer.token, sharer.clone())?;
        let number = sharer.ssq.number();
        let mut all = core.routes.ssq_drivers.0.write();
        all.insert(number, Arc::downgrade(&sharer));
        Ok(sharer)
    }

    /// Removes it from the table, unless its number was reused already.
    pub(crate) fn retire(&self) {
        let mut all = self.core.routes.ssq_drivers.0.write();
        let ours = |one: &Weak<SsqDriver>| core::ptr::eq(one.as_ptr(), self);
        if all.get(&self.ssq.number()).is_some_and(ours) {
            all.remove(&self.ssq.number());
        }
        drop(all);
        self.shard.forget(self.token);
    }

    /// Transmits as far as possible. The caller holds no lock and delivers the outbox.
    pub(crate) fn pump(&self, out: &mut Outbox) {
        self.ssq.pump(&mut |qp, out| self.send(qp, out), out);
        self.arm_timer();
    }

    /// Transmits requests that were assigned to a channel.
    fn send(&self, qp: &Arc<Qp>, out: &mut Outbox) {
        let connection = self.core.routes.connection_of(qp.number());
        if let Some(connection) = &connection {
            connection.send(out);
        }
        // Also if the connection ended at this moment: then no other thread flushes the requests.
        if !connection.is_some_and(|connection| connection.is_running()) {
            qp.ring_doorbell(out);
        }
    }

    /// Sets the timer, if one is wanted and none is set.
    fn arm_timer(&self) {
        if self.timer_set.load(Ordering::Acquire) {
            return;
        }
        if let Some(after) = self.ssq.timeout_interval()
            && !self.timer_set.swap(true, Ordering::AcqRel)
        {
            self.shard.set_timer(sys::now() + after, self.token);
        }
    }
}

impl ShardTask for SsqDriver {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        let mut out = Outbox::new();
        // Before the queue is examined: a thread that finds it set relies on this examination.
        self.timer_set.store(false, Ordering::Release);
        let hand = &mut |qp: &Arc<Qp>, out: &mut Outbox| self.send(qp, out);
        self.ssq.handle_timeout(now, hand, &mut out);
        self.arm_timer();
        self.core.deliver(&mut out);
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for SsqDriver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("SsqDriver")
            .field(&self.ssq.number())
            .finish()
    }
}
