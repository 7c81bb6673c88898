//! A protocol as a crate outside of the adapter would write it, with the public API alone: messages with a length of 4 bytes in front.
//! A message is sent from registered memory and received into the memory of the oldest receive, without a copy in between. A send
//! completes when its last byte was handed to the connection. A message that is longer than its receive ends the queue pair; so does
//! a reply that does not arrive within the time limit.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use verbena::events::Event;
use verbena::low::{BareCq, Pd, QpState, RecvWr, Sge, Wc, WcOp};
use verbena::ulp::{
    Carrier, IoOutcome, Outbox, Receive, ReceiveQueue, ReceiveQueueError, Receiving, Refusal,
    Sending, Sources, Targets, Time, UlpConnection, UlpInit, UlpOptions, UlpQp,
};
use verbena::{Error, Status};

/// Bytes of the length in front of a message.
const HEADER: usize = 4;

/// Why a request was not posted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FramedError {
    /// The queue pair accepts no request in this state.
    State(QpState),
    /// The queue is full.
    Full,
    /// A receive has more than one piece.
    Pieces,
}

/// The queue pair that a program holds: the methods post the protocol's own requests.
#[derive(Debug)]
pub(crate) struct FramedQp(UlpConnection<Framed>);

impl FramedQp {
    /// Connects to a peer. A reply has to begin within `reply_limit` after a send, if there is one.
    pub(crate) fn connect(
        pd: &Pd,
        queues: (&BareCq, &BareCq),
        to: SocketAddr,
        reply_limit: Option<Duration>,
    ) -> Result<FramedQp, Error> {
        let make = |init: UlpInit| Framed::new(init, reply_limit);
        let options = UlpOptions::default();
        UlpConnection::connect(pd, queues, to, options, make).map(FramedQp)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number()
    }

    pub(crate) fn state(&self) -> QpState {
        self.0.qp().state()
    }

    pub(crate) fn cause(&self) -> Option<String> {
        self.0.qp().lock().cause.clone()
    }

    /// Posts a message, which is sent at once.
    pub(crate) fn send(&self, id: u64, message: Sge) -> Result<(), FramedError> {
        let posted = self.0.post(|qp, out| qp.post_send(id, message, out));
        posted.map_err(FramedError::State)?
    }

    /// Posts messages, which are sent together.
    pub(crate) fn send_all(&self, messages: &[(u64, Sge)]) -> Result<(), FramedError> {
        for (id, message) in messages {
            let posted = self
                .0
                .post_deferred(|qp, out| qp.post_send(*id, *message, out));
            posted.map_err(FramedError::State)??;
        }
        self.0.transmit();
        Ok(())
    }

    /// Posts a receive.
    pub(crate) fn receive(&self, id: u64, place: Sge) -> Result<(), FramedError> {
        let scatter = &[place];
        let wr = RecvWr { id, scatter };
        let posted = self.0.post_recv(|qp, out| qp.post_receive(&wr, out));
        posted.map_err(FramedError::State)?
    }

    /// Ends the queue pair.
    pub(crate) fn fail(&self, cause: &str) {
        self.0.fail(cause);
    }
}

/// The protocol.
#[derive(Debug)]
pub(crate) struct Framed {
    init: UlpInit,
    reply_limit: Option<Duration>,
    inner: Mutex<Inner>,
}

/// Everything that changes. One lock serializes both directions: no call blocks under it.
#[derive(Debug)]
struct Inner {
    state: QpState,
    retired: bool,
    cause: Option<String>,
    sends: VecDeque<Send>,
    receives: ReceiveQueue,
    /// The length of the message that arrives, as far as it has.
    header: [u8; HEADER],
    header_len: usize,
    /// The message that arrives.
    body: Option<Body>,
    deadline: Option<Time>,
}

#[derive(Debug)]
struct Send {
    id: u64,
    header: [u8; HEADER],
    message: Sge,
    /// Bytes sent, those of the header included.
    sent: usize,
}

#[derive(Debug)]
struct Body {
    receive: Receive,
    len: u32,
    done: u32,
}

/// The rest of a piece, behind the first `skip` bytes.
fn behind(sge: &Sge, skip: u32) -> Sge {
    Sge {
        addr: sge.addr + u64::from(skip),
        len: sge.len - skip,
        stag: sge.stag,
    }
}

