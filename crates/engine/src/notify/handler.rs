//! Completion handlers: which callback gets the events of a completion queue, on which processors, and with which priority (N2 to N6).
//! An id belongs to one handler at a time, and a queue can change its handler under traffic without losing or doubling an
//! event. Handlers are run by `signals` and `handler_threads`.

use std::collections::HashMap;
use std::sync::Arc;

use verbena_events::moderation::{Arming, Moderation};
use verbena_nic::Reason;
use verbena_sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use verbena_sync::locks::{Mutex, MutexGuard, RwLock};

use crate::error::Error;
use crate::notify::Notify;

/// The maximum number of handlers: the processors of a Linux CPU set. Each has its vector in the map of duties and processors (E8,
/// scheme 1); the 32 vectors of the flat map do not limit them.
pub const MAX_HANDLERS: u16 = 1024;

/// The column of the first handler; before it are those of global events, of RDMA events, and of queues without a handler.
const FIRST: u16 = 3;

/// Identifies a completion handler of one adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandlerId(pub u16);

/// The priority of a handler among the threads of its processors (N6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// The highest: the default scheduling policy.
    Latency,
    /// Below it (`SCHED_BATCH`).
    #[default]
    Normal,
    /// Only when no other thread is runnable (`SCHED_IDLE`).
    Bulk,
}

impl Class {
    /// Every class, highest priority first.
    pub const ALL: [Class; 3] = [Class::Latency, Class::Normal, Class::Bulk];
}

/// Where a handler runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Affinity {
    /// At once on the thread that raises the event: for callbacks that do very little.
    #[default]
    Inline,
    /// On threads bound to these processors.
    Processors(Vec<u16>),
}

/// The argument of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The completion queue that has an entry.
    pub cq: u32,
    /// Which kind of entry raised the event.
    pub reason: Reason,
    /// The handler that is called.
    pub handler: HandlerId,
}

/// A handler's code. It must not block: other handlers share its thread.
pub type Callback = Arc<dyn Fn(Completion) + Send + Sync>;

/// A handler to register.
#[derive(Clone, Default)]
pub struct HandlerOptions {
    /// What to run; none if the notification of the queue itself is enough.
    pub callback: Option<Callback>,
    /// Where to run it.
    pub affinity: Affinity,
    /// Its priority.
    pub class: Class,
    /// Its event moderation; none is that of the setting `event_moderation`.
    pub moderation: Option<Moderation>,
    /// When its event queue is acknowledged and armed again; none is as the setting `event_acknowledge` says.
    pub arming: Option<Arming>,
}

impl HandlerOptions {
    /// A handler that runs this on the thread that raises the event, with the moderation that the settings choose.
    pub fn new(callback: impl Fn(Completion) + Send + Sync + 'static) -> HandlerOptions {
        HandlerOptions {
            callback: Some(Arc::new(callback)),
            ..HandlerOptions::default()
        }
    }
}

impl core::fmt::Debug for HandlerOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HandlerOptions")
            .field("callback", &self.callback.is_some())
            .field("place", &self.affinity)
            .field("class", &self.class)
            .field("moderation", &self.moderation)
            .field("arming", &self.arming)
            .finish()
    }
}

/// A registered handler.
pub(crate) struct Handler {
    pub(crate) id: HandlerId,
    /// Distinguishes it from earlier handlers with the same id.
    generation: u16,
    pub(crate) callback: Option<Callback>,
    class: AtomicU8,
    /// The threads that run it if it shares its vector: their index plus one, or 0 for the thread that serves the vector.
    threads: AtomicU32,
}

impl Handler {
    pub(crate) fn route(&self) -> HandlerRoute {
        HandlerRoute {
            column: column(self.id),
            generation: self.generation,
        }
    }

    pub(crate) fn class(&self) -> Class {
        Class::ALL[usize::from(self.class.load(Ordering::Relaxed)) % Class::ALL.len()]
    }

    /// The handler threads that its notifications are passed on to, if it has no vector that reaches them directly.
    pub(crate) fn threads(&self) -> Option<u16> {
        let index = self.threads.load(Ordering::Relaxed).checked_sub(1)?;
        Some(index as u16)
    }

