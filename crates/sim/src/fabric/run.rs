//! Time and faults of a fabric: connect, run until quiet or for a while, break, stall, kill.
//! Running promises to stop as soon as nothing will happen by itself, however long a program then waits.
//! It refuses to end anything politely by itself; a connection closes when its queue pairs want that.

use core::time::Duration;

use verbena_nic::QpState;
use verbena_stream::{Outcome, Time};

use super::connection::Connection;
use super::{ConnectOptions, Fabric, HostId, QpId};

/// More rounds than any lawful story needs between two calls.
const MAX_ROUNDS: u64 = 3_000_000;

/// A connection of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(usize);

impl Fabric {
    /// Joins two queue pairs over calm links; the first opens the connection.
    pub fn connect(&mut self, a: QpId, b: QpId) -> ConnectionId {
        self.connect_with(a, b, ConnectOptions::default())
    }

    /// Joins two queue pairs; the first opens the connection. Their startup runs as time does.
    ///
    /// Queue pairs in `Reset` are brought to `Init`, as a connection manager does.
    pub fn connect_with(&mut self, a: QpId, b: QpId, options: ConnectOptions) -> ConnectionId {
        for qp in [a, b] {
            if self.queue_pair(qp).state() == QpState::Reset {
                self.modify(qp, QpState::Init);
            }
        }
        let now = self.clock.now();
        let parties = [a, b].map(|qp| self.qps[qp.0].clone());
        let connection = Connection::new(parties, options, &mut self.rng, now);
        self.connections.push(connection);
        ConnectionId(self.connections.len() - 1)
    }

    /// How the startup ended at the initiator and at the responder; nothing while it runs.
    pub fn outcome(&self, connection: ConnectionId) -> [Option<&Outcome>; 2] {
        let ends = &self.connections[connection.0].ends;
        [ends[0].outcome.as_ref(), ends[1].outcome.as_ref()]
    }

    /// Both directions of a connection have ended.
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        self.connections[connection.0].is_closed()
    }

    /// Bytes sent so far, on all connections.
    pub fn bytes(&self) -> u64 {
        self.connections.iter().map(Connection::bytes).sum()
    }

    /// Where bits were flipped in what the initiator and the responder sent, and how much each sent.
    ///
    /// A link flips only what a checksum covers.
    pub fn flips(&self, connection: ConnectionId) -> [(&[u64], u64); 2] {
        self.connections[connection.0].flips()
    }

    /// Runs until nothing will happen by itself.
    ///
    /// # Panics
    /// If the adapters keep each other busy for ever.
    pub fn run(&mut self) {
        self.run_to(None);
    }

    /// Runs for a while; afterwards that much time has passed.
    ///
    /// # Panics
    /// If the adapters keep each other busy for ever.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.clock.now() + span;
        self.run_to(Some(end));
        self.clock.advance_to(end);
    }

    /// The connection breaks: bytes under way are lost, and both ends notice at once.
    pub fn reset(&mut self, connection: ConnectionId) {
        self.connections[connection.0].break_off();
        self.collect();
    }

    /// Nothing arrives on the connection for a while; what is sent meanwhile arrives afterwards.
    pub fn stall(&mut self, connection: ConnectionId, span: Duration) {
        let until = self.clock.now() + span;
        self.connections[connection.0].hold(until);
    }

    /// The host's program dies: its connections break, and its queue pairs are never run again.
    pub fn kill(&mut self, host: HostId) {
        self.hosts[host.0].dead = true;
        for connection in &mut self.connections {
            connection.abandon(host);
        }
        self.collect();
    }

    /// The host was killed.
    pub fn is_dead(&self, host: HostId) -> bool {
        self.hosts[host.0].dead
    }

    fn run_to(&mut self, end: Option<Time>) {
        let mut rounds = 0;
        loop {
            while self.round() {
                rounds += 1;
                assert!(rounds < MAX_ROUNDS, "livelock: {rounds} rounds");
            }
            rounds += 1;
            let moments = self.connections.iter().filter_map(Connection::next_moment);
            match moments.min() {
                Some(next) if end.is_none_or(|end| next <= end) => self.clock.advance_to(next),
                _ => return,
            }
        }
    }

    /// One turn of every end at the present moment; false when nothing moved.
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

    /// Takes what the ends left behind.
    fn collect(&mut self) {
        for at in 0..self.connections.len() {
            for side in 0..2 {
                let end = &mut self.connections[at].ends[side];
                let (host, mut out) = (end.host, core::mem::take(&mut end.out));
                self.note(host, &mut out);
            }
        }
    }
}
