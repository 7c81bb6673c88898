//! XRC: requests that name shared receive queues of the target's domain, and numbers that name none.

use std::sync::Arc;

use verbena_events::event::Event;
use verbena_mem::{Access, Buffer, Pd};
use verbena_stream::Role;
use verbena_wire::{Srqn, To};

use crate::cq::Cq;
use crate::qp::{MigrateRefusal, PostError};
use crate::srq::Srq;
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, direct, feed, poll, read, stream, transmit, write};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::{Data, Flags, ReceiveWr, RemoteAddr, SendOp, SendWr, Sge};
use crate::xrc::{XrcDomain, XrcSrq};

/// The numbers of the two queues begin behind this.
const BASE: u32 = 0xff_fff0;

/// A shared receive queue of the target, with memory of its protection domain.
struct Queue {
    srq: Arc<Srq>,
    cq: Arc<Cq>,
    number: Srqn,
    memory: Buffer,
}

impl Queue {
    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at()),
        }
    }

    fn received(&self) -> Vec<(u64, Status, u32)> {
        let each = |wc: &Wc| (wc.id, wc.status, wc.len);
        poll(&self.cq).iter().map(each).collect()
    }
}

/// An initiator, a target, and two queues of different protection domains.
struct World {
    pair: Pair,
    domain: Arc<XrcDomain>,
    queues: [Queue; 2],
}

impl World {
    /// Delivers at most so many bytes to the target, which cannot answer yet; returns how many were sent, and taken.
    fn deliver(&mut self, most: usize) -> (usize, usize) {
        let Pair { a, b, now } = &mut self.pair;
        let bytes = transmit(&a.qp, most, *now, &mut a.out);
        (bytes.len(), feed(&b.qp, &bytes, *now, &mut b.out))
    }

    fn new(setup: Setup) -> World {
        let domain = Arc::new(XrcDomain::new(BASE));
        let pair = Pair::xrc(setup, &domain);
        let queues = [(7, PD), (30, Pd(2))].map(|(number, pd)| queue(&pair, &domain, number, pd));
        World {
            pair,
            domain,
            queues,
        }
    }

    fn post(&mut self, id: u64, queue: Srqn, op: SendOp, sges: &[Sge]) {
        let a = &mut self.pair.a;
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(sges),
        };
        a.qp.queue_send_to(queue, &wr).unwrap();
        a.qp.ring_doorbell(&mut a.out);
    }

    fn receive(&mut self, queue: usize, id: u64, len: u32) {
        let scatter = [self.queues[queue].sge(0, len)];
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        if let Some(waiter) = self.queues[queue].srq.post(&wr).unwrap() {
            assert_eq!(waiter, self.pair.b.qp.number());
            self.pair.b.qp.receive_ready(&mut self.pair.b.out);
        }
    }

    fn destroy(&mut self, queue: usize) {
        let number = self.queues[queue].number;
        let b = &mut self.pair.b;
        self.domain.remove(number, &mut b.out);
        b.qp.forget_srq(number, &mut b.out);
    }
}

fn queue(pair: &Pair, domain: &XrcDomain, number: u32, pd: Pd) -> Queue {
    let srq = Arc::new(Srq::new(number, pd, 10, 4));
    let cq = Arc::new(Cq::new(100 + number, 16).unwrap());
    let tpt = pair.b.tpt.clone().into();
    assert!(domain.add(XrcSrq::new(srq.clone(), cq.clone(), tpt)));
    Queue {
        number: domain.number_of(number),
        memory: Buffer::new(&pair.b.tpt, 8192, pd, Access::ALL).unwrap(),
        srq,
        cq,
    }
}

fn setups() -> Vec<Setup> {
    let iwarp = Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    };
    let plain = Setup {
        crc: false,
        ..Setup::default()
    };
    vec![Setup::default(), iwarp, plain, direct()]
}

#[test]
fn numbers_wrap_at_24_bits() {
    let domain = XrcDomain::new(BASE);
    assert_eq!(domain.number_of(7).get(), 0xff_fff7);
    assert_eq!(domain.number_of(30).get(), 0x00_000e);
}

