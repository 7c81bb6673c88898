//! How a running connection gets its rings: both sides name a token in CAPS, the initiator takes the rings to the local socket that the
//! responder's token names (`crate::same_host`), and each side installs them. Until then, and if anything is missing, the stream stays on TCP.

use core::time::Duration;
use std::sync::Arc;

use verbena_nic::{MigrateRefusal, Outbox};
use verbena_stream::Role;
use verbena_sync::atomic::Ordering;

use super::rings::Rings;
use super::startup::is_same_host;
use super::{Bound, Connection};
use crate::config::Choice;
use crate::poll::watch::WatchedBy;
use crate::same_host::{Expected, NoRings, RingEnds, RingPermit, RingWaiter, Token};
use crate::stream_path::StreamPath;
use crate::sys;

/// How long a peer may take to return to the socket.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often that is checked.
const RETURN_CHECK: Duration = Duration::from_micros(50);

/// What a connection keeps until its rings are installed.
pub(super) struct ExpectedRings {
    /// What the peer finds when it comes with rings.
    expected: Expected,
    role: Role,
    permit: RingPermit,
}

impl Connection {
    /// The token of this side for CAPS, if the peer may be on this host and both are to use rings.
    pub(super) fn expect_rings(self: &Arc<Self>, role: Role, extensions: bool) -> Option<[u8; 16]> {
        let expected = self.try_expect_rings(role, extensions);
        expected.map_err(|why| self.set_no_rings(why)).ok()
    }

    fn try_expect_rings(
        self: &Arc<Self>,
        role: Role,
        extensions: bool,
    ) -> Result<[u8; 16], NoRings> {
        let config = &self.core.config;
        let is_refused = match config.same_host {
            Choice::Off => Some(NoRings::Off),
            _ if self.transport.separate_reader().is_some() => Some(NoRings::Itself),
            _ if self.transport.socket().line().is_some() => Some(NoRings::OtherAddress),
            _ if self.transport.has_tls() => Some(NoRings::Tls),
            _ if !extensions => Some(NoRings::NoExtensions),
            choice => {
                let local = is_same_host(self.transport.socket(), self.peer);
                (!choice.resolve(local)).then_some(NoRings::OtherAddress)
            }
        };
        if let Some(why) = is_refused {
            return Err(why);
        }
        let (same_host, most) = (&self.core.same_host, config.same_host_connections);
        let permit = same_host.permit(most).ok_or(NoRings::TooMany(most))?;
        let expected = same_host.expect(&self.core, self.own.clone())?;
        let token = expected.token().to_bytes();
        *self.expected_rings.lock() = Some(ExpectedRings {
            expected,
            role,
            permit,
        });
        self.awaits_token.store(true, Ordering::Release);
        Ok(token)
    }

    /// Tells queries why the stream is not in shared memory.
    pub(super) fn set_no_rings(&self, why: NoRings) {
        *self.no_rings.lock() = Some(why);
    }

    /// Once the peer's CAPS have arrived: the initiator takes the rings to the peer, and the responder accepts them.
    #[cold]
    pub(super) fn offer_rings(&self, bound: &Bound) {
        // A proxy on the way is there for a reason, and must not be bypassed.
        let direct = self.core.config.same_host != Choice::On;
        let Some(token) = bound.qp.peer_token(direct) else {
            return;
        };
        if !self.awaits_token.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut expected = self.expected_rings.lock();
        let offered = match (&*expected, token.map(Token::from_bytes)) {
            (Some(rings), Some(peer)) if rings.role == Role::Responder => {
                rings.expected.set_peer(&peer);
                Ok(())
            }
            (Some(rings), Some(peer)) => {
                let (core, own) = (&self.core, rings.expected.token());
                let bytes = core.same_host.ring_size(core.config.same_host_ring);
                core.same_host
                    .offer(core, &own, &peer, bytes, self.own.clone())
            }
            _ => Err(NoRings::NotOffered),
        };
        if let Err(why) = offered {
            *expected = None;
            self.set_no_rings(why);
        }
    }

    /// What carries the stream.
    pub(crate) fn path(&self) -> StreamPath {
        let known = *self.no_rings.lock();
        let why = match (self.transport.rings(), known) {
            (Some(rings), _) if rings.is_writing() => {
                return StreamPath::SharedMemory(rings.peer());
            }
            (_, Some(why)) => why,
            (Some(rings), None) if rings.has_ended() => NoRings::Returned,
            _ => self.core.same_host.pending(),
        };
        StreamPath::Tcp(Some(why.to_string()))
    }

    /// Returns the stream to its socket, which can be moved. Blocks until the peer has done the same.
    pub(crate) fn leave_rings(&self) -> Result<(), MigrateRefusal> {
        let deadline = sys::now() + RETURN_TIMEOUT;
        let offered = !self.awaits_token.swap(false, Ordering::AcqRel);
        // Rings that the peer has, or is about to have, are installed here soon; others are not any more.
        let mut awaited = match &*self.expected_rings.lock() {
            Some(rings) if rings.role == Role::Initiator => offered,
            Some(rings) => !rings.expected.cancel(),
            None => false,
        };
        loop {
            let mut out = Outbox::new();
            if let Some(rings) = self.transport.rings() {
                if rings.has_ended() {
                    return Ok(());
                }
                rings.ask_end();
                self.full_turn(&mut out);
                self.core.deliver(&mut out);
            } else {
                awaited &= self.expected_rings.lock().is_some();
                if !awaited {
                    return Ok(());
                }
            }
            if sys::now() >= deadline {
                return Err(MigrateRefusal::SharedMemory);
            }
            sys::sleep(RETURN_CHECK);
        }
    }

    /// A thread sleeps from now on, unless there is something to do.
    pub(super) fn prepare_ring_sleep(&self) {
        if let Some(rings) = self.transport.rings() {
            let wants_input = !self.watch.is_read_disabled();
            rings.prepare_sleep(wants_input, || self.watch.wants_room());
        }
    }
}

impl RingWaiter for Connection {
    fn rings_ready(self: Arc<Self>, mut ends: RingEnds) -> bool {
        let Some(bound) = self.bound.get() else {
            return false;
        };
        let mut out = Outbox::new();
        let watched = {
            // Under the lock: the connection may be leaving its group.
            let state = self.watch.lock();
            let running = state.watched_by == WatchedBy::Group;
            // Held until they are installed: a thread that moves the connection waits for one or the other.
            let mut expected = self.expected_rings.lock();
            match expected.take().filter(|_| running) {
                Some(rings) => {
                    let rings = Rings::new(ends, rings.role, rings.permit);
                    self.transport.install_rings(rings)
                        && bound.group.watch_doorbell(&*self).is_ok()
                }
                None => {
                    // An initiator's peer has them.
                    ends.tx.close();
                    false
                }
            }
        };
        if watched {
            self.full_turn(&mut out);
        } else if let Some(rings) = self.transport.rings() {
            // Nothing would wake this side.
            rings.abandon();
        }
        self.core.deliver(&mut out);
        watched
    }

    fn rings_failed(self: Arc<Self>, why: NoRings) {
        *self.expected_rings.lock() = None;
        self.set_no_rings(why);
        if let Some(rings) = self.transport.rings() {
            rings.abandon();
        }
    }
}
