//! One end of a connection: posts random requests, takes completions in different ways, and ends the queue pair in one of several.
//! It checks that every request completes exactly once, that messages arrive whole and in order, and what reads and atomics return.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_engine::sys;
use verbena_engine::{Destination, QueuePair, SendQueue};
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{Arm, Flags, QpState, ReceiveWr, SendOp, SendWr, Sge, Status, Wc};

use crate::host::{Host, MEMORY, Random};

/// Where in its memory an end keeps what: a counter, constant bytes for reads, and slots.
const COUNTER: usize = 0;
const CONSTANT: usize = 1 << 10;
const READS: usize = 2 << 10;
const WRITES: usize = 4 << 10;
const SENDS: usize = 6 << 10;
const RECEIVES: usize = 19 << 10;
/// Slots of each kind, and the requests of each kind that are outstanding at once.
pub(crate) const SLOTS: u64 = 4;
const SMALL_SLOT: usize = 512;
/// Longer than two segments of TCP.
const LARGE_SLOT: usize = 3200;
/// What the memory of a destroyed queue pair is overwritten with.
const AFTER_DESTROY: u8 = 0xee;

const _: () = assert!(RECEIVES + SLOTS as usize * LARGE_SLOT <= MEMORY);

fn byte(seed: u64, at: usize) -> u8 {
    (seed.wrapping_mul(31) as u8) ^ (at as u8).wrapping_mul(7) ^ (at >> 8) as u8
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(seed, at)).collect()
}

#[derive(Debug, Clone, Copy)]
enum Request {
    Send { slot: u64 },
    Write,
    Read { slot: u64, len: usize },
    Add { slot: u64 },
    Receive { slot: u64 },
}

/// How much an end does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Messages to send, and to receive.
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    /// Leave after this many requests, although the peer goes on.
    pub(crate) leave_after: Option<u64>,
    /// It may leave only after a message has come: before, a peer that is called by number cannot know of it.
    pub(crate) meets_first: bool,
    /// The end of the connection is told by an event, and posted receives stay (docs/connections.md, `roce`).
    pub(crate) told_by_event: bool,
    /// How to end the queue pair.
    pub(crate) end: End,
}

/// How a queue pair ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Destroy,
    Error,
    Disconnect,
    Shutdown,
}

/// One end of a connection.
pub(crate) struct Traffic {
    /// Its memory, and where its requests complete.
    memory: Arc<Host>,
    at: Arc<Host>,
    qp: Option<QueuePair>,
    peer: (RemoteAddr, RemoteAddr, RemoteAddr),
    plan: Plan,
    random: Random,
    outstanding: BTreeMap<u64, Request>,
    next_id: u64,
    sent: u64,
    requests: u64,
    received: u64,
    failed: bool,
    /// The first completion without success.
    cause: Option<Wc>,
    /// What atomics returned.
    added: Vec<u64>,
    /// Where to migrate to, once.
    migrates_to: Option<Arc<Host>>,
    destroyed: bool,
}

impl Traffic {
    pub(crate) fn new(
        host: &Arc<Host>,
        qp: QueuePair,
        peer: &Host,
        plan: Plan,
        random: Random,
    ) -> Traffic {
        assert!(host.memory.write(COUNTER, &[0; 8]));
        assert!(host.memory.write(CONSTANT, &pattern(1, SMALL_SLOT)));
        let mut end = Traffic {
            memory: host.clone(),
            at: host.clone(),
            qp: Some(qp),
            peer: (
                peer.remote(COUNTER),
                peer.remote(CONSTANT),
                peer.remote(WRITES),
            ),
            plan,
            random,
            outstanding: BTreeMap::new(),
            next_id: 1,
            sent: 0,
            requests: 0,
            received: 0,
            failed: false,
            cause: None,
            added: Vec::new(),
            migrates_to: None,
            destroyed: false,
        };
        // Before the peer may send.
        for slot in 0..SLOTS {
            end.receive(slot);
        }
        end
    }

    pub(crate) fn migrates_to(&mut self, other: &Arc<Host>) {
        self.migrates_to = Some(other.clone());
    }

    /// All messages came, unless an end left early.
    pub(crate) fn check(&self, peer_left: bool) {
        if self.plan.leave_after.is_none() && !peer_left {
            let (plan, cause) = (self.plan, &self.cause);
            assert_eq!(
                self.received, plan.receives,
                "messages received: {plan:?}, {cause:?}"
            );
            assert_eq!(self.sent, plan.sends, "messages sent: {plan:?}, {cause:?}");
        }
        let mut added = self.added.clone();
        added.sort_unstable();
        added.dedup();
        assert_eq!(added.len(), self.added.len(), "atomics saw the same value");
        if self.destroyed {
            let memory = self.memory.memory.read(0, MEMORY);
            let changed = memory.iter().position(|byte| *byte != AFTER_DESTROY);
            assert_eq!(changed, None, "written after the queue pair was destroyed");
        }
    }

