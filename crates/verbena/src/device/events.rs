//! What happens to objects of the low layer, apart from completions: kept until somebody asks, or told to a listener.
//! It promises that an event reaches one of the two. It refuses events of connections: they see to their own.

use std::sync::Arc;

use verbena_engine::{EngineFailure, OwnThread};
use verbena_nic::Event;

use super::Device;
use crate::error::Error;

impl Device {
    /// What happened to objects of the low layer, oldest first; connections see to their own events. So many may be unread:
    /// 65,536. Later ones are dropped, and [`Event::Missed`] says how many.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.next_event(), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn next_event(&self) -> Option<Event> {
        self.inner().engine.events().try_take()
    }

    /// Why the adapter failed: one of its threads panicked. [`Event::DeviceFatal`] tells of it, every queue pair is in the
    /// error state, and every later call is refused with this cause.
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
    pub fn provoke_panic(&self, thread: OwnThread) -> Result<(), Error> {
        Ok(self.inner().engine.provoke_panic(thread)?)
    }

    /// Tells `listener` what happens to objects of the low layer, on whatever thread noticed, so it must not wait; nothing
    /// is left for [`next_event`](Device::next_event) from now on. A listener that was there before is told no more.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// device.on_event(|event| println!("{event:?}"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn on_event(&self, listener: impl Fn(Event) + Send + Sync + 'static) {
        if self.lives() {
            let before = self.inner().listener.write().replace(Arc::new(listener));
            // Without the lock: it is the program's.
            drop(before);
        }
    }
}
