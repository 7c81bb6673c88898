//! The connection state of a queue pair that is connected out of band: which peer it expects, which side calls, and when it retries.
//! A *life* lasts from one reset of the queue pair to the next and is named by a random nonce. It has one connection at most: of two
//! calls that cross, the one with the lower (number, GID) wins, on both sides alike. An unreachable peer is called again, with backoff.
//!
//! | stage | event | next stage |
//! |---|---|---|
//! | no peer expected | the program names its peer | waiting |
//! | waiting | the time to call has come | calling |
//! | waiting, calling | the peer calls, and its call wins | joined |
//! | calling | the peer answers | joined |
//! | calling | the peer refuses, or cannot be reached | waiting, with backoff |
//! | joined | the connection ends without a stream: the peer proved no key | waiting |
//! | any | the program resets the queue pair | no peer expected, with another nonce |
//! | any | the engine shuts down | over |

mod absence;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use verbena_nic::QpType;
use verbena_stream::Time;
use verbena_wire::ext::dial::NO_PROOF;
use verbena_wire::ext::{Call, NoAnswer};
use verbena_wire::number::Qpn;

use crate::access::RefusedBy;
use crate::config::Config;
use crate::connection::{Connection, Done, Options};
use crate::core::Core;
use crate::error::Error;
use crate::introduction::{Introduction, Words};
use crate::keys::Keys;
use crate::numbers::{is_callable, parts};
use crate::proof;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Ready};

/// The peer that a queue pair expects.
#[derive(Clone)]
pub(crate) struct Expected {
    /// Our address as the peer was told.
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) number: Qpn,
    pub(crate) options: Options,
}

/// The result of an incoming call.
pub(crate) enum Verdict {
    Accept(Box<Options>, Introduction),
    /// The queue pair expects no peer yet: the call is kept.
    Hold,
    Refuse(NoAnswer),
}

/// A queue pair that peers can call by number.
pub(crate) struct Life {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    number: Qpn,
    qp_type: QpType,
    state: Mutex<State>,
    this: Weak<Life>,
}

struct State {
    /// Chosen anew for every life.
    nonce: u64,
    expected: Option<Expected>,
    stage: Stage,
    /// The current backoff interval.
    wait: Duration,
    /// The time of the next call; at most one timer is set.
    calls_at: Option<Time>,
    /// Since when requests have waited for an absent peer.
    missed: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No peer is expected, or the peer calls first, or the next call is scheduled.
    Waiting,
    /// Our call is in progress.
    Calling,
    /// A connection exists or existed: a life has one.
    Joined,
    /// The engine shuts down: no calls are made or answered.
    Over,
}

impl State {
    fn new(nonce: u64, config: &Config) -> State {
        State {
            nonce,
            expected: None,
            stage: Stage::Waiting,
            wait: config.redial_min,
            calls_at: None,
            missed: None,
        }
    }
}

impl Life {
    pub(crate) fn new(core: &Arc<Core>, number: Qpn, qp_type: QpType) -> Result<Arc<Life>, Error> {
        let (shard, nonce) = (core.shards.pick()?, sys::random_u64()?);
        let life = Arc::new_cyclic(|this| Life {
            core: core.clone(),
            shard,
            token: next_token(),
            number,
            qp_type,
            state: Mutex::new(State::new(nonce, &core.config)),
            this: this.clone(),
        });
        life.shard.serve(life.token, life.clone())?;
        Ok(life)
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.core.keys
    }

    fn config(&self) -> &Config {
        &self.core.config
    }

    /// Stops calling and forgets the expected peer; startups in progress fail in [`join`](Life::join).
    pub(crate) fn end(&self) {
        self.shard.forget(self.token);
        let mut state = self.state.lock();
        self.call_never(&mut state);
        let expected = state.expected.take();
        // No connection was begun under this nonce.
        state.nonce = state.nonce.wrapping_add(1);
        drop(state);
        drop(expected);
    }

