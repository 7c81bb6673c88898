//! Accepts connections at a listening address; each request waits for the program's decision, or goes to the out-of-band calls.
//! Startups in progress are limited over all listeners and shared between source addresses ([`permits`]); waiting requests are
//! limited per listener.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::{Mutex, RwLock};
use verbena_wire::ext::DialReject;

use crate::accept::request::{Request, RequestRef};
use crate::connection::{Connection, Decision};
use crate::core::Core;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::notify::Notify;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::port::{Port, PortAcceptor};
use crate::sys::{self, Channel, Interest, Listener, Ready, Socket};

mod handover;
mod order;
mod permits;

use order::Order;
pub(crate) use permits::{Permit, Permits};

/// Connections accepted in one turn.
const ACCEPT_BATCH: usize = 64;
/// Pause after `accept` fails, as for lack of descriptors: an immediate retry would fail again.
const PAUSE: core::time::Duration = core::time::Duration::from_millis(100);

/// The position of a connection in the order of arrival at a listener; removed on drop.
pub(crate) struct ArrivalGuard {
    pub(crate) acceptor: Weak<Acceptor>,
    pub(crate) number: u64,
}

impl Drop for ArrivalGuard {
    fn drop(&mut self) {
        if let Some(this) = self.acceptor.upgrade() {
            this.remove_startup(self.number);
        }
    }
}

/// A listening address.
pub(crate) struct Acceptor {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    listener: Listener,
    /// The port of its own that it listens on as well, and where.
    port: Option<(Arc<Port>, SocketAddr)>,
    sink: RequestSink,
    order: Mutex<Order<Request>>,
    /// Locked while a connection is accepted; true while none is.
    paused: Mutex<bool>,
    /// Another process listens on the same socket.
    handed_over: AtomicBool,
}

/// The result of one `accept`.
enum AcceptOutcome {
    /// No connection waits, or none may be accepted.
    None,
    Accepted,
    /// A connection was accepted, and this one has to end for it.
    Displaces(Weak<Connection>),
}

/// The recipient of requests.
enum RequestSink {
    /// A program, which decides about each of them.
    Program(Arc<PendingRequests>),
    /// Queue pairs of out-of-band connections.
    Oob,
}

/// Requests that wait for the program's decision.
pub(crate) struct PendingRequests {
    backlog: usize,
    requests: Mutex<VecDeque<Request>>,
    pub(crate) channel: Channel,
    /// Also notified of a request.
    pub(crate) notify: RwLock<Option<Arc<dyn Notify>>>,
}

impl PendingRequests {
    /// Queues a request and signals the channel; returns it if the backlog is full.
    fn add(&self, request: Request) -> Result<(), Request> {
        let mut requests = self.requests.lock();
        if requests.len() >= self.backlog {
            return Err(request);
        }
        requests.push_back(request);
        drop(requests);
        self.channel.ring();
        Ok(())
    }

    /// If the backlog is full, removes the requests of peers that have disconnected.
    fn make_room(&self) {
        let requests = self.requests.lock();
        if requests.len() < self.backlog {
            return;
        }
        let mut gone: Vec<RequestRef> = requests.iter().map(Request::downgrade).collect();
        drop(requests);
        gone.retain(|one| !one.awaits_decision());
        let is_gone = |one: &Request| gone.iter().any(|other| other.is_same(&one.downgrade()));
        let mut requests = self.requests.lock();
        let before = requests.len();
        requests.retain(|one| !is_gone(one));
        for _ in requests.len()..before {
            // Signals are alike: if this one is of another request, the thread that took the signal of the removed one gets that request. If
            // there is none, that thread finds no request and treats that as a spurious wake-up.
            self.channel.try_take();
        }
    }

    /// Calls the additional notification.
    fn notify(&self) {
        let callback = self.notify.read().clone();
        if let Some(callback) = callback {
            catch_panic(|| callback.notify());
        }
    }

    /// The adapter has ended: waiting threads are woken for good.
    pub(crate) fn end(&self) {
        self.channel.ring_forever();
        self.notify();
    }

    /// The oldest waiting request; the caller has taken its signal.
    pub(crate) fn next(&self) -> Option<Request> {
        self.requests.lock().pop_front()
    }

