//! The one way of every notification: from an event of the adapter to whoever waits for it (docs/events.md).
//! It promises that nothing bypasses it, that nothing is told under a lock, and that a program's handler that panics harms
//! nobody but itself. It refuses to decide where events go; maps, handlers and listeners do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::RwLock;
use verbena_nic::arrangement::Arrangement;
use verbena_nic::eq::Settings;
use verbena_nic::eqe::{Cause, Eqe};
use verbena_nic::interrupts::{At, Interrupts, Origin, RaiseError, Scheme};
use verbena_nic::message_map::Duty;
use verbena_nic::vector::Signal;
use verbena_nic::{Event, Function, Raise, Reason};
use verbena_stream::Time;

use crate::config::Config;
use crate::core::Core;
use crate::error::{Error, InterruptError};
use crate::handler::{Class, Completion, Handlers, Way, of_column};
use crate::signals::Signals;
use crate::sys;

/// Entries of an event queue at first; one that is full is doubled.
const ENTRIES: usize = 512;

/// Is shown every event of an adapter, on whatever thread serves it.
pub type Observer = Arc<dyn Fn(Cause) + Send + Sync>;

/// Who sees every event.
#[derive(Default)]
pub(crate) struct Observers(RwLock<Arc<[(u64, Observer)]>>);

impl Observers {
    pub(crate) fn add(&self, token: u64, observer: Observer) {
        let mut all = self.0.write();
        let more = core::iter::once((token, observer));
        *all = all.iter().cloned().chain(more).collect();
    }

    pub(crate) fn remove(&self, token: u64) {
        let before = {
            let mut all = self.0.write();
            let others = all.iter().filter(|(t, _)| *t != token).cloned().collect();
            core::mem::replace(&mut *all, others)
        };
        drop(before);
    }

    fn show(&self, cause: Cause) {
        let all = self.0.read().clone();
        for (_, observer) in all.iter() {
            shield(|| observer(cause));
        }
        // Whoever ended its observation meanwhile left the last of it to us.
        shield(|| drop(all));
    }
}

/// The adapter's event queues: one for global events, one for those of RDMA, one for queues without a handler, and one
/// for each handler; each asks for a vector of its own.
pub(crate) fn interrupts(
    function: &Function,
    config: &Config,
    handlers: &Handlers,
    signals: Signals,
) -> Result<Interrupts, Error> {
    let arrangement = Arrangement::ProcessorQueuesProcessorVectors;
    let columns = handlers.columns();
    let (scheme, signals) = (Scheme::ByProcessor, Box::new(signals));
    let interrupts = function.create_interrupts(arrangement, scheme, columns, signals)?;
    let created = interrupts.create_all(ENTRIES, Settings::default(), sys::now());
    created.map_err(InterruptError::from)?;
    if let Some(granted) = config.vectors {
        interrupts.vectors().grant(granted);
    }
    Ok(interrupts)
}

/// Runs code of the program: if it panics, that was its own affair, and the adapter goes on.
pub(crate) fn shield(work: impl FnOnce()) {
    // The panic's words were printed where it began; there is nobody here to hand them to.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

impl Core {
    /// Raises an event that has no packet and no queue of its own.
    pub(crate) fn inject(&self, cause: Cause, origin: Origin) -> Result<(), RaiseError> {
        let raised = self.interrupts.raise(cause, origin, sys::now())?;
        self.come_back(raised.due);
        Ok(())
    }

    /// Serves a signal: whatever it speaks of is told.
    pub(crate) fn serve(&self, signal: Signal) {
        if !self.lives() {
            return;
        }
        let tell = |_, entry: Eqe| self.tell(entry);
        let served = self.interrupts.service(signal, sys::now(), tell);
        debug_assert!(served.is_ok(), "signals have vectors that exist");
        self.come_back(served.ok().and_then(|served| served.due));
    }

    /// Held signals may be due (E6).
    pub(crate) fn tick(&self, now: Time) {
        let due = self.interrupts.tick(now);
        self.come_back(due);
        let served = self.interrupts.poll(now, |_, entry| self.tell(entry));
        self.come_back(served.due);
    }

    /// Looks after held signals then.
    pub(crate) fn come_back(&self, due: Option<Time>) {
        if let Some(when) = due
            && self.ticker.at(self, when).is_err()
        {
            // The engine ends, and its threads with it: nothing is held any more.
            let _ = self.interrupts.tick(Time::MAX);
        }
    }

    /// The class of whoever a signal is for.
    pub(crate) fn class_of(&self, signal: Signal) -> Class {
        let id = match signal {
            Signal::Vector(vector) => of_column(vector),
            Signal::Line => None,
        };
        let handler = id.and_then(|id| self.handlers.find(id).ok());
        handler.map_or(Class::Normal, |handler| handler.class())
    }

    pub(crate) fn tell(&self, entry: Eqe) {
        let Ok(cause) = entry.cause() else {
            return;
        };
        self.observers.show(cause);
        match cause {
            Cause::Rdma(Event::Completion { cq, reason }) => {
                self.completed(cq, reason, Way::unpack(entry.context));
            }
            Cause::Rdma(event) => {
                let watcher = self.watcher.read().clone();
                let mut taken = false;
                if let Some(watcher) = watcher {
                    shield(|| taken = watcher(event));
                }
                if !taken {
                    self.events.put(event);
                }
            }
            // Whoever observes has seen it; nobody else has asked.
            _ => {}
        }
    }

    /// Tells the handler that the notification was meant for, and whoever listens to the queue itself.
    fn completed(&self, cq: u32, reason: Reason, way: Way) {
        let handler = self.handlers.on(way);
        if handler.is_none() && way.has_handler() {
            // Cleared meanwhile: it is for the queue's next one.
            if self.listeners.reroute(cq, way, reason) {
                self.raise(Event::Completion { cq, reason });
            }
            return;
        }
        let notify = self.listeners.notify(cq);
        if let Some(handler) = handler
            && let Some(callback) = &handler.callback
        {
            let completion = Completion {
                cq,
                reason,
                handler: handler.id,
            };
            shield(|| callback(completion));
            // It may have been cleared meanwhile: what the program put into it goes with us.
            shield(|| drop(handler));
        }
        if let Some(notify) = notify {
            shield(|| notify.notify());
            shield(|| drop(notify));
        }
    }
}

impl Raise for Core {
    fn raise(&self, event: Event) {
        let origin = match event {
            Event::Completion { cq, reason } => match self.listeners.route(cq, reason) {
                Some(way) => Origin {
                    at: At::Processor(way.column),
                    duty: Some(Duty::Rdma),
                    context: way.pack(),
                },
                // Kept, or nobody's any more.
                None => return,
            },
            _ => Origin::NOWHERE,
        };
        // Refused only when the adapter is down, and that was told.
        let _ = self.inject(Cause::Rdma(event), origin);
    }
}

#[cfg(test)]
mod tests;
