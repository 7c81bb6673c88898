//! The adapter as a program uses it. What it creates (memory, queues, connections, listeners) is in the files of these objects.
//! Every object keeps its device alive. An event is delivered to the connection it concerns, to the program's listener, or to the
//! queue of unread events. Two devices share no state.

mod events;
mod steering;

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use verbena_engine::faults::{FaultCounts, Script};
use verbena_engine::{AccessList, CompletionQueue, Config, Engine};
use verbena_mem::Policy;
use verbena_nic::{Attributes, Event, Function, Shares};

use crate::error::Error;

/// An adapter. Clones are handles of the same one.
///
/// ```
/// let device = verbena::Device::open()?;
/// println!("{} queue pairs at most", device.attributes().shares.qps);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    /// The protection domain of connections and their buffers, not accessible through the low layer.
    pub(crate) internal_domain: Arc<Domain>,
}

/// State that all handles of a device share.
pub(crate) struct Inner {
    /// The completion queues that it has from its initialization on; dropped before the engine.
    initial_cqs: Vec<CompletionQueue>,
    pub(crate) engine: Engine,
    /// The connections, by queue pair number, for events.
    connections: Mutex<HashMap<u32, Weak<dyn ConnectionEvents>>>,
    /// Called for all other events.
    event_callback: RwLock<Option<EventCallback>>,
}

/// A connection, as the device that delivers its events sees it.
pub(crate) trait ConnectionEvents: Send + Sync {
    /// The peer has ended the connection: outstanding receives are flushed. Messages that arrived before are kept.
    fn on_disconnected(&self);
}

/// The program's event callback.
type EventCallback = Arc<dyn Fn(Event) + Send + Sync>;

impl Inner {
    pub(crate) fn add_connection(&self, qp: u32, connection: Weak<dyn ConnectionEvents>) {
        self.connections.lock().insert(qp, connection);
    }

    pub(crate) fn remove_connection(&self, qp: u32) {
        self.connections.lock().remove(&qp);
    }

    /// Delivers an event to its connection or to the listener; false if there is neither.
    fn dispatch_event(&self, event: Event) -> bool {
        if self.dispatch_to_connection(event) {
            return true;
        }
        // Called without the lock: it is the program's code and may call back.
        let listener = self.event_callback.read().clone();
        let listens = listener.is_some();
        if let Some(listener) = listener {
            listener(event);
        }
        listens
    }

    /// Delivers an event to its connection; false if it concerns none.
    fn dispatch_to_connection(&self, event: Event) -> bool {
        let qp = match event {
            Event::QpRequest { qp }
            | Event::QpAccess { qp }
            | Event::QpFatal { qp }
            | Event::Established { qp }
            | Event::SqDrained { qp }
            | Event::LastWqe { qp }
            | Event::Disconnected { qp } => qp,
            Event::Completion { .. }
            | Event::CqOverflow { .. }
            | Event::SrqLimit { .. }
            | Event::SrqError { .. }
            | Event::PortActive { .. }
            | Event::PortError { .. }
            | Event::Channel { .. }
            | Event::Missed { .. }
            | Event::DeviceFatal => return false,
        };
        let Some(connection) = self.connections.lock().get(&qp).cloned() else {
            return false;
        };
        if let (Some(connection), Event::Disconnected { .. }) = (connection.upgrade(), event) {
            connection.on_disconnected();
        }
        true
    }
}

impl Inner {
    /// A completion queue that it has from its initialization on.
    pub(crate) fn initial_cq(&self, index: usize) -> Option<&CompletionQueue> {
        self.initial_cqs.get(index)
    }

    /// The function. Fails in a forked child, which has no copy of the threads that hold locks or grants.
    fn function(&self) -> Result<&Function, Error> {
        if self.engine.is_alive() {
            Ok(self.engine.function())
        } else {
            Err(verbena_engine::Error::Closed.into())
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// A protection domain that is freed when nothing in it is left.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) pd: verbena_mem::Pd,
    pub(crate) device: Arc<Inner>,
}

impl Domain {
    pub(crate) fn new(device: Arc<Inner>) -> Result<Arc<Domain>, Error> {
        let policy = device.engine.config().remote_access;
        Domain::with_policy(device, policy)
    }

    /// A domain in which peers may name this (M7).
    pub(crate) fn with_policy(device: Arc<Inner>, policy: Policy) -> Result<Arc<Domain>, Error> {
        let pd = device.function()?.allocate_pd_with(policy)?;
        Ok(Arc::new(Domain { pd, device }))
    }

    /// The function in which its memory is registered.
    pub(crate) fn function(&self) -> Result<&Function, Error> {
        self.device.function()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Every object in it holds a reference to it, so it is empty.
        if let Ok(function) = self.function() {
            let _ = function.free_pd(self.pd);
        }
    }
}

impl Device {
    /// Opens an adapter, configured by the environment and the user's file (docs/configuration.md).
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn open() -> Result<Device, Error> {
        Device::with(Config::load().map_err(Error::Config)?)
    }

    /// Opens an adapter with the program's own settings.
    ///
    /// ```
    /// use verbena::{Config, Device};
    /// let mut config = Config::default();
    /// config.set("crc", "on").map_err(verbena::Error::Config)?;
    /// let device = Device::with(config)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn with(config: Config) -> Result<Device, Error> {
        Device::from_engine(Engine::new(config)?)
    }

    pub(crate) fn from_engine(engine: Engine) -> Result<Device, Error> {
        let (count, entries) = {
            let config = engine.config();
            (config.initial_cqs, config.initial_cq_entries)
        };
        let create = |_| engine.create_cq(entries);
        let initial_cqs = (0..count).map(create).collect::<Result<_, _>>()?;
        let device = Arc::new(Inner {
            initial_cqs,
            engine,
            connections: Mutex::default(),
            event_callback: RwLock::default(),
        });
        let weak = Arc::downgrade(&device);
        device.engine.set_event_hook(move |event| {
            weak.upgrade()
                .is_some_and(|device| device.dispatch_event(event))
        });
        let hidden = Domain::new(device)?;
        Ok(Device {
            internal_domain: hidden,
        })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.internal_domain.device
    }

    /// Its settings.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// for row in device.config().describe() {
    ///     println!("{} = {} ({})", row.key, row.value, row.source);
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn config(&self) -> &Config {
        self.inner().engine.config()
    }

    /// Its limits and capabilities.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert!(device.attributes().max_sge >= 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn attributes(&self) -> &Attributes {
        self.inner().engine.function().attributes()
    }