    /// The oldest waiting request, with a signal if there is one. Signals are alike, so it need not be that of this request: the thread that
    /// adds a request signals afterwards, and a thread in [`Listening::next`](crate::Listening::next) may have taken the signal before. A
    /// signal without a request is left over, and taken here.
    pub(crate) fn try_next(&self) -> Option<Request> {
        let mut requests = self.requests.lock();
        let oldest = requests.pop_front();
        self.channel.try_take();
        oldest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.lock().is_empty()
    }

    fn take_all(&self) -> VecDeque<Request> {
        core::mem::take(&mut *self.requests.lock())
    }
}

impl Acceptor {
    /// A listener for a program; at most `backlog` requests wait for its decision.
    pub(crate) fn open(
        core: &Arc<Core>,
        listener: Listener,
        backlog: usize,
    ) -> Result<(Arc<Acceptor>, Arc<PendingRequests>), Error> {
        let waiting = Arc::new(PendingRequests {
            backlog,
            requests: Mutex::default(),
            channel: Channel::new()?,
            notify: RwLock::default(),
        });
        listener.listen()?;
        let this = Acceptor::new(core, listener, RequestSink::Program(waiting.clone()))?;
        let mut acceptors = core.admission.pending_requests.lock();
        acceptors.retain(|one| one.strong_count() > 0);
        acceptors.push(Arc::downgrade(&waiting));
        drop(acceptors);
        // The engine may have ended the waits before this listener was added.
        core.check_waits()?;
        Ok((this, waiting))
    }

    /// A listener for out-of-band connections.
    pub(crate) fn for_oob(core: &Arc<Core>, listener: Listener) -> Result<Arc<Acceptor>, Error> {
        Acceptor::new(core, listener, RequestSink::Oob)
    }

    fn new(
        core: &Arc<Core>,
        listener: Listener,
        sink: RequestSink,
    ) -> Result<Arc<Acceptor>, Error> {
        let at = listener.local_addr()?;
        let port = match &sink {
            RequestSink::Program(_) => core.port.for_listener(at.ip())?,
            RequestSink::Oob => None,
        };
        let this = Arc::new(Acceptor {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            listener,
            port: port.map(|port| (port, at)),
            sink,
            order: Mutex::default(),
            paused: Mutex::new(false),
            handed_over: AtomicBool::new(false),
        });
        let once = Interest::READ_ONCE;
        this.shard
            .serve_watched(this.token, this.clone(), &this.listener, once)?;
        if let Some((port, at)) = &this.port {
            let acceptor: Weak<Acceptor> = Arc::downgrade(&this);
            let listening = port.listen(*at, this.token, acceptor);
            listening.inspect_err(|_| this.shard.forget(this.token))?;
        }
        Ok(this)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.core.is_alive()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.core.check()
    }

