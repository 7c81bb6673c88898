//! The path of every notification, from an event of the adapter to its handlers and listeners (docs/events.md).
//! All notifications go through it, and none is delivered under a lock. A panic in a program's handler is caught and affects nothing else.

use std::sync::{Arc, Weak};
use std::time::Duration;

use verbena_events::eq::{Memory, Settings};
use verbena_events::eqe::{Cause, Eqe};
use verbena_events::interrupts::{At, CommandError, Interrupts, Origin, RaiseError};
use verbena_events::message_map::Duty;
use verbena_events::moderation::Arming;
use verbena_events::toeplitz::Tuple;
use verbena_events::vector::{Fire, Signal};
use verbena_nic::{Event, Function, Raise, Reason};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::RwLock;

use crate::config::{Acknowledge, Config, EventMemory, Routing};
use crate::error::{Error, InterruptError};
use crate::guard::catch_panic;
use crate::lifecycle::Lifecycle;
use crate::notify::Inbox;
use crate::notify::columns::Columns;
use crate::notify::handler::{Class, Completion, CqNotifications, HandlerRoute, Handlers};
use crate::notify::handler_threads::{HandlerThreads, Task};
use crate::notify::ticker::{Tick, Ticker};
use crate::poll::shard::Shards;
use crate::sys;

/// Bytes of a page of an event queue in pages.
const PAGE: usize = 4096;
/// The interval between polls of a queue that is acknowledged lazily.
const LAZY_POLL: Duration = Duration::from_micros(50);

/// A callback for every event of an adapter, on the thread that serves it.
pub type Observer = Arc<dyn Fn(Cause) + Send + Sync>;

/// The callbacks that see every event, by token.
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

    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    fn notify_all(&self, cause: Cause) {
        let all = self.0.read().clone();
        for (_, observer) in all.iter() {
            catch_panic(|| observer(cause));
        }
        // An observer that was removed meanwhile is dropped here: its drop is code of the program.
        catch_panic(|| drop(all));
    }
}

/// Called with an event; true if it needs no further delivery.
pub(crate) type EventHook = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// The path of every notification of an engine, and what it notifies.
pub(crate) struct Notification {
    lifecycle: Arc<Lifecycle>,
    shards: Arc<Shards>,
    /// Event queues, maps, vectors (docs/events.md).
    pub(crate) interrupts: Interrupts,
    /// What each handler has of them.
    pub(crate) columns: Columns,
    /// Completions are routed by the addresses of their packets (E8).
    hashes_completions: bool,
    /// The redirection table is in use: events are raised with the addresses of their packets.
    pub(crate) steers: AtomicBool,
    /// The hash has a key.
    pub(crate) has_hash_key: AtomicBool,
    pub(crate) handlers: Handlers,
    pub(crate) handler_threads: HandlerThreads,
    /// Callbacks for completions, by queue.
    pub(crate) cq_notifications: CqNotifications,
    ticker: Arc<Ticker>,
    /// Callbacks for every event.
    pub(crate) observers: Observers,
    /// The monitor for other processes was opened.
    pub(crate) monitor_opened: AtomicBool,
    /// The watch on the link was opened.
    pub(crate) link_watched: AtomicBool,
    /// Called first with every event that is not a completion.
    event_hook: RwLock<Option<EventHook>>,
    /// All other events.
    pub(crate) events: Inbox,
}

impl Notification {
    pub(crate) fn new(
        function: &Function,
        config: &Config,
        lifecycle: &Arc<Lifecycle>,
        shards: &Arc<Shards>,
        signals: Box<dyn Fire>,
    ) -> Result<Arc<Notification>, Error> {
        let events = Inbox::new()?;
        let handlers = Handlers::new(config.handlers());
        let interrupts = create_interrupts(function, config, &handlers, signals)?;
        let columns = Columns::new(&interrupts).map_err(CommandError::from);
        let columns = columns.map_err(InterruptError::from)?;
        let notification = Arc::new_cyclic(|own: &Weak<Notification>| Notification {
            lifecycle: lifecycle.clone(),
            shards: shards.clone(),
            interrupts,
            columns,
            hashes_completions: config.interrupt_routing == Routing::Hash,
            steers: AtomicBool::new(false),
            has_hash_key: AtomicBool::new(false),
            handlers,
            handler_threads: HandlerThreads::default(),
            cq_notifications: CqNotifications::default(),
            ticker: Ticker::new(Weak::<Notification>::clone(own)),
            observers: Observers::default(),
            monitor_opened: AtomicBool::new(false),
            link_watched: AtomicBool::new(false),
            event_hook: RwLock::default(),
            events,
        });
        notification.start_steering(config)?;
        Ok(notification)
    }

