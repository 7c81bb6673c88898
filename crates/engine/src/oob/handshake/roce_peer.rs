//! `wire = auto` for queue pairs connected by number: a peer that has refused over TCP, or whose number names no TCP port of an adapter like
//! this, may be an adapter that speaks RoCEv2 only. From then on the queue pair listens on both wires, and what comes first decides: a call
//! over TCP, or the first packet of the peer. Its own requests take RoCEv2 when the peer has had the time for a call over TCP.
//! Nothing is opened for RoCEv2 before.

use core::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, QpType};
use verbena_stream::Time;
use verbena_sync::locks::OnceLock;
use verbena_wire::ext::DialReject;
use verbena_wire::number::Psn;
use verbena_wire::roce::{Operation, PORT, Packet, Service};

use super::{ExpectedPeer, OobHandshake, PacketRoute, Stage, State};
use crate::config::Wire;
use crate::datagram::roce_demux::PacketHandler;
use crate::error::Error;
use crate::oob::qpn::is_callable;
use crate::roce::connection::RoceConnection;
use crate::roce::may_have_port;
use crate::sys;

/// A peer that has refused over TCP has this many times `dial_delay` for a call of its own, before own requests take RoCEv2.
const DELAYS: u32 = 2;

impl State {
    /// The peer is expected, and no wire is chosen yet.
    fn is_undecided(&self, nonce: u64) -> bool {
        self.nonce == nonce
            && self.expected.is_some()
            && matches!(self.stage, Stage::Waiting | Stage::Calling)
    }

    /// Requests wait for a peer that has refused over TCP for long enough.
    fn is_roce_due(&self, now: Time) -> bool {
        let waits = |e: &ExpectedPeer| e.options.qp.outstanding().0 > 0;
        self.roce_from.is_some_and(|when| when <= now)
            && self.is_undecided(self.nonce)
            && self.expected.as_ref().is_some_and(waits)
    }
}

impl OobHandshake {
    /// The connection of this life is over RoCEv2, as the settings say: peers that call are told so.
    pub(crate) fn use_roce(&self) {
        let mut state = self.state.lock();
        if state.stage != Stage::Closed {
            state.stage = Stage::Roce;
        }
        self.cancel_call(&mut state);
    }

    /// The peer is expected. If its number has no port that could be called, it may be an adapter.
    pub(super) fn expect_roce(&self, now: Time) {
        let mut state = self.state.lock();
        let nonce = state.nonce;
        let number = state.expected.as_ref().map(|expected| expected.number);
        if number.is_none_or(is_callable) {
            return;
        }
        state.roce_from = Some(now);
        drop(state);
        self.await_first_packet(nonce);
        self.send_by_roce(nonce, now);
    }

    /// The call of this life has failed.
    pub(super) fn try_roce(&self, nonce: u64, error: &Error) {
        match error {
            Error::Rejected { private_data, .. } => {
                if DialReject::parse(private_data) == Ok(DialReject::OtherWire) {
                    self.begin_and_send(nonce);
                }
                return;
            }
            Error::Unreachable { cause, .. } if cause.is_refused() => {
                let mut state = self.state.lock();
                if state.nonce == nonce && state.roce_from.is_none() {
                    let delay = self.config().dial_delay * DELAYS;
                    state.roce_from = state.expected_since.map(|since| since + delay);
                }
            }
            // A peer that is silent over TCP may send packets.
            Error::Unreachable { .. } | Error::Timeout { .. } => {}
            _ => return,
        }
        self.await_first_packet(nonce);
        self.send_by_roce(nonce, sys::now());
    }

    /// A request was posted while there is no connection.
    pub(super) fn send_posted_by_roce(&self) {
        let state = self.state.lock();
        let (nonce, is_refused) = (state.nonce, state.roce_from.is_some());
        drop(state);
        if is_refused {
            self.await_first_packet(nonce);
            self.send_by_roce(nonce, sys::now());
        }
    }

    /// Whether the settings and the queue pair allow RoCEv2 towards this peer, and it can be there.
    fn may_use_roce(&self, expected: &ExpectedPeer) -> bool {
        let core = &self.core;
        service_of(expected.options.qp.init().qp_type).is_some()
            && core.config.wire_to(expected.peer) == Wire::Auto
            && core
                .security
                .check_roce((expected.peer, PORT).into())
                .is_ok()
            && may_have_port(expected.peer)
    }

    /// The first packet of the peer decides from now on, if no call does.
    fn await_first_packet(&self, nonce: u64) {
        let state = self.state.lock();
        if !state.is_undecided(nonce) || state.first_packet.is_some() {
            return;
        }
        let expected = state.expected.clone();
        drop(state);
        let Some(expected) = expected.filter(|expected| self.may_use_roce(expected)) else {
            return;
        };
        let Some(service) = service_of(expected.options.qp.init().qp_type) else {
            return;
        };
        if let Err(error) = self.core.roce_ports.at(&self.core, expected.local) {
            // The program goes on to wait for a call over TCP.
            return self.core.roce_ports.report(&error);
        }
        let handler = Arc::new(FirstPacket {
            handshake: self.this.clone(),
            nonce,
            local: expected.local,
            peer: expected.peer,
            service,
            connection: OnceLock::new(),
        });
        let mut state = self.state.lock();
        if state.is_undecided(nonce) && state.first_packet.is_none() {
            let route = PacketRoute::new(&self.core, self.number, handler);
            state.first_packet = Some(route);
        }
    }

