//! State shared by all parts of an engine: adapter, settings, shards, and one part for each concern. Objects that need one part hold that
//! part. What a turn leaves in its outbox (wake-ups, overflows, events) is handled by [`Core::deliver`] after all locks are released.

use core::net::SocketAddr;
use std::sync::Arc;

use verbena_events::event::failure_handled;
use verbena_events::interrupts::RaiseError;
use verbena_nic::profile::Service;
use verbena_nic::{Function, Outbox, Qp, QpState, Wake};
use verbena_sync::locks::OnceLock;

use crate::accept::Admission;
use crate::accept::acceptor::Permits;
use crate::accept::owner_rules::OwnerRules;
use crate::capture::Tap;
use crate::config::Config;
use crate::datagram::roce_ports::RocePorts;
use crate::error::{Error, InterruptError};
use crate::faults::Faults;
use crate::guard::SupervisorCell;
use crate::lifecycle::{Gate, Lifecycle};
use crate::local_addresses::LocalAddresses;
use crate::notify::pipeline::Notification;
use crate::notify::signals::{SignalHostCell, Signals};
use crate::oob::Oob;
use crate::poll::shard::Shards;
use crate::port::PortSlot;
use crate::qp_routes::QpRoutes;
use crate::roce::cm::RoceCm;
use crate::same_host::SameHost;
use crate::security::Security;
use crate::verbs::control::ControlThread;
use crate::verbs::function_handle::{FunctionHandle, FunctionOptions};

/// Shared by everything of one engine.
pub(crate) struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) function: Arc<Function>,
    pub(crate) shards: Arc<Shards>,
    /// Whether it accepts work.
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// The path of every notification (docs/events.md).
    pub(crate) notification: Arc<Notification>,
    /// The device's own addresses.
    pub(crate) local_addresses: LocalAddresses,
    /// Access lists, keys and TLS.
    pub(crate) security: Arc<Security>,
    /// Limits of accepted connections, and the owners of addresses.
    pub(crate) admission: Admission,
    /// Queue pairs of out-of-band connections, and their numbers.
    pub(crate) oob: Oob,
    /// What serves each queue pair.
    pub(crate) routes: QpRoutes,
    /// The connection manager of RoCEv2, once it is needed.
    pub(crate) roce_cm: OnceLock<Arc<RoceCm>>,
    /// The sockets of RoCEv2.
    pub(crate) roce_ports: RocePorts,
    /// Shared memory with peers on this host.
    pub(crate) same_host: SameHost,
    /// A port of its own, on which it speaks TCP itself.
    pub(crate) port: PortSlot,
    /// What captures its frames (docs/tools.md).
    pub(crate) tap: Arc<Tap>,
    /// Faults for tests.
    pub(crate) faults: Faults,
    /// The thread that runs requests of control queue pairs.
    pub(crate) control_thread: ControlThread,
    /// Dropped last, after everything else of the function.
    pub(crate) function_handle: FunctionHandle,
}

impl Core {
    /// The physical function of a new adapter.
    pub(crate) fn new(config: Config) -> Result<Arc<Core>, Error> {
        let rules = OwnerRules::physical(&config);
        Core::with_function(FunctionHandle::physical(&config)?, config, rules)
    }

    /// Another function of the same adapter (V1): nothing else is shared.
    pub(crate) fn add_function(&self, options: &FunctionOptions) -> Result<Arc<Core>, Error> {
        let (handle, config) = self.function_handle.create_virtual(&self.config, options)?;
        let rules = self.admission.rules_for(&config.name);
        Core::with_function(handle, config, rules)
    }

