//! Attaches a stream with the agreed parameters to the queue pair at the end of the startup.
//! On an out-of-band connection the peer must authenticate itself before the stream is used. Bytes received with the startup are the first
//! input of the stream. Nothing here blocks.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use verbena_nic::{Outbox, QpState, QpType};
use verbena_stream::startup::Rtr;
use verbena_stream::{Agreement, Role, Settings, Stream};
use verbena_sync::atomic::Ordering;
use verbena_wire::ext::{Caps, Features};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::mpa::{mulpdu, pad_len};

use super::transport::Transport;
use super::{Bound, Connection, Options, Phase};
use crate::capture::{self, StreamTap};
use crate::core::Core;
use crate::error::Error;
use crate::notify::failure_log;
use crate::security::key_auth::KeyAuth;
use crate::sys::{self, Socket};

/// The longest ULPDU without padding: a message of 64 KiB takes one such frame and a short one that is read along with it.
const LARGE: u16 = u16::MAX - 1;
const _: () = assert!(pad_len(LARGE) == 0);

impl Connection {
    /// A queue pair connected to itself: a pair of sockets, without a startup.
    pub(crate) fn loopback(
        core: &Arc<Core>,
        peer: SocketAddr,
        options: Options,
    ) -> Result<(), Error> {
        let (write, read) = Socket::pair()?;
        let line = Transport::new(write, Some(read));
        let phase = Phase::Running { early: Vec::new() };
        let connection = Connection::new(core, line, peer, phase, sys::now())?;
        let depth = options.attr.lock().ird.unwrap_or(core.config.ird);
        let agreement = Agreement {
            role: Role::Initiator,
            revision: Revision::Two,
            crc: false,
            markers_tx: false,
            markers_rx: false,
            ird: depth,
            ord: depth,
            rtr: Rtr::Caps,
            extensions: true,
            private_data: Vec::new(),
        };
        connection
            .shard
            .serve(connection.token, connection.clone())?;
        let joined = connection.run_stream(&agreement, options, Vec::new());
        if joined.is_err() {
            let mut out = Outbox::new();
            connection.abort(&mut out);
            core.deliver(&mut out);
        }
        joined
    }

