//! State shared by all parts of an engine: adapter, settings, shards, and the recipients of events.
//! What a turn leaves in its outbox (wake-ups, overflows, events) is handled by [`Core::deliver`] after all locks are released.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use verbena_events::interrupts::{Interrupts, RaiseError};
use verbena_nic::profile::Service;
use verbena_nic::{Event, Function, Outbox, Qp, QpState, Wake};

use crate::accept::acceptor::{PendingRequests, Permits};
use crate::accept::owner_rules::OwnerRules;
use crate::config::{Config, Device};
use crate::connection::Connection;
use crate::datagram::ud_demux::UdDemux;
use crate::error::{Error, InterruptError};
use crate::failure::EngineFailure;
use crate::notify::Inbox;
use crate::notify::handler::{CqNotifications, Handlers};
use crate::notify::handler_threads::HandlerThreads;
use crate::notify::monitor::MonitorOnce;
use crate::notify::pipeline::{self, Observers};
use crate::notify::signals::{Signals, Ticker};
use crate::oob::qpn::QpnAllocator;
use crate::oob::requests::OobRequests;
use crate::poll::shard::Shards;
use crate::security::access::AccessList;
use crate::security::keys::Keys;
use crate::security::tls::Tls;
use crate::sys;
use crate::ulp::stream::UlpStreams;
use crate::verbs::control::ControlThread;
use crate::verbs::function_handle::{FunctionHandle, FunctionOptions};
use crate::verbs::ssq_driver::SsqDrivers;

/// Called with an event; true if it needs no further delivery.
pub(crate) type EventHook = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// Shared by everything of one engine.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) function: Arc<Function>,
    pub(crate) shards: Shards,
    /// The path of every notification: event queues, maps, vectors (docs/events.md).
    pub(crate) interrupts: Interrupts,
    pub(crate) handlers: Handlers,
    pub(crate) handler_threads: HandlerThreads,
    /// Callbacks for completions, by queue.
    pub(crate) cq_notifications: CqNotifications,
    pub(crate) ticker: Arc<Ticker>,
    /// Callbacks for every event.
    pub(crate) observers: Observers,
    /// Access for monitors in other processes.
    pub(crate) monitor: MonitorOnce,
    /// Called first with every event that is not a completion.
    pub(crate) event_hook: RwLock<Option<EventHook>>,
    /// All other events.
    pub(crate) events: Inbox,
    /// The device's own addresses, set at the first query.
    addresses: OnceLock<Vec<IpAddr>>,
    /// Queue pairs of out-of-band connections, and their numbers.
    pub(crate) oob_requests: OobRequests,
    pub(crate) qpn_allocator: QpnAllocator,
    /// Queue pairs that receive datagrams.
    pub(crate) ud_demux: UdDemux,
    /// Connections of upper-layer protocols (M12).
    pub(crate) ulps: UlpStreams,
    /// Shared send queues, by number (V6).
    pub(crate) ssq_drivers: SsqDrivers,
    /// Limits startups of accepted connections.
    pub(crate) half_open: Arc<Permits>,
    /// Which sources may connect and send datagrams.
    pub(crate) access: AccessList,
    /// Keys for the authentication of peers.
    pub(crate) keys: Keys,
    /// TLS, if connections are encrypted.
    pub(crate) tls: Option<Tls>,
    /// Set once, when the engine is shut down or fails.
    pub(crate) closing: AtomicBool,
    /// Why the engine failed.
    pub(crate) failure: OnceLock<Box<EngineFailure>>,
    /// `DeviceFatal` was raised, and waiting calls were woken.
    pub(crate) waits_ended: AtomicBool,
    /// Listeners on which threads wait for requests.
    pub(crate) pending_requests: Mutex<Vec<Weak<PendingRequests>>>,
    /// Number of forks before the engine was made; identifies its process.
    forks: u64,
    /// The thread that runs requests of control queue pairs.
    pub(crate) control_thread: ControlThread,
    /// Connections by the queue pair that they serve.
    connections: RwLock<HashMap<u32, Weak<Connection>>>,
    /// Rules of the setting `owners` (V2).
    owner_rules: Option<OwnerRules>,
    /// Dropped last, after everything else of the function.
    pub(crate) function_handle: FunctionHandle,
}

impl Core {
    /// The physical function of a new adapter.
    pub(crate) fn new(config: Config) -> Result<Arc<Core>, Error> {
        let claims = OwnerRules::physical(&config);
        Core::with_function(FunctionHandle::physical(&config)?, config, claims)
    }

