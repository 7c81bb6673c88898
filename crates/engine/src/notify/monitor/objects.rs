//! The server side of `verbena devinfo PID`: a process of the same user reads which objects an adapter has (N1).
//! A client sends nothing; it gets one text, and the connection is closed. Sending never blocks the shard: what the client's socket has
//! no room for waits until it has.

use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::atomic::AtomicU32;
use verbena_sync::locks::Mutex;

use super::{MAX_PER_TURN, MAX_WATCHERS, PAUSE, REFUSED, WatcherPermit, bind};
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, AbstractClient, AbstractListener, Interest, Ready};

/// Prefix of an adapter's abstract socket name; the process id, `/` and a number follow.
pub const NAME: &str = "verbena-objects/";
/// The first line. One line for each object follows: its kind, then `key=value` with spaces between; the value of `cause`, the last one of a
/// queue pair, may contain spaces.
pub const GREETING: &str = "verbena-objects 1";

/// Wakes when the client is gone or has room.
const HANGUP_OR_WRITABLE: Interest = Interest {
    read: true,
    write: true,
    oneshot: true,
};

/// Describes the objects of an adapter; `None` if it is gone.
pub(crate) type Describe = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The listening socket.
pub(super) struct ObjectServer {
    describe: Describe,
    shard: Arc<Shard>,
    token: u64,
    listener: AbstractListener,
    clients: Arc<AtomicU32>,
}

impl ObjectServer {
    pub(super) fn open(describe: Describe, shard: &Arc<Shard>) -> Result<(), Error> {
        let server = Arc::new(ObjectServer {
            describe,
            shard: shard.clone(),
            token: next_token(),
            listener: bind(NAME)?,
            clients: Arc::default(),
        });
        shard.serve(server.token, server.clone())?;
        let watched = shard.watch(&server.listener, server.token, Interest::READ_ONCE);
        if watched.is_err() {
            shard.forget(server.token);
        }
        Ok(watched?)
    }

    fn accept_clients(&self) -> Result<(), sys::Error> {
        for _ in 0..MAX_PER_TURN {
            let Some(client) = self.listener.accept()? else {
                break;
            };
            let text = if client.peer_uid() == Ok(sys::effective_uid()) {
                (self.describe)().map(|objects| format!("{GREETING}\n{objects}"))
            } else {
                Some(format!(
                    "{REFUSED}the client is a process of another user\n"
                ))
            };
            // A client that cannot be served is disconnected by the drop.
            if let (Some(text), Some(permit)) =
                (text, WatcherPermit::take(&self.clients, MAX_WATCHERS))
            {
                let _ = ObjectClient::start(&self.shard, client, text, permit);
            }
        }
        Ok(())
    }
}

impl ShardTask for ObjectServer {
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

/// A client that is being sent the text.
struct ObjectClient {
    shard: Arc<Shard>,
    token: u64,
    client: AbstractClient,
    text: String,
    /// Bytes that were sent.
    sent: Mutex<usize>,
    _permit: WatcherPermit,
}

impl ObjectClient {
    fn start(
        shard: &Arc<Shard>,
        client: AbstractClient,
        text: String,
        permit: WatcherPermit,
    ) -> Result<(), Error> {
        let task = Arc::new(ObjectClient {
            shard: shard.clone(),
            token: next_token(),
            client,
            text,
            sent: Mutex::new(0),
            _permit: permit,
        });
        shard.serve(task.token, task.clone())?;
        let watched = shard.watch(&task.client, task.token, HANGUP_OR_WRITABLE);
        if watched.is_err() {
            shard.forget(task.token);
        }
        Ok(watched?)
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
