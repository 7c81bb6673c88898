//! Accepts connections at a listening address; each request waits for the program's decision, or goes to the out-of-band calls.
//! Startups in progress are limited over all listeners and shared between source addresses ([`permits`]); waiting requests are
//! limited per listener.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use verbena_stream::Time;
use verbena_wire::ext::NoAnswer;

use crate::connection::{Connection, Decision};
use crate::core::Core;
use crate::error::Error;
use crate::notice::Notify;
use crate::pipeline::shield;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Channel, Interest, Listener, Ready};

mod order;
mod passing;
mod permits;

use order::Order;
pub(crate) use permits::{Permit, Permits};

/// Connections accepted in one turn.
const AT_ONCE: usize = 64;
/// Pause after `accept` fails, as for lack of descriptors: an immediate retry would fail again.
const PAUSE: core::time::Duration = core::time::Duration::from_millis(100);

/// The position of a connection in the order of arrival at a listener; removed on drop.
pub(crate) struct Arrived {
    pub(crate) door: Weak<Door>,
    pub(crate) number: u64,
}

impl Drop for Arrived {
    fn drop(&mut self) {
        if let Some(door) = self.door.upgrade() {
            door.gone(self.number);
        }
    }
}

/// A listening address.
pub(crate) struct Door {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    listener: Listener,
    hears: Hears,
    order: Mutex<Order<Decision>>,
    /// Locked while a connection is accepted; true while none is.
    paused: Mutex<bool>,
    /// Another process listens on the same socket.
    given_up: AtomicBool,
}

/// The result of one `accept`.
enum Next {
    /// No connection waits, or none may be accepted.
    None,
    Came,
    /// A connection was accepted, and this one has to end for it.
    Displaces(Weak<Connection>),
}

/// The recipient of requests.
enum Hears {
    /// A program, which decides about each of them.
    Program(Arc<Waiting>),
    /// Queue pairs of out-of-band connections.
    Calls,
}

/// Requests that wait for the program's decision.
pub(crate) struct Waiting {
    backlog: usize,
    requests: Mutex<VecDeque<Decision>>,
    pub(crate) channel: Channel,
    /// Also notified of a request.
    pub(crate) told: RwLock<Option<Arc<dyn Notify>>>,
}

impl Waiting {
    /// Queues a request and signals the channel; returns it if the backlog is full.
    fn add(&self, decision: Decision) -> Result<(), Decision> {
        let mut requests = self.requests.lock();
        if requests.len() >= self.backlog {
            return Err(decision);
        }
        requests.push_back(decision);
        drop(requests);
        self.channel.ring();
        Ok(())
    }

    /// If the backlog is full, removes the requests of peers that have disconnected.
    fn make_room(&self) {
        let requests = self.requests.lock();
        if requests.len() < self.backlog {
            return;
        }
        let all: Vec<_> = requests.iter().map(|one| one.connection.clone()).collect();
        drop(requests);
        let gone: Vec<_> = all.iter().filter(|one| !one.is_asking()).collect();
        let is_gone = |one: &Decision| gone.iter().any(|c| Arc::ptr_eq(c, &one.connection));
        let mut requests = self.requests.lock();
        let before = requests.len();
        requests.retain(|one| !is_gone(one));
        for _ in requests.len()..before {
            // If another thread has taken the signal already, it finds no request and treats that as a spurious wake-up.
            self.channel.try_take();
        }
    }

    /// Calls the additional notification.
    fn tell(&self) {
        let told = self.told.read().clone();
        if let Some(told) = told {
            shield(|| told.notify());
        }
    }

    /// The adapter has ended: waiting threads are woken for good.
    pub(crate) fn end(&self) {
        self.channel.ring_for_good();
        self.tell();
    }

    /// The oldest waiting request; the caller has taken its signal.
    pub(crate) fn next(&self) -> Option<Decision> {
        self.requests.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.lock().is_empty()
    }

    fn take_all(&self) -> VecDeque<Decision> {
        core::mem::take(&mut *self.requests.lock())
    }
}

impl Door {
    /// A listener for a program; at most `backlog` requests wait for its decision.
    pub(crate) fn open(
        core: &Arc<Core>,
        listener: Listener,
        backlog: usize,
    ) -> Result<(Arc<Door>, Arc<Waiting>), Error> {
        let waiting = Arc::new(Waiting {
            backlog,
            requests: Mutex::default(),
            channel: Channel::new()?,
            told: RwLock::default(),
        });
        listener.begin()?;
        let door = Door::new(core, listener, Hears::Program(waiting.clone()))?;
        let mut acceptors = core.acceptors.lock();
        acceptors.retain(|one| one.strong_count() > 0);
        acceptors.push(Arc::downgrade(&waiting));
        drop(acceptors);
        // The engine may have ended the waits before this listener was added.
        core.check_waits()?;
        Ok((door, waiting))
    }

    /// A listener for out-of-band connections.
    pub(crate) fn for_calls(core: &Arc<Core>, listener: Listener) -> Result<Arc<Door>, Error> {
        Door::new(core, listener, Hears::Calls)
    }