    /// Another function of the same adapter (V1): nothing else is shared.
    pub(crate) fn add_function(&self, options: &FunctionOptions) -> Result<Arc<Core>, Error> {
        let (seat, config) = self.function_handle.create_virtual(&self.config, options)?;
        let claims = self
            .owner_rules
            .as_ref()
            .map(|all| all.for_device(&config.name));
        Core::with_function(seat, config, claims)
    }

    fn with_function(
        seat: FunctionHandle,
        config: Config,
        claims: Option<OwnerRules>,
    ) -> Result<Arc<Core>, Error> {
        if config.catch_faults {
            verbena_mem::catch_faults();
        }
        let events = Inbox::new()?;
        let function = seat.function().clone();
        function.tpt().set_page_limit(config.max_pages.into());
        let home = Arc::new(OnceLock::new());
        let shards = Shards::new(config.shards, home.clone());
        let handlers = Handlers::new(config.handlers());
        let half_open = Permits::new(config.half_open);
        let access = AccessList::new(&config);
        let keys = Keys::load(&config).map_err(Box::new)?;
        let tls = Tls::new(&config, &keys).map_err(Box::new)?;
        let signals = Signals(home.clone());
        let interrupts = pipeline::create_interrupts(&function, &config, &handlers, signals)?;
        let core = Arc::new_cyclic(|this| Core {
            config,
            function,
            shards,
            interrupts,
            handlers,
            handler_threads: HandlerThreads::default(),
            cq_notifications: CqNotifications::default(),
            ticker: Ticker::new(this.clone()),
            observers: Observers::default(),
            monitor: MonitorOnce::default(),
            event_hook: RwLock::default(),
            events,
            addresses: OnceLock::new(),
            oob_requests: OobRequests::default(),
            qpn_allocator: QpnAllocator::default(),
            ud_demux: UdDemux::default(),
            ulps: UlpStreams::default(),
            ssq_drivers: SsqDrivers::default(),
            half_open,
            access,
            keys,
            tls,
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            waits_ended: AtomicBool::new(false),
            pending_requests: Mutex::default(),
            forks: sys::watch_forks(),
            control_thread: ControlThread::default(),
            connections: RwLock::default(),
            owner_rules: claims,
            function_handle: seat,
        });
        // Set here for the first time, so this does not fail.
        let _ = home.set(Arc::downgrade(&core));
        Ok(core)
    }

    /// False in a forked child of the process that made the engine: its threads do not exist there, a lock may be held by one of them
    /// forever, and the descriptors are closed. No other state may be used then.
    pub(crate) fn is_alive(&self) -> bool {
        sys::fork_count() == self.forks
    }

