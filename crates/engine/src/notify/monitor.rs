//! The server side of `verbena events`: other programs of the same user watch the events of a running process. That of `verbena devinfo PID` is in
//! [`objects`].
//! Only processes of the same user are served, over a local socket. A slow watcher never delays the adapter: lines are dropped and
//! counted. A watcher may request the interrupt counters; one that sends anything else is disconnected. Without watchers the cost is one idle listening descriptor.

mod line;
mod local_server;
pub mod objects;
mod watcher;

use std::sync::{Arc, Weak};

use verbena_sync::atomic::{AtomicBool, Ordering};

use crate::notify::pipeline::Notification;
use crate::poll::shard::Shard;
use crate::security::Security;
pub use line::{COUNTERS_CLASS, COUNTERS_TOTAL};
use local_server::LocalServer;
use objects::Describe;
use watcher::Watcher;

/// Prefix of an adapter's abstract socket name; the process id, `/` and the adapter's number in the process follow.
pub const NAME: &str = "verbena-events/";
/// The first line, for a watcher that is accepted.
pub const GREETING: &str = "verbena-events 1";
/// Prefix of the only line for a client that is rejected; the reason follows.
pub const REFUSED: &str = "refused: ";
/// What a client sends to get a line for each interrupt vector, and one for all of them, among the events.
pub const COUNTERS_REQUEST: &str = "counters\n";
/// Clients of one server at once.
pub const MAX_WATCHERS: u32 = 8;

/// Opens the monitor of an adapter on this shard, unless it was `opened` before.
pub(crate) fn open_once(opened: &AtomicBool, watched: Watched, shard: &Arc<Shard>) {
    if !opened.swap(true, Ordering::Relaxed) {
        // The adapter works without a monitor; clients then find no socket.
        let _ = objects::open(watched.describe.clone(), shard);
        let start = move |shard: &Arc<Shard>, client, permit| {
            Watcher::start(&watched, shard, client, permit)
        };
        let _ = LocalServer::open(NAME, Box::new(start), shard);
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
