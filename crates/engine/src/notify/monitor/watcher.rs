//! A client that watches the events of an adapter.
//! Lines are sent whole and in the order of the events. A line for which the client's socket has no room is dropped and counted, and
//! the count is sent as a line when there is room. Nothing blocks and no line is queued.

use std::sync::Arc;

use verbena_nic::Cause;
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::{COUNTERS_REQUEST, GREETING, Watched, line};
use crate::error::Error;
use crate::notify::interrupt_counters::InterruptCounters;
use crate::notify::local_server::{ClientPermit, HANGUP_OR_WRITABLE};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::security::access::Refusal;
use crate::sys::{AbstractClient, Interest, Ready};

pub(super) struct Watcher {
    watched: Watched,
    shard: Arc<Shard>,
    token: u64,
    client: AbstractClient,
    /// Lines dropped since the client had no room; while it is not zero, the shard waits for room.
    missed: Mutex<u64>,
    _permit: ClientPermit,
}

impl Watcher {
    pub(super) fn start(
        watched: &Watched,
        shard: &Arc<Shard>,
        client: AbstractClient,
        permit: ClientPermit,
    ) -> Result<(), Error> {
        let notification = watched.notification.upgrade().ok_or(Error::Closed)?;
        let security = watched.security.upgrade().ok_or(Error::Closed)?;
        let watcher = Arc::new(Watcher {
            watched: watched.clone(),
            shard: shard.clone(),
            token: next_token(),
            client,
            missed: Mutex::new(0),
            _permit: permit,
        });
        let once = Interest::READ_ONCE;
        shard.serve_watched(watcher.token, watcher.clone(), &watcher.client, once)?;
        let observer = watcher.clone();
        // Held until the greeting is sent: a client that has read it misses no event from then on, and sees none from before.
        let _first = watcher.missed.lock();
        notification.observers.add(
            watcher.token,
            Arc::new(move |cause| observer.send_event(cause)),
        );
        let reporter = watcher.clone();
        let refused = move |refusal: &Refusal| reporter.send_line(|| line::refusal(refusal));
        security.access.add(watcher.token, Arc::new(refused));
        watcher.client.send(format!("{GREETING}\n").as_bytes())?;
        Ok(())
    }

    fn send_event(&self, cause: Cause) {
        self.send_line(|| line::event(cause));
    }

    fn send_line(&self, line: impl FnOnce() -> String) {
        // Held while the line is sent, which does not block: lines are in the order of their times.
        let mut missed = self.missed.lock();
        if *missed > 0 {
            *missed += 1;
            return;
        }
        // The shard notices a client that is gone.
        if let Ok(false) = self.client.send(line().as_bytes()) {
            *missed = 1;
            let _ = self.shard.arm(&self.client, self.token, HANGUP_OR_WRITABLE);
        }
    }

    /// Sends the interrupt counters, among the events.
    fn send_counters(&self) {
        if let Some(notification) = self.watched.notification.upgrade() {
            let counters = InterruptCounters::of(&notification.interrupts);
            for line in line::counters(&counters) {
                self.send_line(|| line);
            }
        }
    }

    /// Sends the count of dropped lines, if there is room now.
    fn report_missed(&self) {
        let mut missed = self.missed.lock();
        let caught_up =
            *missed == 0 || self.client.send(line::missed(*missed).as_bytes()) == Ok(true);
        if caught_up {
            *missed = 0;
        }
        let next = if caught_up {
            Interest::READ_ONCE
        } else {
            HANGUP_OR_WRITABLE
        };
        let _ = self.shard.arm(&self.client, self.token, next);
    }
}

impl ShardTask for Watcher {
    fn ready(self: Arc<Self>, ready: Ready) {
        if !ready.readable && !ready.hangup {
            self.report_missed();
            return;
        }
        if ready.readable && self.client.has_sent(COUNTERS_REQUEST.as_bytes()) {
            self.send_counters();
            let _ = self
                .shard
                .arm(&self.client, self.token, Interest::READ_ONCE);
            return;
        }
        // The client is gone, or sent something else.
        self.shard.unwatch(&self.client);
        self.shard.forget(self.token);
        if let Some(notification) = self.watched.notification.upgrade() {
            notification.observers.remove(self.token);
        }
        if let Some(security) = self.watched.security.upgrade() {
            security.access.remove(self.token);
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {
        // The last events are still to come (N8), on other threads: it stays registered as long as the adapter exists.
        if *self.missed.lock() > 0 {
            self.report_missed();
        }
    }
}
