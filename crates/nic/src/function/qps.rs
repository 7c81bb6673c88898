//! Queue pairs of a function: create, query, modify, destroy.
//! All parts of a queue pair exist, fit together and stay while it lives (N1, N9), and no completion of a destroyed one is left in
//! any queue.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::Pd;

use super::Function;
use super::users::Use;
use crate::cq::Cq;
use crate::error::Error;
use crate::memory_scope::MemoryScope;
use crate::profile::Service;
use crate::qp::{Limits, Qp, QpInit, Registration, Transfer, View};
use crate::srq::Srq;
use crate::ssq::Ssq;
use crate::state::{Personality, QpState, QpType, RdmacState};
use crate::ud::UdQp;
use crate::ulp::{NewUlp, UlpQp};
use crate::xrc::XrcDomain;

/// A queue pair to create, its parts named by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewQp {
    /// Its number in completions, if not its own.
    pub wc_qpn: Option<u32>,
    /// Its domain.
    pub pd: Pd,
    /// RoCE or iWARP.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// The completion queue of its sends.
    pub send_cq: u32,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: u32,
    /// A shared receive queue of the same domain, instead of its own.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
    /// How its bytes are moved.
    pub transfer: Transfer,
    /// Whether its requests may register memory (M4).
    pub registration: Registration,
}

/// Result of a query of a queue pair (N1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QpInfo {
    /// Its parts.
    pub init_attr: NewQp,
    /// Its changing attributes: state, what the peer may do, first cause of failure, counters, outstanding work.
    pub view: View,
    /// The state in the terms of the RDMA Consortium.
    pub rdmac: RdmacState,
    /// The state's number in verbs.
    pub verbs: u8,
}

/// A queue pair and its uses of its parts.
#[derive(Debug)]
pub(super) struct QpRow {
    pub(super) kind: Kind,
    pub(super) uses: Uses,
}

/// The kinds of queue pairs: they share one table, so that a number names only one of them (M14).
#[derive(Debug)]
pub(super) enum Kind {
    /// On a connection.
    Connected(Arc<Qp>, Box<NewQp>),
    /// For datagrams.
    Datagrams(Arc<UdQp>),
    /// Of an upper-layer protocol (M12).
    Ulp(UlpRow),
}

/// A queue pair of an upper-layer protocol, and its parts.
#[derive(Debug)]
pub(super) struct UlpRow {
    pub(super) qp: Arc<dyn UlpQp>,
    pub(super) new: NewUlp,
}

/// Released together, when the queue pair is out of its table.
#[derive(Debug)]
pub(super) struct Uses {
    pub(super) send: Arc<Cq>,
    pub(super) recv: Arc<Cq>,
    pub(super) srq: Option<Arc<Srq>>,
    /// V6: the queue that its sends come from. That queue has the use of the completion queue.
    pub(super) ssq: Option<Arc<Ssq>>,
    /// The domain of an XRC target.
    xrcd: Option<Arc<XrcDomain>>,
    _pd: Use,
    /// `None` if it is the receives' or the shared send queue's: a completion queue counts queue pairs, not work queues.
    _send_cq: Option<Use>,
    _recv_cq: Use,
    _srq: Option<Use>,
    _ssq: Option<Use>,
    /// V1: domains of former functions whose memory its connection still reaches.
    _former_domains: Vec<Arc<Use>>,
}

impl Uses {
    /// The same for a connection that was moved here.
    pub(super) fn with_former_domains(self, past: Vec<Arc<Use>>) -> Uses {
        Uses {
            _former_domains: past,
            ..self
        }
    }
}

impl QpRow {
    /// It completes in this queue.
    pub(super) fn completes_in(&self, cq: u32) -> bool {
        let shared = self.uses.ssq.as_ref();
        let send = shared.map_or(self.uses.send.number(), |ssq| ssq.cq().number());
        send == cq || self.uses.recv.number() == cq
    }

    pub(super) fn connected(&self) -> Option<&Arc<Qp>> {
        match &self.kind {
            Kind::Connected(qp, _) => Some(qp),
            Kind::Datagrams(_) | Kind::Ulp(_) => None,
        }
    }
}

impl Function {
    /// A queue pair in `Reset`.
    pub fn create_qp(&self, new: NewQp) -> Result<Arc<Qp>, Error> {
        self.make_qp(new, None)
    }

    /// A queue pair in `Reset` that is a channel of a shared send queue (V6): its sends come from that queue and complete in its
    /// completion queue, whatever `send_cq` is, and at most `limits.sends` of them are in progress at once.
    pub fn create_channel(&self, ssq: u32, new: NewQp) -> Result<Arc<Qp>, Error> {
        self.attributes.check_qp(&new.limits)?;
        let uses = self.use_channel_parts(ssq, &new)?;
        let qp = self.add_qp(new, uses, None, self.memory_scope(new.pd))?;
        self.ssq(ssq)?.join(&qp, new.limits.sends);
        Ok(qp)
    }

