//! The conversations that other processes begin: what their targets receive for shared receive queues of this process, and targets of this
//! process that they open.
//! A process that holds a receive and sends nothing for a while loses its conversation, as does one that breaks a rule. The number of conversations is
//! limited.

use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, XrcDomain, XrcExecutor, xrc};
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::XrcHost;
use super::open_target::{OPEN_LEN, TargetHandle, Targets, open_request, target_state};
use super::waiters::Waiter;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, PacketChannel, PacketListener, Ready};

/// Conversations that other processes may have with one process in a domain.
const MAX_CONVERSATIONS: usize = 4096;
/// Conversations that are accepted per turn.
const MAX_ACCEPTS: usize = 16;
/// Records that are read per turn from one conversation.
const MAX_PER_TURN: usize = 64;

/// Accepts conversations with a member of a domain.
pub(super) struct Server {
    host: Weak<dyn XrcHost>,
    domain: Arc<XrcDomain>,
    targets: Arc<Targets>,
    shard: Arc<Shard>,
    token: u64,
    listener: PacketListener,
    /// How long a process may hold a receive.
    patience: Duration,
    conversations: Mutex<Vec<Weak<Conversation>>>,
}

impl Server {
    pub(super) fn start(
        host: Weak<dyn XrcHost>,
        (domain, targets): (Arc<XrcDomain>, Arc<Targets>),
        shard: Arc<Shard>,
        listener: PacketListener,
        patience: Duration,
    ) -> Result<Arc<Server>, crate::error::Error> {
        let server = Arc::new(Server {
            host,
            domain,
            targets,
            shard,
            token: next_token(),
            listener,
            patience,
            conversations: Mutex::default(),
        });
        server.shard.serve_watched(
            server.token,
            server.clone(),
            &server.listener,
            Interest::READ,
        )?;
        Ok(server)
    }

    /// Ends it and its conversations.
    pub(super) fn close(&self) {
        self.shard.unwatch(&self.listener);
        self.shard.forget(self.token);
        let conversations = core::mem::take(&mut *self.conversations.lock());
        for conversation in conversations.iter().filter_map(Weak::upgrade) {
            conversation.close();
        }
    }

    fn begin(&self, channel: PacketChannel) {
        let Some(host) = self.host.upgrade() else {
            return;
        };
        let mut conversations = self.conversations.lock();
        conversations.retain(|one| one.strong_count() > 0);
        if conversations.len() >= MAX_CONVERSATIONS {
            return;
        }
        let waiter = host.waiters().number();
        let conversation = Arc::new(Conversation {
            host: self.host.clone(),
            targets: self.targets.clone(),
            shard: self.shard.clone(),
            token: next_token(),
            channel,
            waiter,
            patience: self.patience,
            state: Mutex::new(State {
                executor: XrcExecutor::new(self.domain.clone(), waiter),
                opened: None,
                last: sys::now(),
                timer: false,
                closed: false,
            }),
        });
        host.waiters().add(waiter, &conversation);
        conversations.push(Arc::downgrade(&conversation));
        drop(conversations);
        let served = conversation.shard.serve_watched(
            conversation.token,
            conversation.clone(),
            &conversation.channel,
            Interest::READ,
        );
        if served.is_err() {
            conversation.close();
        }
    }
}

impl ShardTask for Server {
    fn ready(self: Arc<Self>, _: Ready) {
        for _ in 0..MAX_ACCEPTS {
            match self.listener.accept() {
                Ok(Some(channel)) => self.begin(channel),
                // Out of descriptors, perhaps: tried again at the next readiness.
                Ok(None) | Err(_) => break,
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

/// A conversation that another process began.
struct Conversation {
    host: Weak<dyn XrcHost>,
    targets: Arc<Targets>,
    shard: Arc<Shard>,
    token: u64,
    channel: PacketChannel,
    waiter: u32,
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    executor: XrcExecutor,
    /// The target that the other process has opened, if it is such a conversation.
    opened: Option<Box<dyn TargetHandle>>,
    /// When the last record arrived.
    last: Time,
    /// A timer is set.
    timer: bool,
    closed: bool,
}

impl Conversation {
    /// Handles a record; false if the conversation is over.
    fn handle(&self, state: &mut State, record: &[u8], out: &mut Outbox) -> bool {
        state.last = sys::now();
        if record.len() == OPEN_LEN {
            if let Some(number) = open_request(record) {
                state.opened = self.targets.open(number);
            }
            let answer = target_state(state.opened.as_deref());
            return self.channel.send(&answer, &[]).unwrap_or(false);
        }
        let mut reply = Vec::new();
        let handled = state.executor.handle(record, &mut reply, out).is_ok();
        let sent = handled && self.reply(&reply);
        self.watch_hold(state);
        sent
    }

    /// There is room: the other process waits for each answer.
    fn reply(&self, reply: &[u8]) -> bool {
        reply.is_empty() || self.channel.send(reply, &[]).unwrap_or(false)
    }

    /// Sets the timer if the other process holds a receive.
    fn watch_hold(&self, state: &mut State) {
        if !state.timer && !state.closed && state.executor.holds_receive() {
            state.timer = true;
            let when = sys::now() + self.patience;
            self.shard.set_timer(when, self.token);
        }
    }

    fn close(&self) {
        let mut out = Outbox::new();
        let opened = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.closed = true;
            state.executor.end(&mut out);
            state.opened.take()
        };
        // Without the lock: it may be the last handle of a target.
        drop(opened);
        self.shard.unwatch(&self.channel);
        self.shard.forget(self.token);
        if let Some(host) = self.host.upgrade() {
            host.waiters().remove(self.waiter);
            host.deliver(&mut out);
        }
    }
}

impl ShardTask for Conversation {
    fn ready(self: Arc<Self>, _: Ready) {
        let mut out = Outbox::new();
        let mut room = [0; xrc::LONGEST];
        let mut goes_on = true;
        {
            let mut state = self.state.lock();
            for _ in 0..MAX_PER_TURN {
                match self.channel.receive(&mut room) {
                    Ok(Some(record)) => goes_on = self.handle(&mut state, record, &mut out),
                    Ok(None) => break,
                    Err(_) => goes_on = false,
                }
                if !goes_on {
                    break;
                }
            }
        }
        if let Some(host) = self.host.upgrade() {
            host.deliver(&mut out);
        }
        if !goes_on {
            self.close();
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        let silent = {
            let mut state = self.state.lock();
            state.timer = false;
            let holds = state.executor.holds_receive();
            let silent = holds && now.since(state.last) >= self.patience;
            if !silent {
                self.watch_hold(&mut state);
            }
            silent
        };
        if silent {
            self.close();
        }
    }

    fn stop(self: Arc<Self>) {}
}

impl Waiter for Conversation {
    fn resume(&self) {
        let sent = {
            let mut state = self.state.lock();
            let mut reply = Vec::new();
            if !state.closed {
                state.executor.woken(&mut reply);
                state.last = sys::now();
                self.watch_hold(&mut state);
            }
            self.reply(&reply)
        };
        if !sent {
            self.close();
        }
    }
}
