//! The link of the adapter's addresses: each change between up and down is raised as a global event (E7).
//! The state is that of the interfaces which have the addresses; it is queried when the kernel reports a change of any interface, and an
//! event is raised only if it differs from the last one. Without changes the cost is one idle descriptor.

use std::sync::{Arc, Weak};

use verbena_events::eqe::Cause;
use verbena_events::interrupts::Origin;
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, LinkSocket, Ready};

/// The number of the adapter's port in events.
pub const PORT: u16 = 1;

/// Opens the watch on the link, unless it was opened before or the settings switch it off.
pub(crate) fn watch_once(core: &Arc<Core>) {
    let opened = &core.notification.link_watched;
    if core.config.link_events && !opened.swap(true, Ordering::Relaxed) {
        // The adapter works without link events, for example where a sandbox forbids netlink sockets.
        let _ = LinkWatch::open(core);
    }
}

struct LinkWatch {
    core: Weak<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: LinkSocket,
    /// The state of the last event.
    up: AtomicBool,
}

impl LinkWatch {
    fn open(core: &Arc<Core>) -> Result<(), Error> {
        let shard = core.shards.pick()?;
        let socket = LinkSocket::open()?;
        // Queried after the socket is open: a later change is reported.
        let up = core.is_interface_up()?;
        let watch = Arc::new(LinkWatch {
            core: Arc::downgrade(core),
            shard: shard.clone(),
            token: next_token(),
            socket,
            up: AtomicBool::new(up),
        });
        shard.serve_watched(
            watch.token,
            watch.clone(),
            &watch.socket,
            Interest::READ_ONCE,
        )
    }

    /// Raises an event if the state has changed.
    fn check(&self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        // If it cannot be queried, the next change is as good.
        if let Ok(up) = core.is_interface_up()
            && self.up.swap(up, Ordering::Relaxed) != up
        {
            let cause = Cause::Link { port: PORT, up };
            // Fails only when the adapter is down, which was reported.
            let _ = core.notification.inject(cause, Origin::UNSPECIFIED);
        }
    }
}

impl ShardTask for LinkWatch {
    fn ready(self: Arc<Self>, _: Ready) {
        self.socket.drain();
        self.check();
        let _ = self
            .shard
            .arm(&self.socket, self.token, Interest::READ_ONCE);
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

impl Core {
    /// Whether an interface that has one of the adapter's addresses is up and has a carrier, and no fault takes the port down.
    pub(crate) fn is_link_up(&self) -> Result<bool, Error> {
        Ok(!self.faults.is_port_down(sys::now()) && self.is_interface_up()?)
    }

    /// Whether an interface that has one of the adapter's addresses is up and has a carrier.
    fn is_interface_up(&self) -> Result<bool, Error> {
        Ok(sys::is_link_up(self.local_addresses.all()?)?)
    }
}