    pub(crate) fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }

    /// The request with this number is complete.
    pub(crate) fn complete_request(&self, number: u64, mut decision: Decision) {
        match &self.sink {
            RequestSink::Program(_) if !self.core.security.check_request(&mut decision) => {
                decision.connection.reject(&DialReject::KeyMismatch.emit());
            }
            RequestSink::Program(waiting) => {
                // A request whose startup has ended meanwhile is dropped.
                let request = Request::Tcp(decision);
                let _ = self.order.lock().complete(number, request);
                self.present_requests(waiting);
            }
            RequestSink::Oob => {
                let held = self
                    .core
                    .oob
                    .requests
                    .handle_request(&self.core.config, decision);
                if let Some(until) = held {
                    self.shard.set_timer(until, self.token);
                }
            }
        }
    }

    /// A request that was complete when it arrived: it waits for those of its peer that arrived before.
    pub(crate) fn add_complete(&self, peer: IpAddr, request: Request) {
        let RequestSink::Program(waiting) = &self.sink else {
            return;
        };
        {
            let mut order = self.order.lock();
            let number = order.add(peer);
            // It was added just now.
            let _ = order.complete(number, request);
        }
        self.present_requests(waiting);
    }

    /// Shows the program the requests that are next in order.
    fn present_requests(&self, waiting: &PendingRequests) {
        waiting.make_room();
        let mut order = self.order.lock();
        let (turn, again) = order.release(sys::now());
        // Under the lock: another shard must not change the order.
        let added: Vec<_> = turn.into_iter().map(|one| waiting.add(one)).collect();
        drop(order);
        if let Some(when) = again {
            self.shard.set_timer(when, self.token);
        }
        for one in added {
            match one {
                Ok(()) => waiting.notify(),
                Err(request) => request.reject(&[]),
            }
        }
    }

    /// The startup with this number is over.
    fn remove_startup(&self, number: u64) {
        let (unseen, missed) = self.order.lock().remove(number);
        drop(unseen);
        if missed {
            // Left to the shard: the caller may hold locks that a callback of the program takes.
            self.shard.set_timer(sys::now(), self.token);
        }
    }

    pub(crate) fn close(&self) {
        self.shard.unwatch(&self.listener);
        if let Some((port, at)) = &self.port {
            port.unlisten(*at, self.token);
        }
        if !self.handed_over.load(Ordering::Acquire) {
            self.listener.shutdown();
        }
        self.shard.forget(self.token);
        if let RequestSink::Program(waiting) = &self.sink {
            let unseen = self.order.lock().take_all();
            for request in waiting.take_all().into_iter().chain(unseen) {
                request.reject(&[]);
            }
        }
    }

    fn admit(self: &Arc<Self>) -> Result<(), sys::Error> {
        for _ in 0..ACCEPT_BATCH {
            match self.admit_one()? {
                AcceptOutcome::None => break,
                AcceptOutcome::Accepted => {}
                // At once, so that the limit is kept, and without any lock.
                AcceptOutcome::Displaces(elder) => {
                    if let Some(elder) = elder.upgrade() {
                        elder.displace();
                    }
                }
            }
        }
        Ok(())
    }

    fn next_connection(&self) -> Result<Option<(Socket, SocketAddr)>, sys::Error> {
        let of_port = |(port, at): &(Arc<Port>, SocketAddr)| port.accept(*at, self.token);
        match self.port.as_ref().and_then(of_port) {
            Some(accepted) => Ok(Some(accepted)),
            None => self.listener.accept(),
        }
    }

    fn admit_one(self: &Arc<Self>) -> Result<AcceptOutcome, sys::Error> {
        let paused = self.paused.lock();
        if *paused {
            return Ok(AcceptOutcome::None);
        }
        let Some((socket, peer)) = self.next_connection()? else {
            return Ok(AcceptOutcome::None);
        };
        // V2: a listener on all addresses includes those that a rule gives to another device.
        let ours = |at| self.core.check_owner(at, Some(peer)).is_ok();
        if self.core.is_closing()
            || !self.core.security.access.admits(peer.ip())
            || !socket.local_addr().is_ok_and(ours)
        {
            socket.abort();
            return Ok(AcceptOutcome::Accepted);
        }
        let Some((permit, elder)) = self.core.admission.half_open.take(peer.ip()) else {
            socket.abort();
            return Ok(AcceptOutcome::Accepted);
        };
        let arrived = ArrivalGuard {
            acceptor: Arc::downgrade(self),
            number: self.order.lock().add(peer.ip()),
        };
        // If it fails, the socket is closed by its drop.
        let _ = Connection::start_accepted(&self.core, socket, peer, arrived, permit);
        Ok(elder.map_or(AcceptOutcome::Accepted, AcceptOutcome::Displaces))
    }

    fn arm(&self) {
        if *self.paused.lock() {
            return;
        }
        let _ = self
            .shard
            .arm(&self.listener, self.token, Interest::READ_ONCE);
    }
}

impl PortAcceptor for Acceptor {
    fn connections_wait(self: Arc<Self>) {
        // Those for which there are no descriptors wait for the next one.
        let _ = self.admit();
    }
}

impl ShardTask for Acceptor {
    fn ready(self: Arc<Self>, _: Ready) {
        match self.admit() {
            // Out of descriptors or memory.
            Err(_) => self.shard.set_timer(sys::now() + PAUSE, self.token),
            Ok(()) => self.arm(),
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        match &self.sink {
            RequestSink::Program(waiting) => self.present_requests(waiting),
            RequestSink::Oob => self.core.oob.requests.expire(now),
        }
        if self.port.is_some() {
            self.clone().connections_wait();
        }
        self.arm();
    }

    fn stop(self: Arc<Self>) {
        // The requests cannot be answered any more; their connections are closed.
        match &self.sink {
            RequestSink::Program(waiting) => {
                let unseen = self.order.lock().take_all();
                drop((waiting.take_all(), unseen));
            }
            RequestSink::Oob => self.core.oob.requests.stop(),
        }
    }
}

impl core::fmt::Debug for PendingRequests {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PendingRequests").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}
