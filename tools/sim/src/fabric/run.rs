//! Time and faults of a fabric: connect, run until idle or for a while, reset, stall, kill.
//! A run stops as soon as nothing more will happen without a call of the program. Connections are closed only by their queue pairs.

use core::time::Duration;
use std::sync::Arc;

use verbena_nic::{Qp, QpState};
use verbena_stream::{Outcome, Time};

use super::any_connection::AnyConnection;
use super::connection::Connection;
use super::packet_connection::PacketConnection;
use super::{ConnectOptions, Fabric, HostId, PacketConnectOptions, QpId};
use crate::packet_link::PacketCounts;

/// More rounds than any valid run needs between two calls.
const MAX_ROUNDS: u64 = 3_000_000;

/// A connection of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(usize);

impl Fabric {
    /// Connects two queue pairs by links without faults; the first is the initiator.
    pub fn connect(&mut self, a: QpId, b: QpId) -> ConnectionId {
        self.connect_with(a, b, ConnectOptions::default())
    }

    /// Connects two queue pairs; the first is the initiator. The startup takes place in the next run.
    ///
    /// Queue pairs in `Reset` are brought to `Init`, as a connection manager does.
    pub fn connect_with(&mut self, a: QpId, b: QpId, options: ConnectOptions) -> ConnectionId {
        let parties = self.parties(a, b);
        let connection = Connection::new(parties, options, &mut self.rng, self.clock.now());
        self.add(AnyConnection::Bytes(Box::new(connection)))
    }

    /// Connects two queue pairs by RoCEv2 packets. Each begins in the next run after its time has come.
    ///
    /// Queue pairs in `Reset` are brought to `Init`, as a connection manager does.
    pub fn connect_packets(
        &mut self,
        a: QpId,
        b: QpId,
        options: &PacketConnectOptions,
    ) -> ConnectionId {
        let parties = self.parties(a, b);
        let now = self.clock.now();
        let connection = PacketConnection::new(parties, options, &mut self.rng, now);
        self.add(AnyConnection::Packets(Box::new(connection)))
    }

    fn parties(&mut self, a: QpId, b: QpId) -> [(HostId, Arc<Qp>); 2] {
        for qp in [a, b] {
            if self.queue_pair(qp).state() == QpState::Reset {
                self.modify(qp, QpState::Init).expect("from Reset");
            }
        }
        [a, b].map(|qp| self.qps[qp.0].clone())
    }

    fn add(&mut self, connection: AnyConnection) -> ConnectionId {
        self.connections.push(connection);
        ConnectionId(self.connections.len() - 1)
    }

    /// The outcome of the startup at the initiator and at the responder; `None` while it is under way.
    pub fn outcome(&self, connection: ConnectionId) -> [Option<&Outcome>; 2] {
        [0, 1].map(|side| self.connections[connection.0].outcome(side))
    }

    /// Whether both directions of a connection have ended.
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        self.connections[connection.0].is_closed()
    }

    /// Bytes sent so far, on all connections.
    pub fn bytes(&self) -> u64 {
        self.connections.iter().map(AnyConnection::bytes).sum()
    }

    /// The positions of flipped bits in what the initiator and the responder sent, and how much each sent.
    ///
    /// A link flips only bytes that a checksum covers.
    pub fn flips(&self, connection: ConnectionId) -> [(&[u64], u64); 2] {
        self.connections[connection.0].flips()
    }

    /// What became of packets so far, on all connections.
    pub fn packets(&self) -> PacketCounts {
        let mut counts = PacketCounts::default();
        for connection in &self.connections {
            counts.add(&connection.packets());
        }
        counts
    }

    /// Runs until nothing more will happen without a call, but for repetitions of RoCEv2 requests that wait for a receive.
    ///
    /// # Panics
    /// If the adapters do not become idle.
    pub fn run(&mut self) {
        self.run_to(None);
    }

    /// Runs for `span`; afterwards that much time has passed.
    ///
    /// # Panics
    /// If the adapters do not become idle.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.clock.now() + span;
        self.run_to(Some(end));
        self.clock.advance_to(end);
    }

    /// Resets the connection: bytes under way are lost, and both ends are told at once. The links of a RoCEv2 connection are cut, of which
    /// neither is told.
    pub fn reset(&mut self, connection: ConnectionId) {
        self.connections[connection.0].abort();
        self.collect();
    }

    /// Delays everything on the connection for `span`; what is sent meanwhile arrives afterwards.
    pub fn stall(&mut self, connection: ConnectionId, span: Duration) {
        let until = self.clock.now() + span;
        self.connections[connection.0].hold(until);
    }

    /// Kills the host's program: its connections are reset, and its queue pairs are never run again.
    pub fn kill(&mut self, host: HostId) {
        self.hosts[host.0].dead = true;
        for connection in &mut self.connections {
            connection.abandon(host);
        }
        self.collect();
    }

    /// Whether the host was killed.
    pub fn is_dead(&self, host: HostId) -> bool {
        self.hosts[host.0].dead
    }

    fn run_to(&mut self, end: Option<Time>) {
        for connection in &mut self.connections {
            connection.begin_run();
        }
        let mut rounds = 0;
        loop {
            while self.round() {
                rounds += 1;
                assert!(rounds < MAX_ROUNDS, "livelock: {rounds} rounds");
            }
            rounds += 1;
            let next = |connection: &AnyConnection| connection.next_moment(end.is_some());
            match self.connections.iter().filter_map(next).min() {
                Some(next) if end.is_none_or(|end| next <= end) => self.clock.advance_to(next),
                _ => return,
            }
        }
    }

    /// One turn of every end at the current time; false when nothing moved.
    fn round(&mut self) -> bool {
        let (now, mut moved) = (self.clock.now(), false);
        for at in 0..self.connections.len() {
            for side in 0..2 {
                moved |= self.connections[at].turn(side, now);
            }
        }
        self.collect();
        moved
    }

    /// Collects the events and wakeups of the ends.
    fn collect(&mut self) {
        for at in 0..self.connections.len() {
            for side in 0..2 {
                let (host, mut out) = self.connections[at].take_outbox(side);
                self.note(host, &mut out);
            }
        }
    }
}
