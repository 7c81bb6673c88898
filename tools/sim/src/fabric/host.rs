//! Hosts of a fabric: a memory table, the objects of the host, and its events.
//! The numbers of objects are unique in the whole fabric, so that an event names one object.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Misuse, Pd, Policy, Tpt};
use verbena_nic::trace::ObserverCell;
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{Cq, Event, Qp, QpInit, Registration, Sge, Srq, Wc};
use verbena_stream::Time;
use verbena_wire::To;

use super::{Fabric, QpOptions};

/// The domain of objects created without naming one.
pub(super) const DEFAULT_PD: Pd = Pd(1);
/// Capacity of a queue pair's own completion queue.
const CQ_SIZE: usize = 512;
/// Scatter elements of a receive in a shared queue.
const SRQ_SGES: usize = 16;
/// Regions and windows a host may have.
const ENTRIES: u32 = 1 << 16;

/// A host of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub(super) usize);

/// A queue pair of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub(super) usize);

#[derive(Debug)]
pub(super) struct Host {
    pub(super) tpt: Arc<Tpt>,
    pub(super) events: Vec<(Time, Event)>,
    pub(super) dead: bool,
}

impl Fabric {
    /// Creates a host with the policy of the verbs for remote access.
    pub fn host(&mut self) -> HostId {
        self.host_with(Policy::Verbs)
    }

    /// Creates a host with a policy for remote access (M7).
    pub fn host_with(&mut self, policy: Policy) -> HostId {
        let tpt = Tpt::new(1..ENTRIES, policy, self.rng.draw());
        self.hosts.push(Host {
            tpt: Arc::new(tpt),
            events: Vec::new(),
            dead: false,
        });
        HostId(self.hosts.len() - 1)
    }

    /// The memory table of a host.
    pub fn tpt(&self, host: HostId) -> &Arc<Tpt> {
        &self.hosts[host.0].tpt
    }

    /// Zeroed memory of a host with all rights.
    ///
    /// # Panics
    /// If the host's table is full.
    pub fn memory(&self, host: HostId, len: usize) -> Buffer {
        self.memory_with(host, len, DEFAULT_PD, Access::ALL)
            .expect("a fabric's host has room for this region")
    }

    /// Zeroed memory of a host with these rights.
    pub fn memory_with(
        &self,
        host: HostId,
        len: usize,
        pd: Pd,
        access: Access,
    ) -> Result<Buffer, Misuse> {
        Buffer::new(self.tpt(host), len, pd, access)
    }

    /// A completion queue for `capacity` entries, for queue pairs that share one.
    ///
    /// # Panics
    /// If `capacity` is not allowed.
    pub fn cq(&mut self, capacity: usize) -> Arc<Cq> {
        let number = self.number();
        Arc::new(Cq::new(number, capacity).expect("a size that completion queues have"))
    }

    /// A shared receive queue for `depth` receives.
    pub fn srq(&mut self, depth: usize) -> Arc<Srq> {
        let number = self.number();
        Arc::new(Srq::new(number, DEFAULT_PD, depth, SRQ_SGES))
    }

    /// A queue pair of the default kind, in `Reset`.
    pub fn qp(&mut self, host: HostId) -> QpId {
        self.qp_with(host, QpOptions::default())
    }

    /// A queue pair, in `Reset`.
    pub fn qp_with(&mut self, host: HostId, options: QpOptions) -> QpId {
        let send_cq = options.send_cq.unwrap_or_else(|| self.cq(CQ_SIZE));
        let recv_cq = options.recv_cq.unwrap_or_else(|| self.cq(CQ_SIZE));
        let number = self.number();
        let qp = Qp::new(QpInit {
            number,
            wc_qpn: number,
            pd: options.pd,
            personality: options.personality,
            qp_type: options.qp_type,
            send_cq,
            recv_cq,
            srq: options.srq,
            xrcd: None,
            xrc_sends: 0,
            tpt: self.tpt(host).clone().into(),
            limits: options.limits,
            transfer: options.transfer,
            registration: Registration::default(),
            observer: ObserverCell::default(),
        });
        self.qps.push((host, Arc::new(qp)));
        QpId(self.qps.len() - 1)
    }

    /// Takes the events of a host, oldest first.
    pub fn events(&mut self, host: HostId) -> Vec<(Time, Event)> {
        core::mem::take(&mut self.hosts[host.0].events)
    }

    fn number(&mut self) -> u32 {
        let number = self.next_queue;
        self.next_queue += 1;
        number
    }
}

/// A scatter/gather element of registered memory.
pub fn sge(memory: &Buffer, offset: usize, len: usize) -> Sge {
    Sge {
        addr: memory.at() + offset as u64,
        len: len as u32,
        stag: memory.stag(),
    }
}

/// The STag and address of registered memory, for a peer's request.
pub fn remote(memory: &Buffer, offset: usize) -> RemoteAddr {
    RemoteAddr {
        stag: memory.stag(),
        to: To::new(memory.at() + offset as u64),
    }
}

/// Takes all entries of a completion queue.
pub(super) fn drain(cq: &Cq) -> Vec<Wc> {
    let mut out = vec![Wc::default(); cq.len()];
    let n = cq.poll(&mut out);
    out.truncate(n);
    out
}
