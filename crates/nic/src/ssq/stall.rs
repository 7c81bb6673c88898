//! The stall limit of a shared send queue (V6): a channel without progress must not hold up the others for ever.
//! A channel that makes progress is never failed, however slow it is, nor one that holds up only its own requests. The time is passed
//! in; [`timeout_interval`](Ssq::timeout_interval) says whether to call again.

use core::time::Duration;

use verbena_events::event::Outbox;
use verbena_stream::Time;

use super::order::StalledChannel;
use super::{Pump, SendFn, Ssq};
use crate::qp::ssq_channel::ChannelProgress;

/// Checks within one limit.
const CHECKS_PER_LIMIT: u32 = 8;
/// Shortest interval between checks.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// A channel that holds up others, and since when it has made no progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    channel: u32,
    progress: ChannelProgress,
    since: Time,
}

impl Ssq {
    /// After how long to call [`handle_timeout`](Ssq::handle_timeout), if requests wait that a channel may hold up.
    pub fn timeout_interval(&self) -> Option<Duration> {
        let waits = self.order.lock().is_waiting();
        waits.then(|| (self.limits.stall / CHECKS_PER_LIMIT).max(MIN_INTERVAL))
    }

    /// Fails a channel that has held up others for too long without progress, and continues with the others.
    pub fn handle_timeout(&self, now: Time, carrier: SendFn<'_>, out: &mut Outbox) {
        let mut checked = false;
        self.lock.run_or_delegate(|pump| {
            self.turn(pump, carrier, out);
            if !core::mem::replace(&mut checked, true) {
                self.check_stall(pump, now, carrier, out);
            }
        });
    }

    fn check_stall(&self, pump: &mut Pump, now: Time, carrier: SendFn<'_>, out: &mut Outbox) {
        let lagging = pump.lagging.as_ref().map(|qp| qp.number());
        let blamed = {
            let order = self.order.lock();
            [order.completion_blocker(), order.start_blocker(lagging)]
        };
        let mut any = false;
        for (watch, blamed) in pump.watches.iter_mut().zip(blamed) {
            let Some(StalledChannel {
                qp,
                awaits_response: asks,
            }) = blamed
            else {
                *watch = None;
                continue;
            };
            if qp.outstanding_sends() == 0 {
                // All its completions are in the inbox by now.
                self.collect(out);
                self.order.lock().flush_given(qp.number());
                any = true;
                continue;
            }
            let seen = Watch {
                channel: qp.number(),
                progress: qp.progress(asks),
                since: now,
            };
            let same = |w: &Watch| (w.channel, w.progress) == (seen.channel, seen.progress);
            let before = watch.filter(same).unwrap_or(seen);
            *watch = Some(before);
            if now.since(before.since) >= self.limits.stall {
                *watch = None;
                // Its requests fail: the oldest as not answered, the rest is flushed. The peer may read again later and must not
                // find half a message then: the connection is aborted.
                qp.handle_peer_dead(out);
                self.order.lock().count_stall(qp.number());
                carrier(&qp, out);
                any = true;
            }
        }
        if any {
            self.turn(pump, carrier, out);
        }
    }

    /// For tests: the channel that could not start the request it was given.
    #[cfg(test)]
    pub(super) fn lagging(&self) -> Option<std::sync::Arc<crate::qp::Qp>> {
        self.lock.read(|pump| pump.lagging.clone())
    }
}
