//! The server side of `verbena events`: other programs of the same user watch the events of a running process. That of `verbena devinfo PID` is in
//! [`objects`], that of `verbena pcap` in [`crate::capture`], that of `verbena trace` in [`crate::trace`].
//! Only processes of the same user are served, over a local socket. A slow watcher never delays the adapter: lines are dropped and
//! counted. A watcher may request the interrupt counters; one that sends anything else is disconnected. Without watchers the cost is an idle listening descriptor for each.

pub mod faults;
mod line;
pub mod objects;
mod watcher;

use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_sync::atomic::{AtomicBool, Ordering};

use crate::capture::{self, Tap};
use crate::error::Error;
use crate::notify::attach::JoinAll;
use crate::notify::local_server::{LocalListener, LocalServer, StartClient};
use crate::notify::pipeline::Notification;
use crate::poll::shard::Shard;
use crate::security::Security;
use crate::sys::{self, AbstractClient, AbstractListener};
use crate::trace;
use faults::ControlFaults;
pub use line::{COUNTERS_CLASS, COUNTERS_TOTAL};
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
/// How often a capture that is waited for is looked for.
const CAPTURE_CHECK: Duration = Duration::from_millis(1);
/// Clients of one server at once.
pub const MAX_WATCHERS: u32 = 8;

/// Opens the monitor of an adapter on this shard, unless it was `opened` before. Then waits at most so long for a capture or trace to begin.
pub(crate) fn open_once(opened: &AtomicBool, watched: Watched, shard: &Arc<Shard>, wait: Duration) {
    if !opened.swap(true, Ordering::Relaxed) {
        // The adapter works without a monitor; clients then find no socket.
        let _ = objects::open(watched.describe.clone(), shard);
        let (tap, join_all) = (watched.tap.clone(), watched.join_all.clone());
        let can_trace = trace::open(tap.clone(), join_all.clone(), shard).is_ok();
        let can_capture = capture::open(tap.clone(), join_all, shard).is_ok();
        let _ = faults::open(watched.control_faults.clone(), shard);
        let start = move |shard: &Arc<Shard>, client, permit| {
            Watcher::start(&watched, shard, client, permit)
        };
        let _ = open(NAME, Box::new(start), shard);
        let deadline = sys::now() + wait;
        while (can_capture || can_trace) && !tap.is_observed() && sys::now() < deadline {
            sys::sleep(CAPTURE_CHECK);
        }
    }
}

/// Opens a server for clients of the same user that get lines of text.
fn open(prefix: &str, start: StartClient<AbstractClient>, shard: &Arc<Shard>) -> Result<(), Error> {
    LocalServer::<AbstractListener>::open(prefix, MAX_WATCHERS, start, shard)
}

impl LocalListener for AbstractListener {
    type Client = AbstractClient;

    fn bind(name: &str) -> Result<AbstractListener, sys::Error> {
        AbstractListener::bind(name)
    }

    fn accept(&self) -> Result<Option<AbstractClient>, sys::Error> {
        AbstractListener::accept(self)
    }

    fn admits(client: &AbstractClient) -> bool {
        let is_own = client.peer_uid() == Ok(sys::effective_uid());
        if !is_own {
            refuse(client, "the client is a process of another user");
        }
        is_own
    }

    fn refuse_surplus(client: &AbstractClient) {
        refuse(client, "too many clients");
    }
}

/// If the line cannot be sent, the client still sees the end of the connection.
fn refuse(client: &AbstractClient, why: &str) {
    let _ = client.send(format!("{REFUSED}{why}\n").as_bytes());
}

/// What is watched: the events, the refused connections, and the objects.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) notification: Weak<Notification>,
    pub(crate) security: Weak<Security>,
    /// Carries out requests of `verbena faults`.
    pub(crate) control_faults: ControlFaults,
    /// Describes the adapter's objects.
    pub(crate) describe: Describe,
    /// Copies frames for a capture.
    pub(crate) tap: Arc<Tap>,
    /// Lets connections join a capture.
    pub(crate) join_all: JoinAll,
}

/// The files that processes leave for `verbena why`: where they are, and their limits.
pub mod files {
    use std::path::PathBuf;

    pub use crate::sys::record_file::{
        EXITED, KEPT, MAX_FILES, SLOT, SLOTS, process_of, start_time,
    };

    /// The folders of this user that may have some.
    pub fn folders() -> Vec<PathBuf> {
        crate::sys::runtime::directories()
    }
}
