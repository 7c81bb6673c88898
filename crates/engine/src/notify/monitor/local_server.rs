//! A server on an abstract Unix socket for other processes of the same user.
//! It accepts at most [`MAX_WATCHERS`] clients at once; one of another user, or one too many, gets a line that says why, and is disconnected. It never
//! blocks its shard.

use std::sync::Arc;
use std::time::Duration;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU32, Ordering};

use super::{MAX_WATCHERS, REFUSED};
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, AbstractClient, AbstractListener, Interest, Ready};

/// Adapters of one process that can have a server of one name.
const MAX_ADAPTERS: u32 = 64;
/// Clients accepted per turn on the shard.
const MAX_PER_TURN: usize = 8;
/// The delay before accepting again after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// The events of a client that has no room: it is gone, or has room again.
pub(super) const HANGUP_OR_WRITABLE: Interest = Interest {
    read: true,
    write: true,
    oneshot: true,
};

/// Starts to serve a client; the permit is kept as long as it is served.
pub(super) type StartClient =
    Box<dyn Fn(&Arc<Shard>, AbstractClient, ClientPermit) -> Result<(), Error> + Send + Sync>;

/// The listening socket.
pub(super) struct LocalServer {
    start: StartClient,
    shard: Arc<Shard>,
    token: u64,
    listener: AbstractListener,
    clients: Arc<AtomicU32>,
}

impl LocalServer {
    /// Opens a server at the first free name of this process with this prefix.
    pub(super) fn open(prefix: &str, start: StartClient, shard: &Arc<Shard>) -> Result<(), Error> {
        let server = Arc::new(LocalServer {
            start,
            shard: shard.clone(),
            token: next_token(),
            listener: bind(prefix)?,
            clients: Arc::default(),
        });
        let once = Interest::READ_ONCE;
        shard.serve_watched(server.token, server.clone(), &server.listener, once)
    }

    fn accept_clients(&self) -> Result<(), sys::Error> {
        for _ in 0..MAX_PER_TURN {
            let Some(client) = self.listener.accept()? else {
                break;
            };
            let refuse = |why: &str| {
                // If the line cannot be sent, the client still sees the end of the connection.
                let _ = client.send(format!("{REFUSED}{why}\n").as_bytes());
            };
            if client.peer_uid() != Ok(sys::effective_uid()) {
                refuse("the client is a process of another user");
                continue;
            }
            let Some(permit) = ClientPermit::take(&self.clients) else {
                refuse("too many clients");
                continue;
            };
            // A client that cannot be served is disconnected by the drop.
            let _ = (self.start)(&self.shard, client, permit);
        }
        Ok(())
    }

    fn rearm(&self) {
        // It fails only if the shard ends.
        let _ = self
            .shard
            .arm(&self.listener, self.token, Interest::READ_ONCE);
    }
}

impl ShardTask for LocalServer {
    fn ready(self: Arc<Self>, _: Ready) {
        match self.accept_clients() {
            // Out of descriptors or memory.
            Err(_) => self.shard.set_timer(sys::now() + PAUSE, self.token),
            Ok(()) => self.rearm(),
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        self.rearm();
    }

    fn stop(self: Arc<Self>) {}
}

/// One of the [`MAX_WATCHERS`] permits; returned when dropped.
pub(super) struct ClientPermit(Arc<AtomicU32>);

impl ClientPermit {
    fn take(taken: &Arc<AtomicU32>) -> Option<ClientPermit> {
        let more = |n: u32| (n < MAX_WATCHERS).then_some(n + 1);
        let free = taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        free.ok().map(|_| ClientPermit(taken.clone()))
    }
}

impl Drop for ClientPermit {
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