    /// How much of each kind of object is in use.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.used().qps, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn used(&self) -> Shares {
        self.inner().engine.function().used()
    }

    /// Whether its link is up now: an interface that has one of its addresses is up and has a carrier. Changes are reported by
    /// [`Event::PortActive`] and [`Event::PortError`].
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// println!("the link is {}", if device.is_link_up()? { "up" } else { "down" });
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_link_up(&self) -> Result<bool, Error> {
        Ok(self.inner().engine.is_link_up()?)
    }

    /// Waits until the peers have confirmed the end of all connections over RoCEv2 that were ended here, at most for `limit`; false if some
    /// have not. A process that ends at once does not repeat the message, should it be lost, and its peer would not notice the end.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let device = verbena::Device::open()?;
    /// assert!(device.wait_disconnected(Duration::from_millis(500)));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait_disconnected(&self, limit: Duration) -> bool {
        self.inner().engine.wait_disconnected(limit)
    }

    /// Calls `observer` with the sentence why RoCEv2 cannot be used, once for each, as when another user's process or the kernel's rxe has UDP
    /// port 4791 of an address. What needs RoCEv2 fails with the same sentence; a listener with `wire = auto` goes on with TCP alone. It is
    /// called on the thread that tried, and must neither block nor call the device.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// device.on_roce_unavailable(|sentence| eprintln!("{sentence}"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn on_roce_unavailable(&self, observer: impl Fn(&str) + Send + Sync + 'static) {
        self.inner().engine.on_roce_unavailable(observer);
    }

    /// Makes faults happen to this program, for tests of how it handles them, as `verbena faults` does from outside (docs/tools.md). The script replaces
    /// an earlier one; the seed is returned, and with it the same faults happen again.
    ///
    /// ```
    /// use verbena::faults::{Effect, Script, When};
    /// let device = verbena::Device::open()?;
    /// let script = Script::seeded(7).with(When::Nth(1), Effect::Register(12));
    /// assert_eq!(device.set_faults(&script)?, 7);
    /// let pd = device.pd()?;
    /// let refused = pd.memory(4096, verbena::Access::ALL).unwrap_err();
    /// assert_eq!(refused.os_error(), Some(12));
    /// assert!(pd.memory(4096, verbena::Access::ALL).is_ok());
    /// assert_eq!(device.faults().rules[0].fired, 1);
    /// device.clear_faults();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_faults(&self, script: &Script) -> Result<u64, Error> {
        Ok(self.inner().engine.set_faults(script)?)
    }

    /// Removes the faults of [`set_faults`](Device::set_faults). Those that were decided already still happen.
    ///
    /// ```
    /// verbena::Device::open()?.clear_faults();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn clear_faults(&self) {
        self.inner().engine.clear_faults();
    }

    /// The rules of [`set_faults`](Device::set_faults), and how often each has fired.
    ///
    /// ```
    /// assert!(verbena::Device::open()?.faults().rules.is_empty());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn faults(&self) -> FaultCounts {
        self.inner().engine.faults()
    }

    /// Its addresses, at least one (setting `device`): those of queue pairs that the program connects by number.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// println!("at {}", device.addresses()?[0]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn addresses(&self) -> Result<&[IpAddr], Error> {
        Ok(self.inner().engine.addresses()?)
    }

    /// The address of its own port (setting `port`) from which this peer is reached; `None` if the system's network reaches it.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.port_route("192.0.2.1".parse().unwrap()), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn port_route(&self, peer: IpAddr) -> Option<IpAddr> {
        self.inner().engine.port_route(peer)
    }

    /// Whether calls work: false in a forked child of the process that opened the device. There every call fails; open another device.
    ///
    /// ```
    /// assert!(verbena::Device::open()?.is_alive());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_alive(&self) -> bool {
        self.inner().engine.is_alive()
    }

    /// The access list (settings `allow` and `deny`), which also counts refused connections and datagrams. A program may use it for
    /// its own sockets, too.
    ///
    /// ```
    /// let mut config = verbena::Config::default();
    /// config.set("deny", "192.0.2.0/24")?;
    /// let device = verbena::Device::with(config)?;
    /// device.access_list().on_refusal(|refusal| eprintln!("{refusal}"));
    /// assert!(!device.access_list().admits([192, 0, 2, 7].into()));
    /// assert_eq!(device.access_list().refused(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn access_list(&self) -> &AccessList {
        self.inner().engine.access_list()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

/// The first address that the name resolves to.
pub(crate) fn resolve(name: impl ToSocketAddrs + fmt::Debug) -> Result<SocketAddr, Error> {
    let failed = |why: String| Error::Address {
        name: format!("{name:?}"),
        why,
    };
    let mut found = name.to_socket_addrs().map_err(|e| failed(e.to_string()))?;
    found.next().ok_or_else(|| failed("no address".into()))
}
