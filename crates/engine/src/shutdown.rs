//! Shutdown (N8): nothing new is accepted, outstanding work completes or is flushed, and the last notifications are delivered.
//! It takes bounded time: work that is not done in `patience` is flushed, and peers are waited for at most `linger`. Completion queues
//! remain and can be polled.

use core::time::Duration;

use crate::engine::Engine;
use crate::error::Error;
use crate::roce::cm::RoceCm;
use crate::sys;

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shutdown {
    /// Queue pairs whose work completed.
    pub finished: usize,
    /// Queue pairs whose work was flushed at the time limit.
    pub flushed: usize,
}

impl Engine {
    /// Shuts the adapter down: rejects new requests, gives outstanding ones `patience` to complete, flushes the rest, ends all
    /// connections, and delivers the remaining notifications. Completion queues can be polled afterwards.
    pub fn shut_down(&self, patience: Duration) -> Result<Shutdown, Error> {
        let core = &self.core;
        // An adapter that is down (E2) can be shut down.
        if !core.is_alive() || !core.lifecycle.close() {
            return Err(Error::Closed);
        }
        core.oob.qpn_allocator.close();
        core.routes.ud_demux.close();
        let until = sys::now() + patience;
        // Queue pairs of every kind that have outstanding sends.
        let busy = || {
            let qps = core.function.all_qps();
            let uds = core.function.all_uds();
            qps.iter().filter(|qp| qp.outstanding().0 > 0).count()
                + uds.iter().filter(|qp| qp.outstanding().0 > 0).count()
                + core
                    .routes
                    .ulps
                    .all()
                    .iter()
                    .filter(|s| s.qp.is_busy())
                    .count()
        };
        sys::wait(until, || busy() == 0);
        let (all, flushed) = (core.pair_count(), busy());
        core.flush_all();
        // The last frames are sent by the shards, so those stop afterwards.
        sys::wait(sys::now() + core.config.linger, || core.routes.is_idle());
        RoceCm::disconnect_all(core);
        // Until here connections over RoCEv2 were served.
        core.roce_ports.close();
        core.shards.stop();
        // No signal is held any more, and handler threads deliver what is pending before they end.
        core.notification.end_ticks();
        core.notification.handler_threads.stop(core.config.linger);
        core.end_waits();
        Ok(Shutdown {
            finished: all.saturating_sub(flushed),
            flushed,
        })
    }
}