    fn new(core: &Arc<Core>, listener: Listener, hears: Hears) -> Result<Arc<Door>, Error> {
        let door = Arc::new(Door {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            listener,
            hears,
            order: Mutex::default(),
            paused: Mutex::new(false),
            given_up: AtomicBool::new(false),
        });
        door.shard.serve(door.token, door.clone())?;
        let watched = door
            .shard
            .watch(&door.listener, door.token, Interest::READ_ONCE);
        if let Err(error) = watched {
            door.shard.forget(door.token);
            return Err(error.into());
        }
        Ok(door)
    }

    pub(crate) fn lives(&self) -> bool {
        self.core.lives()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.core.check()
    }

    pub(crate) fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local()?)
    }

    /// The request with this number is complete.
    pub(crate) fn tell(&self, number: u64, mut decision: Decision) {
        match &self.hears {
            Hears::Program(_) if !self.core.check_request(&mut decision) => {
                decision.connection.reject(&NoAnswer::Key.emit());
            }
            Hears::Program(waiting) => {
                // A request whose startup has ended meanwhile is dropped.
                let _ = self.order.lock().complete(number, decision);
                self.show(waiting);
            }
            Hears::Calls => {
                let held = self.core.calls.came(&self.core.config, decision);
                if let Some(until) = held {
                    self.shard.at(until, self.token);
                }
            }
        }
    }

    /// Shows the program the requests that are next in order.
    fn show(&self, waiting: &Waiting) {
        waiting.make_room();
        let mut order = self.order.lock();
        let (turn, again) = order.release(sys::now());
        // Under the lock: another shard must not change the order.
        let added: Vec<_> = turn.into_iter().map(|one| waiting.add(one)).collect();
        drop(order);
        if let Some(when) = again {
            self.shard.at(when, self.token);
        }
        for one in added {
            match one {
                Ok(()) => waiting.tell(),
                Err(decision) => decision.connection.reject(&[]),
            }
        }
    }

    /// The startup with this number is over.
    fn gone(&self, number: u64) {
        let (unseen, missed) = self.order.lock().gone(number);
        drop(unseen);
        if missed {
            // Left to the shard: the caller may hold locks that a callback of the program takes.
            self.shard.at(sys::now(), self.token);
        }
    }

    pub(crate) fn close(&self) {
        self.shard.unwatch(&self.listener);
        if !self.given_up.load(Ordering::Acquire) {
            self.listener.shut();
        }
        self.shard.forget(self.token);
        if let Hears::Program(waiting) = &self.hears {
            let unseen = self.order.lock().take_all();
            for decision in waiting.take_all().into_iter().chain(unseen) {
                decision.connection.reject(&[]);
            }
        }
    }

    fn admit(self: &Arc<Self>) -> Result<(), sys::Error> {
        for _ in 0..AT_ONCE {
            match self.admit_one()? {
                Next::None => break,
                Next::Came => {}
                // At once, so that the limit is kept, and without any lock.
                Next::Displaces(elder) => {
                    if let Some(elder) = elder.upgrade() {
                        elder.displace();
                    }
                }
            }
        }
        Ok(())
    }

    fn admit_one(self: &Arc<Self>) -> Result<Next, sys::Error> {
        let paused = self.paused.lock();
        if *paused {
            return Ok(Next::None);
        }
        let Some((socket, peer)) = self.listener.accept()? else {
            return Ok(Next::None);
        };
        // V2: a listener on all addresses includes those that a rule gives to another device.
        let ours = |at| self.core.check_owner(at, Some(peer)).is_ok();
        if self.core.is_closing()
            || !self.core.access.admits(peer.ip())
            || !socket.local().is_ok_and(ours)
        {
            socket.abort();
            return Ok(Next::Came);
        }
        let Some((permit, elder)) = self.core.half_open.take(peer.ip()) else {
            socket.abort();
            return Ok(Next::Came);
        };
        let arrived = Arrived {
            door: Arc::downgrade(self),
            number: self.order.lock().came(peer.ip()),
        };
        // If it fails, the socket is closed by its drop.
        let _ = Connection::came(&self.core, socket, peer, arrived, permit);
        Ok(elder.map_or(Next::Came, Next::Displaces))
    }

    fn listen(&self) {
        if *self.paused.lock() {
            return;
        }
        let _ = self
            .shard
            .arm(&self.listener, self.token, Interest::READ_ONCE);
    }
}

impl Served for Door {
    fn ready(self: Arc<Self>, _: Ready) {
        match self.admit() {
            // Out of descriptors or memory.
            Err(_) => self.shard.at(sys::now() + PAUSE, self.token),
            Ok(()) => self.listen(),
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        match &self.hears {
            Hears::Program(waiting) => self.show(waiting),
            Hears::Calls => self.core.calls.expire(now),
        }
        self.listen();
    }

    fn stop(self: Arc<Self>) {
        // The requests cannot be answered any more; their connections are closed.
        match &self.hears {
            Hears::Program(waiting) => {
                let unseen = self.order.lock().take_all();
                drop((waiting.take_all(), unseen));
            }
            Hears::Calls => self.core.calls.stop(),
        }
    }
}

impl core::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Door {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}
