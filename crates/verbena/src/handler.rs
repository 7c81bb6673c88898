//! Completion handlers of the low layer (N2 to N8), and observation of every event of the adapter.
//! A handler is called once per arming of its queues, on its processors and in its class, until it is cleared or dropped; its closure
//! is dropped then. The queues are polled by the handler's closure or by a thread that it wakes.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use verbena_engine::notify::handler::{Affinity, Class};
use verbena_engine::{HandlerId, HandlerOptions, HandlerRef, InterruptCounters, Shutdown};
use verbena_events::moderation::{Arming, Moderation};
use verbena_nic::{Cause, Origin};

use crate::cq::{BareCq, Cq};
use crate::device::{Device, Inner};
use crate::error::Error;

/// A completion handler, registered until it is cleared or dropped.
///
/// Its closure may own the queues that it serves: clearing the handler drops the closure, which breaks the reference cycle.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use verbena::Device;
/// use verbena::events::HandlerOptions;
/// use verbena::low::{Arm, Wc};
///
/// let device = Device::open()?;
/// let cq = Arc::new(device.cq(64)?);
/// let served = cq.clone();
/// let handler = device.set_handler(&HandlerOptions::new(move |_| {
///     let mut completions = [Wc::default(); 16];
///     loop {
///         while served.poll(&mut completions) > 0 {}
///         // Armed before the last look, so that nothing is missed.
///         served.arm(Arm::Next);
///         if served.poll(&mut completions) == 0 {
///             break;
///         }
///     }
/// }))?;
/// cq.set_handler(Some(&handler))?;
/// cq.arm(Arm::Next);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Handler {
    device: Arc<Inner>,
    id: HandlerId,
}

impl Handler {
    /// Its id, as in [`Completion`](crate::events::Completion).
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::HandlerOptions;
    /// # let device = Device::open()?;
    /// let handler = device.set_handler(&HandlerOptions::default())?;
    /// assert!(handler.id() < device.handler_limit());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn id(&self) -> u16 {
        self.id.0
    }

    /// Changes its priority class among the handlers on its processors, from now on (N6).
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::{Class, HandlerOptions};
    /// # let handler = Device::open()?.set_handler(&HandlerOptions::default())?;
    /// handler.set_class(Class::Latency)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_class(&self, class: Class) -> Result<(), Error> {
        Ok(self.device.engine.set_class(self.id, class)?)
    }

    /// Moves it to other processors from now on (N5).
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::{Affinity, HandlerOptions};
    /// # let device = Device::open()?;
    /// # let handler = device.set_handler(&HandlerOptions::default())?;
    /// let last = device.processors()?.pop().into_iter().collect();
    /// handler.set_affinity(&Affinity::Processors(last))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_affinity(&self, place: &Affinity) -> Result<(), Error> {
        Ok(self.device.engine.set_handler_affinity(self.id, place)?)
    }

    /// Changes the moderation of its notifications from now on (E6). Handlers that share an event queue, as the setting
    /// `interrupt_arrangement` says, share its moderation.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::{HandlerOptions, Moderation};
    /// # let handler = Device::open()?.set_handler(&HandlerOptions::default())?;
    /// handler.moderate(Moderation::Adaptive)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn moderate(&self, moderation: Moderation) -> Result<(), Error> {
        Ok(self.device.engine.moderate(self.id, moderation)?)
    }

    /// Changes when its event queue is acknowledged and armed again, from now on (E5): at once, or lazily, while the adapter polls the
    /// queue at this interval. Handlers that share an event queue share this too. Fails if the interval is zero or above 100 ms.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use verbena::Device;
    /// # use verbena::events::{Arming, HandlerOptions};
    /// # let handler = Device::open()?.set_handler(&HandlerOptions::default())?;
    /// handler.set_arming(Arming::WhenIdle(Duration::from_micros(20)))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_arming(&self, arming: Arming) -> Result<(), Error> {
        Ok(self.device.engine.set_arming(self.id, arming)?)
    }

    /// Clears it (N3), as dropping it does. Its queues keep their notifications until they get another handler.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::HandlerOptions;
    /// # let device = Device::open()?;
    /// device.set_handler(&HandlerOptions::default())?.clear();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn clear(self) {}
}

impl Handler {
    /// For a completion queue of the same device that gets it later.
    pub(crate) fn reference(&self, device: &Arc<Inner>) -> Result<HandlerRef, Error> {
        if !Arc::ptr_eq(&self.device, device) {
            return Err(Error::Foreign);
        }
        Ok(device.engine.handler_ref(self.id)?)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // Fails only if the adapter was shut down or this is a forked child: handlers are not called any more then.
        let _ = self.device.engine.clear_handler(self.id);
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handler").field(&self.id.0).finish()
    }
}

/// Calls the program's code for every event of a device until it is dropped; see [`Device::observe`].
///
/// ```
/// let device = verbena::Device::open()?;
/// let observation = device.observe(|cause| println!("{cause:?}"));
/// drop(observation);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Observation {
    _observation: verbena_engine::Observation,
    _device: Arc<Inner>,
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").finish_non_exhaustive()
    }
}

