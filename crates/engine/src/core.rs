//! What all parts of an engine share: the adapter, the settings, the shards, and who is told what.
//! It promises that whatever a turn left behind — promised receives, overflows, events — is seen to after all locks are released.
//! It refuses to run connections; shards and callers do.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use verbena_nic::interrupts::{Interrupts, RaiseError};
use verbena_nic::profile::Service;
use verbena_nic::{Event, Function, Outbox, Qp, QpState, Wake};

use crate::access::AccessList;
use crate::calls::Calls;
use crate::claims::Claims;
use crate::config::{Config, Device};
use crate::connection::Connection;
use crate::control::Controls;
use crate::door::{Permits, Waiting};
use crate::error::{Error, InterruptError};
use crate::failing::EngineFailure;
use crate::handler::{Handlers, Listeners};
use crate::iscsi_stream::IscsiStreams;
use crate::keys::Keys;
use crate::monitor::Opened;
use crate::notice::Inbox;
use crate::numbers::Numbers;
use crate::pipeline::{self, Observers};
use crate::residents::Residents;
use crate::seat::{FunctionOptions, Seat};
use crate::shard::Shards;
use crate::sharer::Sharers;
use crate::signals::{Signals, Ticker};
use crate::station::Stations;
use crate::sys;
use crate::tls::Tls;

/// Is shown an event; true if nobody else needs to hear of it.
pub(crate) type Watcher = Arc<dyn Fn(Event) -> bool + Send + Sync>;

/// Shared by everything of one engine.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) function: Arc<Function>,
    pub(crate) shards: Shards,
    /// The way of every notification: event queues, maps, vectors (docs/events.md).
    pub(crate) interrupts: Interrupts,
    pub(crate) handlers: Handlers,
    pub(crate) stations: Stations,
    /// Who is told of completions, by queue.
    pub(crate) listeners: Listeners,
    pub(crate) ticker: Arc<Ticker>,
    /// Who sees every event.
    pub(crate) observers: Observers,
    /// Watchers in other processes are let in.
    pub(crate) monitor: Opened,
    /// Who sees everything else first.
    pub(crate) watcher: RwLock<Option<Watcher>>,
    /// Everything else that happens.
    pub(crate) events: Inbox,
    /// The device's own addresses, once somebody asked.
    addresses: OnceLock<Vec<IpAddr>>,
    /// Queue pairs that can be called, and their numbers.
    pub(crate) calls: Calls,
    pub(crate) numbers: Numbers,
    /// Queue pairs that datagrams come for.
    pub(crate) residents: Residents,
    /// Connections to iSCSI targets (M12).
    pub(crate) iscsi: IscsiStreams,
    /// Shared send queues, by number (V6).
    pub(crate) sharers: Sharers,
    /// Startups of those who came through doors.
    pub(crate) half_open: Arc<Permits>,
    /// Which sources may connect and send datagrams.
    pub(crate) access: AccessList,
    /// What peers must prove.
    pub(crate) keys: Keys,
    /// What connections are encrypted with.
    pub(crate) tls: Option<Tls>,
    /// Set once, when the engine is shut down or fails.
    pub(crate) closing: AtomicBool,
    /// Why it failed.
    pub(crate) failure: OnceLock<Box<EngineFailure>>,
    /// `DeviceFatal` was raised, and waits were ended.
    pub(crate) over: AtomicBool,
    /// Listeners whose threads wait for requests.
    pub(crate) acceptors: Mutex<Vec<Weak<Waiting>>>,
    /// The process it was made in, by the forks that lie before it.
    forks: u64,
    /// The thread that does what is queued to control queue pairs.
    pub(crate) controls: Controls,
    /// Connections by the queue pair they serve.
    connections: RwLock<HashMap<u32, Weak<Connection>>>,
    /// Whose packets are, if the settings say (V2).
    claims: Option<Claims>,
    /// Given up last, when nothing of the function is left.
    pub(crate) seat: Seat,
}

impl Core {
    /// The physical function of an adapter of its own.
    pub(crate) fn new(config: Config) -> Result<Arc<Core>, Error> {
        let claims = Claims::physical(&config);
        Core::on(Seat::physical(&config)?, config, claims)
    }

    /// One more function of the same adapter (V1): nothing else is shared.
    pub(crate) fn beside(&self, options: &FunctionOptions) -> Result<Arc<Core>, Error> {
        let (seat, config) = self.seat.beside(&self.config, options)?;
        let claims = self.claims.as_ref().map(|all| all.of(&config.name));
        Core::on(seat, config, claims)
    }

