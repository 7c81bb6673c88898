//! Queue pairs of upper-layer protocols in a function: create, find, destroy (M12).
//! As for every queue pair, all parts exist, fit together and stay while it lives (N1, N9). They share the numbers and the limit of
//! all other queue pairs, but are found only by the calls here.

use std::sync::Arc;

use verbena_events::event::Outbox;

use super::Function;
use super::qps::{Kind, QpRow, UlpRow};
use crate::error::Error;
use crate::state::QpState;
use crate::ulp::{NewUlp, UlpInit, UlpQp, UlpView};

/// Result of a query of such a queue pair (N1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UlpInfo {
    /// Its number.
    pub number: u32,
    /// Its parts.
    pub init_attr: NewUlp,
    /// Its state.
    pub state: QpState,
    /// What it shows of itself.
    pub view: UlpView,
}

impl Function {
    /// A queue pair of an upper-layer protocol, made by `make`.
    pub fn create_ulp<U: UlpQp + 'static>(
        &self,
        new: NewUlp,
        make: impl FnOnce(UlpInit) -> U,
    ) -> Result<Arc<U>, Error> {
        self.check_service(new.service)?;
        self.attributes.check_qp(&new.limits)?;
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        let mut made = None;
        let make = |number| {
            let qp = Arc::new(make(UlpInit {
                number,
                pd: new.pd,
                send_cq: uses.send.clone(),
                recv_cq: uses.recv.clone(),
                srq: uses.srq.clone(),
                tpt: self.tpt.clone(),
                limits: new.limits,
            }));
            made = Some(qp.clone());
            Ok(QpRow {
                kind: Kind::Ulp(UlpRow { qp, new }),
                uses,
            })
        };
        self.qps.add(make, |_| ())?;
        made.ok_or(self.qps.no_such(0))
    }

    /// Queue pairs of upper-layer protocols that complete in this queue.
    pub fn ulps_of_cq(&self, cq: u32) -> Vec<Arc<dyn UlpQp>> {
        let here = |pair: &&QpRow| pair.completes_in(cq);
        self.qps
            .collect(|pair| Some(pair).filter(here)?.ulp().cloned())
    }

    /// All queue pairs of upper-layer protocols, with their attributes and state.
    pub fn query_ulps(&self) -> Vec<UlpInfo> {
        let row = |pair: &QpRow| match &pair.kind {
            Kind::Ulp(row) => Some((row.qp.clone(), row.new)),
            Kind::Connected(..) | Kind::Datagrams(_) => None,
        };
        // Asked without the lock of the table: the code is the protocol's.
        let all = self.qps.collect(row).into_iter();
        all.map(|(qp, init_attr)| UlpInfo {
            number: qp.number(),
            init_attr,
            state: qp.state(),
            view: qp.ulp_view(),
        })
        .collect()
    }

    /// Destroys such a queue pair: its completions are removed.
    pub fn destroy_ulp(&self, number: u32, out: &mut Outbox) -> Result<(), Error> {
        let found = self.qps.with(number, |pair| {
            let queues = (pair.uses.send.clone(), pair.uses.recv.clone());
            pair.ulp().cloned().map(|qp| (qp, queues))
        })?;
        let (qp, (send, recv)) = found.ok_or(self.qps.no_such(number))?;
        // Of two concurrent calls only one retires it; the number is freed only after everything else.
        if !qp.retire(out) {
            return Err(self.qps.no_such(number));
        }
        send.discard_qp_entries(number);
        recv.discard_qp_entries(number);
        self.retired_counters
            .remove_ulp(|| self.qps.remove(number, |_| 0).map(drop))
    }
}

impl QpRow {
    fn ulp(&self) -> Option<&Arc<dyn UlpQp>> {
        match &self.kind {
            Kind::Ulp(row) => Some(&row.qp),
            Kind::Connected(..) | Kind::Datagrams(_) => None,
        }
    }
}
