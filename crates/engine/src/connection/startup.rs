//! The startup of a connection: TCP, TLS, then MPA of either side, then the stream of a queue pair.
//! `done` is called exactly once with the result, and the startup has a time limit. An incoming request waits for the program's
//! decision.

use core::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, Qp};
use verbena_stream::startup::Failure;
use verbena_stream::{Agreement, Endpoint, Terms, Time};
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use verbena_sync::locks::Mutex;
use verbena_sync::locks::OnceLock;
use verbena_wire::mpa::startup::MAX_PRIVATE_DATA;

use super::starting::{FollowUp, Side, Starting};
use super::turn::INITIAL_IMMEDIATE_ACKS;
use super::{Connection, Phase, Slot, Transport};
use crate::accept::acceptor::{ArrivalGuard, Permit};
use crate::capture::{self, StreamTap};
use crate::core::Core;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::notify::packet_addresses::PacketAddresses;
use crate::oob::hello::OobHello;
use crate::poll::group::Group;
use crate::poll::shard::next_token;
use crate::poll::watch::{Watch, WatchedBy};
use crate::security::key_auth::{AuthenticatedRequest, KeyAuth};
use crate::security::tls::Tls;
use crate::sys::{self, Interest, Socket};
use crate::verbs::queue_pair::QpAttr;

/// RFC 6581 §9.1: no IRD or ORD is requested.
const NO_DEPTH: u16 = 0x3fff;

/// What a queue pair contributes to a connection.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) qp: Arc<Qp>,
    pub(crate) group: Arc<Group>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) private_data: Vec<u8>,
    /// Shared with the program, which may change them at any time.
    pub(crate) attr: Arc<Mutex<QpAttr>>,
    /// The local address to connect from, if it matters.
    pub(crate) source: Option<IpAddr>,
    /// Identifies both ends of an out-of-band connection.
    pub(crate) oob_hello: Option<OobHello>,
    /// State of the authentication by a shared key, on connections by address.
    pub(crate) proof_state: Option<KeyAuth>,
}

impl Options {
    /// IRD and ORD for the startup.
    pub(crate) fn depths(&self, usual: (u16, u16)) -> (u16, u16) {
        let attrs = self.attr.lock();
        let ird = attrs.ird.unwrap_or(usual.0);
        match self.oob_hello {
            // The ORD is not known before the queue pair sends: the peer's limit and the program's decide then.
            Some(_) => (ird, NO_DEPTH),
            None => (ird, attrs.ord.unwrap_or(usual.1)),
        }
    }
}

/// Called with the result: the private data of the peer's startup frame.
pub(crate) type Done = Box<dyn FnOnce(Result<Vec<u8>, Error>) + Send>;

/// An incoming request that waits for the program's decision.
pub(crate) struct Decision {
    pub(crate) connection: Arc<Connection>,
    pub(crate) proposal: Agreement,
    /// The peer has proved that it has a shared key.
    pub(crate) verified_request: Option<AuthenticatedRequest>,
}

impl Connection {
    pub(super) fn new(
        core: &Arc<Core>,
        line: Transport,
        peer: SocketAddr,
        phase: Phase,
        startup: Time,
    ) -> Result<Arc<Connection>, Error> {
        if let Some(bytes) = core.config.buffers {
            line.socket().set_buffers(Some(bytes))?;
        }
        if line.separate_reader().is_none()
            && !core
                .config
                .pacing
                .resolve(!is_same_host(line.socket(), peer))
        {
            // Without permission the system's choice stays, which is slower but correct.
            let _ = line.socket().set_unpaced();
        }
        let shard = core.shards.pick()?;
        // Otherwise the stream is joined when it is bound, or when a capture is attached.
        if capture::is_attached()
            && let Phase::Starting(starting) = &phase
        {
            let is_initiator = !starting.is_accepted();
            line.tap(|| StreamTap::from_start(&core.tap, peer, is_initiator));
        }
        let connection = Arc::new_cyclic(|own: &Weak<Connection>| Connection {
            own: own.clone(),
            core: core.clone(),
            shard,
            token: next_token(),
            transport: line,
            peer,
            packet: PacketAddresses::new(),
            phase: Mutex::new(phase),
            bound: OnceLock::new(),
            early: AtomicBool::new(false),
            watch: Watch::new(WatchedBy::Shard),
            startup_deadline: startup,
            deferred: AtomicBool::new(false),
            immediate_acks: AtomicU32::new(INITIAL_IMMEDIATE_ACKS),
            polls: AtomicU32::new(0),
            liveness_armed: AtomicBool::new(false),
            sent_when_idle: AtomicU64::new(0),
            progress: Mutex::default(),
            flush_deadline: AtomicU64::new(0),
            nudge: AtomicU64::new(0),
            is_standard: AtomicBool::new(false),
            wake_time: AtomicU64::new(0),
            awaits_token: AtomicBool::new(false),
            expected_rings: Mutex::new(None),
            no_rings: Mutex::new(None),
        });
        if let Some(line) = connection.transport.socket().line() {
            line.set_owner(connection.own.clone());
        }
        Ok(connection)
    }