    /// Whether events are to be raised with the addresses of their packets.
    #[inline]
    pub(crate) fn steers_packets(&self) -> bool {
        self.steers.load(Ordering::Relaxed)
    }

    /// False in a forked child of the process that made the engine.
    pub(crate) fn is_alive(&self) -> bool {
        self.lifecycle.is_alive()
    }

    /// Sets the callback that is called first with every event but completions.
    pub(crate) fn set_event_hook(&self, hook: EventHook) {
        let before = self.event_hook.write().replace(hook);
        // Dropped without the lock: it is the program's code.
        drop(before);
    }
}

/// Makes the adapter's event queues in the arrangement of the settings. Its columns are: global events, those of RDMA, completion queues
/// without a handler, and each handler; by default each has its own event queue and vector.
fn create_interrupts(
    function: &Function,
    config: &Config,
    handlers: &Handlers,
    signals: Box<dyn Fire>,
) -> Result<Interrupts, Error> {
    let arrangement = config.interrupt_arrangement;
    let scheme = config.interrupt_routing.scheme();
    let columns = handlers.columns();
    let interrupts = function.create_interrupts(arrangement, scheme, columns, signals)?;
    let (entries, form) = (config.event_entries, config.event_entry);
    let memory = || match config.event_queue {
        EventMemory::Contiguous => Memory::new(entries, form),
        EventMemory::Paged => Memory::paged(entries, form, PAGE / (4 * form.words())),
    };
    let settings = Settings {
        moderation: config.event_moderation,
        ..Settings::default()
    };
    let created = interrupts.create_all_in(memory, settings, sys::now());
    created.map_err(InterruptError::from)?;
    for queue in 0..interrupts.queues() {
        let set = interrupts.set_arming(queue, default_arming(config));
        set.map_err(InterruptError::from)?;
    }
    if let Some(granted) = config.vectors {
        interrupts.vectors().grant(granted);
    }
    Ok(interrupts)
}

/// When queues are acknowledged and armed again, unless a handler sets it.
pub(crate) fn default_arming(config: &Config) -> Arming {
    match config.event_acknowledge {
        Acknowledge::Eager => Arming::Now,
        Acknowledge::Lazy => Arming::WhenIdle(LAZY_POLL),
    }
}

impl Notification {
    /// Raises an event that belongs to no packet and no completion queue.
    pub(crate) fn inject(&self, cause: Cause, origin: Origin) -> Result<(), RaiseError> {
        let raised = self.interrupts.raise(cause, origin, sys::now())?;
        self.schedule_tick(raised.due);
        Ok(())
    }

    /// Serves a signal: delivers the entries of its event queues.
    pub(crate) fn serve(&self, signal: Signal) {
        if !self.is_alive() {
            return;
        }
        let tell = |_, entry: Eqe| self.dispatch_event(entry);
        let served = self.interrupts.service(signal, sys::now(), tell);
        debug_assert!(served.is_ok(), "signals have vectors that exist");
        self.schedule_tick(served.ok().and_then(|served| served.due));
    }

    /// Fires all held signals, and has every queue armed from now on: the shards, and the timer with them, have ended.
    pub(crate) fn end_ticks(&self) {
        let _ = self.interrupts.tick(Time::MAX);
        self.interrupts.end_polling();
    }

    /// Schedules a [`tick`](Tick::tick) for held signals.
    pub(crate) fn schedule_tick(&self, due: Option<Time>) {
        if let Some(when) = due
            && self.ticker.set(&self.shards, when).is_err()
        {
            // The engine shuts down, and its threads with it: no signal is held any more.
            self.end_ticks();
        }
    }

    /// The class of the handler that a signal is for.
    pub(crate) fn class_of(&self, signal: Signal) -> Class {
        let id = match signal {
            Signal::Vector(vector) => self.columns.handler_of_vector(vector),
            Signal::Line => None,
        };
        let handler = id.and_then(|id| self.handlers.find(id).ok());
        handler.map_or(Class::Normal, |handler| handler.class())
    }

