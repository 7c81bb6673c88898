//! A queue pair and its connection: a posted request is transmitted at once, by the thread that posts it.
//! Posting never waits for the connection's lock. Destroying sends the last frames in the background. A queue pair connects on request
//! only: `connect`, `expect`, or accepting an [`Incoming`](crate::Incoming).

mod attr;
mod diagnosis;
mod fallback;
mod faulty;
mod link;
mod migration;
mod migration_state;
mod oob;
mod query;
mod roce;

pub use attr::QpAttr;
pub use migration::{Destination, ExportedConnection, MigrateError};
pub use migration_state::{ImportedConnection, MigrationState};
pub use oob::OobPeer;
pub use query::QueuePairInfo;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_mem::Pd;
use verbena_nic::qp::{Limits, PostError, PostSendError, QpAccessFlags, Registration, View};
use verbena_nic::{CqOptions, NewQp, Outbox, Personality, Qp, QpState, QpType, ReceiveWr, SendWr};
use verbena_stream::RnrRetry;
use verbena_sync::locks::Mutex;
use verbena_wire::Srqn;
use verbena_wire::ext::RnrTimer;

use crate::config::Wire;
use crate::connection::{Connection, Options, Slot};
use crate::core::Core;
use crate::error::Error;
use crate::lifecycle::Gate;
use crate::poll::queue::{CompletionQueue, Queue};
use crate::roce::cm::RoceCm;
use crate::sys;
use crate::verbs::shared_send_queue::{SendQueue, SharedSendQueue};
use crate::verbs::xrc::{Member, TargetElsewhere, TargetHandle, XrcFile, XrcHost, XrcWaiters};
use oob::{Callable, MovedNumber, RoceNumber};

/// An XRC domain: its targets receive into the shared receive queues that their peers name. Clones are handles of the same one; targets and shared
/// receive queues keep it alive. A target has no completion queue of its own: its connection is served with an empty one of the domain, or by
/// threads that poll a queue in which the shared receive queues complete.
#[derive(Debug, Clone)]
pub struct XrcDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    core: Arc<Core>,
    domain: Arc<verbena_nic::XrcDomain>,
    pd: Pd,
    /// Nothing completes in it.
    queue: CompletionQueue,
    /// Its part in a domain that a file names.
    member: Option<Member>,
}

impl XrcHost for Core {
    fn deliver(&self, out: &mut Outbox) {
        Core::deliver(self, out);
    }

    fn waiters(&self) -> &XrcWaiters {
        &self.routes.xrc_waiters
    }
}

impl XrcDomain {
    pub(crate) fn new(core: &Arc<Core>, pd: Pd) -> Result<XrcDomain, Error> {
        Ok(XrcDomain(Arc::new(Domain {
            core: core.clone(),
            domain: Arc::new(verbena_nic::XrcDomain::new(sys::random_u64()? as u32)),
            pd,
            queue: CompletionQueue::new(core, 1, None, CqOptions::default())?,
            member: None,
        })))
    }

    /// That which a file names, for all processes of this user that open it.
    pub(crate) fn of_file(core: &Arc<Core>, pd: Pd, file: XrcFile) -> Result<XrcDomain, Error> {
        let queue = CompletionQueue::new(core, 1, None, CqOptions::default())?;
        let host: Weak<Core> = Arc::downgrade(core);
        let patience = core.config.transfer().shared_receive_wait;
        let (member, domain) = Member::join(host, &core.shards, file, patience)?;
        Ok(XrcDomain(Arc::new(Domain {
            core: core.clone(),
            domain,
            pd,
            queue,
            member: Some(member),
        })))
    }

    /// Lets other processes open targets of this one (`ibv_open_qp`): `find` returns a handle of the target with the number that peers know, which
    /// exists at least until the handle is dropped.
    pub fn share_targets(
        &self,
        find: impl Fn(u32) -> Option<Box<dyn TargetHandle>> + Send + Sync + 'static,
    ) {
        if let Some(member) = &self.0.member {
            member.set_targets(Box::new(find));
        }
    }

