//! The startup of a connection: TCP, TLS, then MPA of either side, then the stream of a queue pair.
//! `done` is called exactly once with the result, and the startup has a time limit. An incoming request waits for the program's
//! decision.

use core::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbena_nic::{Outbox, Qp};
use verbena_stream::startup::Failure;
use verbena_stream::{Agreement, Endpoint, Terms, Time};
use verbena_wire::mpa::startup::MAX_PRIVATE_DATA;

use super::starting::{After, Side, Starting};
use super::turn::PROBATION;
use super::{Connection, Line, Phase, Slot};
use crate::core::Core;
use crate::door::{Arrived, Permit};
use crate::error::Error;
use crate::group::Group;
use crate::introduction::Introduction;
use crate::keyed::{Proven, Proving};
use crate::pipeline::shield;
use crate::queue_pair::Manners;
use crate::shard::next_token;
use crate::sys::{self, Interest, Socket};
use crate::tls::Tls;
use crate::watch::{By, Watch};

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
    pub(crate) manners: Arc<Mutex<Manners>>,
    /// The local address to connect from, if it matters.
    pub(crate) source: Option<IpAddr>,
    /// Identifies both ends of an out-of-band connection.
    pub(crate) introduction: Option<Introduction>,
    /// State of the authentication by a shared key, on connections by address.
    pub(crate) proving: Option<Proving>,
}

