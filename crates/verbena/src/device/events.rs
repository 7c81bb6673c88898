//! Asynchronous events of the low layer's objects: queued until the program reads them, or passed to its callback.
//! An event goes to one of the two, never to both. Events of connections are handled by the connections and do not appear here.

use std::sync::Arc;

use verbena_engine::{EngineFailure, EngineThread};
use verbena_nic::Event;

use super::Device;
use crate::error::Error;

impl Device {
    /// Takes the oldest unread event of the low layer's objects. At most 65,536 are kept; later ones are dropped, and
    /// [`Event::Missed`] tells how many.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.next_event(), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn next_event(&self) -> Option<Event> {
        self.inner().engine.events().try_take()
    }

    /// Why the adapter failed: one of its threads panicked. [`Event::DeviceFatal`] was raised, every queue pair is in the
    /// error state, and every later call fails with this cause.
    ///
    /// ```
    /// assert!(verbena::Device::open()?.failure().is_none());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn failure(&self) -> Option<&EngineFailure> {
        self.inner().engine.failure()
    }

    /// For tests only: makes one of the adapter's threads panic.
    #[doc(hidden)]
    pub fn provoke_panic(&self, thread: EngineThread) -> Result<(), Error> {
        Ok(self.inner().engine.provoke_panic(thread)?)
    }

    /// Sets the callback for events of the low layer's objects. It runs on the thread that raised the event, so it must not block.
    /// It replaces an earlier callback; from now on no events are queued for [`next_event`](Device::next_event).
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// device.on_event(|event| println!("{event:?}"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn on_event(&self, listener: impl Fn(Event) + Send + Sync + 'static) {
        if self.is_alive() {
            let before = self
                .inner()
                .event_callback
                .write()
                .replace(Arc::new(listener));
            // Dropped after the lock is released: its destructor is the program's code.
            drop(before);
        }
    }
}
