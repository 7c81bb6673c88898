//! A TCP connection to an iSCSI target and its queue pair, a member of the group of its receive completion queue.
//! The shard or a polling thread serves it; the queue pair serializes both directions, so bytes move in order. It is closed when the
//! queue pair has ended. Login is the caller's.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_iscsi::Qp;
use verbena_nic::{Outbox, Receiving, Sending};
use verbena_stream::Time;
use verbena_sync::locks::RwLock;

use crate::core::Core;
use crate::error::Error;
use crate::poll::group::{Group, Member};
use crate::poll::shard::next_token;
use crate::poll::watch::{Watch, WatchedBy};
use crate::sys::Socket;

/// Reads per turn on a shard, before other members have theirs.
const READS: usize = 16;
/// Reads per turn of a polling thread: each is one data PDU, and the answers leave together.
const POLL_READS: usize = 32;

/// A connection to an iSCSI target.
pub(crate) struct IscsiStream {
    core: Arc<Core>,
    token: u64,
    socket: Socket,
    pub(crate) qp: Arc<Qp>,
    group: Arc<Group>,
    /// The readiness that the group watches the socket for.
    watch: Watch,
}

impl IscsiStream {
    /// Adds the stream to the group, which serves it from now on.
    pub(crate) fn open(
        core: &Arc<Core>,
        socket: Socket,
        qp: Arc<Qp>,
        group: &Arc<Group>,
    ) -> Result<Arc<IscsiStream>, Error> {
        let stream = Arc::new(IscsiStream {
            core: core.clone(),
            token: next_token(),
            socket,
            qp,
            group: group.clone(),
            watch: Watch::new(WatchedBy::Group),
        });
        core.iscsi.add(&stream);
        group.join(stream.clone());
        let watched = stream.watch.lock().apply(group, &*stream);
        if let Err(error) = watched {
            stream.close();
            return Err(error.into());
        }
        Ok(stream)
    }

    /// Transmits what may be sent, unless another thread is transmitting: that one will send it.
    pub(crate) fn send(&self, out: &mut Outbox) {
        loop {
            let sent = self.qp.try_transmit(&mut &self.socket, out);
            match sent {
                None => return,
                Some(Sending::Blocked) => {
                    self.watch.want_room(&self.group, self, true);
                    return;
                }
                // Another thread that found no room may have registered write interest before this cleared it: try again.
                Some(Sending::Idle) if self.watch.want_room(&self.group, self, false) => {}
                Some(Sending::Idle) => return,
                Some(Sending::Ended) => return self.close(),
            }
        }
    }

    /// Requests have not completed, or commands have no response.
    pub(crate) fn is_busy(&self) -> bool {
        let view = self.qp.view();
        view.sends > 0 || view.commands > 0
    }

    /// Resumes reading if it was stopped for lack of a receive.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.watch.is_read_disabled() {
            self.turn(out);
        }
    }

    fn read(&self, times: usize, out: &mut Outbox) {
        let mut left = times;
        loop {
            let received = self.qp.receive(&mut &self.socket, out);
            let listens = match received {
                Receiving::Some(_) | Receiving::WouldBlock => true,
                Receiving::Held => false,
                Receiving::Ended => return self.close(),
            };
            left = left.saturating_sub(1);
            // A receive posted, or found missing, before the interest was changed was judged by the old interest: read again.
            let is_news = self.watch.want_input(&self.group, self, listens);
            let goes_on = left > 0 && matches!(received, Receiving::Some(_));
            if !goes_on && !is_news {
                return;
            }
        }
    }

    /// Leaves the group and shuts down the sending direction; without effect if closed already.
    pub(crate) fn close(&self) {
        let mut watch = self.watch.lock();
        if core::mem::replace(&mut watch.watched_by, WatchedBy::None) == WatchedBy::None {
            return;
        }
        self.group.leave(self);
        drop(watch);
        self.core.iscsi.remove(self.qp.number());
        // The connection may have failed already.
        let _ = self.socket.shutdown_write();
    }
}

impl Member for IscsiStream {
    fn token(&self) -> u64 {
        self.token
    }

    fn sockets(&self) -> (&Socket, Option<&Socket>) {
        (&self.socket, None)
    }

    fn turn(&self, out: &mut Outbox) {
        self.read(READS, out);
        self.send(out);
    }

    fn poll_turn(&self, _: Time, out: &mut Outbox) -> bool {
        self.read(POLL_READS, out);
        self.send(out);
        false
    }

    fn send_deferred(&self, _: bool, _: &mut Outbox) {}

    fn can_coalesce(&self) -> bool {
        true
    }

    fn awaits_several(&self) -> bool {
        self.qp.can_coalesce()
    }

    fn begin_coalescing(&self, out: &mut Outbox) -> bool {
        let gathers = self.qp.raise_low_water(&mut &self.socket, out);
        self.send(out);
        gathers
    }

    fn end_coalescing(&self, out: &mut Outbox) {
        self.qp.restore_low_water(&mut &self.socket, out);
        self.send(out);
    }
}

impl core::fmt::Debug for IscsiStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IscsiStream")
            .field("qp", &self.qp.number())
            .finish_non_exhaustive()
    }
}

/// All open streams of an engine, by queue pair number.
#[derive(Debug, Default)]
pub(crate) struct IscsiStreams(RwLock<HashMap<u32, Weak<IscsiStream>>>);

impl IscsiStreams {
    fn add(&self, stream: &Arc<IscsiStream>) {
        let number = stream.qp.number();
        self.0.write().insert(number, Arc::downgrade(stream));
    }

    fn remove(&self, number: u32) {
        self.0.write().remove(&number);
    }

    /// Serves the queue pair of this number, which waited for memory to be resident (V5).
    pub(crate) fn resume(&self, number: u32, out: &mut Outbox) {
        let stream = self.0.read().get(&number).and_then(Weak::upgrade);
        if let Some(stream) = stream {
            // A turn and not only a send: the memory may be that of a receive.
            stream.turn(out);
        }
    }

    /// All open streams.
    pub(crate) fn all(&self) -> Vec<Arc<IscsiStream>> {
        self.0.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Closes the streams whose queue pair has ended.
    pub(crate) fn sweep(&self, out: &mut Outbox) {
        for stream in self.all().iter().filter(|stream| stream.qp.wants_close()) {
            stream.send(out);
        }
    }
}
