//! State changes of a datagram queue pair, and its destruction.
//! A change that is not allowed leaves everything as it was, and a retired queue pair completes nothing more. The caller calls
//! [`transmit`](UdQp::transmit) after a state change.

use verbena_events::event::{Event, Outbox};

use super::receive::receive_failed;
use super::{Inner, UdInit, UdQp};
use crate::state::{QpEvent, QpState, TransitionError};
use crate::wc::Status;

impl UdQp {
    /// Requests a state. An error if the transition is not allowed, or the queue pair was retired: nothing has changed then.
    pub fn modify(&self, to: QpState, out: &mut Outbox) -> Result<(), TransitionError> {
        self.inner.lock().modify(&self.init, to, out)
    }

    /// A completion queue of this queue pair lost entries: it fails.
    pub fn fail_overflowed(&self, out: &mut Outbox) {
        let mut inner = self.inner.lock();
        if inner.state != QpState::Reset {
            inner.fail_cq_overflow(&self.init, out);
        }
    }

    /// Ends the queue pair for good: nothing completes any more. False if it was retired before.
    pub fn retire(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.empty();
        !core::mem::replace(&mut inner.retired, true)
    }
}

impl Inner {
    fn modify(
        &mut self,
        init: &UdInit,
        to: QpState,
        out: &mut Outbox,
    ) -> Result<(), TransitionError> {
        let next = self.state.next_ud(QpEvent::Modify(to));
        let Some(next) = next.filter(|_| !self.retired) else {
            return Err(TransitionError {
                number: init.number,
                from: self.state,
                to,
            });
        };
        match next {
            QpState::Reset => {
                self.empty();
                // Under the lock, where nothing else can complete work of this queue pair.
                init.send_cq.discard_qp_entries(init.qpn.get());
                init.recv_cq.discard_qp_entries(init.qpn.get());
            }
            QpState::Err => {
                self.cause
                    .get_or_insert_with(|| "requested by the consumer".to_owned());
                self.end(init, QpEvent::Modify(to), out);
            }
            QpState::Sqd => {
                self.state = QpState::Sqd;
                // A datagram is sent as a whole or not at all, so none is in progress.
                out.push(Event::SqDrained { qp: init.number });
            }
            QpState::Rts if self.state == QpState::Sqe => {
                self.cause = None;
                self.state = QpState::Rts;
            }
            state => self.state = state,
        }
        Ok(())
    }

    /// Leaves the working states; everything flushes, each queue in posting order.
    pub(super) fn end(&mut self, init: &UdInit, event: QpEvent, out: &mut Outbox) {
        if let Some(next) = self.state.next_ud(event) {
            self.state = next;
        }
        self.flush_sends(init, out);
        self.flush_receives(init, out);
    }

    pub(super) fn flush_receives(&mut self, init: &UdInit, out: &mut Outbox) {
        while let Some(receive) = self.receives.take() {
            let wc = receive_failed(init, receive.id, Status::WrFlushErr);
            init.recv_cq.push(wc, out);
        }
        if init.srq.is_some() && !core::mem::replace(&mut self.last_wqe_raised, true) {
            out.push(Event::LastWqe { qp: init.number });
        }
    }

    /// Resets everything but its counters and its Q_Key.
    fn empty(&mut self) {
        self.state = QpState::Reset;
        self.sends.clear();
        while self.receives.take().is_some() {}
        self.cause = None;
        self.last_wqe_raised = false;
    }
}