impl Framed {
    fn new(init: UlpInit, reply_limit: Option<Duration>) -> Framed {
        let inner = Inner {
            state: QpState::Reset,
            retired: false,
            cause: None,
            sends: VecDeque::new(),
            receives: ReceiveQueue::new(init.limits.receives, 1),
            header: [0; HEADER],
            header_len: 0,
            body: None,
            deadline: None,
        };
        Framed {
            init,
            reply_limit,
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn post_send(&self, id: u64, message: Sge, out: &mut Outbox) -> Result<(), FramedError> {
        let mut inner = self.lock();
        match inner.state {
            QpState::Rts => {}
            QpState::Err => {
                self.complete(WcOp::Send, id, Status::WrFlushErr, 0, out);
                return Ok(());
            }
            state => return Err(FramedError::State(state)),
        }
        if inner.sends.len() >= self.init.limits.sends {
            return Err(FramedError::Full);
        }
        inner.sends.push_back(Send {
            id,
            header: message.len.to_be_bytes(),
            message,
            sent: 0,
        });
        Ok(())
    }

    fn post_receive(&self, wr: &RecvWr<'_>, out: &mut Outbox) -> Result<(), FramedError> {
        let mut inner = self.lock();
        if inner.state == QpState::Err {
            self.complete(WcOp::Receive, wr.id, Status::WrFlushErr, 0, out);
            return Ok(());
        }
        inner.receives.post(wr).map_err(|error| match error {
            ReceiveQueueError::Full(_) => FramedError::Full,
            ReceiveQueueError::TooManySges { .. } => FramedError::Pieces,
        })
    }

    fn complete(&self, op: WcOp, id: u64, status: Status, len: u32, out: &mut Outbox) {
        let queue = match op {
            WcOp::Receive => &self.init.recv_cq,
            _ => &self.init.send_cq,
        };
        let qpn = self.init.number;
        let wc = Wc {
            id,
            qpn,
            status,
            op,
            len,
            ..Wc::default()
        };
        queue.push(wc, out);
    }

    /// Moves to `Err`; what is outstanding completes as flushed, unless the queue pair was destroyed.
    fn end(&self, inner: &mut Inner, cause: &str, out: &mut Outbox) {
        if inner.state == QpState::Err {
            return;
        }
        inner.state = QpState::Err;
        inner.cause = Some(cause.to_owned());
        inner.deadline = None;
        let sends = std::mem::take(&mut inner.sends);
        let none = ReceiveQueue::new(0, 0);
        let mut rest = std::mem::replace(&mut inner.receives, none);
        let begun = inner.body.take().map(|body| body.receive);
        if inner.retired {
            return;
        }
        for send in sends {
            self.complete(WcOp::Send, send.id, Status::WrFlushErr, 0, out);
        }
        for receive in begun.into_iter().chain(std::iter::from_fn(|| rest.take())) {
            self.complete(WcOp::Receive, receive.id, Status::WrFlushErr, 0, out);
        }
        let qp = self.init.number;
        out.push(Event::QpFatal { qp });
    }

    /// The message that arrives, once its length and a receive are there.
    fn begin_body(&self, inner: &mut Inner, out: &mut Outbox) -> Result<(), Receiving> {
        let Some(receive) = inner.receives.take() else {
            return Err(Receiving::Held);
        };
        let len = u32::from_be_bytes(inner.header);
        if len > receive.capacity() {
            self.complete(WcOp::Receive, receive.id, Status::LocLenErr, 0, out);
            self.end(inner, "a message is longer than its receive", out);
            return Err(Receiving::Ended);
        }
        let done = 0;
        inner.body = Some(Body { receive, len, done });
        inner.deadline = None;
        Ok(())
    }

    /// Completes the receive if the message is there.
    fn finish_body(&self, inner: &mut Inner, out: &mut Outbox) {
        if let Some(body) = inner.body.take_if(|body| body.done == body.len) {
            inner.header_len = 0;
            let id = body.receive.id;
            self.complete(WcOp::Receive, id, Status::Success, body.len, out);
        }
    }

    /// One read: into the header, or directly into the memory of the receive.
    fn read(&self, inner: &mut Inner, carrier: &mut dyn Carrier) -> Result<IoOutcome, Refusal> {
        let mut targets = Targets::new();
        if let Some(body) = &inner.body {
            let mut rest = behind(&body.receive.scatter[0], body.done);
            rest.len = body.len - body.done;
            targets.place(self.init.place(&rest)?);
        } else {
            targets.stage(&mut inner.header[inner.header_len..]);
        }
        Ok(carrier.read(&mut targets))
    }

    fn write(&self, send: &Send, carrier: &mut dyn Carrier) -> Result<IoOutcome, Refusal> {
        let mut sources = Sources::new();
        if let Some(header) = send.header.get(send.sent..) {
            sources.borrow_bytes(header);
        }
        let rest = behind(&send.message, send.sent.saturating_sub(HEADER) as u32);
        if rest.len > 0 {
            sources.gather(self.init.gather(&rest)?);
        }
        Ok(carrier.write(&sources))
    }
}

impl UlpQp for Framed {
    fn number(&self) -> u32 {
        self.init.number
    }

    fn state(&self) -> QpState {
        self.lock().state
    }

    fn handle_connected(&self) {
        self.lock().state = QpState::Rts;
    }

    fn receive(&self, carrier: &mut dyn Carrier, _: Time, out: &mut Outbox) -> Receiving {
        let inner = &mut *self.lock();
        if inner.state != QpState::Rts {
            return Receiving::Ended;
        }
        // A length that waited for a receive.
        if inner.header_len == HEADER
            && inner.body.is_none()
            && let Err(other) = self.begin_body(inner, out)
        {
            return other;
        }
        self.finish_body(inner, out);
        let moved = match self.read(inner, carrier) {
            Ok(IoOutcome::Bytes(n)) => n,
            Ok(IoOutcome::WouldBlock) => return Receiving::WouldBlock,
            Ok(IoOutcome::Eof | IoOutcome::Broken) => {
                let qp = self.init.number;
                out.push(Event::Disconnected { qp });
                self.end(inner, "the peer closed the connection", out);
                return Receiving::Ended;
            }
            Ok(IoOutcome::Fault) => {
                self.end(inner, "registered memory is not mapped", out);
                return Receiving::Ended;
            }
            Err(refusal @ Refusal::Pending { .. }) => {
                // V5: called again when the memory is valid; if it became valid meanwhile, at once.
                return match self.init.wait_for_memory(&refusal) {
                    true => Receiving::Held,
                    false => Receiving::Some(0),
                };
            }
            Err(refusal) => {
                self.end(inner, &refusal.to_string(), out);
                return Receiving::Ended;
            }
        };
        match &mut inner.body {
            Some(body) => body.done += moved as u32,
            None => inner.header_len += moved,
        }
        if inner.header_len == HEADER
            && inner.body.is_none()
            && let Err(other) = self.begin_body(inner, out)
        {
            return other;
        }
        self.finish_body(inner, out);
        Receiving::Some(moved)
    }

    fn try_transmit(
        &self,
        carrier: &mut dyn Carrier,
        now: Time,
        out: &mut Outbox,
    ) -> Option<Sending> {
        let inner = &mut *self.lock();
        loop {
            if inner.state != QpState::Rts {
                return Some(Sending::Ended);
            }
            let Some(send) = inner.sends.front_mut() else {
                return Some(Sending::Idle);
            };
            match self.write(send, carrier) {
                Ok(IoOutcome::Bytes(n)) => send.sent += n,
                Ok(IoOutcome::WouldBlock) => return Some(Sending::Blocked),
                Ok(_) => self.end(inner, "the connection broke", out),
                // V5: called again when the memory is valid; if it became valid meanwhile, at once.
                Err(refusal @ Refusal::Pending { .. }) => {
                    if self.init.wait_for_memory(&refusal) {
                        return Some(Sending::Idle);
                    }
                }
                Err(refusal) => self.end(inner, &refusal.to_string(), out),
            }
            let is_whole = |send: &Send| send.sent == HEADER + send.message.len as usize;
            if inner.sends.front().is_some_and(is_whole)
                && let Some(send) = inner.sends.pop_front()
            {
                self.complete(WcOp::Send, send.id, Status::Success, 0, out);
                inner.deadline = self.reply_limit.map(|limit| now + limit);
            }
        }
    }

    fn fail(&self, cause: &str, out: &mut Outbox) {
        self.end(&mut self.lock(), cause, out);
    }

    fn retire(&self, _: &mut Outbox) -> bool {
        let mut inner = self.lock();
        let before = std::mem::replace(&mut inner.retired, true);
        self.end(&mut inner, "it was destroyed", &mut Outbox::new());
        !before
    }

    fn is_busy(&self) -> bool {
        !self.lock().sends.is_empty()
    }

    fn deadline(&self) -> Option<Time> {
        self.lock().deadline
    }

    fn handle_timeout(&self, now: Time, out: &mut Outbox) {
        let mut inner = self.lock();
        if inner.deadline.is_some_and(|deadline| deadline <= now) {
            self.end(&mut inner, "no reply within the time limit", out);
        }
    }
}
