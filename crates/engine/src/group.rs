//! The connections that complete their receives in one queue, served together: by a shard, or by a thread that polls the queue.
//! It promises that a connection is served by somebody at any time: what is lent to a polling thread is taken back when
//! that thread stays away or arms the queue. It refuses to lend on a whim: a few empty polls in a row must have come before.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::{Mutex, RwLock};
use verbena_nic::Outbox;
use verbena_stream::Time;

use crate::connection::Connection;
use crate::core::Core;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Interest, Poller, Ready};

/// A polling thread tries so many connections directly; of more it asks which are ready.
const FEW: usize = 4;
/// Rounds of serving before others on the shard have their turn.
const ROUNDS: usize = 8;

/// Connections of one completion queue.
pub(crate) struct Group {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    poller: Poller,
    members: RwLock<Members>,
    /// Empty polls in quick succession.
    polls: AtomicU32,
    /// The last poll, in nanoseconds.
    polled: AtomicU64,
    /// A polling thread serves the group.
    lent: AtomicBool,
    /// Who asks which members are ready does so alone.
    asking: Mutex<Vec<Ready>>,
}

#[derive(Default)]
struct Members {
    list: Vec<Arc<Connection>>,
    by_token: HashMap<u64, Arc<Connection>>,
}

impl Group {
    pub(crate) fn new(core: &Arc<Core>) -> sys::Result<Arc<Group>> {
        let group = Arc::new(Group {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            poller: Poller::new()?,
            members: RwLock::default(),
            polls: AtomicU32::new(0),
            polled: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            asking: Mutex::default(),
        });
        group.shard.serve(group.token, group.clone());
        group
            .shard
            .watch(&group.poller, group.token, Interest::READ_ONCE)?;
        Ok(group)
    }

    /// A connection joins, and is watched for this.
    pub(crate) fn join(&self, connection: &Arc<Connection>, interest: Interest) -> sys::Result<()> {
        let token = connection.token();
        {
            let mut members = self.members.write();
            members.list.push(connection.clone());
            members.by_token.insert(token, connection.clone());
        }
        self.poller.add(connection.socket(), token, interest)
    }

    pub(crate) fn rearm(&self, connection: &Connection, interest: Interest) {
        let watched = self
            .poller
            .arm(connection.socket(), connection.token(), interest);
        if watched.is_err() {
            // It was set aside while nothing could be heard of it.
            let _ = self
                .poller
                .add(connection.socket(), connection.token(), interest);
        }
    }

    /// A connection is not watched for now: nothing that could be told of it would be news.
    pub(crate) fn set_aside(&self, connection: &Connection) {
        let _ = self.poller.remove(connection.socket());
    }

    pub(crate) fn leave(&self, connection: &Connection) {
        self.set_aside(connection);
        let token = connection.token();
        let mut members = self.members.write();
        members.list.retain(|member| member.token() != token);
        let gone = members.by_token.remove(&token);
        drop(members);
        drop(gone);
    }

    /// The queue was polled and found empty: serves the group if it is lent, and lends it if that has happened often.
    pub(crate) fn polled_empty(&self) {
        let now = sys::now();
        let before = self.polled.swap(now.nanos(), Ordering::Relaxed);
        if self.lent.load(Ordering::Acquire) {
            self.serve_polling();
            return;
        }
        let pause = u128::from(now.nanos().saturating_sub(before));
        if pause > self.core.config.lend_time.as_nanos() {
            self.polls.store(0, Ordering::Relaxed);
        } else if self.polls.fetch_add(1, Ordering::Relaxed) + 1 >= self.core.config.lend_polls {
            self.polls.store(0, Ordering::Relaxed);
            self.lent.store(true, Ordering::Release);
            self.shard.at(now + self.core.config.lend_time, self.token);
            self.serve_polling();
        }
    }

    /// A turn by a thread that polls.
    fn serve_polling(&self) {
        // Not under the lock: a connection that ends in its turn leaves the group.
        let few: Option<[Option<Arc<Connection>>; FEW]> = {
            let members = self.members.read();
            let list = &members.list;
            (list.len() <= FEW).then(|| core::array::from_fn(|at| list.get(at).cloned()))
        };
        let Some(few) = few else {
            self.serve_ready();
            return;
        };
        let mut out = Outbox::new();
        for connection in few.iter().flatten() {
            connection.poll_turn(&mut out);
        }
        // Another thread may have given the group back in the middle of this turn and found nothing put off yet. One of
        // the two sees what the other did: both write, fence, and look.
        fence(Ordering::SeqCst);
        if !self.lent.load(Ordering::Acquire) {
            for connection in few.iter().flatten() {
                connection.send_deferred(&mut out);
            }
        }
        self.core.deliver(&mut out);
    }

    /// A turn of every member that is ready; false if none was, or if somebody else is at it.
    fn serve_ready(&self) -> bool {
        let Some(mut ready) = self.asking.try_lock() else {
            return false;
        };
        if self
            .poller
            .wait(&mut ready, Some(core::time::Duration::ZERO))
            .is_err()
        {
            return false;
        }
        let mut out = Outbox::new();
        for one in ready.iter() {
            let member = self.members.read().by_token.get(&one.token).cloned();
            if let Some(connection) = member {
                connection.turn(&mut out);
            }
        }
        let any = !ready.is_empty();
        drop(ready);
        self.core.deliver(&mut out);
        any
    }

    /// The queue is being armed, or its poller stayed away: the shard serves the group again.
    pub(crate) fn take_back(&self) {
        if self.lent.swap(false, Ordering::AcqRel) {
            fence(Ordering::SeqCst);
            self.listen();
            // A polling thread may have put off an acknowledgement.
            let members = self.members.read().list.clone();
            let mut out = Outbox::new();
            for connection in members {
                connection.send_deferred(&mut out);
            }
            self.core.deliver(&mut out);
        }
    }

    /// Has the shard told of the next thing that is ready, also if it is so already.
    fn listen(&self) {
        // Its queue may have been dropped while this turn ran: then it is not watched any more, and need not be.
        let _ = self
            .shard
            .arm(&self.poller, self.token, Interest::READ_ONCE);
    }

    /// Nobody needs the queue any more.
    pub(crate) fn retire(&self) {
        self.shard.unwatch(&self.poller);
        self.shard.forget(self.token);
    }
}

impl Served for Group {
    fn ready(self: Arc<Self>, _: Ready) {
        if self.lent.load(Ordering::Acquire) {
            // Left unarmed: the polling thread sees to it, and the timer takes it back.
            return;
        }
        for _ in 0..ROUNDS {
            if !self.serve_ready() {
                break;
            }
        }
        self.listen();
    }

    fn expire(self: Arc<Self>, now: Time) {
        if !self.lent.load(Ordering::Acquire) {
            return;
        }
        let stayed_away = now
            .nanos()
            .saturating_sub(self.polled.load(Ordering::Relaxed));
        if u128::from(stayed_away) > self.core.config.lend_time.as_nanos() {
            self.take_back();
        } else {
            self.shard.at(now + self.core.config.lend_time, self.token);
        }
    }
}

impl core::fmt::Debug for Group {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}
