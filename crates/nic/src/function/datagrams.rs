//! Datagram queue pairs of a function: create, find, destroy (M14).
//! As for every queue pair, all parts exist, fit together and stay while it lives (N1, N9). They share the numbers and the limit of
//! queue pairs on connections, but are found only by the calls here.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_wire::number::Qpn;

use super::Function;
use super::qps::{Kind, QpRow};
use crate::error::Error;
use crate::profile::Service;
use crate::qp::Limits;
use crate::ud::{UdInit, UdQp};

/// A datagram queue pair to create, its parts named by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewUd {
    /// The number that peers send to.
    pub qpn: Qpn,
    /// Its domain.
    pub pd: Pd,
    /// The completion queue of its sends.
    pub send_cq: u32,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: u32,
    /// A shared receive queue of the same domain, instead of its own.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
}

impl Function {
    /// A datagram queue pair in `Reset`.
    pub fn create_ud(&self, new: NewUd) -> Result<Arc<UdQp>, Error> {
        self.check_service(Service::Rdma)?;
        self.attributes.check_qp(&new.limits)?;
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        let mut made = None;
        let make = |number| {
            let qp = Arc::new(UdQp::new(UdInit {
                number,
                qpn: new.qpn,
                pd: new.pd,
                send_cq: uses.send.clone(),
                recv_cq: uses.recv.clone(),
                srq: uses.srq.clone(),
                tpt: self.tpt.clone(),
                limits: new.limits,
                observer: self.observer.clone(),
            }));
            made = Some(qp.clone());
            Ok(QpRow {
                kind: Kind::Datagrams(qp),
                uses,
            })
        };
        self.qps.add(make, |_| ())?;
        made.ok_or(self.qps.no_such(0))
    }

    /// The datagram queue pair that has this number in its function.
    pub fn ud(&self, number: u32) -> Result<Arc<UdQp>, Error> {
        let found = self.qps.with(number, |pair| pair.datagrams().cloned())?;
        found.ok_or(self.qps.no_such(number))
    }

    /// Datagram queue pairs that complete in this queue.
    pub fn uds_of_cq(&self, cq: u32) -> Vec<Arc<UdQp>> {
        let here = |pair: &&QpRow| pair.completes_in(cq);
        self.qps
            .collect(|pair| Some(pair).filter(here)?.datagrams().cloned())
    }

    /// All datagram queue pairs.
    pub fn all_uds(&self) -> Vec<Arc<UdQp>> {
        self.qps.collect(|pair| pair.datagrams().cloned())
    }

    /// Destroys a datagram queue pair in any state: its completions and waiting receives are removed.
    pub fn destroy_ud(&self, number: u32) -> Result<(), Error> {
        let qp = self.ud(number)?;
        // Of two concurrent calls only one retires it; the number is freed only after everything else.
        if !qp.retire() {
            return Err(self.qps.no_such(number));
        }
        let init = qp.init();
        init.send_cq.discard_qp_entries(init.qpn.get());
        init.recv_cq.discard_qp_entries(init.qpn.get());
        let remove = || self.qps.remove(number, |_| 0).map(drop);
        self.retired_counters.remove_ud(&qp, remove)
    }
}

impl QpRow {
    fn datagrams(&self) -> Option<&Arc<UdQp>> {
        match &self.kind {
            Kind::Datagrams(qp) => Some(qp),
            Kind::Connected(..) | Kind::Ulp(_) => None,
        }
    }
}
