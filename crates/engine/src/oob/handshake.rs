//! The connection state of a queue pair that is connected out of band: which peer it expects, which side calls, and when it retries.
//! A *life* lasts from one reset of the queue pair to the next and is named by a random nonce. It has one connection at most: of two
//! calls that cross, the one with the lower (number, GID) wins, on both sides alike. An unreachable peer is called again, with backoff.
//!
//! | stage | event | next stage |
//! |---|---|---|
//! | no peer expected | the program names its peer | waiting |
//! | waiting | the time to call has come | calling |
//! | waiting, calling | the peer calls, and its call wins | joined |
//! | waiting, calling | the peer may be an adapter, and its first packet arrives, or requests wait for it | over RoCEv2 |
//! | calling | the peer says that it uses RoCEv2 | over RoCEv2 |
//! | calling | the peer answers | joined |
//! | calling | the peer refuses, or cannot be reached | waiting, with backoff |
//! | joined | the connection ends without a stream: the peer proved no key | waiting |
//! | any | the program resets the queue pair | no peer expected, with another nonce |
//! | any | the engine shuts down | over |

mod peer_timeout;
mod roce_peer;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_nic::QpType;
use verbena_stream::Time;
use verbena_sync::locks::Mutex;
use verbena_wire::ext::dial::NO_PROOF;
use verbena_wire::ext::{DialReject, DialRequest};
use verbena_wire::number::Qpn;

use crate::config::Config;
use crate::connection::{Connection, Done, Options};
use crate::core::Core;
use crate::datagram::roce_demux::PacketHandler;
use crate::error::Error;
use crate::oob::auth;
use crate::oob::hello::{OobHello, OobRole};
use crate::oob::qpn::{is_callable, port_and_index};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::security::access::RefusedBy;
use crate::security::keys::Keys;
use crate::sys::{self, Ready};

/// The peer that a queue pair expects.
#[derive(Clone)]
pub(crate) struct ExpectedPeer {
    /// Our address as the peer was told.
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) number: Qpn,
    pub(crate) options: Options,
}

/// The result of an incoming call.
pub(crate) enum Verdict {
    Accept(Box<Options>, OobHello),
    /// The queue pair expects no peer yet: the call is kept.
    Hold,
    Refuse(DialReject),
}

/// A queue pair that peers can call by number.
pub(crate) struct OobHandshake {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    number: Qpn,
    qp_type: QpType,
    state: Mutex<State>,
    this: Weak<OobHandshake>,
}

struct State {
    /// Chosen anew for every life.
    nonce: u64,
    expected: Option<ExpectedPeer>,
    stage: Stage,
    /// The current backoff interval.
    backoff: Duration,
    /// The time of the next call; at most one timer is set.
    next_call: Option<Time>,
    /// Since when requests have waited for an absent peer.
    waiting_since: Option<Time>,
    /// Since when the peer has been expected.
    expected_since: Option<Time>,
    /// From when on requests may take RoCEv2; none if the peer has not refused over TCP.
    roce_from: Option<Time>,
    /// Packets of RoCEv2 come here while no wire is chosen.
    first_packet: Option<PacketRoute>,
}

/// Packets of RoCEv2 for a number go to this handler while this exists, unless another one has taken its place.
struct PacketRoute {
    core: Arc<Core>,
    number: Qpn,
    handler: Arc<dyn PacketHandler>,
}

impl PacketRoute {
    fn new(core: &Arc<Core>, number: Qpn, handler: Arc<dyn PacketHandler>) -> PacketRoute {
        let demux = &core.routes.roce_demux;
        demux.add(number, Arc::downgrade(&handler));
        let core = core.clone();
        PacketRoute {
            core,
            number,
            handler,
        }
    }
}

impl Drop for PacketRoute {
    fn drop(&mut self) {
        let handler = Arc::downgrade(&self.handler);
        let demux = &self.core.routes.roce_demux;
        demux.remove_handler(self.number, &handler);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No peer is expected, or the peer calls first, or the next call is scheduled.
    Waiting,
    /// Our call is in progress.
    Calling,
    /// A connection exists or existed: a life has one.
    Connected,
    /// The connection is over RoCEv2.
    Roce,
    /// The engine shuts down: no calls are made or answered.
    Closed,
}

impl State {
    fn new(nonce: u64, config: &Config) -> State {
        State {
            nonce,
            expected: None,
            stage: Stage::Waiting,
            backoff: config.redial_min,
            next_call: None,
            waiting_since: None,
            expected_since: None,
            roce_from: None,
            first_packet: None,
        }
    }
}

impl OobHandshake {
    pub(crate) fn new(
        core: &Arc<Core>,
        number: Qpn,
        qp_type: QpType,
    ) -> Result<Arc<OobHandshake>, Error> {
        let (shard, nonce) = (core.shards.pick()?, sys::random_u64()?);
        let handshake = Arc::new_cyclic(|this| OobHandshake {
            core: core.clone(),
            shard,
            token: next_token(),
            number,
            qp_type,
            state: Mutex::new(State::new(nonce, &core.config)),
            this: this.clone(),
        });
        handshake.shard.serve(handshake.token, handshake.clone())?;
        Ok(handshake)
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.core.security.keys
    }

