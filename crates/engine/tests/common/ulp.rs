//! A queue pair of an upper-layer protocol without structure, for tests: bytes are sent as they were posted, and what arrives together
//! goes into the oldest receive. A complete protocol is in `crates/verbena/tests/ulp`.

use std::net::SocketAddr;

use parking_lot::Mutex;
use verbena_engine::{CompletionQueue, Engine, UlpOptions, UlpPair};
use verbena_mem::{Pd, Sources, Targets};
use verbena_nic::profile::Service;
use verbena_nic::{
    Carrier, IoOutcome, Outbox, QpState, ReceiveQueue, ReceiveWr, Receiving, Sending, Status, Time,
    UlpInit, UlpQp, Wc, WcOp,
};

use super::{LIMITS, TEST_TIMEOUT};

/// The queue pair.
#[derive(Debug)]
pub struct RawQp {
    init: UlpInit,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: QpState,
    retired: bool,
    unsent: Vec<u8>,
    receives: ReceiveQueue,
}

/// Connects one whose requests complete in `cq`.
pub fn connect(engine: &Engine, cq: &CompletionQueue, pd: Pd, to: SocketAddr) -> UlpPair<RawQp> {
    let options = UlpOptions {
        service: Service::Rdma,
        pd,
        srq: None,
        limits: LIMITS,
        connect_timeout: TEST_TIMEOUT,
    };
    let connecting = engine.connect_ulp(to, options).unwrap();
    connecting.wait().unwrap();
    let make = |init: UlpInit| {
        let receives = ReceiveQueue::new(init.limits.receives, 1);
        let inner = Inner {
            state: QpState::Reset,
            retired: false,
            unsent: Vec::new(),
            receives,
        };
        let inner = Mutex::new(inner);
        RawQp { init, inner }
    };
    connecting.into_pair((cq, cq), make).unwrap()
}

impl RawQp {
    pub fn send(&self, bytes: &[u8]) {
        self.inner.lock().unsent.extend_from_slice(bytes);
    }

    pub fn post_receive(&self, wr: &ReceiveWr<'_>) {
        self.inner.lock().receives.post(wr).unwrap();
    }

    fn complete(&self, id: u64, status: Status, len: usize, out: &mut Outbox) {
        let wc = Wc {
            id,
            qpn: self.init.number,
            status,
            op: WcOp::Receive,
            len: len as u32,
            ..Wc::default()
        };
        self.init.recv_cq.push(wc, out);
    }

    fn end(&self, inner: &mut Inner, out: &mut Outbox) {
        inner.state = QpState::Err;
        inner.unsent.clear();
        while let Some(receive) = inner.receives.take() {
            if !inner.retired {
                self.complete(receive.id, Status::WrFlushErr, 0, out);
            }
        }
    }
}

impl UlpQp for RawQp {
    fn number(&self) -> u32 {
        self.init.number
    }

    fn state(&self) -> QpState {
        self.inner.lock().state
    }

    fn handle_connected(&self) {
        self.inner.lock().state = QpState::Rts;
    }

    fn receive(&self, carrier: &mut dyn Carrier, _: Time, out: &mut Outbox) -> Receiving {
        let inner = &mut *self.inner.lock();
        if inner.state != QpState::Rts {
            return Receiving::Ended;
        }
        let mut stage = [0];
        let moved = {
            let mut targets = Targets::new();
            match inner.receives.front() {
                Some(receive) => {
                    targets.place(self.init.place(&receive.scatter[0]).unwrap());
                }
                // One byte, to notice the end of the connection.
                None => {
                    targets.stage(&mut stage);
                }
            }
            carrier.read(&mut targets)
        };
        match (moved, inner.receives.take()) {
            (IoOutcome::Bytes(n), Some(receive)) => {
                self.complete(receive.id, Status::Success, n, out);
                Receiving::Some(n)
            }
            (IoOutcome::WouldBlock, receive) => {
                receive
                    .into_iter()
                    .for_each(|it| inner.receives.put_back(it));
                Receiving::WouldBlock
            }
            (_, receive) => {
                receive
                    .into_iter()
                    .for_each(|it| inner.receives.put_back(it));
                self.end(inner, out);
                Receiving::Ended
            }
        }
    }

    fn try_transmit(
        &self,
        carrier: &mut dyn Carrier,
        _: Time,
        out: &mut Outbox,
    ) -> Option<Sending> {
        let inner = &mut *self.inner.lock();
        while inner.state == QpState::Rts && !inner.unsent.is_empty() {
            let moved = {
                let mut sources = Sources::new();
                sources.borrow_bytes(&inner.unsent);
                carrier.write(&sources)
            };
            match moved {
                IoOutcome::Bytes(n) => drop(inner.unsent.drain(..n)),
                IoOutcome::WouldBlock => return Some(Sending::Blocked),
                _ => self.end(inner, out),
            }
        }
        match inner.state {
            QpState::Rts => Some(Sending::Idle),
            _ => Some(Sending::Ended),
        }
    }

    fn fail(&self, _: &str, out: &mut Outbox) {
        self.end(&mut self.inner.lock(), out);
    }

    fn retire(&self, _: &mut Outbox) -> bool {
        let mut inner = self.inner.lock();
        let before = std::mem::replace(&mut inner.retired, true);
        self.end(&mut inner, &mut Outbox::new());
        !before
    }

    fn is_busy(&self) -> bool {
        !self.inner.lock().unsent.is_empty()
    }
}