    fn with_function(
        handle: FunctionHandle,
        config: Config,
        rules: Option<OwnerRules>,
    ) -> Result<Arc<Core>, Error> {
        if config.catch_faults {
            verbena_mem::catch_faults();
        }
        let config = Arc::new(config);
        let lifecycle = Arc::new(Lifecycle::new());
        let function = handle.function().clone();
        function.tpt().set_page_limit(config.max_pages.into());
        let supervisor = SupervisorCell::default();
        let shards = Arc::new(Shards::new(
            config.shards,
            config.busy_poll,
            supervisor.clone(),
        ));
        let security = Arc::new(Security::new(&config)?);
        let signal_host = SignalHostCell::default();
        let signals = Box::new(Signals(signal_host.clone()));
        let notification = Notification::new(&function, &config, &lifecycle, &shards, signals)?;
        let core = Arc::new(Core {
            lifecycle,
            notification,
            local_addresses: LocalAddresses::new(&config),
            security,
            admission: Admission::new(Permits::new(config.half_open), rules),
            oob: Oob::default(),
            routes: QpRoutes::default(),
            roce_cm: OnceLock::new(),
            roce_ports: RocePorts::default(),
            same_host: SameHost::default(),
            port: PortSlot::new(
                config.port.clone().filter(|_| function.number() == 0),
                config.keep_alive,
                &shards,
            ),
            tap: Arc::default(),
            faults: Faults::default(),
            control_thread: ControlThread::default(),
            function,
            shards,
            config,
            function_handle: handle,
        });
        core.function.observer().set(core.tap.tracer().clone());
        // Set here for the first time, so this does not fail.
        let own = Arc::downgrade(&core);
        let _ = supervisor.set(own.clone());
        let _ = signal_host.set(own);
        if let Some(script) = &core.config.faults {
            core.set_faults(script)?;
        }
        Ok(core)
    }

    /// False in a forked child of the process that made the engine.
    pub(crate) fn is_alive(&self) -> bool {
        self.lifecycle.is_alive()
    }

    /// New work is refused (N8).
    pub(crate) fn is_closing(&self) -> bool {
        self.lifecycle.is_closing()
    }

    /// An error if the engine does not accept new work, or this is a forked child.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lifecycle.check()?;
        match self.notification.interrupts.down() {
            // E2: the result could not be reported.
            Some(why) => Err(InterruptError::from(RaiseError::Down(why)).into()),
            None => Ok(()),
        }
    }

    /// An error with the state to report for the queue pairs if posts are not accepted: Err when closing, Reset in a forked child.
    #[inline]
    pub(crate) fn check_posts(&self) -> Result<Gate, QpState> {
        self.lifecycle.check_posts()
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
        self.admission.check_owner(service, local, peer)
    }

    /// Those of the sockets or addresses that no rule gives to another device (V2); an error if a rule gives all of them to others.
    pub(crate) fn retain_owned<T: Clone>(
        &self,
        all: &[T],
        at: impl Fn(&T) -> SocketAddr,
    ) -> Result<Vec<T>, Error> {
        let (mut owned, mut refused) = (Vec::with_capacity(all.len()), Ok(()));
        for one in all {
            match self.check_owner(at(one), None) {
                Ok(()) => owned.push(one.clone()),
                Err(error) => refused = Err(error),
            }
        }
        if owned.is_empty() {
            refused?;
        }
        Ok(owned)
    }

    /// Calls `call` on a queue pair, sends on its connection, and delivers what follows. The caller holds no lock.
    pub(crate) fn run_on_qp(&self, qp: &Qp, call: impl FnOnce(&Qp, &mut Outbox)) {
        let mut out = Outbox::new();
        call(qp, &mut out);
        self.routes.send_on_qp(qp.number(), &mut out);
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
                if let Wake::Failed(number) = wake {
                    self.record_failure(number);
                    failure_handled();
                    continue;
                }
                let Some(number) = wake.qp() else {
                    self.wake_shared_sends(wake, out);
                    continue;
                };
                // A queue pair destroyed meanwhile has passed its wake-up on when it left the wait queue.
                let Ok(qp) = self.function.qp(number) else {
                    // V5: datagrams wait for memory, too.
                    self.routes.ud_demux.resume(&self.function, number, out);
                    self.routes.ulps.resume(number, out);
                    self.routes.xrc_waiters.resume(number);
                    continue;
                };
                qp.wake(wake, out);
                self.routes.resume_qp(number, out);
            }
        }
        out.flush(&*self.notification);
    }

    /// V6: requests of a shared send queue have completed.
    fn wake_shared_sends(&self, wake: Wake, out: &mut Outbox) {
        if let Wake::Sends(number) = wake
            && let Some(sharer) = self.routes.ssq_drivers.find(number)
        {
            sharer.pump(out);
        }
    }

    /// A completion queue lost entries: the queue pairs that complete there fail, and their connections report it.
    fn fail_overflowed(&self, cq: u32, out: &mut Outbox) {
        for qp in self.function.qps_of_cq(cq) {
            qp.fail_overflowed(out);
            self.routes.send_on_qp(qp.number(), out);
        }
        for qp in self.function.uds_of_cq(cq) {
            qp.fail_overflowed(out);
        }
        for qp in self.function.ulps_of_cq(cq) {
            qp.fail_overflowed(out);
        }
        self.routes.ulps.sweep(out);
    }
}

impl core::fmt::Debug for Core {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