    /// The startup succeeded: the stream of the queue pair begins.
    pub(super) fn run_stream(
        self: &Arc<Self>,
        agreement: &Agreement,
        options: Options,
        early: Vec<u8>,
    ) -> Result<(), Error> {
        let config = &self.core.config;
        let met = config.negotiated_profile(
            config.expected_profile(self.peer.ip()),
            agreement.extensions,
        );
        let rfc7306 = config.supports_rfc7306(met);
        let introduction = options.oob_hello;
        let nonces = introduction
            .as_ref()
            .map(|introduction| introduction.verify_answer(agreement, self.peer))
            .transpose()?;
        let by_key = match options.proof_state {
            Some(KeyAuth::Agreed(nonces)) => Some(nonces),
            _ => None,
        };
        let nonce = match nonces.as_ref().or(by_key.as_ref()) {
            Some(nonces) => nonces.local,
            None => sys::random_u64()?,
        };
        let qp = options.qp;
        let init = qp.init();
        if init.qp_type.is_xrc() && !agreement.extensions {
            let reason = "the peer has no XRC: it is not Verbena, or its extensions are off";
            return Err(verbena_nic::Error::Xrc(reason).into());
        }
        let mut out = Outbox::new();
        if qp.state() == QpState::Reset && nonces.is_none() {
            // Refused if its state has changed meanwhile: attaching the stream decides.
            let _ = qp.modify(QpState::Init, &mut out);
        }
        let attrs = {
            // Under the lock, so that a later change by the program is not overwritten.
            let attrs = options.attr.lock();
            attrs.apply(&qp, &options.slot, &mut out);
            *attrs
        };
        let same_host = self.expect_rings(agreement.role, agreement.extensions);
        let rings = same_host.map_or(Features::NONE, |_| Features::RINGS);
        let takes_segments = self.takes_segments();
        let large = config.large_fpdus(met) && !takes_segments;
        let aligned = if takes_segments {
            Features::ALIGNED
        } else {
            Features::NONE
        };
        let settings = Settings {
            max_ulpdu: self.max_ulpdu(large, agreement.markers_tx),
            rfc7306,
            rnr_retry: attrs.rnr_retry,
            drop_overlong: init.qp_type == QpType::Uc,
            caps: Caps {
                version: Caps::VERSION,
                max_ulpdu: u16::MAX,
                features: Features::READ_V2
                    | Features::SEND_IMM
                    | Features::CLOSING_ACK
                    | Features::MEMORY_PLACEMENT
                    | rings
                    | aligned,
                personality: init.personality,
                qp_type: init.qp_type,
                min_rnr_timer: attrs.rnr_timer,
                ird: agreement.ird,
                nonce,
                same_host,
                path: self.transport.socket().path_digest(),
            },
        };
        if !agreement.extensions && settings.max_ulpdu != LARGE {
            self.transport.socket().end_segments();
        }
        let early = self.take_over_line(early, agreement.markers_tx)?;
        let mut stream = Stream::new(agreement, settings);
        stream.set_ack_policy(config.ack_policy());
        let role = introduction.clone();
        let (group, slot) = (options.group, options.slot);
        let binding = slot.clone();
        let demanded = nonces.as_ref().map(|nonces| nonces.required);
        // In one step: a thread that ends the connection, or the `OobHandshake` that wants it, finds all of this or nothing.
        let begin = || {
            let mut phase = self.phase.lock();
            if !matches!(*phase, Phase::Starting(_) | Phase::Running { .. }) {
                return Err(Error::Closed);
            }
            let _binding = binding.lock_binding();
            let attached = match (demanded, by_key) {
                (Some(nonce), _) => qp.attach_unauthenticated(stream, nonce, &mut out),
                (None, Some(key)) => {
                    qp.attach_requiring_nonce(stream, rfc7306, key.required, &mut out)
                }
                (None, None) => qp.attach(stream, rfc7306, &mut out),
            };
            if !attached {
                let (qp, state) = (qp.number(), qp.state());
                return Err(Error::NotConnectable { qp, state });
            }
            Ok(self.bind(
                &mut phase,
                Bound {
                    qp,
                    group,
                    slot,
                    oob_hello: introduction,
                },
                early,
            ))
        };
        let (bound, starting) = match role {
            Some(introduction) => introduction.join(begin)?,
            None => begin()?,
        };
        // Dropped without the lock: it may own a callback of the program.
        drop(starting);
        #[cfg(shuttle)]
        if !bound.qp.has_stream() {
            sys::simulated::Case::BoundAfterDestroy.count();
        }
        // TCP keep-alive detects a dead peer while no request is outstanding.
        let _ = self.transport.socket().set_keepalive(config.keep_alive);
        if nonces.is_none() && by_key.is_none() {
            // A peer that has to authenticate itself has the rest of the startup timeout for it.
            self.shard.cancel_timer(self.startup_deadline, self.token);
        }
        self.is_standard
            .store(!agreement.extensions, Ordering::Release);
        let waits = match (agreement.role, agreement.rtr) {
            _ if agreement.extensions => Duration::ZERO,
            (Role::Initiator, _) => config.nudge,
            // Without peer-to-peer mode the initiator may be waiting for a first message.
            (Role::Responder, Rtr::None) => config.speak_first,
            (Role::Responder, _) => Duration::ZERO,
        };
        if !waits.is_zero() {
            let when = sys::now() + waits;
            self.nudge.store(when.nanos(), Ordering::Release);
            self.shard.set_timer(when, self.token);
        }
        let watched = self.watch_by_group(bound);
        self.start_segments(&mut out);
        // Closes the connection if the queue pair was destroyed or reset before it could find this connection.
        self.full_turn(&mut out);
        self.core.deliver(&mut out);
        Ok(watched?)
    }

    /// The queue pair has the stream: from here on it runs on this line. Returns the phase before.
    pub(super) fn bind(
        self: &Arc<Self>,
        phase: &mut Phase,
        bound: Bound,
        early: Vec<u8>,
    ) -> (&Bound, Phase) {
        // Called once per connection, so `bound` is empty.
        let bound = self.bound.get_or_init(|| bound);
        if capture::is_attached() {
            self.join_capture_with(bound, &early);
        }
        self.early.store(!early.is_empty(), Ordering::Release);
        self.transport.open();
        self.core.routes.add_connection(bound.qp.number(), self);
        let numbers = (bound.qp.number(), bound.qp.init().wc_qpn);
        failure_log::connected(&self.core, numbers, self.peer, "tcp");
        bound.slot.set(self);
        let before = core::mem::replace(phase, Phase::Running { early });
        (bound, before)
    }

    /// A capture has begun: its frames are captured from the next one on in each direction.
    pub(crate) fn join_capture(&self) {
        // As long as it is locked no early bytes are processed.
        let phase = self.phase.lock();
        if let (Phase::Running { early }, Some(bound)) = (&*phase, self.bound.get()) {
            self.join_capture_with(bound, early);
        }
    }

    fn join_capture_with(&self, bound: &Bound, early: &[u8]) {
        // A queue pair that is its own peer would be captured as both sides of one connection.
        if self.transport.separate_reader().is_some() {
            return;
        }
        let (tap, qp) = (&self.core.tap, &bound.qp);
        let stream = self.transport.tap(|| StreamTap::unknown(tap, self.peer));
        qp.with_frame_starts(|starts| stream.join((qp.number(), qp.init().wc_qpn), &starts, early));
    }

    /// RFC 5044 §4.5: a full frame is one TCP segment, and needs no pad. Linux's siw mishandles a trailer that is split over
    /// two segments.
    fn max_ulpdu(&self, large: bool, markers: bool) -> u16 {
        if large {
            return LARGE;
        }
        let mss = self.transport.socket().mss().unwrap_or(1460);
        mulpdu(mss as usize, markers).min(LARGE)
    }
}