impl Options {
    /// IRD and ORD for the startup.
    pub(super) fn depths(&self, usual: (u16, u16)) -> (u16, u16) {
        let manners = self.manners.lock();
        let ird = manners.ird.unwrap_or(usual.0);
        match self.introduction {
            // The ORD is not known before the queue pair sends: the peer's limit and the program's decide then.
            Some(_) => (ird, NO_DEPTH),
            None => (ird, manners.ord.unwrap_or(usual.1)),
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
    pub(crate) proven: Option<Proven>,
}

impl Connection {
    pub(super) fn new(
        core: &Arc<Core>,
        line: Line,
        peer: SocketAddr,
        phase: Phase,
        startup: Time,
    ) -> Result<Arc<Connection>, Error> {
        if let Some(bytes) = core.config.buffers {
            line.socket().set_buffers(Some(bytes))?;
        }
        if line.other().is_none() && !core.config.pacing.or(!same_host(line.socket(), peer)) {
            // Without permission the system's choice stays, which is slower but correct.
            let _ = line.socket().set_unpaced();
        }
        Ok(Arc::new(Connection {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            line,
            peer,
            phase: Mutex::new(phase),
            bound: OnceLock::new(),
            early: AtomicBool::new(false),
            watch: Watch::new(By::Shard),
            startup,
            deferred: AtomicBool::new(false),
            distrust: AtomicU32::new(PROBATION),
            polls: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            progress: Mutex::default(),
            last_moment: AtomicU64::new(0),
            nudge: AtomicU64::new(0),
            is_standard: AtomicBool::new(false),
            due: AtomicU64::new(0),
        }))
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
        let tls = core.tls.as_ref().map(Tls::client).transpose();
        let tls = tls.map_err(|cause| Error::Tls { peer: to, cause })?;
        let class = options.manners.lock().traffic_class;
        let socket = Socket::connect(to, options.source, class).map_err(unreachable)?;
        let config = &core.config;
        let deadline = sys::now() + config.startup_timeout;
        let terms = terms.unwrap_or_else(|| {
            let terms = config.terms(config.expected(to.ip()), core.is_safe(&socket, to));
            let (ird, ord) = options.depths((terms.ird, terms.ord));
            Terms { ird, ord, ..terms }
        });
        core.prove_request(&mut options, &terms)?;
        let done = Some(done);
        let side = Side::Dialled {
            terms,
            options,
            done,
        };
        let starting = Starting::new(side, None, deadline);
        Connection::begin(core, Line::secured(socket, tls), to, starting)
    }

    /// A connection was accepted by a listener.
    pub(crate) fn came(
        core: &Arc<Core>,
        socket: Socket,
        peer: SocketAddr,
        arrived: Arrived,
        permit: Permit,
    ) -> Result<(), Error> {
        let config = &core.config;
        let terms = config.terms(config.expected(peer.ip()), core.is_safe(&socket, peer));
        let tls = core.tls.as_ref().map(Tls::server).transpose();
        let tls = tls.map_err(|cause| Error::Tls { peer, cause })?;
        let now = sys::now();
        let deadline = now + config.startup_timeout;
        let side = Side::Came {
            arrived,
            options: None,
            told: false,
            permit: Some(permit),
        };
        let endpoint = Endpoint::responder(terms, now);
        let starting = Starting::new(side, Some(endpoint), deadline);
        Connection::begin(core, Line::secured(socket, tls), peer, starting)
    }

    fn begin(
        core: &Arc<Core>,
        line: Line,
        peer: SocketAddr,
        starting: Starting,
    ) -> Result<(), Error> {
        let deadline = starting.deadline();
        let phase = Phase::Starting(Box::new(starting));
        let connection = Connection::new(core, line, peer, phase, deadline)?;
        connection.wait(deadline)?;
        connection.show_permit();
        Ok(())
    }

    fn wait(self: &Arc<Self>, deadline: Time) -> Result<(), Error> {
        self.shard.serve(self.token, self.clone())?;
        let interest = Interest {
            read: true,
            write: true,
            oneshot: true,
        };
        let watched = self.shard.watch(self.line.socket(), self.token, interest);
        if let Err(error) = watched {
            self.shard.forget(self.token);
            return Err(error.into());
        }
        self.shard.at(deadline, self.token);
        Ok(())
    }

    pub(super) fn startup_ready(self: Arc<Self>) {
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.advance(&self.line, self.peer),
            _ => return,
        };
        self.go_on(after);
    }

    pub(super) fn startup_expired(self: Arc<Self>, now: Time) {
        let limit = self.core.config.startup_timeout;
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) if now >= starting.deadline() => {
                starting.expire(&self.line, self.peer, limit, now)
            }
            Phase::Starting(starting) => {
                match starting.redial(self.line.socket(), self.peer, now) {
                    Some(after) => after,
                    None => return,
                }
            }
            _ => return,
        };
        self.go_on(after);
    }

    /// The engine stops: the connection ends and `done` is called.
    pub(super) fn startup_stopped(self: Arc<Self>) {
        let done = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.take_done(),
            _ => None,
        };
        let mut out = Outbox::new();
        if let Some(bound) = self.bound.get()
            && bound.slot.is(&self)
        {
            // Outstanding and future requests must not wait forever.
            bound.qp.handle_eof(true, &mut out);
        }
        self.finish(&mut out);
        self.core.deliver(&mut out);
        if let Some(done) = done {
            shield(|| done(Err(self.core.closed())));
        }
    }

    /// Accepts the request.
    pub(crate) fn accept(self: Arc<Self>, options: Options, done: Done) -> Result<(), Error> {
        let (got, limit) = (options.private_data.len(), MAX_PRIVATE_DATA);
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        let class = options.manners.lock().traffic_class;
        if let Some(class) = class {
            let socket = self.line.socket();
            socket.set_traffic_class(class, self.peer.ip())?;
        }
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) if starting.is_asking() => {
                starting.accept(options, done);
                starting.advance(&self.line, self.peer)
            }
            _ => return Err(self.why_no_request()),
        };
        self.go_on(after);
        Ok(())
    }

    /// Why there is no request to accept: the peer left, unless the adapter is closed.
    fn why_no_request(&self) -> Error {
        if !self.core.lives() {
            return Error::Closed;
        }
        Error::Startup {
            peer: self.peer,
            cause: Failure::Closed,
        }
    }

    /// Rejects the request.
    pub(crate) fn reject(self: Arc<Self>, private_data: &[u8]) {
        if !self.core.lives() {
            return;
        }
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => {
                starting.reject(private_data);
                starting.advance(&self.line, self.peer)
            }
            _ => return,
        };
        self.go_on(after);
    }

    pub(super) fn go_on(self: Arc<Self>, after: After) {
        match after {
            After::Nothing => {
                let interest = Interest {
                    read: true,
                    write: self.has_unsent(),
                    oneshot: true,
                };
                // If it cannot be watched, the startup times out.
                let _ = self.shard.arm(self.line.socket(), self.token, interest);
            }
            // Not watched in the meantime: a refused socket is always ready.
            After::Redial(when) => self.shard.at(when, self.token),
            After::Decide(door, number, proposal) => {
                // Still watched: a peer that disconnects before the decision must be noticed.
                let _ = self
                    .shard
                    .arm(self.line.socket(), self.token, Interest::READ_ONCE);
                let connection = self.clone();
                match door.upgrade() {
                    Some(door) => {
                        let decision = Decision {
                            connection,
                            proposal,
                            proven: None,
                        };
                        door.tell(number, decision);
                    }
                    None => connection.reject(&[]),
                }
            }
            After::Run(parts, done, early) => {
                let (mut agreement, mut options) = *parts;
                let proven = self.check_reply(&mut agreement, &mut options);
                let result = proven.and_then(|()| self.run_stream(&agreement, options, early));
                if let Err(error) = &result {
                    self.give_up(error);
                }
                if let Some(done) = done {
                    shield(|| done(result.map(|()| agreement.private_data)));
                }
            }
            After::End(error, done) => {
                self.tell_refusal(&error);
                self.give_up(&error);
                if let Some(done) = done {
                    shield(|| done(Err(error)));
                }
            }
            After::Again(parts, done) => {
                let (options, terms) = *parts;
                let peer = self.peer;
                self.give_up(&Error::Closed);
                let Some(done) = done else {
                    return;
                };
                let shared = Arc::new(Mutex::new(Some(done)));
                let ours = shared.clone();
                let told: Done = Box::new(move |result| {
                    let done = ours.lock().take();
                    if let Some(done) = done {
                        done(result);
                    }
                });
                let dialled = Connection::dial(&self.core, peer, options, Some(terms), told);
                if let Err(error) = dialled {
                    let done = shared.lock().take();
                    if let Some(done) = done {
                        shield(|| done(Err(error)));
                    }
                }
            }
        }
    }

    /// The request waits for the program's decision.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Starting(s) if s.is_asking())
    }

    fn has_unsent(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Starting(s) if s.has_unsent(&self.line))
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
pub(super) fn same_host(socket: &Socket, peer: SocketAddr) -> bool {
    peer.ip().is_loopback() || socket.same_host()
}