    /// New work is refused (N8).
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// An error if the engine does not accept new work, or this is a forked child.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.is_alive() {
            return Err(Error::Closed);
        }
        if self.is_closing() {
            return Err(self.closed_error());
        }
        match self.interrupts.down() {
            // E2: the result could not be reported.
            Some(why) => Err(InterruptError::from(RaiseError::Down(why)).into()),
            None => Ok(()),
        }
    }

    /// An error with the state to report for the queue pairs if posts are not accepted: Err when closing, Reset in a forked child.
    pub(crate) fn check_posts(&self) -> Result<(), QpState> {
        if self.is_closing() {
            return Err(QpState::Err);
        }
        if self.is_alive() {
            Ok(())
        } else {
            Err(QpState::Reset)
        }
    }

    /// An error unless both are the same: no object of one function may be used in another (V1).
    pub(crate) fn check_own(&self, other: &Core) -> Result<(), Error> {
        if core::ptr::eq(self, other) {
            Ok(())
        } else {
            Err(Error::Foreign)
        }
    }

    /// An error if the function has no RDMA service, or a rule gives this address to another device (V2).
    pub(crate) fn check_owner(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.check_service(Service::Rdma, local, peer)
    }

    /// The same for another service of the device.
    pub(crate) fn check_service(
        &self,
        service: Service,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.function.check_service(service)?;
        match &self.owner_rules {
            Some(claims) => claims.check(service, local, peer),
            None => Ok(()),
        }
    }

    /// The device's own addresses.
    pub(crate) fn addresses(&self) -> Result<&[IpAddr], Error> {
        if let Some(addresses) = self.addresses.get() {
            return Ok(addresses);
        }
        let machine = sys::interfaces()?;
        let found = self.config.device.resolve(&machine);
        let found = found.ok_or(Error::NoDevice)?;
        Ok(self.addresses.get_or_init(|| found))
    }

    /// The address to bind to for a requested one. With a `device` of loopback addresses only, the adapter must not be reachable from
    /// other hosts: the unspecified address becomes the loopback address, and others are refused.
    pub(crate) fn bind_addr(&self, at: SocketAddr) -> Result<SocketAddr, Error> {
        if self.config.device == Device::Auto || at.ip().is_loopback() {
            return Ok(at);
        }
        // A missing device does not prevent listening.
        let own = self.addresses().unwrap_or_default();
        if own.is_empty() || !own.iter().all(IpAddr::is_loopback) {
            return Ok(at);
        }
        match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => {
                Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port()))
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                Ok(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port()))
            }
            _ => Err(sys::Error::not_loopback().into()),
        }
    }

    /// Sets the callback that is called first with every event but completions.
    pub(crate) fn set_event_hook(&self, watcher: EventHook) {
        let before = self.event_hook.write().replace(watcher);
        // Dropped without the lock: it is the program's code.
        drop(before);
    }

    /// Records the connection of a queue pair.
    pub(crate) fn add_connection(&self, qp: u32, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        self.connections.write().insert(qp, connection);
    }

    pub(crate) fn remove_connection(&self, qp: u32, connection: &Connection) {
        let mut connections = self.connections.write();
        let ours = connections
            .get(&qp)
            .is_some_and(|c| core::ptr::eq(c.as_ptr(), connection));
        if ours {
            connections.remove(&qp);
        }
    }

    /// No queue pair has a connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.read().is_empty()
    }

    pub(crate) fn connection_of(&self, qp: u32) -> Option<Arc<Connection>> {
        self.connections.read().get(&qp)?.upgrade()
    }

    /// Calls `call` on a queue pair, sends on its connection, and delivers what follows. The caller holds no lock.
    pub(crate) fn run_on_qp(&self, qp: &Qp, call: impl FnOnce(&Qp, &mut Outbox)) {
        let mut out = Outbox::new();
        call(qp, &mut out);
        if let Some(connection) = self.connection_of(qp.number()) {
            connection.send(&mut out);
        }
        self.deliver(&mut out);
    }

    /// Handles what a turn left in its outbox. The caller holds no lock and no grant.
    #[inline]
    pub(crate) fn deliver(&self, out: &mut Outbox) {
        if !out.is_empty() {
            self.deliver_all(out);
        }
    }

    fn deliver_all(&self, out: &mut Outbox) {
        loop {
            let (woken, overflows) = (out.take_woken(), out.take_overflows());
            if woken.is_empty() && overflows.is_empty() {
                break;
            }
            for cq in overflows {
                self.fail_overflowed(cq, out);
            }
            for wake in woken {
                let Some(number) = wake.qp() else {
                    self.wake_shared_sends(wake, out);
                    continue;
                };
                // A queue pair destroyed meanwhile has passed its wake-up on when it left the wait queue.
                let Ok(qp) = self.function.qp(number) else {
                    // V5: datagrams wait for memory, too.
                    self.ud_demux.resume(&self.function, number, out);
                    self.ulps.resume(number, out);
                    continue;
                };
                qp.wake(wake, out);
                if let Some(connection) = self.connection_of(number) {
                    connection.send(out);
                    connection.resume(out);
                }
            }
        }
        out.flush(self);
    }

    /// V6: requests of a shared send queue have completed.
    fn wake_shared_sends(&self, wake: Wake, out: &mut Outbox) {
        if let Wake::Sends(number) = wake
            && let Some(sharer) = self.ssq_drivers.find(number)
        {
            sharer.pump(out);
        }
    }

    /// A completion queue lost entries: the queue pairs that complete there fail, and their connections report it.
    fn fail_overflowed(&self, cq: u32, out: &mut Outbox) {
        for qp in self.function.qps_of_cq(cq) {
            qp.fail_overflowed(out);
            if let Some(connection) = self.connection_of(qp.number()) {
                connection.send(out);
            }
        }
        for qp in self.function.uds_of_cq(cq) {
            qp.fail_overflowed(out);
        }
        for qp in self.function.ulps_of_cq(cq) {
            qp.fail_overflowed(out);
        }
        self.ulps.sweep(out);
    }
}

impl core::fmt::Debug for Core {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
