//! Lets a user's other programs watch the events of a running process: `verbena events`.
//! It promises that nobody but the process's own user sees anything, that watching never holds up what is watched, and that it
//! costs one sleeping descriptor while nobody looks. It refuses to be spoken to: who says anything is sent away.

mod line;
mod watcher;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Interest, Local, Ready};
use watcher::Watcher;

/// The abstract name of an adapter's monitor begins so; its process's id, `/` and a number of the adapter's follow.
pub const NAME: &str = "verbena-events/";
/// The first line that is said to whoever may watch.
pub const GREETING: &str = "verbena-events 1";
/// The first line begins so for whoever may not, and says why.
pub const REFUSED: &str = "refused: ";
/// Most that watch one adapter at once.
pub const WATCHERS: u32 = 8;

/// Adapters of one process that can be watched.
const ADAPTERS: u32 = 64;
/// Visitors let in before others on the shard have their turn.
const AT_ONCE: usize = 8;
/// The wait before accepting is tried again, after the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the adapter can be watched already.
#[derive(Debug, Default)]
pub(crate) struct Opened(AtomicBool);

impl Opened {
    /// Has a shard let watchers in, unless the settings are against it or it does already.
    pub(crate) fn once(&self, core: &Arc<Core>, shard: &Arc<Shard>) {
        if core.config.monitor && !self.0.swap(true, Ordering::Relaxed) {
            // An adapter that cannot be watched works as well as any; who wants to watch it is told that nobody is there.
            let _ = Monitor::open(core, shard);
        }
    }
}

/// The place where watchers come.
struct Monitor {
    core: Weak<Core>,
    shard: Arc<Shard>,
    token: u64,
    local: Local,
    watchers: Arc<AtomicU32>,
}

impl Monitor {
    fn open(core: &Arc<Core>, shard: &Arc<Shard>) -> Result<(), Error> {
        let monitor = Arc::new(Monitor {
            core: Arc::downgrade(core),
            shard: shard.clone(),
            token: next_token(),
            local: bind()?,
            watchers: Arc::default(),
        });
        shard.serve(monitor.token, monitor.clone())?;
        let watched = shard.watch(&monitor.local, monitor.token, Interest::READ_ONCE);
        if watched.is_err() {
            shard.forget(monitor.token);
        }
        Ok(watched?)
    }

    fn admit(&self) -> Result<(), sys::Error> {
        for _ in 0..AT_ONCE {
            let Some(visitor) = self.local.accept()? else {
                break;
            };
            let refuse = |why: &str| {
                // One that does not hear it sees the end all the same.
                let _ = visitor.send(format!("{REFUSED}{why}\n").as_bytes());
            };
            if visitor.user() != Ok(sys::user()) {
                refuse("it is another user's process");
                continue;
            }
            let Some(place) = Place::take(&self.watchers, WATCHERS) else {
                refuse("too many watch it already");
                continue;
            };
            if let Some(core) = self.core.upgrade() {
                // One that cannot be served is sent away by being dropped.
                let _ = Watcher::begin(&core, &self.shard, visitor, place);
            }
        }
        Ok(())
    }
}

/// A place among the watchers that are allowed at once; given back when it is dropped.
struct Place(Arc<AtomicU32>);

impl Place {
    fn take(taken: &Arc<AtomicU32>, limit: u32) -> Option<Place> {
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

/// The first free name of this process.
fn bind() -> Result<Local, Error> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        match Local::bind(&format!("{NAME}{pid}/{number}")) {
            Err(error) if error.is_in_use() && number + 1 < ADAPTERS => number += 1,
            other => return Ok(other?),
        }
    }
}

impl Served for Monitor {
    fn ready(self: Arc<Self>, _: Ready) {
        match self.admit() {
            // Out of descriptors, or of memory.
            Err(_) => self.shard.at(sys::now() + PAUSE, self.token),
            Ok(()) => {
                let _ = self.shard.arm(&self.local, self.token, Interest::READ_ONCE);
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        let _ = self.shard.arm(&self.local, self.token, Interest::READ_ONCE);
    }

    fn stop(self: Arc<Self>) {}
}
