//! Completion handlers: who is told of completions, on which processors, and before whom (N2 to N6).
//! It promises that an id names one handler at a time, and that a queue can change its handler under traffic without a notification
//! lost or doubled. It refuses to run handlers; signals and stations do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use verbena_nic::Reason;
use verbena_nic::moderation::Moderation;

use crate::error::Error;
use crate::notice::Notify;

/// Most handlers that an adapter can have: as many as processors that Linux lets a program choose among. Each has its vector in the
/// map of duties and processors (E8, scheme 1); the 32 vectors of the flat map are no limit to them.
pub const MAX_HANDLERS: u16 = 1024;

/// The column of the first handler; before it come global events, those of RDMA, and queues without a handler.
const FIRST: u16 = 3;

/// Names a completion handler of one adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandlerId(pub u16);

/// How soon a handler is served when others on its processor want to be (N6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// Before all others.
    Latency,
    /// Before bulk.
    #[default]
    Normal,
    /// When nobody else wants to run there.
    Bulk,
}

impl Class {
    /// Every class, the first one first.
    pub const ALL: [Class; 3] = [Class::Latency, Class::Normal, Class::Bulk];
}

/// Where a handler runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// On whatever thread notices, at once: for those who do next to nothing.
    #[default]
    Anywhere,
    /// On threads of these processors.
    Processors(Vec<u16>),
}

/// What a handler is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The completion queue that has an entry.
    pub cq: u32,
    /// What about the entry made it tell.
    pub reason: Reason,
    /// The handler that is told.
    pub handler: HandlerId,
}

/// A handler's code. It must not wait: it holds up all that share its thread.
pub type Callback = Arc<dyn Fn(Completion) + Send + Sync>;

/// A handler to register.
#[derive(Clone, Default)]
pub struct HandlerOptions {
    /// What to run; none if it is enough that whoever listens to a queue is told.
    pub callback: Option<Callback>,
    /// Where.
    pub place: Place,
    /// How soon.
    pub class: Class,
    /// How often.
    pub moderation: Moderation,
}

impl HandlerOptions {
    /// One that runs this, on whatever thread notices, not moderated.
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
            .field("place", &self.place)
            .field("class", &self.class)
            .field("moderation", &self.moderation)
            .finish()
    }
}

/// A handler that is registered.
pub(crate) struct Handler {
    pub(crate) id: HandlerId,
    /// Tells it from others that had its id before.
    life: u16,
    pub(crate) callback: Option<Callback>,
    class: AtomicU8,
}

impl Handler {
    pub(crate) fn way(&self) -> Way {
        Way {
            column: column(self.id),
            life: self.life,
        }
    }

    pub(crate) fn class(&self) -> Class {
        Class::ALL[usize::from(self.class.load(Ordering::Relaxed)) % Class::ALL.len()]
    }

    pub(crate) fn set_class(&self, class: Class) {
        self.class.store(class as u8, Ordering::Relaxed);
    }
}

/// The handlers of an adapter, by id.
pub(crate) struct Handlers {
    slots: Box<[RwLock<Option<Arc<Handler>>>]>,
    lives: AtomicU16,
    changes: Mutex<()>,
}

impl Handlers {
    pub(crate) fn new(limit: u16) -> Handlers {
        Handlers {
            slots: (0..limit).map(|_| RwLock::default()).collect(),
            lives: AtomicU16::new(0),
            changes: Mutex::new(()),
        }
    }

