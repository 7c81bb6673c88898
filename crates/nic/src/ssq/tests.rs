//! Tests of a shared send queue by its verbs: one order over many channels, failures of single channels, and channels that hold up others.

mod edge;
mod stall;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_events::event::Wake;
use verbena_mem::{Access, Buffer, Pd, Policy};
use verbena_stream::{Role, Time};

use super::*;
use crate::function::{Function, NewQp, Shares};
use crate::profile::Services;
use crate::qp::{Limits, Transfer};
use crate::state::QpState;
use crate::testing::{SEND, Setup, feed, new_qp, poll, stream, transmit};
use crate::wc::Status;
use crate::wr::{Data, Flags, ReceiveWr, SendOp};

/// Bytes that a link takes while it is not cut.
const ROOM: usize = 1 << 20;

fn function(number: u32) -> Function {
    let shares = Shares {
        qps: 64,
        cqs: 8,
        srqs: 8,
        ssqs: 8,
        pds: 8,
        stags: 8,
        ..Shares::default()
    };
    let first = 1 + number * 8;
    Function::new(
        (number, Services::IMPLEMENTED),
        shares,
        first..first + 8,
        Policy::Verbs,
        1,
    )
}

/// A publisher with one shared send queue, and a subscriber per channel at the other end of a link each.
struct World {
    ours: Function,
    theirs: Function,
    pd: Pd,
    cq: Arc<Cq>,
    ssq: Arc<Ssq>,
    pairs: Vec<(Arc<Qp>, Arc<Qp>)>,
    wires: Wires,
    out: Outbox,
    memory: Buffer,
}

/// Bytes on their way to the subscribers, and the order of the senders.
#[derive(Default)]
struct Wires {
    bytes: BTreeMap<u32, Vec<u8>>,
    /// Room of a link, if it is not ROOM.
    room: BTreeMap<u32, usize>,
    /// Channels in the order in which they sent something.
    sent: Vec<u32>,
}

impl Wires {
    fn send(&mut self, qp: &Qp, out: &mut Outbox) {
        let room = self.room.get(&qp.number()).copied().unwrap_or(ROOM);
        let bytes = transmit(qp, room, Time::ZERO, out);
        if !bytes.is_empty() {
            self.sent.push(qp.number());
        }
        self.bytes.entry(qp.number()).or_default().extend(bytes);
    }
}

fn limits() -> SsqLimits {
    SsqLimits {
        requests: 64,
        history: 16,
        stall: Duration::from_millis(100),
    }
}

impl World {
    fn new(channels: usize) -> World {
        World::with(channels, limits(), Setup::default(), Limits::default())
    }

    /// Channels that frame one request ahead of their link, so that a full link keeps the next from starting.
    fn narrow(channels: usize) -> World {
        let setup = Setup {
            transfer: Transfer {
                batch: 1,
                ..Transfer::default()
            },
            ..Setup::default()
        };
        World::with(channels, limits(), setup, Limits::default())
    }

    fn with(channels: usize, of: SsqLimits, setup: Setup, window: Limits) -> World {
        let (ours, theirs) = (function(0), function(1));
        let (pd, peer_pd) = (ours.allocate_pd().unwrap(), theirs.allocate_pd().unwrap());
        let (cq, recv) = (ours.create_cq(100).unwrap(), ours.create_cq(100).unwrap());
        let peer_cq = theirs.create_cq(1000).unwrap().number();
        let memory = theirs.register_buffer(peer_pd, 4096, Access::ALL).unwrap();
        let ssq = ours.create_ssq(pd, cq.number(), of).unwrap();
        let mut world = World {
            ours,
            theirs,
            pd,
            cq,
            ssq,
            pairs: Vec::new(),
            wires: Wires::default(),
            out: Outbox::new(),
            memory,
        };
        for _ in 0..channels {
            let new = NewQp {
                transfer: setup.transfer,
                limits: window,
                ..new_qp(pd, recv.number())
            };
            let ours = world.ours.create_channel(world.ssq.number(), new).unwrap();
            let theirs = world.theirs.create_qp(new_qp(peer_pd, peer_cq)).unwrap();
            for (qp, role) in [(&ours, Role::Initiator), (&theirs, Role::Responder)] {
                qp.modify(QpState::Init, &mut world.out).unwrap();
                assert!(qp.attach(stream(role, setup), true, &mut world.out));
            }
            world.pairs.push((ours, theirs));
        }
        world.run();
        world.wires.sent.clear();
        world
    }

    fn channel(&self, at: usize) -> u32 {
        self.pairs[at].0.number()
    }