    pub(crate) fn set_threads(&self, index: Option<u16>) {
        let word = index.map_or(0, |index| u32::from(index) + 1);
        self.threads.store(word, Ordering::Relaxed);
    }

    pub(crate) fn set_class(&self, class: Class) {
        self.class.store(class as u8, Ordering::Relaxed);
    }
}

/// The handlers of an adapter, by id.
pub(crate) struct Handlers {
    slots: Box<[RwLock<Option<Arc<Handler>>>]>,
    generations: AtomicU16,
    changes: Mutex<()>,
}

impl Handlers {
    pub(crate) fn new(limit: u16) -> Handlers {
        Handlers {
            slots: (0..limit).map(|_| RwLock::default()).collect(),
            generations: AtomicU16::new(0),
            changes: Mutex::new(()),
        }
    }

    /// The maximum number of handlers (N2).
    pub(crate) fn limit(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Columns of the message-vector map: those of the handlers and those before.
    pub(crate) fn columns(&self) -> u16 {
        columns(self.limit())
    }

    /// Registers a handler (N3).
    pub(crate) fn add(&self, options: &HandlerOptions) -> Result<Arc<Handler>, Error> {
        for (at, slot) in self.slots.iter().enumerate() {
            let mut slot = slot.write();
            if slot.is_none() {
                let handler = Arc::new(Handler {
                    id: HandlerId(at as u16),
                    generation: self.generations.fetch_add(1, Ordering::Relaxed),
                    callback: options.callback.clone(),
                    class: AtomicU8::new(options.class as u8),
                    threads: AtomicU32::new(0),
                });
                *slot = Some(handler.clone());
                return Ok(handler);
            }
        }
        let limit = self.limit();
        Err(Error::TooManyHandlers { limit })
    }

    pub(crate) fn find(&self, id: HandlerId) -> Result<Arc<Handler>, Error> {
        let slot = self.slots.get(usize::from(id.0));
        let handler = slot.and_then(|slot| slot.read().clone());
        handler.ok_or(Error::NoHandler {
            id: id.0,
            limit: self.limit(),
        })
    }

    /// The handler that a notification is for, if it is still registered.
    pub(crate) fn find_by_route(&self, way: HandlerRoute) -> Option<Arc<Handler>> {
        let handler = self.find(handler_of_column(way.column)?).ok()?;
        (handler.generation == way.generation).then_some(handler)
    }

    /// Unregisters a handler; a call in progress is completed, and no further one begins.
    pub(crate) fn remove(&self, handler: &Arc<Handler>) {
        let gone = {
            let mut slot = self.slots[usize::from(handler.id.0)].write();
            // Another thread may have removed it already, and the id may belong to a new handler.
            let ours = slot.as_ref().is_some_and(|now| Arc::ptr_eq(now, handler));
            if ours { slot.take() } else { None }
        };
        // Dropped without the lock: the callback may own objects of the program.
        drop(gone);
    }

    /// Held while the processors or the class of a handler change: its thread must match both.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }
}

/// A handler, for a queue that gets it later: see [`CompletionQueue::set_handler_ref`](crate::CompletionQueue::set_handler_ref).
#[derive(Debug, Clone, Copy)]
pub struct HandlerRef {
    pub(crate) id: HandlerId,
    pub(crate) route: HandlerRoute,
}

/// Columns for this number of handlers.
pub(crate) const fn columns(handlers: u16) -> u16 {
    FIRST + handlers
}

/// The column of a handler.
pub(crate) fn column(id: HandlerId) -> u16 {
    FIRST + id.0
}

/// The handler of a column, if it has one.
pub(crate) fn handler_of_column(column: u16) -> Option<HandlerId> {
    column.checked_sub(FIRST).map(HandlerId)
}

/// The route of a notification: a column of the map, and which of the handlers that had this column.
///
/// It is never all zeros: column 0 has global events only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandlerRoute {
    pub(crate) column: u16,
    pub(crate) generation: u16,
}

impl HandlerRoute {
    /// That of queues without a handler: the queue's own notification is called at once.
    pub(crate) const DEFAULT: HandlerRoute = HandlerRoute {
        column: 2,
        generation: 0,
    };