    /// Connects; `done` is called with the result.
    pub(crate) fn dial(
        core: &Arc<Core>,
        to: SocketAddr,
        mut options: Options,
        terms: Option<Terms>,
        done: Done,
    ) -> Result<(), Error> {
        let (got, limit) = (options.private_data.len(), MAX_PRIVATE_DATA);
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        let unreachable = |cause| Error::Unreachable { peer: to, cause };
        let tls = core.security.tls.as_ref().map(Tls::client).transpose();
        let tls = tls.map_err(|cause| Error::Tls { peer: to, cause })?;
        let class = options.attr.lock().traffic_class;
        let socket = if core.port.route(options.source, to.ip()).is_some() {
            core.port.open()?.connect(to, class)
        } else {
            Socket::connect(to, options.source, class)
        };
        let socket = socket.map_err(unreachable)?;
        let config = &core.config;
        let deadline = sys::now() + config.startup_timeout;
        let terms = terms.unwrap_or_else(|| {
            let terms = config.terms(
                config.expected_profile(to.ip()),
                core.security.has_integrity(&socket, to),
            );
            let (ird, ord) = options.depths((terms.ird, terms.ord));
            Terms { ird, ord, ..terms }
        });
        core.security.prove_request(&mut options, &terms)?;
        let done = Some(done);
        let side = Side::Dialled {
            terms,
            options,
            done,
        };
        let starting = Starting::new(side, None, deadline);
        Connection::begin(core, Transport::with_tls_session(socket, tls), to, starting)
    }

    /// A connection was accepted by a listener.
    pub(crate) fn start_accepted(
        core: &Arc<Core>,
        socket: Socket,
        peer: SocketAddr,
        arrived: ArrivalGuard,
        permit: Permit,
    ) -> Result<(), Error> {
        let config = &core.config;
        let terms = config.terms(
            config.expected_profile(peer.ip()),
            core.security.has_integrity(&socket, peer),
        );
        let tls = core.security.tls.as_ref().map(Tls::server).transpose();
        let tls = tls.map_err(|cause| Error::Tls { peer, cause })?;
        let now = sys::now();
        let deadline = now + config.startup_timeout;
        let side = Side::Accepted {
            arrived,
            options: None,
            presented: false,
            permit: Some(permit),
        };
        let endpoint = Endpoint::responder(terms, now);
        let starting = Starting::new(side, Some(endpoint), deadline);
        Connection::begin(
            core,
            Transport::with_tls_session(socket, tls),
            peer,
            starting,
        )
    }

    fn begin(
        core: &Arc<Core>,
        line: Transport,
        peer: SocketAddr,
        starting: Starting,
    ) -> Result<(), Error> {
        let deadline = starting.deadline();
        let phase = Phase::Starting(Box::new(starting));
        let connection = Connection::new(core, line, peer, phase, deadline)?;
        connection.register(deadline)?;
        connection.register_permit();
        Ok(())
    }

    fn register(self: &Arc<Self>, deadline: Time) -> Result<(), Error> {
        let interest = Interest {
            read: true,
            write: true,
            oneshot: true,
        };
        let socket = self.transport.socket();
        self.shard
            .serve_watched(self.token, self.clone(), socket, interest)?;
        self.shard.set_timer(deadline, self.token);
        Ok(())
    }