impl Device {
    /// Limit of completion handlers at once (N2); set by `handlers`.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert!(device.handler_limit() >= 1);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn handler_limit(&self) -> u16 {
        self.inner().engine.handler_limit()
    }

    /// Processors that handlers can be placed on: those that the calling thread may use.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert!(!device.processors()?.is_empty());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn processors(&self) -> Result<Vec<u16>, Error> {
        Ok(verbena_engine::sys::processors()?)
    }

    /// Registers a completion handler (N3). Its closure must not block: it delays all handlers that share its thread. Fails if the
    /// limit is reached or a processor does not exist.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::events::{Affinity, Class, HandlerOptions};
    ///
    /// let device = Device::open()?;
    /// let first = device.processors()?[0];
    /// let handler = device.set_handler(&HandlerOptions {
    ///     affinity: Affinity::Processors(vec![first]),
    ///     class: Class::Latency,
    ///     ..HandlerOptions::new(|completion| println!("queue {}", completion.cq))
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_handler(&self, options: &HandlerOptions) -> Result<Handler, Error> {
        let device = self.inner().clone();
        let id = device.engine.set_handler(options)?;
        Ok(Handler { device, id })
    }

    /// Creates a completion queue with this handler (N4). Fails with [`Error::Foreign`] if the handler is another device's.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::HandlerOptions;
    /// # let device = Device::open()?;
    /// let handler = device.set_handler(&HandlerOptions::new(|_| ()))?;
    /// let cq = device.cq_with(128, &handler)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn cq_with(&self, entries: usize, handler: &Handler) -> Result<Cq, Error> {
        if !Arc::ptr_eq(&handler.device, self.inner()) {
            return Err(Error::Foreign);
        }
        let queue = self.inner().engine.create_cq_with(entries, handler.id)?;
        Cq::from_queue(self.inner(), queue)
    }

    /// What the device's interrupts have cost since it was opened (E12): per vector that was used, interrupts, events, and register writes;
    /// serving an interrupt takes no register read and one write per event queue.
    ///
    /// ```
    /// use verbena::events::{Cause, Origin};
    /// let device = verbena::Device::open()?;
    /// let before = device.interrupt_counters();
    /// device.inject(Cause::GeneralPurpose { pin: 3 }, Origin::UNSPECIFIED)?;
    /// let after = device.interrupt_counters();
    /// let global = after.signals[0]; // vector 0
    /// assert_eq!((global.interrupts, global.events, global.writes), (1, 1, 1));
    /// assert_eq!(global.coalesced(), 0);
    /// assert_eq!(after.accesses.writes, before.accesses.writes + 1);
    /// assert_eq!(after.accesses.reads, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn interrupt_counters(&self) -> InterruptCounters {
        self.inner().engine.interrupt_counters()
    }

    /// Calls `observer` for every event, including completions, on the thread that serves the event, until the observation is
    /// dropped. It must not block.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use verbena::events::{Cause, Origin};
    ///
    /// let device = verbena::Device::open()?;
    /// let (tell, told) = mpsc::channel();
    /// let _observation = device.observe(move |cause| drop(tell.send(cause)));
    /// let link = Cause::Link { port: 0, up: false };
    /// device.inject(link, Origin::UNSPECIFIED)?;
    /// assert_eq!(told.recv(), Ok(link));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn observe(&self, observer: impl Fn(Cause) + Send + Sync + 'static) -> Observation {
        Observation {
            _observation: self.inner().engine.observe(Arc::new(observer)),
            _device: self.inner().clone(),
        }
    }

    /// Whether an observer, or a watcher such as `verbena events`, sees the events now. Events that only they see need not be raised otherwise.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert!(!device.is_observed());
    /// let _observation = device.observe(|_| ());
    /// assert!(device.is_observed());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_observed(&self) -> bool {
        self.inner().engine.is_observed()
    }

    /// Raises an event that the adapter has no source for: of a channel, memory, the link or management. Events of queues and
    /// queue pairs are raised by the adapter only and fail with [`Error::EventNotInjectable`].
    ///
    /// ```
    /// use verbena::events::{Cause, Origin};
    /// let device = verbena::Device::open()?;
    /// device.inject(Cause::GeneralPurpose { pin: 3 }, Origin::UNSPECIFIED)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn inject(&self, cause: Cause, origin: Origin) -> Result<(), Error> {
        if let Cause::Rdma(_) = cause {
            return Err(Error::EventNotInjectable { cause });
        }
        Ok(self.inner().engine.inject(cause, origin)?)
    }

    /// Shuts the adapter down (N8): new requests fail, posted requests have this long to complete, the rest is flushed, all
    /// connections end, and pending notifications are delivered. Completion queues can be polled afterwards.
    ///
    /// ```
    /// use std::time::Duration;
    /// let device = verbena::Device::open()?;
    /// let ended = device.shut_down(Duration::from_secs(1))?;
    /// assert_eq!((ended.finished, ended.flushed), (0, 0), "there was no queue pair");
    /// assert!(device.cq(64).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn shut_down(&self, patience: Duration) -> Result<Shutdown, Error> {
        Ok(self.inner().engine.shut_down(patience)?)
    }
}

impl BareCq {
    /// Sets or removes its completion handler (N4), also under traffic: a notification under way goes to the old handler, and one
    /// that was held goes to the new one.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::events::HandlerOptions;
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let handler = device.set_handler(&HandlerOptions::new(|_| ()))?;
    /// cq.set_handler(Some(&handler))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_handler(&self, handler: Option<&Handler>) -> Result<(), Error> {
        if handler.is_some_and(|handler| !Arc::ptr_eq(&handler.device, &self.device)) {
            return Err(Error::Foreign);
        }
        Ok(self.queue.set_handler(handler.map(|handler| handler.id))?)
    }

    /// Detaches its handler (N4): notifications are held until it has another one. Its descriptor is not notified meanwhile.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// cq.detach_handler();
    /// cq.set_handler(None)?; // its descriptor alone
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn detach_handler(&self) {
        self.queue.detach_handler();
    }
}
