//! A function of the adapter: the tables of all objects that one program may have, and the verbs on them (N1, N9).
//! Every number is checked, nothing is destroyed while other objects use it, and all limits are enforced. Numbers are local to the
//! function.
//!
//! Verbs that may raise events take an [`Outbox`]; the caller flushes it with no lock held.

mod attributes;
mod control;
mod counters;
mod datagrams;
mod events;
mod memory;
mod migration;
mod qps;
mod queues;
mod shared_sends;
pub(crate) mod shares;
mod table;
mod ulps;
pub(crate) mod users;

pub use attributes::Attributes;
pub use counters::FunctionCounters;
pub use datagrams::NewUd;
pub use memory::RegistrationCheck;
pub use qps::{NewQp, QpInfo};
pub use queues::{CqInfo, SrqInfo};
pub use shares::{KINDS, Shares};
pub use ulps::UlpInfo;

use std::ops::Range;
use std::sync::Arc;

use verbena_mem::{Pd, Policy, Tpt};
use verbena_sync::locks::OnceLock;

use crate::error::Error;
use crate::object::Object;
use crate::profile::{Service, Services};
use crate::trace::ObserverCell;
use control::ControlRow;
use counters::RetiredCounters;
use events::Claims;
use qps::QpRow;
use queues::{CqRow, SrqRow};
use shared_sends::SsqRow;
use table::Table;
use users::{Use, Users};
use verbena_events::event::{Outbox, Raise, Wake};

/// Queue pairs 0 and 1 have a special meaning in InfiniBand.
pub(crate) const FIRST_QP: u32 = 2;
/// Number 0 is not used: a handle that was never set must not find an object.
const FIRST: u32 = 1;
/// Control queue pairs of one function.
const MAX_CONTROLS: u32 = 1024;

/// One function, physical or virtual.
#[derive(Debug)]
pub struct Function {
    number: u32,
    services: Services,
    attributes: Attributes,
    tpt: Arc<Tpt>,
    pds: Table<Arc<Users>>,
    cqs: Table<CqRow>,
    srqs: Table<SrqRow>,
    ssqs: Table<SsqRow>,
    qps: Table<QpRow>,
    controls: Table<ControlRow>,
    claims: Arc<Claims>,
    retired_counters: RetiredCounters,
    registration_check: OnceLock<RegistrationCheck>,
    observer: ObserverCell,
}

impl Function {
    /// A function whose STag indexes lie in `stags`; `seed` makes them hard to guess.
    pub(crate) fn new(
        (number, services): (u32, Services),
        shares: Shares,
        stags: Range<u32>,
        policy: Policy,
        seed: u64,
    ) -> Function {
        Function {
            number,
            services,
            attributes: Attributes::new(shares),
            tpt: Arc::new(Tpt::new(stags, policy, seed)),
            pds: Table::new(Object::Pd, FIRST, shares.pds),
            cqs: Table::new(Object::Cq, FIRST, shares.cqs),
            srqs: Table::new(Object::Srq, FIRST, shares.srqs),
            ssqs: Table::new(Object::Ssq, FIRST, shares.ssqs),
            qps: Table::new(Object::Qp, FIRST_QP, shares.qps),
            controls: Table::new(Object::Control, FIRST, MAX_CONTROLS),
            claims: Arc::default(),
            retired_counters: RetiredCounters::default(),
            registration_check: OnceLock::new(),
            observer: ObserverCell::default(),
        }
    }

    /// Its number; the physical function is 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The services that its queue pairs may be for (V2).
    pub fn services(&self) -> Services {
        self.services
    }

    /// Fails if it has no queue pairs of this service (V2).
    pub fn check_service(&self, service: Service) -> Result<(), Error> {
        if self.services.has(service) {
            return Ok(());
        }
        Err(Error::Service {
            number: self.number,
            service,
            services: self.services,
        })
    }