#[test]
fn messages_reach_the_queues_they_name() {
    for setup in setups() {
        let mut world = World::new(setup);
        for at in 0..2 {
            world.receive(at, 10 + at as u64, 3000);
            world.receive(at, 20 + at as u64, 3000);
        }
        world.pair.a.memory.write(0, b"first queue");
        let (short, long) = ([world.pair.a.sge(0, 11)], [world.pair.a.sge(0, 2500)]);
        let numbers = [world.queues[0].number, world.queues[1].number];
        let immediate = SendOp::Send {
            invalidate: None,
            immediate: Some(5),
        };
        world.post(1, numbers[0], SEND, &short);
        world.post(2, numbers[1], immediate, &long);
        world.post(3, numbers[1], SEND, &short);
        let remote = world.queues[0].remote();
        let op = SendOp::Write {
            remote,
            immediate: Some(6),
        };
        world.post(4, numbers[0], op, &long);
        world.pair.run();
        let sent: Vec<u64> = (1..=4).collect();
        let done = world.pair.a.statuses();
        assert!(done.iter().all(|(_, status)| *status == Status::Success));
        assert_eq!(done.iter().map(|(id, _)| *id).collect::<Vec<_>>(), sent);
        let ok = Status::Success;
        let first = poll(&world.queues[0].cq);
        assert!(first.iter().all(|wc| wc.qpn == 2), "the target");
        assert_eq!(
            first
                .iter()
                .map(|wc| (wc.id, wc.len, wc.op))
                .collect::<Vec<_>>(),
            [(10, 11, WcOp::Receive), (20, 2500, WcOp::ReceiveWriteImm)]
        );
        assert_eq!(first[1].immediate, Some(6));
        let second = world.queues[1].received();
        assert_eq!(second, [(11, ok, 2500), (21, ok, 11)]);
        assert_eq!(world.queues[1].memory.read(0, 11), b"first queue");
        assert_eq!(world.pair.b.received(), [], "nothing in its own queue");
    }
}

#[test]
fn number_without_a_queue_fails_its_request() {
    for setup in setups() {
        let mut world = World::new(setup);
        world.receive(0, 10, 100);
        let gather = [world.pair.a.sge(0, 8)];
        world.post(1, world.queues[0].number, SEND, &gather);
        world.post(2, Srqn::wrapping(77), SEND, &gather);
        world.post(3, world.queues[0].number, SEND, &gather);
        world.pair.run();
        assert_eq!(world.queues[0].received(), [(10, Status::Success, 8)]);
        let expected = [
            (1, Status::Success),
            (2, Status::RemInvReqErr),
            (3, Status::WrFlushErr),
        ];
        // An iWARP initiator completes what it has sent, and learns of the refusal afterwards.
        if setup.personality == Personality::Roce {
            assert_eq!(world.pair.a.statuses(), expected);
        }
        let cause = world.pair.b.qp.cause().unwrap();
        assert!(cause.contains("no shared receive queue 77"), "{cause}");
        let events = world.pair.b.events();
        assert!(events.contains(&Event::QpRequest { qp: 2 }), "{events:?}");
        assert!(events.contains(&Event::LastWqe { qp: 2 }), "{events:?}");
    }
}

#[test]
fn writes_and_reads_need_a_queue() {
    for read_back in [false, true] {
        let mut world = World::new(Setup::default());
        let remote = world.queues[0].remote();
        let op = if read_back {
            read(remote)
        } else {
            write(remote)
        };
        let gather = [world.pair.a.sge(0, 8)];
        world.post(1, Srqn::wrapping(77), op, &gather);
        world.pair.run();
        assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    }
}

#[test]
fn queue_of_another_domain_is_not_found() {
    let mut world = World::new(Setup::default());
    let other = Arc::new(XrcDomain::new(0));
    let foreign = queue(&world.pair, &other, 55, PD);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, foreign.number, SEND, &gather);
    world.pair.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    assert_eq!(other.srq_count(), 1);
}