    fn wr(id: u64, bytes: &[u8]) -> SendWr<'_> {
        SendWr {
            id,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Inline(bytes),
        }
    }

    /// Posts a Send for one of the channels.
    fn send(&mut self, at: usize, id: u64) {
        let posted = self.ssq.post(self.channel(at), &World::wr(id, b"news"));
        posted.unwrap();
    }

    /// Posts so many more receives at the subscriber.
    fn receives(&mut self, at: usize, count: u64) {
        for id in 0..count {
            let wr = ReceiveWr { id, scatter: &[] };
            let scattered = [crate::wr::Sge {
                addr: self.memory.at(),
                len: 64,
                stag: self.memory.stag(),
            }];
            let wr = ReceiveWr {
                scatter: &scattered,
                ..wr
            };
            self.pairs[at].1.post_receive(&wr, &mut self.out).unwrap();
        }
    }

    fn pump(&mut self) {
        let (wires, out) = (&mut self.wires, &mut self.out);
        self.ssq.pump(&mut |qp, out| wires.send(qp, out), out);
    }

    fn time(&mut self, millis: u64) {
        let now = Time::ZERO + Duration::from_millis(millis);
        let (wires, out) = (&mut self.wires, &mut self.out);
        let carrier = &mut |qp: &Arc<Qp>, out: &mut Outbox| wires.send(qp, out);
        self.ssq.handle_timeout(now, carrier, out);
    }

    /// Pumps the queue if the outbox says so, as the code that owns the connections does.
    fn settle(&mut self) {
        self.ours.settle(&mut self.out);
        let sends = |wake: &Wake| matches!(wake, Wake::Sends(_));
        if self.out.take_woken().iter().any(sends) {
            self.pump();
        }
    }

    /// Carries bytes until no side sends; the queue is pumped only when the outbox says so.
    fn run(&mut self) {
        loop {
            let mut moved = 0;
            for at in 0..self.pairs.len() {
                let (ours, theirs) = self.pairs[at].clone();
                self.wires.send(&ours, &mut self.out);
                let bytes = self.wires.bytes.remove(&ours.number()).unwrap_or_default();
                let mut out = Outbox::new();
                feed(&theirs, &bytes, Time::ZERO, &mut out);
                let back = transmit(&theirs, ROOM, Time::ZERO, &mut out);
                feed(&ours, &back, Time::ZERO, &mut self.out);
                moved += bytes.len() + back.len();
                self.settle();
            }
            if moved == 0 {
                return;
            }
        }
    }

    fn cut(&mut self, at: usize, room: usize) {
        self.wires.room.insert(self.channel(at), room);
    }

    fn mend(&mut self, at: usize) {
        self.wires.room.remove(&self.channel(at));
    }

    /// Id and status of each completion so far.
    fn ends(&self) -> Vec<(u64, Status)> {
        poll(&self.cq).iter().map(|wc| (wc.id, wc.status)).collect()
    }

    fn ids(&self) -> Vec<u64> {
        self.ends().iter().map(|(id, _)| *id).collect()
    }
}

#[test]
fn requests_complete_in_posting_order_across_channels() {
    let mut world = World::new(8);
    let turns = [0, 3, 1, 7, 7, 2, 0, 5, 4, 6, 6, 1];
    for (id, at) in turns.into_iter().enumerate() {
        world.receives(at, 1);
        world.send(at, id as u64);
    }
    world.pump();
    // Two consecutive requests of one channel are sent together.
    let order = [0, 3, 1, 7, 2, 0, 5, 4, 6, 1].map(|at| world.channel(at));
    assert_eq!(world.wires.sent, order);
    assert_eq!(world.ends(), [], "no peer has answered");
    world.run();
    assert_eq!(world.ids(), Vec::from_iter(0..12));
}

#[test]
fn completions_wait_for_those_before_them() {
    let mut world = World::new(3);
    for at in [1, 2] {
        world.receives(at, 1);
    }
    world.send(0, 1);
    world.send(1, 2);
    world.send(2, 3);
    world.pump();
    world.run();
    assert_eq!(world.ends(), [], "channel 0 has no receive at its peer");
    let fates: Vec<SsqOutcome> = world.ssq.history(None).iter().map(|r| r.outcome).collect();
    let well = SsqOutcome::Ended(Status::Success);
    assert_eq!(fates, [SsqOutcome::Given, well, well]);
    world.receives(0, 1);
    world.run();
    assert_eq!(world.ids(), [1, 2, 3]);
}

#[test]
fn blocked_request_holds_back_later_requests() {
    let mut world = World::narrow(2);
    world.receives(0, 2);
    world.receives(1, 1);
    world.cut(0, 0);
    world.send(0, 1);
    world.send(0, 2);
    world.send(1, 3);
    world.pump();
    assert_eq!(world.ssq.lagging().unwrap().number(), world.channel(0));
    assert_eq!(world.wires.sent, [], "channel 1 may not overtake");
    let fates: Vec<SsqOutcome> = world.ssq.history(None).iter().map(|r| r.outcome).collect();
    assert_eq!(
        fates,
        [SsqOutcome::Given, SsqOutcome::Given, SsqOutcome::Waiting]
    );
    world.mend(0);
    world.run();
    assert_eq!(world.ids(), [1, 2, 3]);
    let (first, last) = (world.channel(0), world.channel(1));
    let at = |n: u32| world.wires.sent.iter().position(|sent| *sent == n);
    assert!(at(first) < at(last), "{:?}", world.wires.sent);
}

