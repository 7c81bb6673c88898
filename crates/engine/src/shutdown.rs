//! Shutdown (N8): nothing new is taken, what is under way is finished or flushed, and the last notifications are delivered.
//! It promises that it ends: work that is not done in time is flushed, and a peer that does not say goodbye is not waited for.
//! It refuses to take anything away that the program still holds: queues can be polled as long as they are there.

use core::time::Duration;
use std::sync::atomic::Ordering;

use verbena_stream::Time;

use crate::engine::Engine;
use crate::error::Error;
use crate::sys;

/// What a shutdown came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shutdown {
    /// Queue pairs whose work was done.
    pub finished: usize,
    /// Queue pairs whose work was flushed, because it took too long.
    pub flushed: usize,
}

impl Engine {
    /// Shuts the adapter down: refuses whatever is new, gives requests that were posted this long to complete, flushes
    /// the rest, ends all connections, and delivers what is to be told. Completion queues can be polled afterwards.
    pub fn shut_down(&self, patience: Duration) -> Result<Shutdown, Error> {
        let core = &self.core;
        // One that is down (E2) can be shut down.
        if !core.lives() || core.closing.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        core.numbers.close();
        core.residents.close();
        let until = sys::now() + patience;
        // Queue pairs that have sends outstanding, of every kind.
        let busy = || {
            let qps = core.function.all_qps();
            let uds = core.function.all_uds();
            qps.iter().filter(|qp| qp.outstanding().0 > 0).count()
                + uds.iter().filter(|qp| qp.outstanding().0 > 0).count()
                + core.iscsi.all().iter().filter(|s| s.is_busy()).count()
        };
        sys::wait(until, || busy() == 0);
        let (all, flushed) = (core.pair_count(), busy());
        core.flush_all();
        // Last words need somebody who sends them.
        sys::wait(sys::now() + core.config.linger, || core.is_quiet());
        core.shards.stop();
        // Held signals are not held any more, and whoever is told on another thread is told before it ends.
        core.tick(Time::MAX);
        core.stations.stop(core.config.linger);
        core.end_waits();
        Ok(Shutdown {
            finished: all.saturating_sub(flushed),
            flushed,
        })
    }
}
