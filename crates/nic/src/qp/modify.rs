//! State changes of a queue pair: by its program, by its connection manager, and by the end of the connection.
//! A change that is not allowed leaves everything as it was. Connections are opened and closed elsewhere; `wants_close` says when one
//! may be closed.

use verbena_events::event::{Event, Outbox};
use verbena_stream::Stream;
use verbena_wire::ext::Caps;
use verbena_wire::number::Psn;
use verbena_wire::rdmap::{Cause, RdmapError};

use super::QpInit;
use super::attributes::Authentication;
use super::failure::FailureKind;
use super::inner::Inner;
use super::link_state::{LinkAct, LinkEvent};
use super::wire::Wire;
use crate::state::{Personality, QpEvent, QpState, QpType, TransitionError};

/// By the program and the connection manager.
impl Inner {
    pub(super) fn modify(
        &mut self,
        init: &QpInit,
        to: QpState,
        out: &mut Outbox,
    ) -> Result<(), TransitionError> {
        let next = self.state.next(init.personality, QpEvent::Modify(to));
        let Some(next) = next.filter(|_| !self.link.is_retired()) else {
            return Err(TransitionError {
                number: init.number,
                from: self.state,
                to,
            });
        };
        match next {
            QpState::Err => {
                self.close_roce_responder();
                self.cause.record(FailureKind::Requested, || {
                    "requested by the consumer".to_owned()
                });
                // InfiniBand: the peer is not notified; its requests that need an answer time out.
                if init.personality == Personality::Iwarp {
                    self.abort();
                }
                self.state = QpState::Err;
                self.flush(init, out);
            }
            QpState::Reset => {
                // An unauthenticated stream ends without a message.
                let parting = match self.authentication {
                    Authentication::Expected(_) => Vec::new(),
                    _ => self.take_final_bytes(init),
                };
                self.return_receives(init, out);
                self.reset();
                self.transmit.end(parting);
                // Under the lock, where nothing else can complete work of this queue pair.
                init.remove_completions();
            }
            // RDMAC: a graceful close needs an empty send queue.
            QpState::Closing if !self.sends.is_empty() => {
                self.cause.record(FailureKind::ClosedBusy, || {
                    "closed with sends outstanding".to_owned()
                });
                self.abort();
                self.state = QpState::Err;
                self.flush(init, out);
            }
            QpState::Closing => {
                self.state = QpState::Closing;
                self.flush_receives(init, out);
            }
            QpState::Terminate => {
                self.cause.record(FailureKind::Requested, || {
                    "requested by the consumer".to_owned()
                });
                self.abort();
                self.state = QpState::Terminate;
                self.flush(init, out);
            }
            state => {
                self.sends.drain();
                let active = state == QpState::Rts && self.state == QpState::Rtr;
                self.state = state;
                if active {
                    self.announce_active();
                }
            }
        }
        Ok(())
    }

    pub(super) fn disconnect(&mut self, init: &QpInit, out: &mut Outbox) -> Option<Vec<u8>> {
        let connected = self.wire.is_connected();
        if self.link.is_retired() || !connected || self.state.flushes() {
            return None;
        }
        let gently = init.personality == Personality::Iwarp && self.sends.is_empty();
        if gently && self.modify(init, QpState::Closing, out).is_ok() {
            return None;
        }
        self.close_roce_responder();
        let last = self.take_final_bytes(init);
        self.cause.record(FailureKind::Requested, || {
            "the consumer disconnected".to_owned()
        });
        self.state = QpState::Err;
        self.flush(init, out);
        self.transmit.end(last.clone());
        Some(last)
    }

    pub(super) fn connect(&mut self, init: &QpInit, stream: Stream, rfc7306: bool) -> bool {
        let next = self.state.next(init.personality, QpEvent::Connected);
        // XRC is an extension: the peer must have it.
        let suits = !init.qp_type.is_xrc() || stream.has_extensions();
        let Some(next) = next.filter(|_| self.wire.stream().is_none() && suits) else {
            return false;
        };
        if self.link.handle(LinkEvent::Attach) == LinkAct::Reject {
            return false;
        }
        self.state = next;
        self.authentication = Authentication::Done;
        self.transmit.begin_stream();
        self.receive.begin_stream();
        self.stream_began = (self.transmit.framed(), self.counters.bytes_in);
        self.wire = Wire::Stream(stream);
        let Some(stream) = self.wire.stream_mut() else {
            return false;
        };
        if let Some(retry) = self.attributes.rnr_retry {
            stream.set_rnr_retry(retry);
        }
        if let Some(depth) = self.attributes.read_depth {
            stream.limit_reads(depth);
        }
        self.attributes.rfc7306 = rfc7306;
        if matches!(next, QpState::Rts | QpState::Sqd) {
            // It may send at once, and this stream has not announced it yet.
            self.announce_active();
        }
        true
    }

    /// The queue pair sends from now on; a peer that was told the number compares it (docs/extensions.md).
    fn announce_active(&mut self) {
        if let (Some(stream), Some(psns)) = (self.wire.stream_mut(), self.attributes.psns) {
            stream.announce_active(psns.send);
        }
    }

    /// Ends the stream with a Terminate, for a local failure.
    pub(super) fn abort(&mut self) {
        if let Some(stream) = self.wire.stream_mut() {
            stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
        }
    }
}

