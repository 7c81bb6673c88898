//! The engine's calls about notification: handlers, their processors and classes, moderation, and observers of all events.
//! A call that fails changes nothing, and changes take effect under traffic.

use std::sync::{Arc, Weak};

use verbena_events::eqe::Cause;
use verbena_events::interrupts::{Accesses, Origin};
use verbena_events::moderation::{Hold, Moderation};
use verbena_events::vector::{Delivery, Shutdown};

use crate::engine::Engine;
use crate::error::{Error, InterruptError};
use crate::notify::handler::{Affinity, Class, Handler, HandlerId, HandlerOptions, column};
use crate::notify::pipeline::{Notification, Observer};
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
        let vector = column(handler.id);
        let set = self.deliver(vector, delivery);
        let set = set.and_then(|()| self.moderate_column(vector, options.moderation));
        if let Err(error) = set {
            self.core.notification.handlers.remove(&handler);
            return Err(error);
        }
        Ok(handler.id)
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
        let vector = column(id);
        if let Some(Delivery::Pinned(at)) =
            self.core.notification.interrupts.vectors().delivery(vector)
        {
            self.core.notification.handler_threads.open(at, class)?;
        }
        handler.set_class(class);
        Ok(())
    }

    /// Changes where a handler runs (E11).
    pub fn set_handler_affinity(&self, id: HandlerId, place: &Affinity) -> Result<(), Error> {
        let _change = self.core.notification.handlers.lock_changes();
        let handler = self.find(id)?;
        let delivery = self.delivery(place, handler.class())?;
        self.deliver(column(id), delivery)
    }

    /// Changes the event moderation of a handler (E6).
    pub fn moderate(&self, id: HandlerId, moderation: Moderation) -> Result<(), Error> {
        let handler = self.find(id)?;
        self.moderate_column(column(handler.id), moderation)
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
        let core = Arc::downgrade(&self.core);
        let at = self
            .core
            .notification
            .handler_threads
            .index_for(&core, processors, class)?;
        Ok(Delivery::Pinned(at))
    }

    fn deliver(&self, vector: u16, delivery: Delivery) -> Result<(), Error> {
        let done = self
            .core
            .notification
            .interrupts
            .vectors()
            .deliver(vector, delivery);
        Ok(done.map_err(InterruptError::from)?)
    }

    fn moderate_column(&self, queue: u16, moderation: Moderation) -> Result<(), Error> {
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