    /// Opens a target of another process by the number that peers know; none if there is none.
    pub fn open_target(&self, number: u32) -> Option<TargetElsewhere> {
        let member = self.0.member.as_ref()?;
        self.0.core.is_alive().then(|| member.open_target(number))?
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    pub(crate) fn domain(&self) -> &Arc<verbena_nic::XrcDomain> {
        &self.0.domain
    }

    pub(crate) fn pd(&self) -> Pd {
        self.0.pd
    }

    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.0.queue
    }
}

/// Attributes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairOptions {
    /// The number in its completions, if not its own.
    pub wc_qpn: Option<u32>,
    /// Its protection domain.
    pub pd: Pd,
    /// RoCE or iWARP behaviour; the engine's setting if none.
    pub personality: Option<Personality>,
    /// Reliable or unreliable connection.
    pub qp_type: QpType,
    /// A shared receive queue of the same domain, instead of an own one.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
    /// Whether its requests may register memory (M4).
    pub registration: Registration,
    /// It has a number that peers can call, so that it can be connected out of band; its completions carry that number.
    pub oob: bool,
}

impl QueuePairOptions {
    /// A reliable one in this domain, with the engine's personality and default limits.
    pub fn new(pd: Pd) -> QueuePairOptions {
        QueuePairOptions {
            wc_qpn: None,
            pd,
            personality: None,
            qp_type: QpType::Rc,
            srq: None,
            limits: Limits::default(),
            registration: Registration::default(),
            oob: false,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    core: Arc<Core>,
    qp: Arc<Qp>,
    slot: Arc<Slot>,
    recv: Arc<Queue>,
    /// Held so that the queue outlives the last completion.
    _send: Arc<Queue>,
    /// The domain of an XRC target.
    _xrcd: Option<XrcDomain>,
    attr: Arc<Mutex<QpAttr>>,
    /// Present if peers can call it.
    oob: Option<Callable>,
    /// Its number in packets of RoCEv2, if peers cannot call it.
    roce_number: RoceNumber,
    /// Present if peers could call it before it was migrated.
    moved_number: Option<MovedNumber>,
}

impl QueuePair {
    pub(crate) fn new(
        core: &Arc<Core>,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        core.check_own(send.0.core())?;
        core.check_own(recv.0.core())?;
        QueuePair::make(core, SendQueue::Own(send), recv, None, options)
    }

    /// A target of an XRC domain.
    pub(crate) fn xrc_target(
        core: &Arc<Core>,
        domain: &XrcDomain,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        core.check_own(domain.core())?;
        let options = QueuePairOptions {
            pd: domain.pd(),
            qp_type: QpType::XrcRecv,
            ..options
        };
        let queue = domain.queue();
        QueuePair::make(core, SendQueue::Own(queue), queue, Some(domain), options)
    }

    /// A channel of a shared send queue (V6). Peers cannot call it by number.
    pub(crate) fn channel(
        core: &Arc<Core>,
        ssq: &SharedSendQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        core.check_own(recv.0.core())?;
        core.check_own(ssq.core())?;
        let options = QueuePairOptions {
            oob: false,
            ..options
        };
        QueuePair::make(core, SendQueue::Shared(ssq), recv, None, options)
    }

    fn make(
        core: &Arc<Core>,
        sends: SendQueue<'_>,
        recv: &CompletionQueue,
        xrcd: Option<&XrcDomain>,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        let config = &core.config;
        let callable = options.oob.then(|| Callable::new(core, options.qp_type));
        let callable = callable.transpose()?;
        let number = callable.as_ref().map(|callable| callable.number().get());
        let new = NewQp {
            wc_qpn: options.wc_qpn.or(number),
            pd: options.pd,
            personality: options.personality.unwrap_or(config.personality),
            qp_type: options.qp_type,
            send_cq: sends.queue().cq.number(),
            recv_cq: recv.number(),
            srq: options.srq,
            limits: options.limits,
            transfer: config.transfer(),
            registration: options.registration,
        };
        let qp = match (&sends, xrcd) {
            (_, Some(xrcd)) => core.function.create_xrc_target(xrcd.domain(), new)?,
            (SendQueue::Own(_), None) => core.function.create_qp(new)?,
            (SendQueue::Shared(ssq), None) => core.function.create_channel(ssq.number(), new)?,
        };
        let send = sends.queue();
        send.add_send_group(&recv.0.group);
        if let Some(callable) = &callable {
            callable.publish();
        }
        let attr = Arc::new(Mutex::new(QpAttr {
            rnr_retry: RnrRetry::Forever,
            rnr_timer: RnrTimer::DEFAULT,
            peer_timeout: Some(config.dead_after),
            grace: Duration::ZERO,
            ird: None,
            ord: None,
            traffic_class: None,
            path_mtu: None,
            ack_timeout: None,
            retry_count: None,
            psns: None,
        }));
        core.routes.add_attr(qp.number(), &attr);
        Ok(QueuePair {
            core: core.clone(),
            qp,
            slot: Arc::new(Slot::new(Some(config.dead_after))),
            recv: recv.0.clone(),
            _send: send.clone(),
            _xrcd: xrcd.cloned(),
            attr,
            oob: callable,
            roce_number: RoceNumber::default(),
            moved_number: None,
        })
    }

    /// Whether the connection belongs to the same function (V1).
    pub(crate) fn check_own(&self, connection: &Connection) -> Result<(), Error> {
        self.core.check_own(connection.core())
    }

    /// Whether it belongs to this function (V1).
    pub(crate) fn check_function(&self, core: &Core) -> Result<(), Error> {
        self.core.check_own(core)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Its type.
    pub fn qp_type(&self) -> QpType {
        self.qp.init().qp_type
    }

    /// Its state; [`QpState::Err`] in a forked child.
    pub fn state(&self) -> QpState {
        if !self.core.is_alive() {
            return QpState::Err;
        }
        self.qp.state()
    }

    /// A consistent snapshot of its state and counters.
    pub fn view(&self) -> View {
        self.qp.view()
    }

    /// The peer's address, while it is connected.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        if !self.core.is_alive() {
            return None;
        }
        let roce = || self.slot.roce().map(|connection| connection.peer());
        let tcp = self.slot.get().map(|connection| connection.peer());
        tcp.or_else(roce)
    }

    /// Changes its attributes towards the peer.
    pub fn set_attr(&self, change: impl FnOnce(&mut QpAttr)) {
        if !self.core.is_alive() {
            return;
        }
        let mut out = Outbox::new();
        {
            let mut attrs = self.attr.lock();
            change(&mut attrs);
            attrs.apply(&self.qp, &self.slot, &mut out);
        }
        self.transmit_and_deliver(&mut out);
    }

    /// Sets the operations that the peer may use.
    pub fn set_access_flags(&self, enabled: QpAccessFlags) {
        if self.core.is_alive() {
            self.act(|qp, out| qp.set_access_flags(enabled, out));
        }
    }

    /// Moves it to a state (`ibv_modify_qp`). The error of a transition that is not allowed says which ones are.
    pub fn modify(&self, to: QpState) -> Result<(), Error> {
        if !self.core.is_alive() {
            return Err(Error::Closed);
        }
        if let Some(callable) = self.oob.as_ref().filter(|_| to == QpState::Reset) {
            // Without a new nonce the next connection could be mistaken for this one.
            callable.handshake().reset()?;
        }
        self.prepare_roce_sends(to);
        let mut out = Outbox::new();
        let (done, connection) = {
            let _binding = self.slot.lock_binding();
            (self.qp.modify(to, &mut out), self.slot.get())
        };
        self.transmit_and_deliver(&mut out);
        if let Err(refused) = done {
            let personality = self.qp.init().personality;
            let next = |event| refused.from.next(personality, event);
            return Err(Error::transition(self.number(), refused.from, to, next));
        }
        if to == QpState::Reset {
            self.close_roce();
            self.act(|qp, out| self.core.function.flush_channel(qp.number(), out));
        }
        if matches!(to, QpState::Reset | QpState::Err) {
            RoceCm::disconnect(&self.core, self.number(), to == QpState::Reset);
        }
        if let Some(connection) = connection.filter(|_| to == QpState::Reset) {
            // Closed here, not only by the thread that serves it: the connection must be out of use when the queue pair is used again.
            let mut out = Outbox::new();
            connection.close(Vec::new(), &mut out);
            self.core.deliver(&mut out);
        }
        Ok(())
    }

    /// Posts one request; it is transmitted at once if possible.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.check()? == Gate::Faults {
            let one = core::slice::from_ref(wr);
            return self
                .post_faulty_sends(None, one)
                .map_err(|error| error.source);
        }
        self.qp.queue_send(wr)?;
        self.kick();
        Ok(())
    }

    /// Posts requests that are transmitted together. On error: how many were posted before the one that failed, and its error.
    pub fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        let gate = self.check();
        if gate.map_err(|source| PostSendError { posted: 0, source })? == Gate::Faults {
            return self.post_faulty_sends(None, wrs);
        }
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            self.qp
                .queue_send(wr)
                .err()
                .map(|source| PostSendError { posted: at, source })
        });
        self.kick();
        refused.map_or(Ok(()), Err)
    }

    /// The same for an XRC initiator: the requests are for the peer's shared receive queue with this number.
    pub fn post_sends_to(&self, srqn: Srqn, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        let gate = self.check();
        if gate.map_err(|source| PostSendError { posted: 0, source })? == Gate::Faults {
            return self.post_faulty_sends(Some(srqn), wrs);
        }
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            let posted = self.qp.queue_send_to(srqn, wr);
            posted
                .err()
                .map(|source| PostSendError { posted: at, source })
        });
        self.kick();
        refused.map_or(Ok(()), Err)
    }

    /// Posts a receive.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        if self.check()? == Gate::Faults {
            return self.post_faulty_receive(wr);
        }
        if self.qp.queue_receive(wr)? {
            self.act(Qp::ring_doorbell);
        }
        Ok(())
    }

    /// Connects; calls `done` with the peer's private data or the error.
    pub fn connect(
        &self,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.connect_from(None, to, private_data, done)
    }

    /// The same from this local address, if one is given.
    pub fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.check_connectable()?;
        self.core.check_connect_fault(self.numbers())?;
        from.map_or(Ok(()), |ip| self.core.check_owner((ip, 0).into(), Some(to)))?;
        let options = Options {
            source: from,
            ..self.options(private_data)
        };
        // A port of its own carries TCP only.
        let by_port = self.core.port.route(from, to.ip()).is_some();
        if self.core.config.wire_to(to.ip()) == Wire::Roce && !by_port {
            let qpn = self.roce_qpn()?;
            let limit = self.core.config.startup_timeout;
            return RoceCm::connect(&self.core, to, options, (qpn, limit), Box::new(done));
        }
        self.dial(to, options, Box::new(done))
    }

    /// Disconnects gracefully: the peer gets the responses it is owed and sees the end; our outstanding requests are flushed.
    /// An error if there is no connection; what was posted is flushed in any case.
    pub fn disconnect(&self) -> Result<(), Error> {
        if !self.core.is_alive() {
            return Err(Error::Closed);
        }
        let mut out = Outbox::new();
        let connection = self.slot.get();
        let last = self.qp.disconnect(&mut out);
        let by_roce = RoceCm::disconnect(&self.core, self.number(), false);
        let was_there = connection.is_some() || by_roce || self.slot.roce().is_some();
        if let (Some(connection), Some(last)) = (connection, last) {
            connection.close(last, &mut out);
            self.core.deliver(&mut out);
        } else {
            self.transmit_and_deliver(&mut out);
        }
        if was_there {
            return Ok(());
        }
        let (qp, state) = (self.number(), self.state());
        Err(Error::NotConnected { qp, state })
    }

    /// The peer has not confirmed yet that the connection has ended, or there is one: the event of its end follows. Only over RoCEv2.
    pub fn awaits_disconnect(&self) -> bool {
        RoceCm::has_qp(&self.core, self.number())
    }

    pub(crate) fn check_connectable(&self) -> Result<(), Error> {
        self.core.check()?;
        let state = self.state();
        let fresh = matches!(
            state,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts
        );
        if fresh && self.slot.get().is_none() && self.slot.roce().is_none() {
            return Ok(());
        }
        let qp = self.number();
        Err(Error::NotConnectable { qp, state })
    }

    pub(crate) fn options(&self, private_data: &[u8]) -> Options {
        Options {
            qp: self.qp.clone(),
            group: self.recv.group.clone(),
            slot: self.slot.clone(),
            private_data: private_data.to_vec(),
            attr: self.attr.clone(),
            source: None,
            oob_hello: None,
            proof_state: None,
        }
    }

    #[inline]
    fn check(&self) -> Result<Gate, PostError> {
        self.core.check_posts().map_err(PostError::State)
    }

    /// Makes a call on the queue pair, transmits what may be sent afterwards, and delivers the events.
    fn act<R>(&self, call: impl FnOnce(&Qp, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let result = call(&self.qp, &mut out);
        self.transmit_and_deliver(&mut out);
        result
    }

    fn transmit_and_deliver(&self, out: &mut Outbox) {
        if let Some(connection) = self.slot.get() {
            connection.send(out);
            connection.resume(out);
        } else if let Some(connection) = self.slot.roce() {
            connection.send(out);
        }
        self.core.deliver(out);
    }

    /// Requests were queued: transmits them, or leaves them to the thread that is transmitting.
    fn kick(&self) {
        self.recv.group.note_post();
        let mut out = Outbox::new();
        let connection = self.slot.get();
        if let Some(connection) = &connection {
            connection.send(&mut out);
        }
        // Also if the connection ended at this moment: then nothing else starts the timer for an absent peer.
        if connection.is_none()
            && let Some(roce) = self.slot.roce()
        {
            roce.send(&mut out);
        } else if !connection.is_some_and(|connection| connection.is_running()) {
            self.qp.ring_doorbell(&mut out);
            if let Some(callable) = &self.oob {
                callable.handshake().start_peer_timeout();
            }
        }
        self.core.deliver(&mut out);
        self.recv.group.await_reply();
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        // Withdrawn first: no call may be answered for a queue pair that is being destroyed.
        drop(self.oob.take());
        self.core.routes.remove_attr(self.qp.number());
        RoceCm::disconnect(&self.core, self.qp.number(), true);
        // While the queue pair still knows what it has executed; what the peer repeats is answered without it.
        self.close_roce();
        let mut out = Outbox::new();
        #[cfg(shuttle)]
        let found_before = self.slot.get();
        // Looked up after `destroy_qp`: a startup may have completed before it, and none does afterwards.
        let (last, connection) = {
            let _binding = self.slot.lock_binding();
            let last = self.core.function.destroy_qp(self.qp.number(), &mut out);
            (last, self.slot.get())
        };
        #[cfg(shuttle)]
        let connection = crate::sys::simulated::connection_to_close(found_before, connection);
        if let (Some(connection), Ok(last)) = (connection, last) {
            connection.close(last, &mut out);
        }
        // It may have been connected meanwhile.
        self.close_roce();
        self.core.deliver(&mut out);
    }
}
