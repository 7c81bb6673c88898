//! The engine's calls about notification: completion queues, handlers, their processors and classes, moderation, and observers of all events.
//! A call that fails changes nothing, and changes take effect under traffic.

use std::sync::{Arc, Weak};

use verbena_events::eqe::Cause;
use verbena_events::interrupts::{Accesses, Origin};
use verbena_events::moderation::{Arming, Hold, MAX_DELAY, Moderation};
use verbena_events::vector::{Delivery, Shutdown};
use verbena_nic::CqOptions;

use crate::engine::Engine;
use crate::error::{Error, InterruptError};
use crate::notify::columns::Column;
use crate::notify::handler::{
    Affinity, Class, Handler, HandlerId, HandlerOptions, HandlerRef, column,
};
use crate::notify::handler_threads::HandlerHost;
use crate::notify::interrupt_counters::InterruptCounters;
use crate::notify::link;
use crate::notify::pipeline::{Notification, Observer, default_arming};
use crate::notify::ticker::Tick;
use crate::poll::queue::CompletionQueue;
use crate::poll::shard::next_token;

/// Ends the observation when dropped.
#[derive(Debug)]
pub struct Observation {
    notification: Weak<Notification>,
    token: u64,
}

impl Drop for Observation {
    fn drop(&mut self) {
        if let Some(notification) = self.notification.upgrade()
            && notification.is_alive()
        {
            notification.observers.remove(self.token);
        }
    }
}

