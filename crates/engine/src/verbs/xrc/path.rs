//! The target's end of a conversation with the process of a shared receive queue.
//! The queue pair reads and sends itself, under its lock; the shard only wakes it. Dropping the path ends the conversation.

use core::fmt;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, PathClosed, XrcPath};
use verbena_stream::Time;

use super::XrcHost;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, PacketChannel, Ready};

const READ_AND_WRITE: Interest = Interest {
    write: true,
    ..Interest::READ
};

/// A conversation with another process.
pub(super) struct Path(Arc<Watch>);

/// What the shard serves.
struct Watch {
    host: Weak<dyn XrcHost>,
    qp: u32,
    shard: Arc<Shard>,
    token: u64,
    channel: PacketChannel,
}

impl Path {
    pub(super) fn new(
        host: Weak<dyn XrcHost>,
        shard: Arc<Shard>,
        channel: PacketChannel,
        qp: u32,
    ) -> Result<Path, Error> {
        let watch = Arc::new(Watch {
            host,
            qp,
            shard,
            token: next_token(),
            channel,
        });
        watch
            .shard
            .serve_watched(watch.token, watch.clone(), &watch.channel, Interest::READ)?;
        Ok(Path(watch))
    }
}

impl XrcPath for Path {
    fn send(&self, head: &[u8], body: &[u8]) -> Result<bool, PathClosed> {
        let watch = &self.0;
        let sent = watch.channel.send(head, body).map_err(|_| PathClosed)?;
        if !sent {
            let armed = watch.shard.arm(&watch.channel, watch.token, READ_AND_WRITE);
            armed.map_err(|_| PathClosed)?;
        }
        Ok(sent)
    }

    fn receive(&self, room: &mut [u8]) -> Result<Option<usize>, PathClosed> {
        let received = self.0.channel.receive(room).map_err(|_| PathClosed)?;
        Ok(received.map(<[u8]>::len))
    }

    fn now(&self) -> Time {
        sys::now()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.0.shard.unwatch(&self.0.channel);
        self.0.shard.forget(self.0.token);
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path").field("qp", &self.0.qp).finish()
    }
}

impl ShardTask for Watch {
    fn ready(self: Arc<Self>, ready: Ready) {
        if ready.writable {
            // Armed again if there is not enough room.
            let _ = self.shard.arm(&self.channel, self.token, Interest::READ);
        }
        let Some(host) = self.host.upgrade() else {
            self.shard.unwatch(&self.channel);
            return;
        };
        let mut out = Outbox::new();
        out.wake_for_memory([self.qp]);
        host.deliver(&mut out);
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}
