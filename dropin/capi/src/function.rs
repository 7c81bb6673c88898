//! The adapter of this process: one for all contexts and functions (V1) that the program opens, created with the first and dropped with
//! the last. A forked child gets an adapter of its own, and loading the library creates nothing.
//! Events of the adapter are distributed here to the objects that they are about.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use verbena::events::{Affinity, Class, Event, Handler, HandlerOptions};
use verbena::function::FunctionOptions;
use verbena::low::Personality;
use verbena::{Config, Device};
use verbena_rsocket::Net;

use crate::abi::*;
use crate::async_event::AsyncEventSource;
use crate::cm::{Link, Timewait};
use crate::errno::Errno;
use crate::qp_table::QpTable;
use crate::xrc_domains::XrcDomains;
use crate::{check, log, profile};

mod failure;

use failure::FailureListeners;

/// Completion vectors that are offered at most if the setting `handlers` is not set: some handlers stay free for queues with moderation of
/// their own.
const VECTORS: u16 = 16;
/// Handlers of the adapter in that case.
const HANDLERS: &str = "29";

/// Settings, and the number of completion vectors that follows from them.
struct Settings {
    config: Config,
    vectors: u16,
}

/// An object that events can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Qp(u32),
    Cq(u32),
    Srq(u32),
}

/// A function of the adapter and the C objects that belong to it.
pub(crate) struct AdapterFunction {
    pub(crate) device: Device,
    /// Which of the devices it is; 0 is the physical function.
    pub(crate) number: usize,
    /// Held by virtual functions (V1): functions that are opened later must be of the same adapter.
    _physical: Option<Arc<AdapterFunction>>,
    /// Connects rsockets.
    pub(crate) net: Arc<Net>,
    event_sources: RwLock<HashMap<Subject, Arc<AsyncEventSource>>>,
    /// Queue pairs by the number that their programs see.
    pub(crate) pairs: Arc<QpTable<QpPtr>>,
    /// Identifiers of the connection manager, by the number that events have for their queue pairs.
    links: RwLock<HashMap<u32, Weak<Link>>>,
    /// Identifiers whose connections ended a short time ago.
    timewait: Arc<Timewait>,
    /// What is notified when the device fails.
    failure_listeners: Mutex<FailureListeners>,
    vectors: Mutex<Box<[Option<Arc<Handler>>]>>,
    /// Bytes of device memory that are allocated.
    device_memory: AtomicUsize,
    pub(crate) xrc_domains: XrcDomains,
}

impl AdapterFunction {
    /// A device by its number and name; a function of the adapter of `physical`, if that is given.
    fn new(
        settings: &Settings,
        (number, name): (usize, &str),
        physical: Option<Arc<AdapterFunction>>,
    ) -> Result<Arc<AdapterFunction>, Errno> {
        let made = match &physical {
            None => Device::with(settings.config.clone()),
            Some(physical) => physical.device.function(&FunctionOptions {
                name: Some(name.to_owned()),
                ..FunctionOptions::from_config(&settings.config)
            }),
        };
        let device = made.map_err(|error| {
            log::error(|| error.to_string());
            Errno::from(error)
        })?;
        if let Err(error) = device.addresses() {
            log::error(|| error.to_string());
            return Err(Errno::NODEV);
        }
        check_processors(&device)?;
        let function = Arc::new(AdapterFunction {
            net: Net::new(device.clone()),
            device,
            number,
            _physical: physical,
            event_sources: RwLock::default(),
            pairs: QpTable::new(),
            links: RwLock::default(),
            timewait: Arc::default(),
            failure_listeners: Mutex::default(),
            vectors: Mutex::new(vec![None; settings.vectors.into()].into()),
            device_memory: AtomicUsize::new(0),
            xrc_domains: XrcDomains::default(),
        });
        function.device.access_list().on_refusal(|refusal| {
            log::warn(|| refusal.to_string());
        });
        function.device.on_roce_unavailable(|sentence| {
            log::warn(|| sentence.to_owned());
        });
        let weak = Arc::downgrade(&function);
        function.device.on_event(move |event| {
            if let Some(function) = weak.upgrade() {
                function.dispatch(event);
            }
        });
        Ok(function)
    }