    /// Begins a new life: with no expected peer and a new nonce.
    pub(crate) fn begin_anew(&self) -> Result<(), Error> {
        let mut fresh = State::new(sys::random_u64()?, self.config());
        let mut state = self.state.lock();
        self.call_never(&mut state);
        if state.stage == Stage::Over {
            fresh.stage = Stage::Over;
        }
        let before = core::mem::replace(&mut *state, fresh);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Whether a peer is expected.
    pub(crate) fn is_expecting(&self) -> bool {
        self.state.lock().expected.is_some()
    }

    /// Sets the expected peer and schedules the first call.
    pub(crate) fn expect(&self, expected: Expected) {
        let delay = if self.calls_first(&expected) {
            Duration::ZERO
        } else {
            // The peer should call; but it may use another address than the program named, so this side calls after a delay.
            self.config().dial_delay
        };
        let mut state = self.state.lock();
        let before = state.expected.replace(expected);
        self.call_at(&mut state, sys::now() + delay);
        drop(state);
        drop(before);
    }

    /// Schedules the next call at this time, replacing any other, if the peer's number is callable.
    fn call_at(&self, state: &mut State, when: Time) {
        self.call_never(state);
        let peer = state.expected.as_ref().map(|e| e.number);
        if peer.is_some_and(is_callable) {
            state.calls_at = Some(when);
            self.shard.at(when, self.token);
        }
    }

    fn call_never(&self, state: &mut State) {
        if let Some(when) = state.calls_at.take() {
            self.shard.not_at(when, self.token);
        }
    }

    /// Whether our call wins if both sides call.
    fn calls_first(&self, expected: &Expected) -> bool {
        let ours = (self.number.get(), gid(expected.local));
        let theirs = (expected.number.get(), gid(expected.peer));
        ours <= theirs
    }

    pub(crate) fn judge(&self, call: &Call, source: IpAddr) -> Verdict {
        let config = self.config();
        let Some(key) = proof::call_proven_by(&self.core.keys, call) else {
            self.core.access.refuse(source, RefusedBy::Key);
            return Verdict::Refuse(NoAnswer::Key);
        };
        let mut state = self.state.lock();
        let Some(expected) = &state.expected else {
            return Verdict::Hold;
        };
        let from_there =
            !config.check_source || source.to_canonical() == expected.peer.to_canonical();
        if call.from != expected.number || call.gid != gid(expected.peer) || !from_there {
            return Verdict::Refuse(NoAnswer::Stranger);
        }
        if call.qp_type != self.qp_type {
            return Verdict::Refuse(NoAnswer::Service);
        }
        if state.stage == Stage::Over || !expected.options.qp.state().receives() {
            return Verdict::Refuse(NoAnswer::Unknown);
        }
        let ours_first = state.stage == Stage::Calling && self.calls_first(expected);
        if state.stage == Stage::Joined || ours_first {
            // An existing stream is never replaced.
            return Verdict::Refuse(NoAnswer::Taken);
        }
        let mut options = expected.options.clone();
        let answer = proof::sign_answer(key, call, state.nonce);
        options.private_data = answer.emit().to_vec();
        let demands = proof::last_word(key, call, state.nonce);
        let introduction = Introduction::new(&self.this, state.nonce, Words::Answered { demands });
        options.introduction = Some(introduction.clone());
        state.stage = Stage::Joined;
        self.call_never(&mut state);
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
        let lives = state.nonce == nonce && state.expected.is_some() && state.stage != Stage::Over;
        // For an answered call the stage is Joined already; ours is too late if the peer's call was answered.
        if !lives || (state.stage == Stage::Calling) != called {
            return Err(Error::Closed);
        }
        let begun = begin()?;
        state.stage = Stage::Joined;
        self.call_never(&mut state);
        Ok(begun)
    }

    /// A connection of the life with this nonce has ended: the peer is called again if the connection never became a stream, as
    /// when the key was not proven.
    pub(crate) fn parted(&self, nonce: u64) {
        let mut state = self.state.lock();
        let Some(expected) = &state.expected else {
            return;
        };
        let qp = &expected.options.qp;
        if state.nonce != nonce || state.stage == Stage::Over || qp.has_stream() {
            return;
        }
        let waits = qp.outstanding().0 > 0;
        state.stage = Stage::Waiting;
        self.call_later(&mut state);
        if waits {
            self.miss(&mut state);
        }
    }

    fn call_later(&self, state: &mut State) {
        let wait = state.wait;
        state.wait = (wait * 2).min(self.config().redial_max);
        self.call_at(state, sys::now() + wait);
    }

    /// Calls the peer if the scheduled time has come and the queue pair still wants it.
    fn call(&self, now: Time) {
        let mut state = self.state.lock();
        if state.calls_at.is_none_or(|when| now < when) {
            return;
        }
        state.calls_at = None;
        let wanted = |e: &Expected| e.options.qp.state().receives();
        let expected = state.expected.clone();
        let Some(expected) = expected.filter(|e| state.stage == Stage::Waiting && wanted(e)) else {
            return;
        };
        state.stage = Stage::Calling;
        let nonce = state.nonce;
        drop(state);
        let mut options = expected.options;
        let to = SocketAddr::new(expected.peer, parts(expected.number).0);
        let begun = if self.is_itself(expected.number, expected.peer) {
            options.introduction = Some(Introduction::new(&self.this, nonce, Words::Itself));
            Connection::to_itself(&self.core, to, options)
        } else {
            let call = Call {
                qp_type: self.qp_type,
                from: self.number,
                to: expected.number,
                gid: gid(expected.local),
                nonce,
                proof: NO_PROOF,
            };
            let call = Box::new(proof::sign_call(self.core.keys.first(), call));
            options.private_data = call.emit().to_vec();
            options.source = Some(expected.local);
            options.introduction = Some(Introduction::new(&self.this, nonce, Words::Called(call)));
            let life = self.this.clone();
            let done: Done = Box::new(move |result| {
                if let Some(life) = life.upgrade().filter(|_| result.is_err()) {
                    life.unanswered(nonce);
                }
            });
            Connection::dial(&self.core, to, options, None, done)
        };
        if begun.is_err() {
            self.unanswered(nonce);
        }
    }

    fn is_itself(&self, number: Qpn, ip: IpAddr) -> bool {
        let ours = self.core.addresses();
        number == self.number && ours.is_ok_and(|ours| ours.contains(&ip))
    }

    /// Our call failed.
    fn unanswered(&self, nonce: u64) {
        let mut state = self.state.lock();
        // Otherwise the peer's call was answered meanwhile, or a new life began.
        if state.nonce == nonce && state.stage == Stage::Calling {
            state.stage = Stage::Waiting;
            self.call_later(&mut state);
        }
    }
}

impl Served for Life {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        self.give_up(now);
        self.call(now);
    }

    fn stop(self: Arc<Self>) {
        self.state.lock().stage = Stage::Over;
        // Requests that wait for a peer must not wait for ever.
        self.miss_peer();
    }
}

/// The GID of an address.
pub(crate) fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl core::fmt::Debug for Life {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Life")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