    pub(super) fn startup_ready(self: Arc<Self>) {
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.advance(&self.transport, self.peer),
            _ => return,
        };
        self.apply(after);
    }

    pub(super) fn startup_expired(self: Arc<Self>, now: Time) {
        let limit = self.core.config.startup_timeout;
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) if now >= starting.deadline() => {
                starting.expire(&self.transport, self.peer, limit, now)
            }
            Phase::Starting(starting) => {
                match starting.redial(self.transport.socket(), self.peer, now) {
                    Some(after) => after,
                    None => return,
                }
            }
            _ => return,
        };
        self.apply(after);
    }

    /// The engine stops: the connection ends and `done` is called.
    pub(super) fn startup_stopped(self: Arc<Self>) {
        let done = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.take_done(),
            _ => None,
        };
        let mut out = Outbox::new();
        if let Some(bound) = self.bound.get()
            && bound.slot.holds(&self)
        {
            // Outstanding and future requests must not wait forever.
            bound.qp.handle_eof(true, &mut out);
        }
        self.finish(&mut out);
        self.core.deliver(&mut out);
        if let Some(done) = done {
            catch_panic(|| done(Err(self.core.lifecycle.closed_error())));
        }
    }

    /// Accepts the request.
    pub(crate) fn accept(self: Arc<Self>, options: Options, done: Done) -> Result<(), Error> {
        let (got, limit) = (options.private_data.len(), MAX_PRIVATE_DATA);
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        let class = options.attr.lock().traffic_class;
        if let Some(class) = class {
            let socket = self.transport.socket();
            socket.set_traffic_class(class, self.peer.ip())?;
        }
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) if starting.awaits_decision() => {
                starting.accept(options, done);
                starting.advance(&self.transport, self.peer)
            }
            _ => return Err(self.no_request_error()),
        };
        self.apply(after);
        Ok(())
    }

    /// Why there is no request to accept: the peer left, unless the adapter is closed.
    fn no_request_error(&self) -> Error {
        if !self.core.is_alive() {
            return Error::Closed;
        }
        Error::Startup {
            peer: self.peer,
            cause: Failure::Closed,
        }
    }

    /// Rejects the request.
    pub(crate) fn reject(self: Arc<Self>, private_data: &[u8]) {
        if !self.core.is_alive() {
            return;
        }
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => {
                starting.reject(private_data);
                starting.advance(&self.transport, self.peer)
            }
            _ => return,
        };
        self.apply(after);
    }

    pub(super) fn apply(self: Arc<Self>, after: FollowUp) {
        match after {
            FollowUp::Nothing => {
                let interest = Interest {
                    read: true,
                    write: self.has_unsent(),
                    oneshot: true,
                };
                // If it cannot be watched, the startup times out.
                let _ = self
                    .shard
                    .arm(self.transport.socket(), self.token, interest);
            }
            // Not watched in the meantime: a refused socket is always ready.
            FollowUp::Redial(when) => self.shard.set_timer(when, self.token),
            FollowUp::Decide(listener, number, proposal) => {
                // Still watched: a peer that disconnects before the decision must be noticed.
                let _ = self
                    .shard
                    .arm(self.transport.socket(), self.token, Interest::READ_ONCE);
                let connection = self.clone();
                match listener.upgrade() {
                    Some(listener) => {
                        let decision = Decision {
                            connection,
                            proposal,
                            verified_request: None,
                        };
                        listener.complete_request(number, decision);
                    }
                    None => connection.reject(&[]),
                }
            }
            FollowUp::Run(parts, done, early) => {
                let (mut agreement, mut options) = *parts;
                let proven = self.check_reply(&mut agreement, &mut options);
                let result = proven.and_then(|()| self.run_stream(&agreement, options, early));
                if let Err(error) = &result {
                    self.give_up(error);
                }
                if let Some(done) = done {
                    catch_panic(|| done(result.map(|()| agreement.private_data)));
                }
            }
            FollowUp::End(error, done) => {
                self.report_refusal(&error);
                self.give_up(&error);
                if let Some(done) = done {
                    catch_panic(|| done(Err(error)));
                }
            }
            FollowUp::Retry(parts, done) => {
                let (options, terms) = *parts;
                let peer = self.peer;
                self.give_up(&Error::Closed);
                let Some(done) = done else {
                    return;
                };
                let shared = Arc::new(Mutex::new(Some(done)));
                let ours = shared.clone();
                let report: Done = Box::new(move |result| {
                    let done = ours.lock().take();
                    if let Some(done) = done {
                        done(result);
                    }
                });
                let dialled = Connection::dial(&self.core, peer, options, Some(terms), report);
                if let Err(error) = dialled {
                    let done = shared.lock().take();
                    if let Some(done) = done {
                        catch_panic(|| done(Err(error)));
                    }
                }
            }
        }
    }

    /// The request waits for the program's decision.
    pub(crate) fn awaits_decision(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Starting(s) if s.awaits_decision())
    }

    fn has_unsent(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Starting(s) if s.has_unsent(&self.transport))
    }

    /// The startup ended without a stream; a frame sent before may still be delivered.
    fn give_up(self: &Arc<Self>, error: &Error) {
        let mut out = Outbox::new();
        match error {
            // The refusal must reach the peer.
            Error::Rejected { .. } | Error::Startup { .. } | Error::Tls { .. } => {
                self.close(Vec::new(), &mut out);
            }
            _ => self.abort(&mut out),
        }
        self.core.deliver(&mut out);
    }
}

/// The peer is on this host.
pub(super) fn is_same_host(socket: &Socket, peer: SocketAddr) -> bool {
    peer.ip().is_loopback() || socket.is_same_host()
}
