//! The server side of `verbena devinfo PID`: a process of the same user reads which objects an adapter has (N1).
//! A client sends nothing; it gets one text, and the connection is closed. Sending never blocks the shard: what the client's socket has
//! no room for waits until it has.

use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use crate::error::Error;
use crate::notify::local_server::{ClientPermit, HANGUP_OR_WRITABLE};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{AbstractClient, Ready};

/// Prefix of an adapter's abstract socket name; the process id, `/` and a number follow.
pub const NAME: &str = "verbena-objects/";
/// The first line. One line for each object follows: its kind, then `key=value` with spaces between; the value of `cause`, the last one of a
/// queue pair, may contain spaces.
pub const GREETING: &str = "verbena-objects 1";

/// Describes the objects of an adapter; `None` if it is gone.
pub(crate) type Describe = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Starts the server on this shard.
pub(super) fn open(describe: Describe, shard: &Arc<Shard>) -> Result<(), Error> {
    let start = move |shard: &Arc<Shard>, client, permit| {
        let objects = describe().ok_or(Error::Closed)?;
        ObjectClient::start(shard, client, format!("{GREETING}\n{objects}"), permit)
    };
    super::open(NAME, Box::new(start), shard)
}

/// A client that is being sent the text.
struct ObjectClient {
    shard: Arc<Shard>,
    token: u64,
    client: AbstractClient,
    text: String,
    /// Bytes that were sent.
    sent: Mutex<usize>,
    _permit: ClientPermit,
}

impl ObjectClient {
    fn start(
        shard: &Arc<Shard>,
        client: AbstractClient,
        text: String,
        permit: ClientPermit,
    ) -> Result<(), Error> {
        let task = Arc::new(ObjectClient {
            shard: shard.clone(),
            token: next_token(),
            client,
            text,
            sent: Mutex::new(0),
            _permit: permit,
        });
        shard.serve_watched(task.token, task.clone(), &task.client, HANGUP_OR_WRITABLE)
    }

    /// Sends what there is room for; true if all was sent or the client is gone.
    fn send_more(&self) -> bool {
        let mut sent = self.sent.lock();
        while let Some(rest) = self.text.as_bytes().get(*sent..).filter(|r| !r.is_empty()) {
            match self.client.send_part(rest) {
                Ok(0) => return false,
                Ok(n) => *sent += n,
                Err(_) => return true,
            }
        }
        true
    }
}

impl ShardTask for ObjectClient {
    fn ready(self: Arc<Self>, ready: Ready) {
        // A client that sends something is disconnected.
        if ready.readable || ready.hangup || self.send_more() {
            self.shard.unwatch(&self.client);
            self.shard.forget(self.token);
            return;
        }
        let _ = self.shard.arm(&self.client, self.token, HANGUP_OR_WRITABLE);
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}
