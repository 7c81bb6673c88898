//! Threads that serve connections which no other thread serves: they sleep in epoll until a descriptor is ready or a timer expires.
//! A shard makes no system call while nothing happens, and polls for a short time while requests keep arriving ([`BusyPoll`]). What it serves is behind the [`ShardTask`] trait: connections, groups, listeners.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use verbena_sync::locks::OnceLock;

use verbena_stream::{Time, saturating_nanos};
use verbena_sync::locks::Mutex;

use crate::error::{EngineFailure, Error};
use crate::guard::{Supervisor, SupervisorCell, catch_panic, guard, thread_name};
use crate::poll::busy_poll::BusyPoll;
use crate::sys::{self, Doorbell, Interest, JoinHandle, Poller, Ready};
use crate::trace::record::SleepPlace;
use crate::trace::tracer::asleep;

/// The token of the shard's own eventfd.
const DOORBELL: u64 = 0;

/// Served by a shard.
pub(crate) trait ShardTask: Send + Sync {
    /// Its descriptor is ready.
    fn ready(self: Arc<Self>, ready: Ready);

    /// A timer that it set has expired.
    fn expire(self: Arc<Self>, now: Time);

    /// The shard ends and serves it no longer.
    fn stop(self: Arc<Self>);
}

/// Makes tokens, unique in the process.
pub(crate) fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(DOORBELL + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A map by token. Tokens are not chosen from outside, so a hash of one multiplication is safe.
pub(crate) type ByToken<T> = HashMap<u64, T, BuildHasherDefault<TokenHasher>>;

/// Spreads consecutive numbers over all bits.
#[derive(Debug, Default)]
pub(crate) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        // The golden ratio's fraction spreads neighbours far apart, in the high bits as well.
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All shards of an engine; each starts when it is first needed.
#[derive(Debug)]
pub(crate) struct Shards {
    all: Box<[OnceLock<Arc<Shard>>]>,
    next: AtomicUsize,
    /// Held while a shard starts, since two threads may need the same one at once. True when none may start any more.
    starting: Mutex<bool>,
    busy_poll: Duration,
    engine: SupervisorCell,
}

impl Shards {
    /// `count` shards, or one per processor, each of which polls for at most `busy_poll`.
    pub(crate) fn new(count: Option<u16>, busy_poll: Duration, engine: SupervisorCell) -> Shards {
        let count = count.map_or_else(sys::parallelism, usize::from);
        Shards {
            all: (0..count.max(1)).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            starting: Mutex::new(false),
            busy_poll,
            engine,
        }
    }

    /// The next shard, round robin.
    pub(crate) fn pick(&self) -> Result<Arc<Shard>, Error> {
        self.get(self.next.fetch_add(1, Ordering::Relaxed) % self.all.len())
    }

    fn get(&self, at: usize) -> Result<Arc<Shard>, Error> {
        let slot = &self.all[at];
        if let Some(shard) = slot.get() {
            return Ok(shard.clone());
        }
        let stopped = self.starting.lock();
        if *stopped {
            return Err(Error::Closed);
        }
        if let Some(shard) = slot.get() {
            return Ok(shard.clone());
        }
        let shard = Shard::start(at, self.busy_poll, self.engine.clone())?;
        Ok(slot.get_or_init(|| shard).clone())
    }

    /// The shard whose timers check on polling threads: with one for all groups, a thread that polls many queues causes one wake-up for each
    /// interval instead of one per queue.
    pub(crate) fn timekeeper(&self) -> Result<Arc<Shard>, Error> {
        self.get(0)
    }

    /// Ends all threads and drops everything they serve.
    pub(crate) fn stop(&self) {
        self.begin_stop();
        for shard in self.running() {
            shard.join();
        }
    }

    /// The same, without waiting for the threads.
    pub(crate) fn begin_stop(&self) {
        *self.starting.lock() = true;
        for shard in self.running() {
            shard.stopping.store(true, Ordering::Release);
            shard.doorbell.ring();
        }
    }

    fn running(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.all.iter().filter_map(OnceLock::get)
    }
}

/// One thread, the descriptors it watches, and its timers.
pub(crate) struct Shard {
    poller: Poller,
    doorbell: Doorbell,
    /// None when the shard has ended.
    tasks: Mutex<Option<ByToken<Arc<dyn ShardTask>>>>,
    timers: Mutex<Timers>,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread's id in the kernel; 0 until it runs.
    thread_id: AtomicU32,
}

#[derive(Debug, Default)]
struct Timers {
    deadlines: BTreeSet<(Time, u64)>,
    /// When the thread wakes by itself; a timer that is not earlier needs no doorbell.
    wakeup_at: Option<Time>,
}

impl Shard {
    fn start(
        number: usize,
        busy_poll: Duration,
        engine: SupervisorCell,
    ) -> sys::Result<Arc<Shard>> {
        let shard = Arc::new(Shard {
            poller: Poller::new()?,
            doorbell: Doorbell::new()?,
            tasks: Mutex::new(Some(ByToken::default())),
            timers: Mutex::default(),
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
            thread_id: AtomicU32::new(0),
        });
        shard
            .poller
            .add(&shard.doorbell, DOORBELL, Interest::READ)?;
        let ours = shard.clone();
        let thread = sys::spawn(&format!("verbena-{number}"), move || {
            ours.thread_id.store(sys::thread_id(), Ordering::Relaxed);
            // A program that spins on memory never yields: this thread must preempt it. If this fails, the thread only runs later.
            let _ = sys::request_short_slice();
            let engine = || engine.get().and_then(Weak::upgrade);
            guard(engine, || ours.run(BusyPoll::new(busy_poll), engine));
            ours.end();
        })?;
        *shard.thread.lock() = Some(thread);
        Ok(shard)
    }

    /// Adds an object; it gets timers only, until a descriptor is watched.
    pub(crate) fn serve(&self, token: u64, served: Arc<dyn ShardTask>) -> Result<(), Error> {
        let mut all = self.tasks.lock();
        let all = all.as_mut().ok_or(Error::Closed)?;
        all.insert(token, served);
        Ok(())
    }

    /// Adds an object and watches its descriptor; on an error neither is done.
    pub(crate) fn serve_watched(
        &self,
        token: u64,
        served: Arc<dyn ShardTask>,
        fd: impl AsFd,
        interest: Interest,
    ) -> Result<(), Error> {
        self.serve(token, served)?;
        let watched = self.watch(fd, token, interest);
        if watched.is_err() {
            self.forget(token);
        }
        Ok(watched?)
    }

    /// Watches a descriptor of an object that is served.
    pub(crate) fn watch(&self, fd: impl AsFd, token: u64, interest: Interest) -> sys::Result<()> {
        self.poller.add(fd, token, interest)
    }

    pub(crate) fn arm(&self, fd: impl AsFd, token: u64, interest: Interest) -> sys::Result<()> {
        self.poller.arm(fd, token, interest)
    }

    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        // Closing the descriptor removes it, too; one that is not watched is no error.
        let _ = self.poller.remove(fd);
    }

    pub(crate) fn forget(&self, token: u64) {
        let forgotten = self
            .tasks
            .lock()
            .as_mut()
            .and_then(|all| all.remove(&token));
        // Dropped without the lock: the drop may call back into the shard.
        drop(forgotten);
    }

    /// Sets a timer for this token.
    pub(crate) fn set_timer(&self, when: Time, token: u64) {
        let mut timers = self.timers.lock();
        timers.deadlines.insert((when, token));
        let early = timers.wakeup_at.is_none_or(|wakes| when < wakes);
        if early {
            timers.wakeup_at = Some(when);
            drop(timers);
            self.doorbell.ring();
        }
    }

    /// How long its thread has waited for a processor so far, in nanoseconds; 0 if unknown.
    pub(crate) fn run_delay_nanos(&self) -> u64 {
        let seen = sys::sched_state(self.thread_id.load(Ordering::Relaxed));
        seen.map_or(0, |seen| saturating_nanos(seen.run_delay))
    }

    /// The shard is stopping: timers may not expire any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Cancels a timer, so that a sleeping shard does not wake for nothing.
    pub(crate) fn cancel_timer(&self, when: Time, token: u64) {
        self.timers.lock().deadlines.remove(&(when, token));
    }

    fn run(&self, mut busy: BusyPoll, engine: impl Fn() -> Option<Arc<dyn Supervisor>>) {
        let mut ready = Vec::new();
        // Checked after the eventfd is cleared, since clearing takes all rings at once.
        while !self.stopping.load(Ordering::Acquire) {
            let wakes = self.expire();
            // The ring for `stopping` may have been cleared together with another one: check again before sleeping.
            if self.stopping.load(Ordering::Acquire) {
                break;
            }
            let timeout = wakes.map(|wakes| wakes.since(sys::now()));
            if let Err(cause) = self.wait(&mut ready, timeout, &mut busy) {
                let thread = thread_name();
                if let Some(engine) = engine() {
                    engine.fail(EngineFailure::Wait { thread, cause });
                }
                break;
            }
            for one in ready.drain(..) {
                if one.token == DOORBELL {
                    self.doorbell.clear();
                } else if let Some(served) = self.find(one.token) {
                    served.ready(one);
                }
            }
        }
    }

    /// Waits until something is ready, or for `timeout`.
    fn wait(
        &self,
        ready: &mut Vec<Ready>,
        timeout: Option<Duration>,
        busy: &mut BusyPoll,
    ) -> sys::Result<()> {
        let polling = busy.begin();
        let limit = timeout.map_or(busy.limit(), |timeout| timeout.min(busy.limit()));
        let is_ready = polling.is_some() && self.poller.spin(ready, limit, BusyPoll::goes_on)?;
        drop(polling);
        if !is_ready {
            asleep(SleepPlace::Shard, || self.poller.wait(ready, timeout))?;
        }
        let is_request = ready.iter().any(|one| one.token != DOORBELL);
        busy.note_wake(sys::now(), !is_ready, is_request);
        Ok(())
    }

    /// Stops everything that is served. A panic in one does not keep the others from being stopped.
    fn end(&self) {
        let served = self.tasks.lock().take();
        for one in served.into_iter().flat_map(ByToken::into_values) {
            catch_panic(|| one.stop());
        }
    }

    /// Expires the timers that are due; returns the time of the next one.
    fn expire(&self) -> Option<Time> {
        loop {
            let now = sys::now();
            let mut timers = self.timers.lock();
            match timers.deadlines.first().copied() {
                Some((when, token)) if when <= now => {
                    timers.deadlines.remove(&(when, token));
                    drop(timers);
                    if let Some(served) = self.find(token) {
                        served.expire(now);
                    }
                }
                next => {
                    timers.wakeup_at = next.map(|(when, _)| when);
                    return timers.wakeup_at;
                }
            }
        }
    }

    fn find(&self, token: u64) -> Option<Arc<dyn ShardTask>> {
        self.tasks.lock().as_ref()?.get(&token).cloned()
    }

    fn join(&self) {
        let thread = self.thread.lock().take();
        let Some(thread) = thread else {
            return;
        };
        // The last owner of an engine may be a handler that runs on this very thread.
        if thread.thread().id() != sys::current_thread().id() {
            let _ = thread.join();
        }
    }
}

impl core::fmt::Debug for Shard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}