#[test]
fn empty_queue_delays_its_message_and_those_behind() {
    for crc in [false, true] {
        let setup = Setup {
            crc,
            ..Setup::default()
        };
        let mut world = World::new(setup);
        world.receive(1, 11, 100);
        let gather = [world.pair.a.sge(0, 8)];
        let numbers = [world.queues[0].number, world.queues[1].number];
        world.post(1, numbers[0], SEND, &gather);
        world.post(2, numbers[1], SEND, &gather);
        world.pair.run();
        assert_eq!(world.pair.a.statuses(), []);
        assert_eq!(world.pair.b.qp.counters().rnr_sent, 1);
        assert_eq!(world.queues[1].received(), [], "requests keep their order");
        world.receive(0, 10, 100);
        world.pair.run();
        let done = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(world.pair.a.statuses(), done);
        assert_eq!(world.queues[0].received(), [(10, Status::Success, 8)]);
        assert_eq!(world.queues[1].received(), [(11, Status::Success, 8)]);
    }
}

#[test]
fn memory_is_that_of_the_named_queue() {
    for setup in [Setup::default(), direct()] {
        let mut world = World::new(setup);
        let numbers = [world.queues[0].number, world.queues[1].number];
        let (remote, gather) = (world.queues[1].remote(), [world.pair.a.sge(0, 2000)]);
        world.pair.a.memory.write(0, b"into the second domain");
        world.post(1, numbers[1], write(remote), &gather);
        let sink = [world.pair.a.sge(4000, 22)];
        world.post(2, numbers[1], read(remote), &sink);
        world.pair.run();
        let done = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(world.pair.a.statuses(), done);
        let back = world.pair.a.memory.read(4000, 22);
        assert_eq!(back, b"into the second domain");
        world.post(3, numbers[0], write(remote), &gather);
        world.pair.run();
        assert_eq!(world.pair.a.statuses(), [(3, Status::RemAccessErr)]);
    }
}

#[test]
fn answers_precede_a_change_of_domain() {
    let mut world = World::new(Setup::default());
    world.receive(0, 10, 100);
    world.queues[1].memory.write(0, b"read before");
    let numbers = [world.queues[0].number, world.queues[1].number];
    let (remote, sink) = (world.queues[1].remote(), [world.pair.a.sge(4000, 11)]);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, numbers[1], read(remote), &sink);
    world.post(2, numbers[0], SEND, &gather);
    // Both requests arrive before the target can answer.
    let (sent, taken) = world.deliver(4000);
    assert_eq!(world.queues[0].received(), [], "it waits for the answer");
    assert_eq!(taken, sent, "it waits in the stage");
    world.pair.run();
    let done = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(world.pair.a.statuses(), done);
    assert_eq!(world.queues[0].received(), [(10, Status::Success, 8)]);
    assert_eq!(world.pair.a.memory.read(4000, 11), b"read before");
}

#[test]
fn failure_flushes_the_claimed_receive() {
    let mut world = World::new(Setup::default());
    world.receive(1, 11, 3000);
    let gather = [world.pair.a.sge(0, 3000)];
    world.post(1, world.queues[1].number, SEND, &gather);
    world.deliver(1500);
    assert!(world.queues[1].srq.is_empty(), "taken");
    let b = &mut world.pair.b;
    b.qp.modify(QpState::Err, &mut b.out).unwrap();
    assert_eq!(world.queues[1].received(), [(11, Status::WrFlushErr, 0)]);
    assert!(world.pair.b.events().contains(&Event::LastWqe { qp: 2 }));
}

#[test]
fn reset_returns_the_claimed_receive() {
    let mut world = World::new(Setup::default());
    world.receive(1, 11, 3000);
    let gather = [world.pair.a.sge(0, 3000)];
    world.post(1, world.queues[1].number, SEND, &gather);
    world.deliver(1500);
    let b = &mut world.pair.b;
    b.qp.modify(QpState::Reset, &mut b.out).unwrap();
    assert_eq!(world.queues[1].srq.len(), 1);
    assert_eq!(world.queues[1].received(), []);
}

