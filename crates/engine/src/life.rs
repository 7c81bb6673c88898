//! One life of a queue pair that is connected by hand: whom it expects, whether it calls or is called, and when it gives up.
//! It promises one connection at most: of two calls that cross, the one of the lower number goes first, and both sides
//! know which that is. It refuses to end by itself while its program may still want it: an unreachable peer is called again.
//!
//! | stage | left when | for |
//! |---|---|---|
//! | nobody expected | the program names its peer | waiting |
//! | waiting | our turn to call has come | calling |
//! | waiting, calling | the peer calls, and goes first | joined |
//! | calling | the peer answers | joined |
//! | calling | the peer refuses, or cannot be reached | waiting, for longer each time |
//! | joined | the peer did not prove who it is | waiting |
//! | any | the program empties the queue pair | nobody expected, with another nonce |
//! | any | the engine ends | over |

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

/// Whom a queue pair expects.
#[derive(Clone)]
pub(crate) struct Expected {
    /// The address of ours that the peer was told.
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) number: Qpn,
    pub(crate) options: Options,
}

/// What becomes of a call.
pub(crate) enum Verdict {
    Accept(Box<Options>, Introduction),
    /// The queue pair is not ready yet.
    Hold,
    Refuse(NoAnswer),
}

/// A queue pair that can be called.
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
    /// Chosen anew with every life.
    nonce: u64,
    expected: Option<Expected>,
    stage: Stage,
    /// How long to wait before the next call.
    wait: Duration,
    /// When that is; a life has one such time at most, however often it began.
    calls_at: Option<Time>,
    /// Since when requests wait for a peer that is not there.
    missed: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody is expected, or somebody who calls first.
    Waiting,
    /// Our call is on its way.
    Calling,
    /// A connection is there, or was: a life has one.
    Joined,
    /// The engine has ended: nobody calls or answers any more.
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

    /// Whatever was begun ends, and nothing begins any more.
    pub(crate) fn end(&self) {
        self.shard.forget(self.token);
        let mut state = self.state.lock();
        self.call_never(&mut state);
        let expected = state.expected.take();
        // No connection was begun in a life of this name.
        state.nonce = state.nonce.wrapping_add(1);
        drop(state);
        drop(expected);
    }

    /// A new life: whoever was expected is not any more.
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

    /// Somebody is expected.
    pub(crate) fn is_expecting(&self) -> bool {
        self.state.lock().expected.is_some()
    }

    /// The program named its peer.
    pub(crate) fn expect(&self, expected: Expected) {
        let delay = if self.calls_first(&expected) {
            Duration::ZERO
        } else {
            // It should call us; but the program may have named another address than the peer uses.
            self.config().dial_delay
        };
        let mut state = self.state.lock();
        let before = state.expected.replace(expected);
        self.call_at(&mut state, sys::now() + delay);
        drop(state);
        drop(before);
    }

    /// The peer is called at this time and no other, if it can be called at all.
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

    /// Of two calls that cross, ours goes first.
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
            // A live stream is never replaced.
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

    /// The startup of a connection that was begun in the life with this nonce is over: `begin` begins its stream, if that
    /// is still wanted. No other life begins meanwhile, so that a stream never gets into one that is not its own.
    pub(crate) fn join<R>(
        &self,
        nonce: u64,
        called: bool,
        begin: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut state = self.state.lock();
        let lives = state.nonce == nonce && state.expected.is_some() && state.stage != Stage::Over;
        // A call that was answered has joined already, and ours comes too late if one was.
        if !lives || (state.stage == Stage::Calling) != called {
            return Err(Error::Closed);
        }
        let begun = begin()?;
        state.stage = Stage::Joined;
        self.call_never(&mut state);
        Ok(begun)
    }

    /// A connection that was begun in the life with this nonce is over: the peer is called again if it has not proven
    /// who it is, or never was there.
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

    /// Calls the peer if it is time to, unless that is not wanted any more.
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

    /// Nothing came of our call.
    fn unanswered(&self, nonce: u64) {
        let mut state = self.state.lock();
        // Else the peer's call was answered meanwhile, or a new life began.
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
        // Work that waits for a peer must not wait for ever.
        self.miss_peer();
    }
}

/// The 16 bytes that name an address.
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