    pub(crate) fn personality(&self) -> Personality {
        self.device.config().personality
    }

    /// Bytes of device memory that the function has (`max_dm_size`).
    pub(crate) fn device_memory_size(&self) -> usize {
        self.device.config().dm_size
    }

    /// Takes bytes of device memory; false if fewer are left.
    pub(crate) fn take_device_memory(&self, bytes: usize) -> bool {
        let limit = self.device_memory_size();
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        let used = &self.device_memory;
        used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }

    /// Returns bytes of device memory.
    pub(crate) fn return_device_memory(&self, bytes: usize) {
        self.device_memory.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Completion vectors: the C API's name for completion handlers of the adapter (N2).
    pub(crate) fn vector_count(&self) -> usize {
        self.vectors.lock().len()
    }

    /// The handler of a vector, registered at first use.
    pub(crate) fn vector(&self, at: usize) -> Result<Arc<Handler>, Errno> {
        let mut vectors = self.vectors.lock();
        let slot = vectors.get_mut(at).ok_or(Errno::INVAL)?;
        if let Some(handler) = slot {
            return Ok(handler.clone());
        }
        // It runs no function of its own: the listener of each queue is called.
        let handler = Arc::new(self.device.set_handler(&self.vector_options(at))?);
        *slot = Some(handler.clone());
        Ok(handler)
    }

    /// Options of a handler for queues with this completion vector: where the setting `completion_vector_cpus` names processors, it runs
    /// there.
    pub(crate) fn vector_options(&self, at: usize) -> HandlerOptions {
        let ranges = self.device.config().completion_vector_cpus.iter();
        let range = ranges.flatten().cycle().nth(at).cloned();
        HandlerOptions {
            affinity: range.map_or(Affinity::Inline, |range| {
                Affinity::Processors(range.collect())
            }),
            // Scheduled as the other threads of the program.
            class: Class::Latency,
            ..HandlerOptions::default()
        }
    }

    /// Delivers events about this object to `ear` from now on.
    pub(crate) fn add(&self, subject: Subject, event_source: &Arc<AsyncEventSource>) {
        self.event_sources
            .write()
            .insert(subject, event_source.clone());
    }

    pub(crate) fn remove(&self, subject: Subject) {
        let gone = self.event_sources.write().remove(&subject);
        drop(gone);
    }

    /// Makes a queue pair known by its number.
    pub(crate) fn add_pair(&self, number: u32, qp: *mut ibv_qp) {
        self.pairs.add(number, QpPtr(qp));
    }

    pub(crate) fn remove_pair(&self, number: u32, event_number: u32) {
        self.pairs.remove(number);
        let link = self.links.write().remove(&event_number);
        // No event comes for it any more.
        if let Some(link) = link.and_then(|link| link.upgrade()) {
            link.report_destroyed();
        }
    }

    /// The queue pair with this number; null if there is none.
    pub(crate) fn pair(&self, number: u32) -> *mut ibv_qp {
        let found = self.pairs.with(number, |at| at.0);
        found.unwrap_or(ptr::null_mut())
    }

    /// Reports the end of this queue pair's connection to an identifier.
    pub(crate) fn register_link(&self, event_number: u32, link: &Arc<Link>) {
        // The iWARP connection manager has no time wait.
        if self.personality() == Personality::Roce {
            link.set_timewait(&self.timewait);
        }
        let link = Arc::downgrade(link);
        self.links.write().insert(event_number, link);
    }

    fn report_disconnected(&self, qp: u32) {
        let link = self.links.read().get(&qp).and_then(Weak::upgrade);
        if let Some(link) = link {
            link.report_disconnected();
        }
    }

    fn dispatch(&self, event: Event) {
        if self.net.handle_event(event) {
            return;
        }
        let (subject, what) = match event {
            Event::CqOverflow { cq } => (Subject::Cq(cq), IBV_EVENT_CQ_ERR),
            Event::SrqLimit { srq } => (Subject::Srq(srq), IBV_EVENT_SRQ_LIMIT_REACHED),
            Event::SrqError { srq } => (Subject::Srq(srq), IBV_EVENT_SRQ_ERR),
            Event::QpRequest { qp } => (Subject::Qp(qp), IBV_EVENT_QP_REQ_ERR),
            Event::QpAccess { qp } => (Subject::Qp(qp), IBV_EVENT_QP_ACCESS_ERR),
            Event::QpFatal { qp } => (Subject::Qp(qp), IBV_EVENT_QP_FATAL),
            Event::SqDrained { qp } => (Subject::Qp(qp), IBV_EVENT_SQ_DRAINED),
            Event::LastWqe { qp } => (Subject::Qp(qp), IBV_EVENT_QP_LAST_WQE_REACHED),
            Event::PortActive { .. } => return self.report_port(IBV_EVENT_PORT_ACTIVE),
            Event::PortError { .. } => return self.report_port(IBV_EVENT_PORT_ERR),
            Event::DeviceFatal => return self.fail(),
            // Reported by the connection manager.
            Event::Disconnected { qp } => return self.report_disconnected(qp),
            // Adapters raise `IBV_EVENT_COMM_EST` only for a queue pair that is in RTR; programs treat it as an error otherwise.
            Event::Established { .. }
            | Event::Completion { .. }
            | Event::Channel { .. }
            | Event::Missed { .. } => return,
        };
        let event_source = self.event_sources.read().get(&subject).cloned();
        if let Some(source) = event_source {
            if let (IBV_EVENT_CQ_ERR, Some(checker)) = (what, check::checker()) {
                checker.overflowed(source.subject());
            }
            source.raise(what);
        }
    }
}

/// `EINVAL`, and a message, if the setting `completion_vector_cpus` names a processor that the program may not use.
fn check_processors(device: &Device) -> Result<(), Errno> {
    let Some(ranges) = &device.config().completion_vector_cpus else {
        return Ok(());
    };
    let usable = device.processors()?;
    let mut named = ranges.iter().cloned().flatten();
    match named.find(|processor| !usable.contains(processor)) {
        None => Ok(()),
        Some(processor) => {
            log::error(|| {
                format!(
                    "completion_vector_cpus: processor {processor} does not exist, or this program may not use it"
                )
            });
            Err(Errno::INVAL)
        }
    }
}

/// The address of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct QpPtr(pub(crate) *mut ibv_qp);

// SAFETY: the pointer is dereferenced only under the lock of the table, or by calls that the program makes about the queue pair.
unsafe impl Send for QpPtr {}
// SAFETY: the address is fixed; the state behind it is written under the lock of the table, and `ibv_destroy_qp` removes the queue pair from
// the table before it is freed.
unsafe impl Sync for QpPtr {}

/// A context and a protection domain that stay open.
#[derive(Clone, Copy)]
pub(crate) struct SharedContext(pub(crate) *mut ibv_context, pub(crate) *mut ibv_pd);

// SAFETY: contexts and domains may be used by any thread, and these are never freed.
unsafe impl Send for SharedContext {}
// SAFETY: both addresses are fixed, and calls about a context or a domain may be made by several threads at once.
unsafe impl Sync for SharedContext {}

/// State of a process: its settings, read once, and its adapter while it is in use.
struct ProcessState {
    /// A forked child has a `ProcessState` of its own: locks of its parent may be held by threads that do not exist in the child.
    process: libc::pid_t,
    settings: OnceLock<Option<Settings>>,
    /// The adapter's functions that are in use, by number.
    functions: Mutex<HashMap<usize, Weak<AdapterFunction>>>,
    shared_context: Mutex<Option<SharedContext>>,
}

static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(ptr::null_mut());

fn process_state() -> &'static ProcessState {
    // SAFETY: `getpid` has no preconditions.
    let process = unsafe { libc::getpid() };
    loop {
        let now = PROCESS_STATE.load(Ordering::Acquire);
        // SAFETY: `now` is null or a box that this function leaked, published and never frees.
        if let Some(state) = unsafe { now.as_ref() }
            && state.process == process
        {
            return state;
        }
        let fresh = Box::into_raw(Box::new(ProcessState {
            process,
            settings: OnceLock::new(),
            functions: Mutex::default(),
            shared_context: Mutex::default(),
        }));
        if PROCESS_STATE
            .compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: `fresh` was leaked above and not published, so no other thread has it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// The settings of this process; none if they are wrong, which is logged.
pub(crate) fn config() -> Option<&'static Config> {
    settings().map(|settings| &settings.config)
}

fn settings() -> Option<&'static Settings> {
    let read = || match Config::load() {
        Ok(mut config) => {
            log::set(config.log);
            let mut vectors = config.handlers();
            if config.handlers.is_none() {
                vectors = vectors.min(VECTORS);
                // The value is in the range of the setting.
                let _ = config.set("handlers", HANDLERS);
            }
            if let Some((_, first)) = profile::all_functions(&config).into_iter().next() {
                // The name of the list; names of a profile were checked.
                let _ = config.set("name", &first.name);
            }
            Some(Settings { config, vectors })
        }
        Err(problems) => {
            log::error(|| format!("configuration: {problems}"));
            None
        }
    };
    process_state().settings.get_or_init(read).as_ref()
}

