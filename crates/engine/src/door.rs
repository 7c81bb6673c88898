//! A listening address: whoever comes is heard, and its request waits for the program's answer.
//! It promises bounds: so many startups at once on all doors, so many requests that wait at each; more are turned away.
//! It refuses to accept on the program's behalf.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use verbena_stream::Time;

use crate::connection::{Connection, Decision};
use crate::core::Core;
use crate::error::Error;
use crate::notice::Notify;
use crate::pipeline::shield;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Channel, Interest, Listener, Ready};

/// Connections taken in one go, before others have their turn.
const AT_ONCE: usize = 64;
/// How long a door waits when the system refuses, as when no descriptor is left: trying at once would fail again.
const PAUSE: core::time::Duration = core::time::Duration::from_millis(100);

/// A place among the startups that are allowed at once; given back when it is dropped.
pub(crate) struct Place(Arc<AtomicU32>);

impl Place {
    pub(crate) fn take(taken: &Arc<AtomicU32>, limit: u32) -> Option<Place> {
        let more = |n: u32| (n < limit).then_some(n + 1);
        let free = taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        free.ok().map(|_| Place(taken.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A listening address.
pub(crate) struct Door {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    listener: Listener,
    hears: Hears,
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
    fn add(&self, decision: Decision) {
        let mut requests = self.requests.lock();
        if requests.len() >= self.backlog {
            drop(requests);
            decision.connection.reject(&[]);
            return;
        }
        requests.push_back(decision);
        drop(requests);
        self.channel.ring();
        let told = self.told.read().clone();
        if let Some(told) = told {
            shield(|| told.notify());
        }
    }

    /// The oldest request that waits; its ring has been taken.
    pub(crate) fn next(&self) -> Option<Decision> {
        self.requests.lock().pop_front()
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

    /// A request is complete.
    pub(crate) fn tell(&self, decision: Decision) {
        match &self.hears {
            Hears::Program(waiting) => waiting.add(decision),
            Hears::Calls => {
                let held = self.core.calls.came(&self.core.config, decision);
                if let Some(until) = held {
                    self.shard.at(until, self.token);
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.shard.unwatch(&self.listener);
        self.listener.shut();
        self.shard.forget(self.token);
        if let Hears::Program(waiting) = &self.hears {
            for decision in waiting.take_all() {
                decision.connection.reject(&[]);
            }
        }
    }

    fn admit(self: &Arc<Self>) -> Result<(), sys::Error> {
        for _ in 0..AT_ONCE {
            let Some((socket, peer)) = self.listener.accept()? else {
                break;
            };
            if self.core.is_closing() {
                socket.abort();
                continue;
            }
            let limit = self.core.config.half_open;
            let Some(place) = Place::take(&self.core.half_open, limit) else {
                socket.abort();
                continue;
            };
            // One that cannot be served is closed by being dropped.
            let _ = Connection::came(&self.core, socket, peer, self, place);
        }
        Ok(())
    }

    fn listen(&self) {
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
        if matches!(self.hears, Hears::Calls) {
            self.core.calls.expire(now);
        }
        self.listen();
    }

    fn stop(self: Arc<Self>) {
        // Nobody can answer them any more; their peers see the end.
        match &self.hears {
            Hears::Program(waiting) => drop(waiting.take_all()),
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