    fn on(seat: Seat, config: Config, claims: Option<Claims>) -> Result<Arc<Core>, Error> {
        if config.catch_faults {
            verbena_mem::catch_faults();
        }
        let events = Inbox::new()?;
        let function = seat.function().clone();
        function.tpt().limit_room(config.max_pages.into());
        let home = Arc::new(OnceLock::new());
        let shards = Shards::new(config.shards, home.clone());
        let handlers = Handlers::new(config.handlers());
        let half_open = Permits::new(config.half_open);
        let access = AccessList::new(&config);
        let keys = Keys::load(&config).map_err(Box::new)?;
        let tls = Tls::new(&config, &keys).map_err(Box::new)?;
        let signals = Signals(home.clone());
        let interrupts = pipeline::interrupts(&function, &config, &handlers, signals)?;
        let core = Arc::new_cyclic(|this| Core {
            config,
            function,
            shards,
            interrupts,
            handlers,
            stations: Stations::default(),
            listeners: Listeners::default(),
            ticker: Ticker::new(this.clone()),
            observers: Observers::default(),
            monitor: Opened::default(),
            watcher: RwLock::default(),
            events,
            addresses: OnceLock::new(),
            calls: Calls::default(),
            numbers: Numbers::default(),
            residents: Residents::default(),
            iscsi: IscsiStreams::default(),
            sharers: Sharers::default(),
            half_open,
            access,
            keys,
            tls,
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            over: AtomicBool::new(false),
            acceptors: Mutex::default(),
            forks: sys::forks(),
            controls: Controls::default(),
            connections: RwLock::default(),
            claims,
            seat,
        });
        // Nobody else has it.
        let _ = home.set(Arc::downgrade(&core));
        Ok(core)
    }

    /// False in a forked child of the process that made the engine: there are no threads, a lock may be held for ever
    /// by one that is not there, and the descriptors are closed (DESIGN §4). Nothing may be touched then.
    pub(crate) fn lives(&self) -> bool {
        sys::forks_since() == self.forks
    }

    /// It takes nothing new any more (N8).
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// It lives and takes new things, as an answer.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.lives() {
            return Err(Error::Closed);
        }
        if self.is_closing() {
            return Err(self.closed());
        }
        match self.interrupts.down() {
            // E2: nobody would be told how it ends.
            Some(why) => Err(InterruptError::from(RaiseError::Down(why)).into()),
            None => Ok(()),
        }
    }

    /// It takes requests, or the state in which its queue pairs seem to be: a forked child has none, only the memory of some.
    pub(crate) fn check_posts(&self) -> Result<(), QpState> {
        if self.is_closing() {
            return Err(QpState::Err);
        }
        if self.lives() {
            Ok(())
        } else {
            Err(QpState::Reset)
        }
    }

    /// It is this one, as an answer: nothing of one function may be used in another (V1).
    pub(crate) fn check_own(&self, other: &Core) -> Result<(), Error> {
        if core::ptr::eq(self, other) {
            Ok(())
        } else {
            Err(Error::Foreign)
        }
    }

    /// It may have RDMA connections, and no rule gives what goes to this address to another device (V2), as an answer.
    pub(crate) fn check_owner(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.check_service(Service::Rdma, local, peer)
    }

    /// The same for what another service of the device sends or gets.
    pub(crate) fn check_service(
        &self,
        service: Service,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.function.check_service(service)?;
        match &self.claims {
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

    /// The address to bind to where a program asks for this one. With a `device` of loopback addresses only, nothing of the
    /// adapter can be reached from elsewhere: all addresses become the loopback address, and others are refused.
    pub(crate) fn bindable(&self, at: SocketAddr) -> Result<SocketAddr, Error> {
        if self.config.device == Device::Auto || at.ip().is_loopback() {
            return Ok(at);
        }
        // A device that is not there yet keeps nobody from listening.
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

    /// Who sees every event but completions first, from now on.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let before = self.watcher.write().replace(watcher);
        // Without the lock: it is the program's.
        drop(before);
    }

    /// The connection of a queue pair from now on.
    pub(crate) fn joined(&self, qp: u32, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        self.connections.write().insert(qp, connection);
    }

    pub(crate) fn parted(&self, qp: u32, connection: &Connection) {
        let mut connections = self.connections.write();
        let ours = connections
            .get(&qp)
            .is_some_and(|c| core::ptr::eq(c.as_ptr(), connection));
        if ours {
            connections.remove(&qp);
        }
    }

    /// No connection serves any queue pair.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.read().is_empty()
    }

    pub(crate) fn connection_of(&self, qp: u32) -> Option<Arc<Connection>> {
        self.connections.read().get(&qp)?.upgrade()
    }

    /// A call on a queue pair, what its connection may send after it, and all that follows. The caller holds no lock.
    pub(crate) fn act(&self, qp: &Qp, call: impl FnOnce(&Qp, &mut Outbox)) {
        let mut out = Outbox::new();
        call(qp, &mut out);
        if let Some(connection) = self.connection_of(qp.number()) {
            connection.send(&mut out);
        }
        self.deliver(&mut out);
    }

    /// Sees to what a turn left behind. The caller holds no lock and no grant.
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
                    self.go_on(wake, out);
                    continue;
                };
                // A queue pair that is gone by now has passed its promise on when it left the line.
                let Ok(qp) = self.function.qp(number) else {
                    // V5: datagrams wait for memory, too.
                    self.residents.resume(&self.function, number, out);
                    self.iscsi.resume(number, out);
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

    /// V6: requests of a shared send queue have ended.
    fn go_on(&self, wake: Wake, out: &mut Outbox) {
        if let Wake::Sends(number) = wake
            && let Some(sharer) = self.sharers.find(number)
        {
            sharer.pump(out);
        }
    }

    /// A queue lost entries: the queue pairs that complete there fail, and those that are connected say so.
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
        for qp in self.function.uppers_of_cq(cq) {
            qp.fail_overflowed(out);
        }
        self.iscsi.sweep(out);
    }
}

impl core::fmt::Debug for Core {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