    /// How many there can be (N2).
    pub(crate) fn limit(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Columns of the message-vector map: handlers and what comes before them.
    pub(crate) fn columns(&self) -> u16 {
        columns(self.limit())
    }

    /// Registers one (N3).
    pub(crate) fn add(&self, options: &HandlerOptions) -> Result<Arc<Handler>, Error> {
        for (at, slot) in self.slots.iter().enumerate() {
            let mut slot = slot.write();
            if slot.is_none() {
                let handler = Arc::new(Handler {
                    id: HandlerId(at as u16),
                    life: self.lives.fetch_add(1, Ordering::Relaxed),
                    callback: options.callback.clone(),
                    class: AtomicU8::new(options.class as u8),
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

    /// The handler that a notification was meant for, if it is still there.
    pub(crate) fn on(&self, way: Way) -> Option<Arc<Handler>> {
        let handler = self.find(of_column(way.column)?).ok()?;
        (handler.life == way.life).then_some(handler)
    }

    /// Clears one; it is told nothing more, but for what it is being told.
    pub(crate) fn remove(&self, handler: &Arc<Handler>) {
        let gone = {
            let mut slot = self.slots[usize::from(handler.id.0)].write();
            // Another may have been as fast, and its id be somebody else's by now.
            let ours = slot.as_ref().is_some_and(|now| Arc::ptr_eq(now, handler));
            if ours { slot.take() } else { None }
        };
        // Without the lock: it may take what the program put into its callback along.
        drop(gone);
    }

    /// Held over a change of where or how soon a handler runs: its thread must be that of both.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }
}

/// Columns that so many handlers make.
pub(crate) const fn columns(handlers: u16) -> u16 {
    FIRST + handlers
}

/// The column of a handler.
pub(crate) fn column(id: HandlerId) -> u16 {
    FIRST + id.0
}

/// The handler of a column, if it is one's.
pub(crate) fn of_column(column: u16) -> Option<HandlerId> {
    column.checked_sub(FIRST).map(HandlerId)
}

/// The way of a notification: a column of the map, and which of the handlers that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) column: u16,
    pub(crate) life: u16,
}

impl Way {
    /// That of queues without a handler: whoever listens to the queue itself is told at once.
    pub(crate) const DEFAULT: Way = Way { column: 2, life: 0 };

    /// As the second object of an entry.
    pub(crate) fn pack(self) -> u32 {
        u32::from(self.life) << 16 | u32::from(self.column)
    }

    pub(crate) fn unpack(word: u32) -> Way {
        Way {
            column: word as u16,
            life: (word >> 16) as u16,
        }
    }

    pub(crate) fn has_handler(self) -> bool {
        self.column >= FIRST
    }
}

/// Where the notifications of a completion queue go (N4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// This way.
    By(Way),
    /// Nowhere: they are kept.
    Detached,
}

/// What is known of a completion queue that may be armed.
struct Listener {
    target: Target,
    notify: Option<Arc<dyn Notify>>,
    /// It told while it was detached.
    owed: Option<Reason>,
}

/// Completion queues and who is told of their completions.
#[derive(Default)]
pub(crate) struct Listeners(RwLock<HashMap<u32, Listener>>);

impl Listeners {
    /// A queue is there.
    pub(crate) fn add(&self, cq: u32, target: Target) {
        let listener = Listener {
            target,
            notify: None,
            owed: None,
        };
        self.0.write().insert(cq, listener);
    }

    pub(crate) fn remove(&self, cq: u32) {
        let gone = self.0.write().remove(&cq);
        drop(gone);
    }

    /// Who is told besides the handler.
    pub(crate) fn set_notify(&self, cq: u32, notify: Option<Arc<dyn Notify>>) {
        let before = match self.0.write().get_mut(&cq) {
            Some(listener) => core::mem::replace(&mut listener.notify, notify),
            None => notify,
        };
        drop(before);
    }

    /// Notifications go elsewhere from now on; returns one that was kept.
    pub(crate) fn set_target(&self, cq: u32, target: Target) -> Option<Reason> {
        let mut all = self.0.write();
        let listener = all.get_mut(&cq)?;
        listener.target = target;
        match target {
            Target::By(_) => listener.owed.take(),
            Target::Detached => None,
        }
    }

    /// The queues of a handler that is cleared keep their notifications until they get another one.
    pub(crate) fn detach_all(&self, way: Way) {
        for listener in self.0.write().values_mut() {
            if listener.target == Target::By(way) {
                listener.target = Target::Detached;
            }
        }
    }

    fn target(&self, cq: u32) -> Option<Target> {
        Some(self.0.read().get(&cq)?.target)
    }

    /// The handler that a queue has.
    pub(crate) fn handler(&self, cq: u32) -> Option<HandlerId> {
        match self.target(cq)? {
            Target::By(way) => of_column(way.column),
            Target::Detached => None,
        }
    }

    /// The queue told; keeps that if nobody is there to hear it. Else, where it goes.
    pub(crate) fn route(&self, cq: u32, reason: Reason) -> Option<Way> {
        match self.target(cq)? {
            Target::By(way) => Some(way),
            Target::Detached => {
                let mut all = self.0.write();
                let listener = all.get_mut(&cq)?;
                match listener.target {
                    // Attached a moment ago.
                    Target::By(way) => Some(way),
                    Target::Detached => {
                        listener.owed = Some(reason);
                        None
                    }
                }
            }
        }
    }

    /// A notification found nobody on its way; true if the queue goes another way by now. Else it is kept.
    pub(crate) fn reroute(&self, cq: u32, way: Way, reason: Reason) -> bool {
        let mut all = self.0.write();
        let Some(listener) = all.get_mut(&cq) else {
            return false;
        };
        if listener.target == Target::By(way) {
            listener.target = Target::Detached;
        }
        if listener.target == Target::Detached {
            listener.owed = Some(reason);
            return false;
        }
        true
    }

    /// Whoever listens to any queue.
    pub(crate) fn everybody(&self) -> Vec<Arc<dyn Notify>> {
        let all = self.0.read();
        all.values().filter_map(|l| l.notify.clone()).collect()
    }

    pub(crate) fn notify(&self, cq: u32) -> Option<Arc<dyn Notify>> {
        self.0.read().get(&cq)?.notify.clone()
    }
}

#[cfg(test)]
mod tests;
