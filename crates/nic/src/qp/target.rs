//! The receive side of an XRC target: each request is for the shared receive queue that its initiator named last (docs/extensions.md).
//! That queue's completion queue, protection domain and memory take the place of the queue pair's own from the beginning of the request
//! to the beginning of one for another queue. A number that the XRC domain does not have ends the stream at the first request for it.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_stream::{Delivery, Violation};
use verbena_wire::Srqn;

use super::QpInit;
use super::inner::Inner;
use crate::xrc::{XrcDomain, XrcSrq};

/// Whether a request can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selected {
    /// The parts are those of its queue.
    Ready,
    /// Its queue is one of another process.
    Elsewhere,
    /// Responses must be sent before; the stream is not read until then.
    Held,
    /// There is no such queue, and the stream is over.
    Refused,
}

impl QpInit {
    /// The same queue pair while it executes requests for this queue.
    fn with_srq(&self, queue: &XrcSrq) -> QpInit {
        QpInit {
            pd: queue.srq.pd(),
            recv_cq: queue.cq.clone(),
            srq: Some(queue.srq.clone()),
            tpt: queue.tpt.clone(),
            ..self.clone()
        }
    }
}

impl Inner {
    /// A request begins, or goes on: its queue takes the place of the last one.
    #[inline]
    pub(super) fn select_srq(&mut self, init: &QpInit, out: &mut Outbox) -> Selected {
        match &init.xrcd {
            None => Selected::Ready,
            Some(domain) => self.select_named_srq(init, domain, out),
        }
    }

    fn select_named_srq(
        &mut self,
        init: &QpInit,
        domain: &XrcDomain,
        out: &mut Outbox,
    ) -> Selected {
        let target = self.receive.target();
        let named = target.named;
        if named.is_some() && named == target.selected {
            return match target.relay {
                None => Selected::Ready,
                Some(_) => Selected::Elsewhere,
            };
        }
        let last = target.parts.as_ref().map(|parts| parts.pd);
        let Some(queue) = named.and_then(|number| domain.find(number)) else {
            let number = named.unwrap_or_default();
            let processes = domain.processes();
            let process = processes.and_then(|all| Some((all, all.process_of(number)?)));
            if last.is_some() && self.has_responses() && process.is_some() {
                self.hold_for_responses();
                return Selected::Held;
            }
            if let Some((processes, process)) = process
                && self.select_relay(init, processes, (number, process), out)
            {
                return Selected::Elsewhere;
            }
            self.refuse_request(init, Violation::NoSuchSrq(number), out);
            return Selected::Refused;
        };
        if self.has_responses() && last.is_some_and(|pd| pd != queue.srq.pd()) {
            // Their memory is looked up in the domain of the queue that their requests were for.
            self.hold_for_responses();
            return Selected::Held;
        }
        self.return_receives(init, out);
        self.put_relay_aside();
        let parts = Some(Arc::new(init.with_srq(&queue)));
        let target = self.receive.target_mut();
        (target.selected, target.parts) = (named, parts);
        Selected::Ready
    }

    /// The same as [`deliver_message`](Self::deliver_message), for an XRC target.
    pub(super) fn deliver_to_target(
        &mut self,
        init: &QpInit,
        delivery: &Delivery,
        out: &mut Outbox,
    ) -> bool {
        match delivery {
            Delivery::Srq(number) => {
                self.receive.target_mut().named = Some(*number);
                return true;
            }
            Delivery::ReadRequest { .. }
            | Delivery::ReadV2Request { .. }
            | Delivery::AtomicRequest { .. } => match self.select_srq(init, out) {
                Selected::Ready => {}
                Selected::Elsewhere => return self.relay_request(init, delivery, out),
                Selected::Held => {
                    self.defer(delivery);
                    return false;
                }
                Selected::Refused => return false,
            },
            Delivery::Send { .. } | Delivery::Immediate { .. } | Delivery::Write { .. }
                if self.is_relaying() =>
            {
                return self.relay_end(init, delivery, out);
            }
            _ => {}
        }
        let parts = self.receive.target_parts();
        self.deliver_message(parts.as_deref().unwrap_or(init), delivery, out)
    }

    /// The queue is being destroyed: nothing completes in its completion queue after this. The receive that a message has taken ends without a
    /// completion, like those that wait in the queue, and its stream fails; so does one that waits for a receive of the queue.
    pub(super) fn forget_srq(&mut self, init: &QpInit, number: Srqn, out: &mut Outbox) {
        if self.receive.target().selected != Some(number) {
            return;
        }
        let needed = self.receive.claimed().is_some() || self.awaits_receive();
        self.receive.take_claimed();
        self.receive.leave_srq_waiters(init, out);
        self.receive.target_mut().selected = None;
        if needed && !self.state.flushes() {
            self.refuse_request(init, Violation::NoSuchSrq(number), out);
            // Its connection sends the Terminate.
            out.wake(init.number);
        }
    }
}