    /// Where the observer of its traces is set.
    pub fn observer(&self) -> &ObserverCell {
        &self.observer
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Objects in use now.
    pub fn used(&self) -> Shares {
        let (event_queues, vectors) = self.claims.used();
        Shares {
            qps: self.qps.len(),
            cqs: self.cqs.len(),
            srqs: self.srqs.len(),
            ssqs: self.ssqs.len(),
            pds: self.pds.len(),
            stags: self.tpt.len(),
            event_queues,
            vectors,
        }
    }

    /// Lets no object be created any more, if it has none (V1); otherwise nothing changes.
    pub(crate) fn close(&self) -> Result<(), Error> {
        // Queue pairs, shared receive queues and STags hold a domain or are reserved by a control queue pair: without domains,
        // completion queues and control queue pairs there are none of them, and none can be added while the tables are locked.
        let (mut pds, mut cqs) = (self.pds.lock(), self.cqs.lock());
        let mut controls = self.controls.lock();
        let empty = pds.live() == 0 && cqs.live() == 0 && controls.live() == 0;
        if !empty || !self.claims.close() {
            let (event_queues, vectors) = self.claims.used();
            let used = Shares {
                qps: self.qps.len(),
                cqs: cqs.live(),
                srqs: self.srqs.len(),
                ssqs: self.ssqs.len(),
                pds: pds.live(),
                stags: self.tpt.len(),
                event_queues,
                vectors,
            };
            let (number, controls) = (self.number, controls.live());
            return Err(Error::Occupied {
                number,
                used,
                controls,
            });
        }
        pds.close();
        cqs.close();
        controls.close();
        Ok(())
    }

    /// A new protection domain with the function's remote-access policy.
    pub fn allocate_pd(&self) -> Result<Pd, Error> {
        self.allocate_pd_with(self.tpt.policy())
    }

    /// A new protection domain with a remote-access policy of its own (M7).
    pub fn allocate_pd_with(&self, policy: Policy) -> Result<Pd, Error> {
        let number = core::cell::Cell::new(0);
        let make = |n| {
            number.set(n);
            // With the table locked, so that the number's last domain cannot be confused with this one.
            self.tpt.set_policy_of(Pd(n), policy);
            Ok(Arc::default())
        };
        self.pds.add(make, |_| Pd(number.get()))
    }

    /// Frees a domain that has no queue pair, shared queue, region or window.
    pub fn free_pd(&self, pd: Pd) -> Result<(), Error> {
        // A registration in progress is a user of the domain, so no entry can be added while the table is locked.
        let users = |users: &Arc<Users>| users.count() + self.tpt.len_of(pd);
        self.pds.remove(pd.0, users).map(drop)
    }

    /// A use of a domain, which keeps it from being freed.
    fn use_pd(&self, pd: Pd) -> Result<Use, Error> {
        self.pds.with(pd.0, Use::of)
    }

    /// Does what could not be done under the locks held when the outbox was filled: wakes queue pairs for which a receive was
    /// reserved or that wait for memory, and fails the queue pairs of completion queues that overflowed. The caller holds no lock and no
    /// grant. Datagram queue pairs that wait for memory are not woken here, but by the code that owns their sockets. Shared send queues
    /// that may continue stay in the outbox, for the code that owns the connections of their channels (V6).
    pub fn settle(&self, out: &mut Outbox) {
        let mut shared = Vec::new();
        self.settle_pairs(out, &mut shared);
        for ssq in shared {
            out.wake_sends(ssq);
        }
    }

    fn settle_pairs(&self, out: &mut Outbox, shared: &mut Vec<u32>) {
        loop {
            let (woken, overflows) = (out.take_woken(), out.take_overflows());
            if woken.is_empty() && overflows.is_empty() {
                return;
            }
            // A queue pair that was destroyed meanwhile has passed its reserved receive on when it left the line.
            for wake in woken {
                match wake {
                    Wake::Sends(ssq) if shared.contains(&ssq) => {}
                    Wake::Sends(ssq) => shared.push(ssq),
                    Wake::Failed(_) => verbena_events::event::failure_handled(),
                    Wake::Receive(number) | Wake::Memory(number) => {
                        if let Ok(qp) = self.qp(number) {
                            qp.wake(wake, out);
                        }
                    }
                }
            }
            for cq in overflows {
                for qp in self.qps_of_cq(cq) {
                    qp.fail_overflowed(out);
                }
                for qp in self.uds_of_cq(cq) {
                    qp.fail_overflowed(out);
                }
                for qp in self.ulps_of_cq(cq) {
                    qp.fail_overflowed(out);
                }
            }
        }
    }

    /// Settles the outbox and raises its events.
    pub fn deliver(&self, out: &mut Outbox, raise: &dyn Raise) {
        self.settle(out);
        out.flush(raise);
    }
}

#[cfg(test)]
mod tests;
