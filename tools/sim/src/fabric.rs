//! Whole adapters in one process: hosts with memory and queue pairs, joined by simulated connections in virtual time.
//! The seed and the calls made on a fabric determine everything that happens; faults happen when asked for.
//! Completions, events and memory are given to the caller as the adapters report them.
//!
//! Two hosts, a write and a read:
//!
//! ```
//! use verbena_nic::{Flags, SendOp, SendWr, Status, wr::Data};
//! use verbena_sim::fabric::{Fabric, remote, sge};
//!
//! let mut fabric = Fabric::new(7);
//! let (alice, bob) = (fabric.host(), fabric.host());
//! let (a, b) = (fabric.qp(alice), fabric.qp(bob));
//! fabric.connect(a, b);
//! fabric.run();
//!
//! let (ours, theirs) = (fabric.memory(alice, 64), fabric.memory(bob, 64));
//! ours.write(0, b"over the wire");
//! let write = SendOp::Write { remote: remote(&theirs, 8), immediate: None };
//! let read = SendOp::Read { remote: remote(&theirs, 8), local_invalidate: None };
//! for (id, op, offset) in [(1, write, 0), (2, read, 32)] {
//!     let data = [sge(&ours, offset, 13)];
//!     let wr = SendWr { id, op, flags: Flags::SIGNALED, data: Data::Gather(&data) };
//!     fabric.post_send(a, &wr)?;
//! }
//! fabric.run();
//!
//! assert!(fabric.sent(a).iter().all(|wc| wc.status == Status::Success));
//! assert_eq!(theirs.read(8, 13), b"over the wire");
//! assert_eq!(ours.read(32, 13), b"over the wire");
//! # Ok::<(), verbena_nic::qp::PostError>(())
//! ```

mod any_connection;
mod connection;
mod host;
mod migration;
mod options;
mod packet_connection;
mod packet_options;
mod run;
mod wants;

pub use host::{HostId, QpId, remote, sge};
pub use options::{ConnectOptions, QpOptions, SideOptions};
pub use packet_options::{PacketConnectOptions, PacketSideOptions};
pub use run::ConnectionId;

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_nic::qp::{PostError, QpAccessFlags};
use verbena_nic::{Qp, QpState, ReceiveWr, SendWr, Srq, TransitionError, Wake, Wc};
use verbena_stream::Time;

use crate::clock::Clock;
use crate::rng::Rng;
use any_connection::AnyConnection;
use host::{Host, drain};

/// Adapters, their connections, and their time.
#[derive(Debug)]
pub struct Fabric {
    rng: Rng,
    clock: Clock,
    hosts: Vec<Host>,
    qps: Vec<(HostId, Arc<Qp>)>,
    connections: Vec<AnyConnection>,
    next_queue: u32,
}

impl Fabric {
    /// Creates an empty fabric. The seed determines what is random: keys, chunks of bytes, delays.
    pub fn new(seed: u64) -> Fabric {
        Fabric {
            rng: Rng::new(seed),
            clock: Clock::default(),
            hosts: Vec::new(),
            qps: Vec::new(),
            connections: Vec::new(),
            next_queue: 1,
        }
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The queue pair itself, for inspection.
    pub fn queue_pair(&self, qp: QpId) -> &Qp {
        &self.qps[qp.0].1
    }

    /// Requests a transition to this state.
    ///
    /// A queue pair that was moved to `Reset` has left its connection and may be connected again.
    pub fn modify(&mut self, qp: QpId, to: QpState) -> Result<(), TransitionError> {
        self.with(qp, |qp, out| qp.modify(to, out))?;
        if to == QpState::Reset {
            let emptied = self.qps[qp.0].1.clone();
            for connection in &mut self.connections {
                connection.forget(&emptied);
            }
        }
        Ok(())
    }

    /// Sets which operations the peer may perform through a queue pair.
    pub fn enable(&mut self, qp: QpId, enabled: QpAccessFlags) {
        self.with(qp, |qp, out| qp.set_access_flags(enabled, out));
    }

    /// Posts a request to a send queue.
    pub fn post_send(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.with(qp, |qp, out| qp.post_send(wr, out))
    }

    /// Posts a receive to a queue pair's own receive queue.
    pub fn post_receive(&mut self, qp: QpId, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        self.with(qp, |qp, out| qp.post_receive(wr, out))
    }

    /// Posts a receive to a shared receive queue, and wakes the queue pair to which it is assigned.
    pub fn post_shared(&mut self, srq: &Srq, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        let woken = srq.post(wr)?;
        self.wake(woken.into_iter().map(Wake::Receive).collect());
        Ok(())
    }

    /// Takes the completions of the send side, oldest first.
    ///
    /// Queue pairs may share a completion queue; then this takes the completions of all of them.
    pub fn sent(&self, qp: QpId) -> Vec<Wc> {
        drain(&self.queue_pair(qp).init().send_cq)
    }

    /// Takes the completions of the receive side, oldest first.
    pub fn received(&self, qp: QpId) -> Vec<Wc> {
        drain(&self.queue_pair(qp).init().recv_cq)
    }

    /// Calls a queue pair, then processes its outbox.
    fn with<T>(&mut self, qp: QpId, call: impl FnOnce(&Qp, &mut Outbox) -> T) -> T {
        let mut out = Outbox::new();
        let (host, queue_pair) = &self.qps[qp.0];
        let (host, answer) = (*host, call(queue_pair, &mut out));
        self.note(host, &mut out);
        answer
    }

    /// Keeps the events of a call, and wakes queue pairs to which a receive was assigned.
    fn note(&mut self, host: HostId, out: &mut Outbox) {
        let now = self.clock.now();
        let events = out.events().iter().map(|event| (now, *event));
        self.hosts[host.0].events.extend(events);
        let woken = out.take_woken();
        *out = Outbox::new();
        self.wake(woken);
    }

    /// Tells queue pairs that the shared receive queue has a receive for them, or that their memory is registered.
    fn wake(&mut self, woken: Vec<Wake>) {
        for wake in woken {
            if let Some(qp) = wake.qp().and_then(|qp| self.find(qp)) {
                self.with(qp, |qp, out| qp.wake(wake, out));
            }
        }
    }

    fn find(&self, number: u32) -> Option<QpId> {
        let at = self.qps.iter().position(|(_, qp)| qp.number() == number);
        at.map(QpId)
    }
}

#[cfg(test)]
mod tests;