/// By the peer.
impl Inner {
    /// The peer sent its capabilities; false if its nonce is wrong.
    pub(super) fn handle_peer_caps(
        &mut self,
        init: &QpInit,
        caps: &Caps,
        out: &mut Outbox,
    ) -> bool {
        let qp = init.number;
        if !self.authentication.accepts(caps.nonce) {
            if self.drop_unauthenticated() {
                return false;
            }
            self.cause.clear();
            self.cause.record(FailureKind::Mismatch, || {
                "the peer cannot prove that it knows the key".to_owned()
            });
            self.fail_fatal(init, out);
            return false;
        }
        self.authentication = Authentication::Done;
        let (own, peer) = (init.qp_type, caps.qp_type);
        if (own.is_xrc() || peer.is_xrc()) && peer != own.peer() {
            let wanted = own.peer();
            self.cause.record(FailureKind::Mismatch, || {
                format!("the peer's queue pair is of type {peer}, this one needs {wanted}")
            });
            self.fail_fatal(init, out);
            return false;
        }
        out.push(Event::Established { qp });
        true
    }

    /// Drops an unauthenticated stream without a trace; true if it was one. Neither side has sent anything on it but its
    /// capabilities: requests wait until the peer has shown the nonce.
    pub(super) fn drop_unauthenticated(&mut self) -> bool {
        let unproven = matches!(self.authentication, Authentication::Expected(_));
        if unproven {
            self.authentication = Authentication::Done;
            self.wire = Wire::None;
            self.receive.drop_stage();
            self.transmit.restart();
        }
        unproven
    }

    /// The peer's queue pair sends from now on; false if its number is not the expected one.
    pub(super) fn peer_active(&mut self, init: &QpInit, psn: Psn, out: &mut Outbox) -> bool {
        let Some(expected) = self
            .attributes
            .psns
            .map(|psns| psns.receive)
            .filter(|e| *e != psn)
        else {
            return true;
        };
        let (got, expected) = (psn.get(), expected.get());
        self.cause.record(FailureKind::Mismatch, || {
            format!("the peer sends from number {got}, expected {expected}")
        });
        self.fail_fatal(init, out);
        false
    }
}

/// By the end of the connection.
impl Inner {
    /// The peer closed its direction, or the connection broke.
    pub(super) fn peer_disconnected(&mut self, init: &QpInit, reset: bool, out: &mut Outbox) {
        if self.drop_unauthenticated() {
            return;
        }
        match self.wire {
            Wire::Roce(_) => self.roce_disconnected(init, out),
            _ => self.stream_disconnected(init, reset, out),
        }
    }

    /// The same of a stream.
    fn stream_disconnected(&mut self, init: &QpInit, reset: bool, out: &mut Outbox) {
        if reset {
            self.give_up_held_responses(init, out);
        }
        if self.receive.is_blocked() {
            // A message that has arrived waits for a receive, and is complete for its sender: the end is processed after it.
            self.link.handle(LinkEvent::EndBehindMessage { reset });
            return;
        }
        let Some(stream) = self.wire.stream_mut() else {
            return;
        };
        let cut = stream.handle_eof(self.receive.stage().len()).is_err();
        self.receive.drop_ahead();
        if reset {
            stream.drop_responses();
            // The peer does not take them any more, and they must not keep the connection from being closed.
            self.transmit.clear();
        }
        // InfiniBand has no orderly close: only requests that need the peer notice.
        let reliable = init.personality == Personality::Roce && init.qp_type.is_reliable();
        let grace = reliable && !self.attributes.grace.is_zero();
        if self.link.handle(LinkEvent::End { grace }) != LinkAct::RaiseDisconnected {
            return;
        }
        self.receive.leave_srq_waiters(init, out);
        let qp = init.number;
        out.push(Event::Disconnected { qp });
        let idle = self.sends.is_empty() && self.responder.is_idle();
        match init.personality {
            Personality::Roce => {}
            Personality::Iwarp if idle && !cut && !reset => {
                self.end_gracefully(init, out);
            }
            Personality::Iwarp => {
                out.push(Event::QpFatal { qp });
                self.fail_peer_lost(
                    init,
                    FailureKind::PeerGone,
                    "the peer closed with work outstanding",
                    out,
                );
            }
        }
    }

    /// Nothing is left of the connection.
    pub(super) fn closed(&mut self, init: &QpInit, out: &mut Outbox) {
        if self.link.handle(LinkEvent::Close) == LinkAct::RaiseDisconnected {
            // This side closed last; the event is raised nevertheless.
            out.push(Event::Disconnected { qp: init.number });
        }
        let was = self.state;
        if let Some(next) = was.next(init.personality, QpEvent::Closed) {
            self.state = next;
        }
        // RDMAC: Closing ends in Idle, from where another stream may begin.
        if was == QpState::Closing && self.state != was {
            let (state, cause) = (self.state, core::mem::take(&mut self.cause));
            // A receive that was posted just now is for the next stream.
            self.reset_keep_posted();
            (self.state, self.cause) = (state, cause);
        }
    }

    pub(super) fn peer_dead(&mut self, init: &QpInit, out: &mut Outbox) {
        if init.qp_type == QpType::Uc {
            // An unreliable connection does not notice; if there never was a peer, its messages are discarded.
            if self.wire.stream().is_none() {
                self.link.handle(LinkEvent::NoPeer);
            }
            return;
        }
        if self.sends.is_empty() || self.state.flushes() {
            return;
        }
        // Bytes that the peer has not taken by now are given up.
        self.transmit.clear();
        if self.link.handle(LinkEvent::PeerDead) == LinkAct::RaiseDisconnected {
            out.push(Event::Disconnected { qp: init.number });
        }
        self.fail_peer_lost(
            init,
            FailureKind::PeerSilent,
            "the peer does not answer",
            out,
        );
    }

    fn end_gracefully(&mut self, init: &QpInit, out: &mut Outbox) {
        if let Some(next) = self.state.next(init.personality, QpEvent::PeerClosed) {
            self.state = next;
        }
        self.flush_receives(init, out);
    }
}
