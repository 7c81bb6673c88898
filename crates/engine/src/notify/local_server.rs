//! A server on an abstract Unix socket for other processes: of the monitor, and of captures.
//! It accepts a limited number of clients at once; one that may not be served, or one too many, is told so as its protocol says, and is disconnected. It
//! never blocks its shard.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, Ready};

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

/// A listening socket with an abstract name.
pub(crate) trait LocalListener: AsFd + Send + Sync + Sized + 'static {
    /// One end of a connection.
    type Client;

    /// Binds the name and listens; EADDRINUSE if it is in use.
    fn bind(name: &str) -> Result<Self, sys::Error>;

    /// The next client; none if none is pending.
    fn accept(&self) -> Result<Option<Self::Client>, sys::Error>;

    /// Whether the client's user may be served; the client is told if not.
    fn admits(client: &Self::Client) -> bool;

    /// Tells a client that there are too many.
    fn refuse_surplus(client: &Self::Client);
}

/// Starts to serve a client; the permit is kept as long as it is served.
pub(crate) type StartClient<C> =
    Box<dyn Fn(&Arc<Shard>, C, ClientPermit) -> Result<(), Error> + Send + Sync>;

/// The server.
pub(crate) struct LocalServer<L: LocalListener> {
    start: StartClient<L::Client>,
    shard: Arc<Shard>,
    token: u64,
    listener: L,
    /// Clients at once, and how many there may be.
    clients: Arc<AtomicU32>,
    max_clients: u32,
}

impl<L: LocalListener> LocalServer<L> {
    /// Opens a server at the first free name of this process with this prefix.
    pub(crate) fn open(
        prefix: &str,
        max_clients: u32,
        start: StartClient<L::Client>,
        shard: &Arc<Shard>,
    ) -> Result<(), Error> {
        let server = Arc::new(LocalServer {
            start,
            shard: shard.clone(),
            token: next_token(),
            listener: bind::<L>(prefix)?,
            clients: Arc::default(),
            max_clients,
        });
        let once = Interest::READ_ONCE;
        shard.serve_watched(server.token, server.clone(), &server.listener, once)
    }

    fn accept_clients(&self) -> Result<(), sys::Error> {
        for _ in 0..MAX_PER_TURN {
            let Some(client) = self.listener.accept()? else {
                break;
            };
            if !L::admits(&client) {
                continue;
            }
            let Some(permit) = ClientPermit::take(&self.clients, self.max_clients) else {
                L::refuse_surplus(&client);
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

impl<L: LocalListener> ShardTask for LocalServer<L> {
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

/// A client counts; returned when dropped.
pub(crate) struct ClientPermit(Arc<AtomicU32>);

impl ClientPermit {
    fn take(taken: &Arc<AtomicU32>, most: u32) -> Option<ClientPermit> {
        let more = |n: u32| (n < most).then_some(n + 1);
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
fn bind<L: LocalListener>(prefix: &str) -> Result<L, Error> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        match L::bind(&format!("{prefix}{pid}/{number}")) {
            Err(error) if error.is_in_use() && number + 1 < MAX_ADAPTERS => number += 1,
            other => return Ok(other?),
        }
    }
}