    /// An XRC target in `Reset`: requests that it receives name shared receive queues of this domain. It sends no requests; the protection
    /// domain and completion queues of `new` stay unused.
    pub fn create_xrc_target(&self, domain: &Arc<XrcDomain>, new: NewQp) -> Result<Arc<Qp>, Error> {
        if new.qp_type != QpType::XrcRecv || new.srq.is_some() {
            return Err(Error::Xrc(
                "an XRC target has the type XrcRecv and no shared receive queue of its own",
            ));
        }
        self.attributes.check_qp(&new.limits)?;
        let parts = self.use_parts(new.pd, (new.send_cq, new.recv_cq), None)?;
        let uses = Uses {
            xrcd: Some(domain.clone()),
            ..parts
        };
        self.add_qp(new, uses, None, self.memory_scope(new.pd))
    }

    /// The targets of an XRC domain.
    pub(super) fn targets_of(&self, domain: &Arc<XrcDomain>) -> Vec<Arc<Qp>> {
        let here = |qp: &&Arc<Qp>| {
            let own = qp.init().xrcd.as_ref();
            own.is_some_and(|own| Arc::ptr_eq(own, domain))
        };
        self.qps
            .collect(|pair| pair.connected().filter(here).cloned())
    }

    /// A queue pair in `Reset`, with the reserved number if one is given.
    pub(super) fn make_qp(&self, new: NewQp, promised: Option<u32>) -> Result<Arc<Qp>, Error> {
        self.attributes.check_qp(&new.limits)?;
        match new.qp_type {
            QpType::XrcRecv => return Err(Error::Xrc("an XRC target needs an XRC domain")),
            QpType::XrcSend if new.srq.is_some() => {
                return Err(Error::Xrc("an XRC initiator has no receives"));
            }
            _ => {}
        }
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        self.add_qp(new, uses, promised, self.memory_scope(new.pd))
    }

    pub(super) fn add_qp(
        &self,
        new: NewQp,
        uses: Uses,
        promised: Option<u32>,
        tpt: MemoryScope,
    ) -> Result<Arc<Qp>, Error> {
        self.check_service(Service::Rdma)?;
        // Sends cannot be posted to a channel directly, and those of an XRC initiator name a queue.
        let xrc = new.qp_type.is_xrc();
        let sends = if uses.ssq.is_some() || xrc {
            0
        } else {
            new.limits.sends
        };
        let receives = if xrc { 0 } else { new.limits.receives };
        let limits = Limits {
            sends,
            receives,
            ..new.limits
        };
        let initiates = new.qp_type == QpType::XrcSend;
        let xrc_sends = if initiates { new.limits.sends } else { 0 };
        let mut made = None;
        let make = |number| {
            let qp = Arc::new(Qp::new(QpInit {
                number,
                wc_qpn: new.wc_qpn.unwrap_or(number),
                pd: new.pd,
                personality: new.personality,
                qp_type: new.qp_type,
                send_cq: uses.send.clone(),
                recv_cq: uses.recv.clone(),
                srq: uses.srq.clone(),
                xrcd: uses.xrcd.clone(),
                xrc_sends,
                tpt,
                limits,
                transfer: new.transfer,
                registration: new.registration,
                observer: self.observer.clone(),
            }));
            made = Some(qp.clone());
            Ok(QpRow {
                kind: Kind::Connected(qp, Box::new(new)),
                uses,
            })
        };
        match promised {
            None => self.qps.add(make, |_| ())?,
            Some(number) => self.qps.fill(number, make, |_| ())?,
        }
        made.ok_or(self.qps.no_such(0))
    }

    /// The memory of this function alone.
    pub(super) fn memory_scope(&self, pd: Pd) -> MemoryScope {
        MemoryScope::new(&self.tpt, pd, Vec::new())
    }

    /// The queue pair with this number.
    pub fn qp(&self, number: u32) -> Result<Arc<Qp>, Error> {
        self.connected(number, |qp, _| qp.clone())
    }

    /// Queue pairs that complete in this queue.
    pub fn qps_of_cq(&self, cq: u32) -> Vec<Arc<Qp>> {
        let here = |pair: &&QpRow| pair.completes_in(cq);
        self.qps
            .collect(|pair| Some(pair).filter(here)?.connected().cloned())
    }

    /// All queue pairs on connections.
    pub fn all_qps(&self) -> Vec<Arc<Qp>> {
        self.qps.collect(|pair| pair.connected().cloned())
    }

    /// Attributes and state of a queue pair.
    pub fn query_qp(&self, number: u32) -> Result<QpInfo, Error> {
        let (made, qp) = self.connected(number, |qp, made| (*made, qp.clone()))?;
        let view = qp.view();
        Ok(QpInfo {
            init_attr: made,
            rdmac: view.state.rdmac(),
            verbs: view.state.verbs(),
            view,
        })
    }