    pub(crate) fn dispatch_event(&self, entry: Eqe) {
        let Ok(cause) = entry.cause() else {
            return;
        };
        self.observers.notify_all(cause);
        match cause {
            Cause::Rdma(Event::Completion { cq, reason }) => {
                // An entry of 4 bytes has no context: the handler is the queue's current one.
                let way = match entry.context {
                    0 => self.cq_notifications.route(cq, reason),
                    context => Some(HandlerRoute::unpack(context)),
                };
                // Otherwise it is kept for the next handler, or the queue is gone.
                if let Some(way) = way {
                    self.pass_completion(cq, reason, way);
                }
            }
            Cause::Rdma(event) => self.dispatch_to_program(event),
            Cause::Link { port, up: true } => self.dispatch_to_program(Event::PortActive { port }),
            Cause::Link { port, up: false } => self.dispatch_to_program(Event::PortError { port }),
            Cause::Channel {
                channel,
                what,
                count,
            } => self.dispatch_to_program(Event::Channel {
                channel,
                what,
                count,
            }),
            // Only observers see the others.
            _ => {}
        }
    }

    /// Passes an event to the program's hook, or to the inbox.
    fn dispatch_to_program(&self, event: Event) {
        let watcher = self.event_hook.read().clone();
        let mut taken = false;
        if let Some(watcher) = watcher {
            catch_panic(|| taken = watcher(event));
        }
        if !taken {
            self.events.push(event);
        }
    }

    /// Dispatches a completion on the threads of its handler: on this one, unless the handler shares its vector.
    fn pass_completion(&self, cq: u32, reason: Reason, way: HandlerRoute) {
        if way.has_handler()
            && self.columns.get(way.column).own_vector.is_none()
            && let Some(handler) = self.handlers.find_by_route(way)
            && let Some(at) = handler.threads()
            && let Some(group) = self.handler_threads.get(at)
        {
            let task = Task::Completion { cq, reason, way };
            if group.queue_task(task, handler.class()) {
                return;
            }
        }
        self.dispatch_completion(cq, reason, way);
    }

    /// Notifies the handler that the entry names, and the listener of the queue.
    pub(crate) fn dispatch_completion(&self, cq: u32, reason: Reason, way: HandlerRoute) {
        let handler = self.handlers.find_by_route(way);
        if handler.is_none() && way.has_handler() {
            // The handler was cleared meanwhile: the notification goes to the queue's next one.
            if self.cq_notifications.reroute(cq, way, reason) {
                self.raise(Event::Completion { cq, reason });
            }
            return;
        }
        let notify = self.cq_notifications.notify(cq);
        if let Some(handler) = handler
            && let Some(callback) = &handler.callback
        {
            let completion = Completion {
                cq,
                reason,
                handler: handler.id,
            };
            catch_panic(|| callback(completion));
            // It may have been cleared meanwhile; then the program's callback is dropped here.
            catch_panic(|| drop(handler));
        }
        if let Some(notify) = notify {
            catch_panic(|| notify.notify());
            catch_panic(|| drop(notify));
        }
    }
}

impl Notification {
    #[inline]
    fn raise_at(&self, event: Event, packet: Option<Tuple>) {
        let (cause, origin) = match event {
            Event::Completion { cq, reason } => match self.cq_notifications.route(cq, reason) {
                Some(way) => {
                    let at = match packet {
                        Some(packet) if self.hashes_completions => At::Packet(packet),
                        _ => At::Processor(way.column),
                    };
                    let origin = Origin {
                        at,
                        duty: Some(Duty::Rdma),
                        context: way.pack(),
                    };
                    (Cause::Rdma(event), origin)
                }
                // Kept for the next handler, or the queue is gone.
                None => return,
            },
            Event::Channel {
                channel,
                what,
                count,
            } => {
                let cause = Cause::Channel {
                    channel,
                    what,
                    count,
                };
                (
                    cause,
                    Origin::new(packet.map_or(At::Unspecified, At::Packet)),
                )
            }
            _ => (Cause::Rdma(event), Origin::UNSPECIFIED),
        };
        // Fails only when the adapter is down, which was reported.
        let _ = self.inject(cause, origin);
    }
}

impl Tick for Notification {
    fn tick(&self, now: Time) {
        let due = self.interrupts.tick(now);
        self.schedule_tick(due);
        let due = self.interrupts.fire_polls(now);
        self.schedule_tick(due);
    }
}

impl Raise for Notification {
    fn raise(&self, event: Event) {
        self.raise_at(event, None);
    }

    fn raise_from(&self, event: Event, packet: Tuple) {
        self.raise_at(event, Some(packet));
    }
}

#[cfg(test)]
mod tests;