    /// Runs the whole plan.
    pub(crate) fn run(&mut self) {
        self.trace(format_args!("{:?}", self.plan));
        while !self.failed && !self.is_done() {
            let most = self.plan.leave_after.unwrap_or(u64::MAX);
            let met = !self.plan.meets_first || self.received > 0;
            if self.requests >= most && met && self.random.one_in(2) {
                break;
            }
            if let Some(other) = self.migrates_to.take_if(|_| self.random.one_in(3)) {
                self.migrate(&other);
            }
            if self.may_post() && !self.random.one_in(3) {
                self.post();
            } else {
                self.collect();
            }
        }
        self.end();
    }

    fn sends_outstanding(&self) -> u64 {
        let sends = self.outstanding.values();
        sends
            .filter(|r| !matches!(r, Request::Receive { .. }))
            .count() as u64
    }

    fn is_done(&self) -> bool {
        self.sent == self.plan.sends
            && self.received == self.plan.receives
            && self.sends_outstanding() == 0
    }

    fn may_post(&self) -> bool {
        self.sent < self.plan.sends && self.sends_outstanding() < SLOTS
    }

    fn take_id(&mut self, request: Request) -> u64 {
        self.next_id += 1;
        self.outstanding.insert(self.next_id, request);
        self.next_id
    }

    fn sge(&self, at: usize, len: usize) -> Sge {
        self.memory.sge(at, len)
    }

    fn receive(&mut self, slot: u64) {
        let id = self.take_id(Request::Receive { slot });
        let at = RECEIVES + slot as usize * LARGE_SLOT;
        let scatter = [self.sge(at, LARGE_SLOT)];
        let qp = self.qp.as_ref().unwrap();
        if qp
            .post_receive(&ReceiveWr {
                id,
                scatter: &scatter,
            })
            .is_err()
        {
            // The queue pair failed before: nothing was posted.
            self.outstanding.remove(&id);
            self.failed = true;
        }
    }