#[test]
fn idle_destroyed_queue_is_not_found_later() {
    let mut world = World::new(Setup::default());
    world.receive(0, 10, 100);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, world.queues[0].number, SEND, &gather);
    world.pair.run();
    assert_eq!(world.queues[0].received(), [(10, Status::Success, 8)]);
    world.receive(0, 20, 100);
    world.destroy(0);
    assert_eq!(world.pair.b.qp.state(), QpState::Rts, "no message needs it");
    world.post(2, world.queues[0].number, SEND, &gather);
    world.pair.run();
    let done = [(1, Status::Success), (2, Status::RemInvReqErr)];
    assert_eq!(world.pair.a.statuses(), done);
    assert_eq!(world.queues[0].received(), []);
}

#[test]
fn destroyed_queue_ends_a_message_into_it() {
    for posted in [true, false] {
        let mut world = World::new(Setup::default());
        if posted {
            world.receive(0, 10, 3000);
        }
        let gather = [world.pair.a.sge(0, 3000)];
        world.post(1, world.queues[0].number, SEND, &gather);
        if posted {
            world.deliver(1500);
        } else {
            // It waits for a receive.
            world.pair.run();
        }
        world.destroy(0);
        assert_eq!(world.pair.b.qp.state(), QpState::Err);
        world.pair.run();
        assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
        assert_eq!(world.queues[0].received(), [], "no completion afterwards");
    }
}

#[test]
fn two_initiators_do_not_fit() {
    let setup = Setup {
        qp_type: QpType::XrcSend,
        ..Setup::default()
    };
    let mut pair = Pair::unconnected(setup);
    for (side, role) in [
        (&mut pair.a, Role::Initiator),
        (&mut pair.b, Role::Responder),
    ] {
        side.qp.modify(QpState::Init, &mut side.out).unwrap();
        assert!(side.qp.attach(stream(role, setup), true, &mut side.out));
    }
    pair.run();
    let cause = pair.b.qp.cause().unwrap();
    assert!(
        cause.contains("is of type xrc_send, this one needs xrc_recv"),
        "{cause}"
    );
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn standard_peer_has_no_xrc() {
    let setup = Setup {
        qp_type: QpType::XrcSend,
        extensions: false,
        ..Setup::default()
    };
    let mut pair = Pair::unconnected(setup);
    pair.a.qp.modify(QpState::Init, &mut pair.a.out).unwrap();
    let stream = stream(Role::Initiator, setup);
    assert!(!pair.a.qp.attach(stream, true, &mut pair.a.out));
    assert_eq!(pair.a.qp.state(), QpState::Init);
}

#[test]
fn wrong_requests_are_not_posted() {
    let mut world = World::new(Setup::default());
    let wr = SendWr {
        id: 1,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Gather(&[]),
    };
    let receive = ReceiveWr {
        id: 1,
        scatter: &[],
    };
    for side in [&mut world.pair.a, &mut world.pair.b] {
        assert_eq!(side.qp.post_send(&wr, &mut side.out), Err(PostError::Xrc));
        let posted = side.qp.post_receive(&receive, &mut side.out);
        assert_eq!(posted, Err(PostError::Xrc));
    }
    let number = world.queues[0].number;
    let target = &world.pair.b.qp;
    assert_eq!(target.queue_send_to(number, &wr), Err(PostError::Xrc));
    let reliable = Pair::roce();
    let posted = reliable.a.qp.queue_send_to(number, &wr);
    assert_eq!(posted, Err(PostError::Xrc));
    let full = (0..200).find_map(|_| world.pair.a.qp.queue_send_to(number, &wr).err());
    assert_eq!(full, Some(PostError::Full(128)));
}

#[test]
fn xrc_queue_pairs_are_not_migrated() {
    let mut world = World::new(Setup::default());
    for side in [&mut world.pair.a, &mut world.pair.b] {
        let refused = side.qp.export_image(|| (), &mut side.out).err();
        assert_eq!(refused, Some(MigrateRefusal::Xrc));
    }
}
