//! The server side of `verbena events`: other programs of the same user watch the events of a running process. That of `verbena devinfo PID` is in
//! [`objects`].
//! Only processes of the same user are served, over a local socket. A slow watcher never delays the adapter: lines are dropped and
//! counted. A watcher may request the interrupt counters; one that sends anything else is disconnected. Without watchers the cost is one idle listening descriptor.

mod line;
pub mod objects;
mod watcher;

use std::sync::{Arc, Weak};
use std::time::Duration;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::Error;
use crate::notify::pipeline::Notification;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::security::Security;
use crate::sys::{self, AbstractListener, Interest, Ready};
pub use line::{COUNTERS_CLASS, COUNTERS_TOTAL};
use objects::{Describe, ObjectServer};
use watcher::Watcher;

/// Prefix of an adapter's abstract socket name; the process id, `/` and the adapter's number in the process follow.
pub const NAME: &str = "verbena-events/";
/// The first line, for a watcher that is accepted.
pub const GREETING: &str = "verbena-events 1";
/// Prefix of the only line for a client that is rejected; the reason follows.
pub const REFUSED: &str = "refused: ";
/// What a client sends to get a line for each interrupt vector, and one for all of them, among the events.
pub const COUNTERS_REQUEST: &str = "counters\n";
/// Watchers of one adapter at once.
pub const MAX_WATCHERS: u32 = 8;

/// Adapters of one process that can be watched at once.
const MAX_ADAPTERS: u32 = 64;
/// Clients accepted per turn on the shard.
const MAX_PER_TURN: usize = 8;
/// The delay before accepting again after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the monitor of the adapter was opened.
#[derive(Debug, Default)]
pub(crate) struct MonitorOnce(AtomicBool);

impl MonitorOnce {
    /// Opens a monitor on this shard, unless it was opened before.
    pub(crate) fn open_once(&self, watched: Watched, shard: &Arc<Shard>) {
        if !self.0.swap(true, Ordering::Relaxed) {
            // The adapter works without a monitor; clients then find no socket.
            let _ = ObjectServer::open(watched.describe.clone(), shard);
            let _ = Monitor::open(watched, shard);
        }
    }
}

/// What is watched: the events, the refused connections, and the objects.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) notification: Weak<Notification>,
    pub(crate) security: Weak<Security>,
    /// Describes the adapter's objects.
    pub(crate) describe: Describe,
}

/// The listening socket.
struct Monitor {
    watched: Watched,
    shard: Arc<Shard>,
    token: u64,
    listener: AbstractListener,
    watchers: Arc<AtomicU32>,
}

impl Monitor {
    fn open(watched: Watched, shard: &Arc<Shard>) -> Result<(), Error> {
        let monitor = Arc::new(Monitor {
            watched,
            shard: shard.clone(),
            token: next_token(),
            listener: bind(NAME)?,
            watchers: Arc::default(),
        });
        shard.serve(monitor.token, monitor.clone())?;
        let watched = shard.watch(&monitor.listener, monitor.token, Interest::READ_ONCE);
        if watched.is_err() {
            shard.forget(monitor.token);
        }
        Ok(watched?)
    }

    fn accept_clients(&self) -> Result<(), sys::Error> {
        for _ in 0..MAX_PER_TURN {
            let Some(visitor) = self.listener.accept()? else {
                break;
            };
            let refuse = |why: &str| {
                // If the line cannot be sent, the client still sees the end of the connection.
                let _ = visitor.send(format!("{REFUSED}{why}\n").as_bytes());
            };
            if visitor.peer_uid() != Ok(sys::effective_uid()) {
                refuse("the client is a process of another user");
                continue;
            }
            let Some(place) = WatcherPermit::take(&self.watchers, MAX_WATCHERS) else {
                refuse("too many watchers");
                continue;
            };
            // A client that cannot be served is disconnected by the drop.
            let _ = Watcher::start(&self.watched, &self.shard, visitor, place);
        }
        Ok(())
    }
}

/// One of the [`MAX_WATCHERS`] permits; returned when dropped.
struct WatcherPermit(Arc<AtomicU32>);

impl WatcherPermit {
    fn take(taken: &Arc<AtomicU32>, limit: u32) -> Option<WatcherPermit> {
        let more = |n: u32| (n < limit).then_some(n + 1);
        let free = taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        free.ok().map(|_| WatcherPermit(taken.clone()))
    }
}

impl Drop for WatcherPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Binds the first free name of this process with this prefix.
fn bind(prefix: &str) -> Result<AbstractListener, Error> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        match AbstractListener::bind(&format!("{prefix}{pid}/{number}")) {
            Err(error) if error.is_in_use() && number + 1 < MAX_ADAPTERS => number += 1,
            other => return Ok(other?),
        }
    }
}

impl ShardTask for Monitor {
    fn ready(self: Arc<Self>, _: Ready) {
        match self.accept_clients() {
            // Out of descriptors or memory.
            Err(_) => self.shard.set_timer(sys::now() + PAUSE, self.token),
            Ok(()) => {
                let _ = self
                    .shard
                    .arm(&self.listener, self.token, Interest::READ_ONCE);
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        let _ = self
            .shard
            .arm(&self.listener, self.token, Interest::READ_ONCE);
    }

    fn stop(self: Arc<Self>) {}
}