    fn post(&mut self) {
        let (slot, number) = (self.free_slot(), self.sent);
        let (request, op, data) = match self.random.below(6) {
            0 => {
                let len = 1 + self.random.below(SMALL_SLOT as u64 - 1) as usize;
                let (remote, local_invalidate) = (self.peer.1, None);
                let op = SendOp::Read {
                    remote,
                    local_invalidate,
                };
                let at = READS + slot as usize * SMALL_SLOT;
                (Request::Read { slot, len }, op, self.sge(at, len))
            }
            1 => {
                let (remote, add, mask) = (self.peer.0, 1, 0);
                let op = SendOp::FetchAdd { remote, add, mask };
                let at = READS + slot as usize * SMALL_SLOT;
                (Request::Add { slot }, op, self.sge(at, 8))
            }
            2 => {
                let (remote, immediate) = (self.peer.2, None);
                let op = SendOp::Write { remote, immediate };
                (Request::Write, op, self.sge(CONSTANT, SMALL_SLOT))
            }
            _ => {
                let len = 8 + self.random.below(LARGE_SLOT as u64 - 8) as usize;
                let at = SENDS + slot as usize * LARGE_SLOT;
                let mut bytes = pattern(number, len);
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                assert!(self.memory.memory.write(at, &bytes));
                self.sent += 1;
                let (invalidate, immediate) = (None, None);
                let op = SendOp::Send {
                    invalidate,
                    immediate,
                };
                (Request::Send { slot }, op, self.sge(at, len))
            }
        };
        let id = self.take_id(request);
        self.requests += 1;
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[data]),
        };
        self.trace(format_args!("posts {id}: {request:?}"));
        if let Err(error) = self.qp.as_ref().unwrap().post_send(&wr) {
            self.trace(format_args!("not posted: {error}"));
            self.outstanding.remove(&id);
            self.failed = true;
        }
    }

    /// A slot that no outstanding request uses.
    fn free_slot(&self) -> u64 {
        let used = |slot: u64| {
            self.outstanding.values().any(|request| match *request {
                Request::Send { slot: s } | Request::Add { slot: s } => s == slot,
                Request::Read { slot: s, .. } => s == slot,
                _ => false,
            })
        };
        (0..SLOTS).find(|slot| !used(*slot)).unwrap_or(0)
    }

    /// Takes completions, in one of the ways that programs have.
    fn collect(&mut self) {
        let mut some = [Wc::default(); 4];
        let at = self.at.clone();
        let qp = self.qp.as_ref().unwrap();
        // Checked before the poll: completions precede the event.
        let over = self.plan.told_by_event && at.is_disconnected(qp);
        // While it has requests to post, the peer may wait for them: it does not sleep without a limit.
        let waits = self.may_post() || self.plan.told_by_event && self.sends_outstanding() == 0;
        let ways = if waits && !self.failed { 2 } else { 3 };
        let count = match self.random.below(ways) {
            0 => {
                let polls = 1 + self.random.below(12);
                let found = (0..polls).map(|_| at.cq.poll(&mut some)).find(|n| *n > 0);
                if found.is_none() {
                    sys::sleep(Duration::from_micros(self.random.below(200)));
                }
                found.unwrap_or(0)
            }
            1 => match at.cq.poll(&mut some) {
                0 => {
                    let limit = Duration::from_millis(5 + self.random.below(20));
                    at.cq.sleep(&at.channel, &mut [], limit).unwrap();
                    0
                }
                found => found,
            },
            _ => match at.cq.poll(&mut some) {
                0 => {
                    at.cq.arm(Arm::Next);
                    match at.cq.poll(&mut some) {
                        0 => {
                            at.cq.wait(&at.channel).unwrap();
                            0
                        }
                        found => found,
                    }
                }
                found => found,
            },
        };
        for wc in &some[..count] {
            self.completed(wc);
        }
        if over && count == 0 && self.sends_outstanding() == 0 {
            self.failed = true;
        }
    }

    /// Prints what this end does, if `SCHEDULES_TRACE` is set.
    fn trace(&self, what: core::fmt::Arguments<'_>) {
        if std::env::var_os("SCHEDULES_TRACE").is_some() {
            let thread = usize::from(shuttle::thread::current().id());
            println!("{} thread {thread}: {what}", sys::now().nanos());
        }
    }

    fn completed(&mut self, wc: &Wc) {
        self.trace(format_args!("{:?} {} of {:?}", wc.status, wc.id, wc.op));
        let request = self.outstanding.remove(&wc.id);
        let request = request.unwrap_or_else(|| panic!("{wc:?} completes no outstanding request"));
        if wc.status != Status::Success && self.cause.is_none() {
            self.cause = Some(*wc);
        }
        match wc.status {
            Status::Success => self.succeeded(request, wc),
            // The peer, or this end, has ended the connection.
            Status::WrFlushErr | Status::RetryExcErr | Status::RemOpErr | Status::RemAbortErr => {
                self.failed = true;
            }
            other => panic!("{request:?} completed with {other:?}"),
        }
    }

    fn succeeded(&mut self, request: Request, wc: &Wc) {
        let memory = &self.memory.memory;
        match request {
            Request::Send { .. } | Request::Write => {}
            Request::Read { slot, len } => {
                let read = memory.read(READS + slot as usize * SMALL_SLOT, len);
                assert_eq!(read, pattern(1, len), "bytes read");
            }
            Request::Add { slot } => {
                let before = memory.read(READS + slot as usize * SMALL_SLOT, 8);
                let before: [u8; 8] = before.try_into().unwrap();
                self.added.push(u64::from_ne_bytes(before));
            }
            Request::Receive { slot } => {
                let at = RECEIVES + slot as usize * LARGE_SLOT;
                let bytes = memory.read(at, wc.len as usize);
                let mut expected = pattern(self.received, bytes.len());
                expected[..8].copy_from_slice(&self.received.to_le_bytes());
                assert_eq!(bytes, expected, "message {}", self.received);
                self.received += 1;
                if !self.failed {
                    self.receive(slot);
                }
            }
        }
    }

    fn migrate(&mut self, other: &Arc<Host>) {
        let to = Destination {
            engine: &other.engine,
            pd: other.pd,
            send: SendQueue::Own(&other.cq),
            recv: &other.cq,
            srq: None,
        };
        let qp = self.qp.take().unwrap();
        match qp.migrate(to) {
            Ok(qp) => {
                self.qp = Some(qp);
                self.at = other.clone();
            }
            // Its peer may have ended the connection; the queue pair is where it was.
            Err(stayed) => self.qp = Some(stayed.qp),
        }
    }

    fn end(&mut self) {
        let end = self.plan.end;
        self.trace(format_args!("ends by {end:?}, received {}", self.received));
        let qp = self.qp.as_ref().unwrap();
        match end {
            End::Destroy => {}
            End::Error => qp.modify(QpState::Err).unwrap(),
            End::Disconnect => {
                // The peer may have ended the connection.
                let _ = qp.disconnect();
                qp.modify(QpState::Err).unwrap();
            }
            End::Shutdown => {
                let patience = Duration::from_micros(self.random.below(20_000));
                self.at.engine.shut_down(patience).unwrap();
            }
        }
        self.failed = true;
        while end != End::Destroy && !self.outstanding.is_empty() {
            self.collect();
        }
        drop(self.qp.take());
        self.trace(format_args!("has ended"));
        let mut left = [Wc::default(); 1];
        assert_eq!(
            self.at.cq.poll(&mut left),
            0,
            "{left:?} of a destroyed queue pair"
        );
        assert!(self.memory.memory.write(0, &[AFTER_DESTROY; MEMORY]));
        self.destroyed = true;
    }
}