    fn config(&self) -> &Config {
        &self.core.config
    }

    /// Stops calling and forgets the expected peer; startups in progress fail in [`join`](OobHandshake::join).
    pub(crate) fn end(&self) {
        self.shard.forget(self.token);
        let mut state = self.state.lock();
        self.cancel_call(&mut state);
        let gone = (state.expected.take(), state.first_packet.take());
        // No connection was begun under this nonce.
        state.nonce = state.nonce.wrapping_add(1);
        drop(state);
        drop(gone);
    }

    /// Begins a new life: with no expected peer and a new nonce.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let mut fresh = State::new(sys::random_u64()?, self.config());
        let mut state = self.state.lock();
        self.cancel_call(&mut state);
        if state.stage == Stage::Closed {
            fresh.stage = Stage::Closed;
        }
        let before = core::mem::replace(&mut *state, fresh);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Whether a call can be answered.
    pub(crate) fn has_peer(&self) -> bool {
        let state = self.state.lock();
        state.expected.is_some() || state.stage == Stage::Roce
    }

    /// Sets the expected peer and schedules the first call.
    pub(crate) fn set_peer(&self, expected: ExpectedPeer) {
        let delay = if self.has_call_priority(&expected) {
            Duration::ZERO
        } else {
            // The peer should call; but it may use another address than the program named, so this side calls after a delay.
            self.config().dial_delay
        };
        let now = sys::now();
        let mut state = self.state.lock();
        let before = state.expected.replace(expected);
        state.expected_since = Some(now);
        self.schedule_call(&mut state, now + delay);
        drop(state);
        drop(before);
        self.expect_roce(now);
    }

    /// Schedules the next call at this time, replacing any other, if the peer's number is callable.
    fn schedule_call(&self, state: &mut State, when: Time) {
        self.cancel_call(state);
        let peer = state.expected.as_ref().map(|e| e.number);
        if peer.is_some_and(is_callable) {
            state.next_call = Some(when);
            self.shard.set_timer(when, self.token);
        }
    }

    fn cancel_call(&self, state: &mut State) {
        if let Some(when) = state.next_call.take() {
            self.shard.cancel_timer(when, self.token);
        }
    }

    /// Whether our call wins if both sides call.
    fn has_call_priority(&self, expected: &ExpectedPeer) -> bool {
        let ours = (self.number.get(), gid(expected.local));
        let theirs = (expected.number.get(), gid(expected.peer));
        ours <= theirs
    }

    pub(crate) fn check_call(&self, call: &DialRequest, source: IpAddr) -> Verdict {
        let config = self.config();
        let Some(key) = auth::call_proven_by(&self.core.security.keys, call) else {
            self.core.security.access.refuse(source, RefusedBy::Key);
            return Verdict::Refuse(DialReject::KeyMismatch);
        };
        let mut state = self.state.lock();
        let Some(expected) = &state.expected else {
            return match state.stage {
                Stage::Roce => Verdict::Refuse(DialReject::OtherWire),
                _ => Verdict::Hold,
            };
        };
        let from_there =
            !config.check_source || source.to_canonical() == expected.peer.to_canonical();
        if call.from != expected.number || call.gid != gid(expected.peer) || !from_there {
            return Verdict::Refuse(DialReject::WrongPeer);
        }
        if call.qp_type != self.qp_type.peer() {
            return Verdict::Refuse(DialReject::WrongService);
        }
        if state.stage == Stage::Closed || !expected.options.qp.state().receives() {
            return Verdict::Refuse(DialReject::Unknown);
        }
        if state.stage == Stage::Roce {
            return Verdict::Refuse(DialReject::OtherWire);
        }
        let ours_first = state.stage == Stage::Calling && self.has_call_priority(expected);
        if state.stage == Stage::Connected || ours_first {
            // An existing stream is never replaced.
            return Verdict::Refuse(DialReject::InUse);
        }
        let mut options = expected.options.clone();
        let answer = auth::sign_answer(key, call, state.nonce);
        options.private_data = answer.emit().to_vec();
        let demands = auth::caller_nonce(key, call, state.nonce);
        let introduction = OobHello::new(
            &self.this,
            state.nonce,
            OobRole::Responder {
                required_nonce: demands,
            },
        );
        options.oob_hello = Some(introduction.clone());
        state.stage = Stage::Connected;
        state.first_packet = None;
        self.cancel_call(&mut state);
        Verdict::Accept(Box::new(options), introduction)
    }