    /// Has requests that wait take RoCEv2, if that is due.
    fn send_by_roce(&self, nonce: u64, now: Time) {
        let state = self.state.lock();
        let is_due = state.first_packet.is_some() && state.is_roce_due(now);
        drop(state);
        if is_due {
            self.begin_and_send(nonce);
        }
    }

    fn begin_and_send(&self, nonce: u64) {
        let mut out = Outbox::new();
        if let Some(connection) = self.begin_roce(nonce, &mut out) {
            connection.send(&mut out);
        }
        self.core.deliver(&mut out);
    }

    /// Chooses RoCEv2 for the life with this nonce; `None` if another wire was chosen meanwhile, or it is not possible.
    fn begin_roce(&self, nonce: u64, out: &mut Outbox) -> Option<Arc<RoceConnection>> {
        let state = self.state.lock();
        let expected = state.expected.clone();
        let expected = expected.filter(|_| state.is_undecided(nonce));
        drop(state);
        let expected = expected.filter(|expected| self.may_use_roce(expected))?;
        let options = &expected.options;
        let own = (self.number, expected.local);
        let connection = RoceConnection::new(&self.core, options, own, expected.peer)
            .inspect_err(|error| self.core.roce_ports.report(error))
            .ok()?;
        let mut state = self.state.lock();
        if !state.is_undecided(nonce) {
            return None;
        }
        let qp_type = options.qp.init().qp_type;
        let attr = *options.attr.lock();
        let settings = attr.roce_settings(self.config(), qp_type, expected.number);
        // Under the lock, so that it is never begun in another life than its own.
        connection.begin(options, &settings, out).ok()?;
        state.stage = Stage::Roce;
        state.waiting_since = None;
        self.cancel_call(&mut state);
        // Its packets reach the connection directly from now on.
        let route = state.first_packet.take();
        drop(state);
        drop(route);
        Some(connection)
    }

    /// The PSN that the peer's first packet has, as the program has said.
    fn first_psn(&self) -> Option<Psn> {
        let state = self.state.lock();
        let attr = *state.expected.as_ref()?.options.attr.lock();
        Some(attr.psns.map_or(Psn::wrapping(0), |psns| psns.receive))
    }
}

/// The service of RoCEv2, for the types of queue pairs that it has.
fn service_of(qp_type: QpType) -> Option<Service> {
    match qp_type {
        QpType::Rc => Some(Service::Rc),
        QpType::Uc => Some(Service::Uc),
        _ => None,
    }
}

/// The service of a packet with which a connection can begin.
fn service_begun_by(operation: &Operation) -> Option<Service> {
    match operation {
        Operation::SendFirst(service)
        | Operation::SendOnly(service, _)
        | Operation::WriteFirst(service, _)
        | Operation::WriteOnly(service, ..) => Some(*service),
        Operation::ReadRequest(_) | Operation::CmpSwap(_) | Operation::FetchAdd(_) => {
            Some(Service::Rc)
        }
        _ => None,
    }
}

/// Waits for the first packet of the peer, and forwards it and those that arrive with it to the connection that it begins.
struct FirstPacket {
    handshake: Weak<OobHandshake>,
    nonce: u64,
    local: IpAddr,
    peer: IpAddr,
    service: Service,
    connection: OnceLock<Arc<RoceConnection>>,
}

impl FirstPacket {
    /// Whether a connection begins with this packet. Of an unreliable connection, earlier packets may be lost.
    fn is_first(&self, handshake: &OobHandshake, packet: &Packet<'_>) -> bool {
        service_begun_by(&packet.operation) == Some(self.service)
            && (self.service == Service::Uc || handshake.first_psn() == Some(packet.psn))
    }
}

impl PacketHandler for FirstPacket {
    fn handle_packet(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packet: &Packet<'_>,
        now: Time,
        out: &mut Outbox,
    ) {
        self.handle_packets(from, local, core::slice::from_ref(packet), now, out);
    }

    fn handle_packets(
        &self,
        from: SocketAddr,
        local: IpAddr,
        packets: &[Packet<'_>],
        now: Time,
        out: &mut Outbox,
    ) {
        if let Some(connection) = self.connection.get() {
            return connection.handle_packets(from, local, packets, now, out);
        }
        let Some(handshake) = self.handshake.upgrade() else {
            return;
        };
        if from.ip() != self.peer || local != self.local {
            let drops = &handshake.core.routes.ud_demux;
            return drops.count_wrong_source(packets.len());
        }
        let first = packets
            .iter()
            .position(|packet| self.is_first(&handshake, packet));
        let Some(begun) = first.and_then(|first| packets.get(first..)) else {
            return;
        };
        if let Some(connection) = handshake.begin_roce(self.nonce, out) {
            let connection = self.connection.get_or_init(|| connection);
            connection.handle_packets(from, local, begun, now, out);
        }
    }

    fn end_batch(&self, now: Time, out: &mut Outbox) {
        if let Some(connection) = self.connection.get() {
            connection.end_batch(now, out);
        }
    }

    fn resume(&self, out: &mut Outbox) {
        if let Some(connection) = self.connection.get() {
            connection.resume(out);
        }
    }
}
