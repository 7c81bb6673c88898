//! A listening address: whoever comes is heard, and its request waits for the program's answer.
//! It promises bounds: so many startups at once on all doors, shared between source addresses ([`permits`]), and so many
//! requests that wait at each.
//! It refuses to accept on the program's behalf.

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

/// Connections taken in one go, before others have their turn.
const AT_ONCE: usize = 64;
/// How long a door waits when the system refuses, as when no descriptor is left: trying at once would fail again.
const PAUSE: core::time::Duration = core::time::Duration::from_millis(100);

/// Somebody's place in the order of those who came through a door; given up when it is dropped.
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
    /// Held while somebody is let in: true if nobody is for now.
    paused: Mutex<bool>,
    /// Another process listens at the same socket.
    given_up: AtomicBool,
}

/// The next connection that waited to be accepted.
enum Next {
    /// There is none, or none may be taken.
    None,
    Came,
    /// It came, and this one has to end for it.
    Displaces(Weak<Connection>),
}

/// Who hears of requests.
enum Hears {
    /// A program, which answers them one by one.
    Program(Arc<Waiting>),
    /// Queue pairs that are connected by hand.
    Calls,
}

/// Requests that wait for a program's answer.
pub(crate) struct Waiting {
    backlog: usize,
    requests: Mutex<VecDeque<Decision>>,
    pub(crate) channel: Channel,
    /// Who else is told of a request.
    pub(crate) told: RwLock<Option<Arc<dyn Notify>>>,
}

impl Waiting {
    /// Puts a request behind the others and rings; it is given back if too many wait.
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

    /// Forgets peers that have given up, if nobody else would find room.
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
            // A ring that somebody else has taken finds no request, and is taken for none.
            self.channel.try_take();
        }
    }

    /// Tells whoever else wants to know.
    fn tell(&self) {
        let told = self.told.read().clone();
        if let Some(told) = told {
            shield(|| told.notify());
        }
    }

    /// The adapter has ended: nothing will come.
    pub(crate) fn end(&self) {
        self.channel.ring_for_good();
        self.tell();
    }

    /// The oldest request that waits; its ring has been taken.
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
    /// A door whose requests a program answers; at most `backlog` wait for that.
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
        // One that came too late for the end of all waits.
        core.check_waits()?;
        Ok((door, waiting))
    }

    /// A door for calls from queue pair to queue pair.
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

    /// The request of this number is complete.
    pub(crate) fn tell(&self, number: u64, mut decision: Decision) {
        match &self.hears {
            Hears::Program(_) if !self.core.check_request(&mut decision) => {
                decision.connection.reject(&NoAnswer::Key.emit());
            }
            Hears::Program(waiting) => {
                // Whoever is gone already has nothing to ask any more.
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

    /// Shows the program whoever's turn it is.
    fn show(&self, waiting: &Waiting) {
        waiting.make_room();
        let mut order = self.order.lock();
        let (turn, again) = order.release(sys::now());
        // Under the lock: another shard must not get in between.
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

    /// A startup is over.
    fn gone(&self, number: u64) {
        let (unseen, missed) = self.order.lock().gone(number);
        drop(unseen);
        if missed {
            // Not here: whoever goes may hold locks that a program's handler wants.
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
                // Now, so that there are never more than the settings allow, and without any lock.
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
        // V2: a door on all addresses may be at one that a rule gives to another device.
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
        // One that cannot be served is closed by being dropped.
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
            // Out of descriptors, or of memory.
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
        // Nobody can answer them any more; their peers see the end.
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