/// The first function of this process's adapter that does RDMA: the physical one, unless a profile says otherwise (V2).
pub(crate) fn first_function() -> Result<Arc<AdapterFunction>, Errno> {
    let config = config().ok_or(Errno::INVAL)?;
    let (first, _) = profile::names(config)
        .into_iter()
        .next()
        .ok_or(Errno::NODEV)?;
    open_function(first)
}

/// A function of the adapter of this process (V1).
pub(crate) fn open_function(number: usize) -> Result<Arc<AdapterFunction>, Errno> {
    let settings = settings().ok_or(Errno::INVAL)?;
    let served = profile::all_functions(&settings.config);
    // A forked child lists the devices of its parent, and may have other settings.
    let (_, asked) = served.get(number).ok_or(Errno::NODEV)?;
    let mut homes = process_state().functions.lock();
    let mut find = |number, name: &str, physical| {
        let known = homes.get(&number).and_then(Weak::upgrade);
        if let Some(function) = known {
            return Ok(function);
        }
        let fresh = AdapterFunction::new(settings, (number, name), physical)?;
        homes.insert(number, Arc::downgrade(&fresh));
        Ok(fresh)
    };
    let physical = find(0, &served[0].1.name, None)?;
    if number == 0 {
        return Ok(physical);
    }
    find(number, &asked.name, Some(physical))
}

/// A function of the adapter, if this process uses it now.
pub(crate) fn running(number: usize) -> Option<Arc<AdapterFunction>> {
    let homes = process_state().functions.lock();
    homes.get(&number).and_then(Weak::upgrade)
}

/// All functions of the adapter that are in use; empty while another thread opens one: a process that ends does not wait for
/// that.
pub(crate) fn all_running() -> Vec<Arc<AdapterFunction>> {
    let homes = process_state().functions.try_lock();
    homes.map_or_else(Vec::new, |homes| {
        homes.values().filter_map(Weak::upgrade).collect()
    })
}

/// The context and domain that all identifiers of the connection manager share; none until they are opened.
pub(crate) fn shared_context_slot() -> &'static Mutex<Option<SharedContext>> {
    &process_state().shared_context
}