    /// The startup of a connection of the life with this nonce is complete: `begin` starts its stream, if the life is still current.
    /// The lock is held over `begin`, so that a stream is never started in another life than its own.
    pub(crate) fn join<R>(
        &self,
        nonce: u64,
        called: bool,
        begin: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut state = self.state.lock();
        let handshakes =
            state.nonce == nonce && state.expected.is_some() && state.stage != Stage::Closed;
        // For an answered call the stage is Joined already; ours is too late if the peer's call was answered.
        if !handshakes || (state.stage == Stage::Calling) != called {
            return Err(Error::Closed);
        }
        let begun = begin()?;
        state.stage = Stage::Connected;
        state.first_packet = None;
        self.cancel_call(&mut state);
        Ok(begun)
    }

    /// A connection of the life with this nonce has ended: the peer is called again if the connection never became a stream, as
    /// when the key was not proven.
    pub(crate) fn disconnected(&self, nonce: u64) {
        let mut state = self.state.lock();
        let Some(expected) = &state.expected else {
            return;
        };
        let qp = &expected.options.qp;
        let is_decided = matches!(state.stage, Stage::Closed | Stage::Roce);
        if state.nonce != nonce || is_decided || qp.has_stream() {
            return;
        }
        let waits = qp.outstanding().0 > 0;
        state.stage = Stage::Waiting;
        self.schedule_retry(&mut state);
        if waits {
            self.arm_peer_timeout(&mut state);
        }
    }

    fn schedule_retry(&self, state: &mut State) {
        let wait = state.backoff;
        state.backoff = (wait * 2).min(self.config().redial_max);
        self.schedule_call(state, sys::now() + wait);
    }

    /// Calls the peer if the scheduled time has come and the queue pair still wants it.
    fn call(&self, now: Time) {
        let mut state = self.state.lock();
        if state.next_call.is_none_or(|when| now < when) {
            return;
        }
        state.next_call = None;
        let wanted = |e: &ExpectedPeer| e.options.qp.state().receives();
        let expected = state.expected.clone();
        let Some(expected) = expected.filter(|e| state.stage == Stage::Waiting && wanted(e)) else {
            return;
        };
        state.stage = Stage::Calling;
        let nonce = state.nonce;
        drop(state);
        let mut options = expected.options;
        let to = SocketAddr::new(expected.peer, port_and_index(expected.number).0);
        let begun = if self.is_self(expected.number, expected.peer) {
            options.oob_hello = Some(OobHello::new(&self.this, nonce, OobRole::Loopback));
            Connection::loopback(&self.core, to, options)
        } else {
            let call = DialRequest {
                qp_type: self.qp_type,
                from: self.number,
                to: expected.number,
                gid: gid(expected.local),
                nonce,
                proof: NO_PROOF,
            };
            let call = Box::new(auth::sign_call(self.core.security.keys.first(), call));
            options.private_data = call.emit().to_vec();
            options.source = Some(expected.local);
            options.oob_hello = Some(OobHello::new(&self.this, nonce, OobRole::Caller(call)));
            let handshake = self.this.clone();
            let done: Done = Box::new(move |result| {
                if let (Some(handshake), Err(error)) = (handshake.upgrade(), result) {
                    handshake.call_failed(nonce, &error);
                }
            });
            Connection::dial(&self.core, to, options, None, done)
        };
        if let Err(error) = begun {
            self.call_failed(nonce, &error);
        }
    }

    fn is_self(&self, number: Qpn, ip: IpAddr) -> bool {
        let ours = self.core.local_addresses.all();
        number == self.number && ours.is_ok_and(|ours| ours.contains(&ip))
    }

    /// Our call failed.
    fn call_failed(&self, nonce: u64, error: &Error) {
        let mut state = self.state.lock();
        // Otherwise the peer's call was answered meanwhile, or a new life began.
        if state.nonce == nonce && state.stage == Stage::Calling {
            state.stage = Stage::Waiting;
            self.schedule_retry(&mut state);
            drop(state);
            self.try_roce(nonce, error);
        }
    }
}

impl ShardTask for OobHandshake {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        self.check_peer_timeout(now);
        self.call(now);
    }

    fn stop(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.stage = Stage::Closed;
        state.first_packet = None;
        drop(state);
        // Requests that wait for a peer must not wait for ever.
        self.start_peer_timeout();
    }
}

/// The GID of an address.
pub(crate) fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl core::fmt::Debug for OobHandshake {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OobHandshake")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
