//! Drives a shared send queue (V6): on the thread where one of its requests ended, and by a shard's timer.
//! Requests whose turn has come are transmitted at once. The timer runs only while a channel may block others; which channel is
//! stalled is decided by the queue (`nic`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use verbena_nic::{Outbox, Qp, Ssq};
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Ready};

/// All shared send queues of an engine.
#[derive(Debug, Default)]
pub(crate) struct Sharers(RwLock<HashMap<u32, Weak<Sharer>>>);

impl Sharers {
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Sharer>> {
        self.0.read().get(&number)?.upgrade()
    }
}

/// A shared send queue and its timer.
pub(crate) struct Sharer {
    core: Arc<Core>,
    pub(crate) ssq: Arc<Ssq>,
    shard: Arc<Shard>,
    token: u64,
    /// A timer is set.
    ticking: AtomicBool,
}

impl Sharer {
    pub(crate) fn new(core: &Arc<Core>, ssq: Arc<Ssq>) -> Result<Arc<Sharer>, Error> {
        let sharer = Arc::new(Sharer {
            core: core.clone(),
            ssq,
            shard: core.shards.pick()?,
            token: next_token(),
            ticking: AtomicBool::new(false),
        });
        sharer.shard.serve(sharer.token, sharer.clone())?;
        let number = sharer.ssq.number();
        let mut all = core.sharers.0.write();
        all.insert(number, Arc::downgrade(&sharer));
        Ok(sharer)
    }

    /// Removes it from the table, unless its number was reused already.
    pub(crate) fn retire(&self) {
        let mut all = self.core.sharers.0.write();
        let ours = |one: &Weak<Sharer>| core::ptr::eq(one.as_ptr(), self);
        if all.get(&self.ssq.number()).is_some_and(ours) {
            all.remove(&self.ssq.number());
        }
        drop(all);
        self.shard.forget(self.token);
    }

    /// Transmits as far as possible. The caller holds no lock and delivers the outbox.
    pub(crate) fn pump(&self, out: &mut Outbox) {
        self.ssq.pump(&mut |qp, out| self.send(qp, out), out);
        self.tick();
    }

    /// Transmits requests that were assigned to a channel.
    fn send(&self, qp: &Arc<Qp>, out: &mut Outbox) {
        let connection = self.core.connection_of(qp.number());
        if let Some(connection) = &connection {
            connection.send(out);
        }
        // Also if the connection ended at this moment: then no other thread flushes the requests.
        if !connection.is_some_and(|connection| connection.is_running()) {
            qp.ring(out);
        }
    }

    /// Sets the timer, if one is wanted and none is set.
    fn tick(&self) {
        if self.ticking.load(Ordering::Acquire) {
            return;
        }
        if let Some(after) = self.ssq.wants_time()
            && !self.ticking.swap(true, Ordering::AcqRel)
        {
            self.shard.at(sys::now() + after, self.token);
        }
    }
}

impl Served for Sharer {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        let mut out = Outbox::new();
        // Before the queue is examined: a thread that finds it set relies on this examination.
        self.ticking.store(false, Ordering::Release);
        let hand = &mut |qp: &Arc<Qp>, out: &mut Outbox| self.send(qp, out);
        self.ssq.handle_timeout(now, hand, &mut out);
        self.tick();
        self.core.deliver(&mut out);
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for Sharer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Sharer").field(&self.ssq.number()).finish()
    }
}