#[test]
fn channel_window_limits_requests_in_flight() {
    let window = Limits {
        sends: 2,
        ..Limits::default()
    };
    let mut world = World::with(2, limits(), Setup::default(), window);
    for id in 0..5 {
        world.send(0, id);
    }
    world.pump();
    let info = world
        .ours
        .query_channel(world.ssq.number(), world.channel(0))
        .unwrap();
    assert_eq!((info.waiting, info.given, info.window), (5, 2, 2));
    world.receives(0, 5);
    world.run();
    assert_eq!(world.ids(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_failed_channel_flushes_only_its_own() {
    let mut world = World::new(3);
    for at in 0..3 {
        world.receives(at, 2);
    }
    for id in 0..6 {
        world.send(id as usize % 3, id);
    }
    world.pump();
    world.pairs[1]
        .0
        .modify(QpState::Err, &mut world.out)
        .unwrap();
    world.run();
    let bad: Vec<u64> = world
        .ends()
        .iter()
        .inspect(|(id, status)| assert_eq!(*status == Status::Success, id % 3 != 1, "{id}"))
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(bad, [0, 1, 2, 3, 4, 5], "in posting order, failed or not");
    // Later ones for that channel fail in their turn; others continue.
    world.receives(2, 1);
    world.send(1, 6);
    world.send(2, 7);
    world.pump();
    world.run();
    let (flushed, well) = (Status::WrFlushErr, Status::Success);
    assert_eq!(world.ends(), [(6, flushed), (7, well)]);
    let counters = world.ours.query_ssq(world.ssq.number()).unwrap().counters;
    assert_eq!((counters.completed, counters.failed), (8, 3));
    let one = world
        .ours
        .query_channel(world.ssq.number(), world.channel(1));
    let one = one.unwrap().counters;
    assert_eq!((one.posted, one.completed, one.failed), (3, 3, 3));
}

#[test]
fn unsignalled_requests_appear_only_in_history() {
    let mut world = World::new(2);
    world.receives(0, 20);
    world.receives(1, 1);
    for id in 0..20 {
        let wr = SendWr {
            flags: Flags::NONE,
            ..World::wr(id, b"quiet")
        };
        world.ssq.post(world.channel(0), &wr).unwrap();
    }
    world.send(1, 99);
    world.pump();
    world.run();
    assert_eq!(world.ids(), [99]);
    let all = world.ssq.history(None);
    assert_eq!(all.len(), 16, "as many as its history holds");
    assert_eq!((all[0].number, all[15].number), (5, 20));
    let of_one = world.ssq.history(Some(world.channel(1)));
    let last = Record {
        number: 20,
        channel: world.channel(1),
        id: 99,
        op: crate::wc::WcOp::Send,
        len: 4,
        outcome: SsqOutcome::Completed(Status::Success),
    };
    assert_eq!(of_one, [last]);
    let counters = world.ours.query_ssq(world.ssq.number()).unwrap().counters;
    assert_eq!((counters.posted, counters.bytes), (21, 104));
}

#[test]
fn an_idle_channel_keeps_no_memory_for_requests() {
    let mut world = World::new(2);
    world.receives(0, 8);
    for id in 0..8 {
        world.send(0, id);
    }
    world.pump();
    assert!(world.pairs[0].0.send_capacity() >= 8);
    world.run();
    assert_eq!(world.pairs[0].0.send_capacity(), 0);
}

#[test]
fn posting_order_holds_across_request_types() {
    let mut world = World::new(3);
    world.receives(2, 1);
    let remote = crate::wr::RemoteAddr {
        stag: world.memory.stag(),
        to: verbena_wire::To::new(world.memory.at()),
    };
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    for (id, op) in [(0, read), (1, write), (2, SEND)] {
        let data = match op {
            SendOp::Read { .. } => Data::Gather(&[]),
            _ => Data::Inline(b"x"),
        };
        let wr = SendWr {
            op,
            data,
            ..World::wr(id, b"")
        };
        world.ssq.post(world.channel(id as usize), &wr).unwrap();
    }
    world.pump();
    world.run();
    let ops: Vec<_> = poll(&world.cq).iter().map(|wc| (wc.op, wc.qpn)).collect();
    use crate::wc::WcOp::{Read, Send, Write};
    let channels: [u32; 3] = [0, 1, 2].map(|at| world.channel(at));
    assert_eq!(
        ops,
        [
            (Read, channels[0]),
            (Write, channels[1]),
            (Send, channels[2])
        ]
    );
}