impl Engine {
    /// A completion queue.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue, Error> {
        self.core.check()?;
        link::watch_once(&self.core);
        CompletionQueue::new(&self.core, entries, None, CqOptions::default())
    }

    /// The same with options.
    pub fn create_cq_with_options(
        &self,
        entries: usize,
        options: CqOptions,
    ) -> Result<CompletionQueue, Error> {
        self.core.check()?;
        link::watch_once(&self.core);
        CompletionQueue::new(&self.core, entries, None, options)
    }

    /// A completion queue whose events go to this handler (N4).
    pub fn create_cq_with(
        &self,
        entries: usize,
        handler: HandlerId,
    ) -> Result<CompletionQueue, Error> {
        self.core.check()?;
        link::watch_once(&self.core);
        CompletionQueue::new(&self.core, entries, Some(handler), CqOptions::default())
    }

    /// The maximum number of completion handlers (N2).
    pub fn handler_limit(&self) -> u16 {
        self.core.notification.handlers.limit()
    }

    /// Registers a completion handler (N3).
    pub fn set_handler(&self, options: &HandlerOptions) -> Result<HandlerId, Error> {
        self.core.check()?;
        // Checked before anything changes.
        let delivery = self.delivery(&options.affinity, options.class)?;
        let handler = self.core.notification.handlers.add(options)?;
        let set = self.deliver(&handler, delivery);
        let set = set.and_then(|()| self.set_policies(&handler, options));
        if let Err(error) = set {
            self.core.notification.handlers.remove(&handler);
            return Err(error);
        }
        Ok(handler.id)
    }

    /// A handler, for a queue that gets it later.
    pub fn handler_ref(&self, id: HandlerId) -> Result<HandlerRef, Error> {
        let route = self.find(id)?.route();
        Ok(HandlerRef { id, route })
    }

    /// Unregisters a completion handler (N3). Its queues keep their events until they get another handler.
    pub fn clear_handler(&self, id: HandlerId) -> Result<(), Error> {
        // Also after a shutdown: the callback may own objects that the program wants to drop.
        if !self.core.is_alive() {
            return Err(Error::Closed);
        }
        let handler = self.core.notification.handlers.find(id)?;
        self.core
            .notification
            .cq_notifications
            .detach_all(handler.route());
        self.core.notification.handlers.remove(&handler);
        Ok(())
    }

    /// Changes the priority of a handler (N6).
    pub fn set_class(&self, id: HandlerId, class: Class) -> Result<(), Error> {
        let _change = self.core.notification.handlers.lock_changes();
        let handler = self.find(id)?;
        // The thread must exist before a signal is sent to it.
        let notification = &self.core.notification;
        let vector = notification.columns.get(column(id)).own_vector;
        let delivery = vector.and_then(|vector| notification.interrupts.vectors().delivery(vector));
        let threads = match delivery {
            Some(Delivery::Pinned(at)) => Some(at),
            _ => handler.threads(),
        };
        if let Some(at) = threads {
            notification.handler_threads.open(at, class)?;
        }
        handler.set_class(class);
        Ok(())
    }

    /// Changes where a handler runs (E11).
    pub fn set_handler_affinity(&self, id: HandlerId, place: &Affinity) -> Result<(), Error> {
        let _change = self.core.notification.handlers.lock_changes();
        let handler = self.find(id)?;
        let delivery = self.delivery(place, handler.class())?;
        self.deliver(&handler, delivery)
    }

    /// Changes the event moderation of a handler (E6), and of those that share its event queue.
    pub fn moderate(&self, id: HandlerId, moderation: Moderation) -> Result<(), Error> {
        let queue = self.find(id)?.queue(&self.core.notification);
        self.moderate_queue(queue, moderation)
    }

    /// Changes when the event queue of a handler is acknowledged and armed again (E5, E6), and so for those that share the queue.
    pub fn set_arming(&self, id: HandlerId, arming: Arming) -> Result<(), Error> {
        let queue = self.find(id)?.queue(&self.core.notification);
        self.arm_queue(queue, arming)
    }

    /// Calls `observer` with every event, on the thread that serves it, until the observation is dropped.
    pub fn observe(&self, observer: Observer) -> Observation {
        let token = next_token();
        if self.core.is_alive() {
            self.core.notification.observers.add(token, observer);
        }
        Observation {
            notification: Arc::downgrade(&self.core.notification),
            token,
        }
    }

    /// Whether there is an observer of all events, in this process or another.
    pub fn is_observed(&self) -> bool {
        self.core.is_alive() && !self.core.notification.observers.is_empty()
    }

    /// Raises an event for which the adapter has no source: of a channel, of memory, of the link, of management.
    pub fn inject(&self, cause: Cause, origin: Origin) -> Result<(), Error> {
        self.core.check()?;
        let injected = self.core.notification.inject(cause, origin);
        Ok(injected.map_err(InterruptError::from)?)
    }

    /// Why the adapter is down, if it is (E2).
    pub fn down(&self) -> Option<Shutdown> {
        self.core.notification.interrupts.down()
    }

    /// What interrupts have cost so far, in total and per vector (E12).
    pub fn interrupt_counters(&self) -> InterruptCounters {
        InterruptCounters::of(&self.core.notification.interrupts)
    }

    /// Signals so far, and accesses to the adapter's registers to serve them (E12).
    pub fn interrupts(&self) -> (u64, Accesses) {
        let interrupts = &self.core.notification.interrupts;
        (interrupts.fired(), interrupts.accesses())
    }

    fn find(&self, id: HandlerId) -> Result<Arc<Handler>, Error> {
        self.core.check()?;
        self.core.notification.handlers.find(id)
    }

    fn delivery(&self, place: &Affinity, class: Class) -> Result<Delivery, Error> {
        let Affinity::Processors(processors) = place else {
            return Ok(Delivery::Inline);
        };
        let engine = Arc::downgrade(&self.core) as Weak<dyn HandlerHost>;
        let threads = &self.core.notification.handler_threads;
        let at = threads.index_for(&engine, processors, class)?;
        Ok(Delivery::Pinned(at))
    }

    fn deliver(&self, handler: &Handler, delivery: Delivery) -> Result<(), Error> {
        let notification = &self.core.notification;
        let Some(vector) = notification.columns.get(column(handler.id)).own_vector else {
            // The vector is shared: it is served inline, and passes the handler's notifications on.
            handler.set_threads(match delivery {
                Delivery::Pinned(at) => Some(at),
                Delivery::Inline | Delivery::Line => None,
            });
            return Ok(());
        };
        let done = notification.interrupts.vectors().deliver(vector, delivery);
        Ok(done.map_err(InterruptError::from)?)
    }

    /// Moderation and arming of a new handler. Those of a queue that it shares change only if the options say so.
    fn set_policies(&self, handler: &Handler, options: &HandlerOptions) -> Result<(), Error> {
        let (notification, config) = (&self.core.notification, &self.core.config);
        let Column {
            queue, own_queue, ..
        } = notification.columns.get(column(handler.id));
        let (usual, arming) = (config.event_moderation, default_arming(config));
        let moderation = options.moderation.or(own_queue.then_some(usual));
        let arming = options.arming.or(own_queue.then_some(arming));
        if let Some(arming) = arming {
            check_arming(arming)?;
        }
        if let Some(moderation) = moderation {
            self.moderate_queue(queue, moderation)?;
        }
        arming.map_or(Ok(()), |arming| self.arm_queue(queue, arming))
    }

    fn arm_queue(&self, queue: u16, arming: Arming) -> Result<(), Error> {
        check_arming(arming)?;
        let done = self.core.notification.interrupts.set_arming(queue, arming);
        Ok(done.map_err(InterruptError::from)?)
    }

    fn moderate_queue(&self, queue: u16, moderation: Moderation) -> Result<(), Error> {
        if let Moderation::Fixed(Hold { count, delay }) = moderation {
            Hold::new(count, delay).map_err(InterruptError::from)?;
        }
        let done = self
            .core
            .notification
            .interrupts
            .moderate(queue, moderation);
        done.map_err(InterruptError::from)?;
        // Delivers what was held by the old moderation.
        self.core.notification.tick(crate::sys::now());
        Ok(())
    }
}

/// The interval of lazy polls is bounded as that of moderation.
fn check_arming(arming: Arming) -> Result<(), Error> {
    match arming {
        Arming::WhenIdle(gap) if gap.is_zero() || gap > MAX_DELAY => {
            Err(InterruptError::PollInterval { interval: gap }.into())
        }
        Arming::WhenIdle(_) | Arming::Now => Ok(()),
    }
}

impl Handler {
    /// The event queue of its notifications.
    fn queue(&self, notification: &Notification) -> u16 {
        notification.columns.get(column(self.id)).queue
    }
}
