//! A TCP connection to an iSCSI target and the queue pair it serves, run by whoever runs the connections of the same completion queue.
//! It promises that bytes move in order whoever moves them, and that it is closed when its queue pair has ended.
//! It refuses to log in: what is said on it is its consumer's and its queue pair's business.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use verbena_iscsi::Qp;
use verbena_nic::{Outbox, Receiving, Sending};
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::group::{Group, Member};
use crate::shard::next_token;
use crate::sys::Socket;
use crate::watch::{By, Watch};

/// Reads of one turn, before others have theirs.
const READS: usize = 16;
/// Reads of a turn of a thread that polls: each is one PDU of data, and answers to them leave together.
const POLL_READS: usize = 32;

/// A connection to a target.
pub(crate) struct IscsiStream {
    core: Arc<Core>,
    token: u64,
    socket: Socket,
    pub(crate) qp: Arc<Qp>,
    group: Arc<Group>,
    /// What the group watches the socket for.
    watch: Watch,
}

impl IscsiStream {
    /// The queue pair's stream from now on.
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
            watch: Watch::new(By::Group),
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

    /// Sends what may be sent, unless somebody is at work who will.
    pub(crate) fn send(&self, out: &mut Outbox) {
        loop {
            let sent = self.qp.try_transmit(&mut &self.socket, out);
            match sent {
                None => return,
                Some(Sending::Blocked) => {
                    self.watch.want_room(&self.group, self, true);
                    return;
                }
                // Somebody who found no room after us may have asked for it before we took that back: look again.
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

    /// Goes on reading if that was stopped for a receive that is there now.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.watch.is_deaf() {
            self.turn(out);
        }
    }

    fn read(&self, times: usize, out: &mut Outbox) {
        let mut left = times;
        loop {
            let received = self.qp.receive(&mut &self.socket, out);
            let listens = match received {
                Receiving::Some(_) | Receiving::Dry => true,
                Receiving::Held => false,
                Receiving::Ended => return self.close(),
            };
            left = left.saturating_sub(1);
            // Whoever posted a receive, or found none, before this was said has gone by what was said before: look again.
            let is_news = self.watch.listen(&self.group, self, listens);
            let goes_on = left > 0 && matches!(received, Receiving::Some(_));
            if !goes_on && !is_news {
                return;
            }
        }
    }

    /// Nobody serves it any more, and the target is told.
    pub(crate) fn close(&self) {
        let mut watch = self.watch.lock();
        if core::mem::replace(&mut watch.by, By::Nobody) == By::Nobody {
            return;
        }
        self.group.leave(self);
        drop(watch);
        self.core.iscsi.remove(self.qp.number());
        // It may have been broken before.
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

    fn can_gather(&self) -> bool {
        true
    }

    fn awaits_several(&self) -> bool {
        self.qp.awaits_several()
    }

    fn gather(&self, out: &mut Outbox) -> bool {
        let gathers = self.qp.gather(&mut &self.socket, out);
        self.send(out);
        gathers
    }

    fn scatter(&self, out: &mut Outbox) {
        self.qp.scatter(&mut &self.socket, out);
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

/// All of an engine, by queue pair.
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

    /// Goes on with the queue pair of this number, which waited for memory (V5).
    pub(crate) fn resume(&self, number: u32, out: &mut Outbox) {
        let stream = self.0.read().get(&number).and_then(Weak::upgrade);
        if let Some(stream) = stream {
            // What it waits for may be memory of a receive.
            stream.turn(out);
        }
    }

    /// Those that are open.
    pub(crate) fn all(&self) -> Vec<Arc<IscsiStream>> {
        self.0.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Has those whose queue pair ended closed.
    pub(crate) fn sweep(&self, out: &mut Outbox) {
        for stream in self.all().iter().filter(|stream| stream.qp.wants_close()) {
            stream.send(out);
        }
    }
}