    /// Requests a state of a queue pair.
    pub fn modify_qp(&self, number: u32, to: QpState, out: &mut Outbox) -> Result<(), Error> {
        let qp = self.qp(number)?;
        let done = qp.modify(to, out);
        if done.is_ok() && to == QpState::Reset {
            self.flush_channel(number, out);
        }
        self.settle(out);
        Ok(done?)
    }

    /// Destroys a queue pair in any state: its completions are removed, and the receive reserved for it goes to the next waiter,
    /// which the outbox names and whose connection must send.
    ///
    /// Returns the bytes its connection should still send before it is closed.
    pub fn destroy_qp(&self, number: u32, out: &mut Outbox) -> Result<Vec<u8>, Error> {
        let qp = self.qp(number)?;
        // Of two concurrent calls only one retires it; the number is freed only after everything else.
        let last = qp.retire(out).ok_or(self.qps.no_such(number))?;
        let init = qp.init();
        let shared = self.qps.with(number, |pair| pair.uses.ssq.clone())?;
        if !qp.is_moved() {
            init.send_cq.discard_qp_entries(init.wc_qpn);
            if shared.is_some() {
                // V6: the completions of its sends are the shared send queue's, which may complete in the same queue.
                drop(init.recv_cq.take_received_entries(init.wc_qpn));
            } else {
                init.recv_cq.discard_qp_entries(init.wc_qpn);
            }
        }
        if let Some(ssq) = shared {
            // Its requests in the shared send queue are flushed and complete in their turn.
            ssq.leave(number);
            out.wake_sends(ssq.number());
        }
        self.retired_counters
            .remove_qp(&qp, || self.qps.remove(number, |_| 0).map(drop))?;
        Ok(last)
    }

    /// Calls `look` with a queue pair on a connection.
    pub(super) fn connected<R>(
        &self,
        number: u32,
        look: impl FnOnce(&Arc<Qp>, &NewQp) -> R,
    ) -> Result<R, Error> {
        let found = self.qps.with(number, |pair| match &pair.kind {
            Kind::Connected(qp, made) => Some(look(qp, made)),
            Kind::Datagrams(_) | Kind::Ulp(_) => None,
        })?;
        found.ok_or(self.qps.no_such(number))
    }

    /// Uses of all parts of a queue pair.
    pub(super) fn use_parts(
        &self,
        pd: Pd,
        (send, recv): (u32, u32),
        srq: Option<u32>,
    ) -> Result<Uses, Error> {
        let pd_use = self.use_pd(pd)?;
        let (recv_cq, recv_use) = self.use_cq(recv)?;
        let (send_cq, send_use) = if recv == send {
            (recv_cq.clone(), None)
        } else {
            let (cq, used) = self.use_cq(send)?;
            (cq, Some(used))
        };
        let (srq, srq_use) = match srq {
            Some(number) => {
                let (srq, used) = self.use_srq(number, pd)?;
                (Some(srq), Some(used))
            }
            None => (None, None),
        };
        Ok(Uses {
            send: send_cq,
            recv: recv_cq,
            srq,
            ssq: None,
            xrcd: None,
            _pd: pd_use,
            _send_cq: send_use,
            _recv_cq: recv_use,
            _srq: srq_use,
            _ssq: None,
            _former_domains: Vec::new(),
        })
    }

    /// Uses of all parts of a channel (V6).
    pub(super) fn use_channel_parts(&self, number: u32, new: &NewQp) -> Result<Uses, Error> {
        let (ssq, used) = self.use_ssq(number)?;
        let (owner, asker) = (ssq.pd(), new.pd);
        if owner != asker {
            let ssq = number;
            return Err(Error::ChannelDomain {
                ssq,
                owner,
                requester: asker,
            });
        }
        if new.qp_type != QpType::Rc {
            return Err(Error::Unreliable { ssq: number });
        }
        let parts = self.use_parts(new.pd, (new.recv_cq, new.recv_cq), new.srq)?;
        Ok(Uses {
            send: ssq.inbox().clone(),
            ssq: Some(ssq),
            _ssq: Some(used),
            ..parts
        })
    }

    pub(super) fn use_cq(&self, number: u32) -> Result<(Arc<Cq>, Use), Error> {
        self.cqs
            .with(number, |row| (row.cq.clone(), Use::of(&row.users)))
    }

    fn use_srq(&self, number: u32, pd: Pd) -> Result<(Arc<Srq>, Use), Error> {
        let (srq, used, xrc) = self.srqs.with(number, |row| {
            (row.srq.clone(), Use::of(&row.users), row.xrc.is_some())
        })?;
        if xrc {
            return Err(Error::Xrc(
                "requests name a shared receive queue of an XRC domain; it cannot be a queue pair's own",
            ));
        }
        if srq.pd() != pd {
            return Err(Error::Domain {
                srq: number,
                owner: srq.pd(),
                requester: pd,
            });
        }
        Ok((srq, used))
    }
}