    /// As the second object of an event queue entry.
    pub(crate) fn pack(self) -> u32 {
        u32::from(self.generation) << 16 | u32::from(self.column)
    }

    pub(crate) fn unpack(word: u32) -> HandlerRoute {
        HandlerRoute {
            column: word as u16,
            generation: (word >> 16) as u16,
        }
    }

    pub(crate) fn has_handler(self) -> bool {
        self.column >= FIRST
    }
}

/// Where the events of a completion queue go (N4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// This route.
    Attached(HandlerRoute),
    /// They are kept until a handler is attached.
    Detached,
}

/// The notification state of a completion queue.
struct CqNotification {
    target: Target,
    notify: Option<Arc<dyn Notify>>,
    /// An event raised while it was detached.
    pending: Option<Reason>,
}

/// Completion queues and the recipients of their events.
#[derive(Default)]
pub(crate) struct CqNotifications(RwLock<HashMap<u32, CqNotification>>);

impl CqNotifications {
    /// Adds a queue.
    pub(crate) fn add(&self, cq: u32, target: Target) {
        let listener = CqNotification {
            target,
            notify: None,
            pending: None,
        };
        self.0.write().insert(cq, listener);
    }

    pub(crate) fn remove(&self, cq: u32) {
        let gone = self.0.write().remove(&cq);
        drop(gone);
    }

    /// Sets what is notified in addition to the handler.
    pub(crate) fn set_notify(&self, cq: u32, notify: Option<Arc<dyn Notify>>) {
        let before = match self.0.write().get_mut(&cq) {
            Some(listener) => core::mem::replace(&mut listener.notify, notify),
            None => notify,
        };
        drop(before);
    }

    /// Changes the route; returns an event that was kept.
    pub(crate) fn set_target(&self, cq: u32, target: Target) -> Option<Reason> {
        let mut all = self.0.write();
        let listener = all.get_mut(&cq)?;
        listener.target = target;
        match target {
            Target::Attached(_) => listener.pending.take(),
            Target::Detached => None,
        }
    }

    /// The queues of an unregistered handler keep their events until they get another one.
    pub(crate) fn detach_all(&self, way: HandlerRoute) {
        for listener in self.0.write().values_mut() {
            if listener.target == Target::Attached(way) {
                listener.target = Target::Detached;
            }
        }
    }

    fn target(&self, cq: u32) -> Option<Target> {
        Some(self.0.read().get(&cq)?.target)
    }

    /// The handler of a queue.
    pub(crate) fn handler(&self, cq: u32) -> Option<HandlerId> {
        match self.target(cq)? {
            Target::Attached(way) => handler_of_column(way.column),
            Target::Detached => None,
        }
    }

    /// The route of an event of this queue; none if the queue is detached, and then the event is kept.
    pub(crate) fn route(&self, cq: u32, reason: Reason) -> Option<HandlerRoute> {
        match self.target(cq)? {
            Target::Attached(way) => Some(way),
            Target::Detached => {
                let mut all = self.0.write();
                let listener = all.get_mut(&cq)?;
                match listener.target {
                    // Attached meanwhile.
                    Target::Attached(way) => Some(way),
                    Target::Detached => {
                        listener.pending = Some(reason);
                        None
                    }
                }
            }
        }
    }

    /// The handler of this route was gone; true if the queue has another route now. Otherwise the event is kept.
    pub(crate) fn reroute(&self, cq: u32, way: HandlerRoute, reason: Reason) -> bool {
        let mut all = self.0.write();
        let Some(listener) = all.get_mut(&cq) else {
            return false;
        };
        if listener.target == Target::Attached(way) {
            listener.target = Target::Detached;
        }
        if listener.target == Target::Detached {
            listener.pending = Some(reason);
            return false;
        }
        true
    }

    /// The notifications of all queues.
    pub(crate) fn all_notifiers(&self) -> Vec<Arc<dyn Notify>> {
        let all = self.0.read();
        all.values().filter_map(|l| l.notify.clone()).collect()
    }

    pub(crate) fn notify(&self, cq: u32) -> Option<Arc<dyn Notify>> {
        self.0.read().get(&cq)?.notify.clone()
    }
}

#[cfg(test)]
mod tests;
