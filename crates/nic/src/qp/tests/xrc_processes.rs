//! XRC targets and shared receive queues of another process: messages, memory, a missing receive, and an end at any moment.
//! The other process has tables and queues of its own; records are carried between the two by hand.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use verbena_events::event::{Outbox, Wake};
use verbena_mem::{Access, Buffer, Pd, Policy, Tpt};
use verbena_stream::{RnrRetry, Time};
use verbena_sync::locks::Mutex;
use verbena_wire::{Srqn, To};

use crate::cq::Cq;
use crate::qp::XrcExecutor;
use crate::srq::Srq;
use crate::state::Personality;
use crate::testing::{Pair, SEND, Setup, direct, poll, read, write};
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, ReceiveWr, RemoteAddr, SendOp, SendWr, Sge};
use crate::xrc::record::{HEAD, LONGEST};
use crate::xrc::{FIRST_WAITER, PathClosed, XrcDomain, XrcPath, XrcProcesses, XrcSrq};

/// The number of the queue of the other process, and the first of its numbers.
const THERE: u32 = 0x8000;
const WAITER: u32 = FIRST_WAITER + 7;

/// The conversation: records in both directions that have not been read.
#[derive(Debug, Default)]
struct Wires {
    requests: Mutex<VecDeque<Vec<u8>>>,
    answers: Mutex<VecDeque<Vec<u8>>>,
    /// Most requests that wait.
    room: AtomicUsize,
    closed: AtomicBool,
}

impl XrcPath for Wires {
    fn send(&self, head: &[u8], body: &[u8]) -> Result<bool, PathClosed> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(PathClosed);
        }
        let mut requests = self.requests.lock();
        let has_room = requests.len() < self.room.load(Ordering::Relaxed);
        if has_room {
            requests.push_back([head, body].concat());
        }
        Ok(has_room)
    }

    fn receive(&self, room: &mut [u8]) -> Result<Option<usize>, PathClosed> {
        assert_eq!(room.len(), LONGEST);
        match self.answers.lock().pop_front() {
            Some(answer) => {
                room[..answer.len()].copy_from_slice(&answer);
                Ok(Some(answer.len()))
            }
            None if self.closed.load(Ordering::Relaxed) => Err(PathClosed),
            None => Ok(None),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO
    }
}

#[derive(Debug)]
struct Processes(Arc<Wires>);

impl XrcProcesses for Processes {
    fn process_of(&self, number: Srqn) -> Option<u32> {
        (number.get() >= THERE).then_some(1)
    }

    fn connect(&self, process: u32, qp: u32) -> Option<Arc<dyn XrcPath>> {
        assert_eq!((process, qp), (1, 2));
        let open = !self.0.closed.load(Ordering::Relaxed);
        open.then(|| self.0.clone() as Arc<dyn XrcPath>)
    }
}

/// An initiator, a target, and another process with a queue.
struct World {
    pair: Pair,
    wires: Arc<Wires>,
    there: Arc<XrcDomain>,
    executor: XrcExecutor,
    out: Outbox,
    srq: Arc<Srq>,
    cq: Arc<Cq>,
    number: Srqn,
    memory: Buffer,
}

impl World {
    fn new(setup: Setup) -> World {
        let wires = Arc::new(Wires::default());
        wires.room.store(1000, Ordering::Relaxed);
        let processes = Box::new(Processes(wires.clone()));
        let here = Arc::new(XrcDomain::shared(3, (0, THERE), processes));
        let none = Box::new(Processes(Arc::default()));
        let there = Arc::new(XrcDomain::shared(5, (THERE, THERE), none));
        let tpt = Arc::new(Tpt::new(1..5000, Policy::Verbs, 9));
        let pd = Pd(40);
        let (srq, cq) = (
            Arc::new(Srq::new(1, pd, 10, 4)),
            Arc::new(Cq::new(100, 16).unwrap()),
        );
        let queue = XrcSrq::new(srq.clone(), cq.clone(), tpt.clone().into());
        assert!(there.add(queue));
        World {
            pair: Pair::xrc(setup, &here),
            wires,
            executor: XrcExecutor::new(there.clone(), WAITER),
            out: Outbox::new(),
            number: there.number_of(1),
            memory: Buffer::new(&tpt, 1 << 20, pd, Access::ALL).unwrap(),
            there,
            srq,
            cq,
        }
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at() + offset),
        }
    }

    fn post(&mut self, id: u64, op: SendOp, sges: &[Sge]) {
        let a = &mut self.pair.a;
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(sges),
        };
        a.qp.queue_send_to(self.number, &wr).unwrap();
        a.qp.ring_doorbell(&mut a.out);
    }

    fn receive(&mut self, id: u64, len: u32) {
        let scatter = [self.sge(0, len)];
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        if let Some(waiter) = self.srq.post(&wr).unwrap() {
            assert_eq!(waiter, WAITER);
            self.wake_executor();
        }
    }

    fn wake_executor(&mut self) {
        let mut reply = Vec::new();
        self.executor.woken(&mut reply);
        if !reply.is_empty() {
            self.wires.answers.lock().push_back(reply);
        }
    }

    /// The other process executes at most so many records; returns how many it did.
    fn execute(&mut self, most: usize) -> usize {
        let mut done = 0;
        while done < most {
            let Some(request) = self.wires.requests.lock().pop_front() else {
                break;
            };
            let mut reply = Vec::new();
            self.executor
                .handle(&request, &mut reply, &mut self.out)
                .unwrap();
            if !reply.is_empty() {
                self.wires.answers.lock().push_back(reply);
            }
            done += 1;
        }
        done
    }

    fn wake_target(&mut self) {
        let b = &mut self.pair.b;
        b.qp.wake(Wake::Memory(2), &mut b.out);
    }

    fn run(&mut self) {
        loop {
            self.pair.run();
            let done = self.execute(usize::MAX) + self.wires.answers.lock().len();
            if done == 0 {
                break;
            }
            self.wake_target();
        }
    }

    /// The other process ends.
    fn kill(&mut self) {
        self.wires.closed.store(true, Ordering::Relaxed);
        self.wires.requests.lock().clear();
        self.executor.end(&mut self.out);
        self.wake_target();
        self.pair.run();
    }

    fn received(&self) -> Vec<(u64, Status, u32)> {
        let all = poll(&self.cq);
        assert!(all.iter().all(|wc| wc.qpn == 2), "the target");
        all.iter().map(|wc| (wc.id, wc.status, wc.len)).collect()
    }
}

fn setups() -> [Setup; 3] {
    let plain = Setup {
        crc: false,
        ..Setup::default()
    };
    [Setup::default(), plain, direct()]
}

#[test]
fn message_is_received_in_another_process() {
    for setup in setups() {
        for room in [1000, 1] {
            let mut world = World::new(setup);
            world.wires.room.store(room, Ordering::Relaxed);
            world.receive(10, 3000);
            world.receive(11, 3000);
            world.pair.a.memory.write(0, b"to another process");
            let (short, long) = ([world.pair.a.sge(0, 18)], [world.pair.a.sge(0, 2500)]);
            let immediate = SendOp::Send {
                invalidate: None,
                immediate: Some(5),
            };
            world.post(1, SEND, &short);
            world.post(2, immediate, &long);
            world.run();
            let done = [(1, Status::Success), (2, Status::Success)];
            assert_eq!(world.pair.a.statuses(), done, "room {room}");
            assert_eq!(world.memory.read(0, 18), b"to another process");
            let wcs = poll(&world.cq);
            let fields: Vec<_> = wcs
                .iter()
                .map(|wc| (wc.id, wc.qpn, wc.len, wc.immediate))
                .collect();
            assert_eq!(fields, [(10, 2, 18, None), (11, 2, 2500, Some(5))]);
            assert!(world.srq.is_empty());
        }
    }
}

#[test]
fn acknowledgement_waits_for_the_other_process() {
    let mut world = World::new(Setup::default());
    world.receive(10, 3000);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.pair.run();
    // The greeting and the claim, then the bytes and the end.
    assert_eq!(world.execute(10), 2);
    world.wake_target();
    world.pair.run();
    assert_eq!(world.pair.a.statuses(), []);
    assert_eq!(world.execute(10), 2);
    assert_eq!(world.received(), [(10, Status::Success, 8)]);
    world.pair.run();
    assert_eq!(world.pair.a.statuses(), [], "the answer has not come");
    world.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::Success)]);
}

#[test]
fn memory_of_another_process_is_accessed() {
    for setup in setups() {
        let mut world = World::new(setup);
        world.receive(10, 100);
        world.pair.a.memory.write(0, b"written there");
        let gather = [world.pair.a.sge(0, 2000)];
        let (remote, word) = (world.remote(512), world.remote(8192));
        world.post(1, write(remote), &gather);
        let op = SendOp::Write {
            remote,
            immediate: Some(6),
        };
        world.post(2, op, &gather);
        let sink = [world.pair.a.sge(4000, 2000)];
        world.post(3, read(remote), &sink);
        let op = SendOp::FetchAdd {
            remote: word,
            add: 4,
            mask: 0,
        };
        world.memory.write(8192, &70_u64.to_ne_bytes());
        let result = [world.pair.a.sge(7000, 8)];
        world.post(4, op, &result);
        world.run();
        let done: Vec<_> = (1..=4).map(|id| (id, Status::Success)).collect();
        assert_eq!(world.pair.a.statuses(), done);
        assert_eq!(world.memory.read(512, 13), b"written there");
        assert_eq!(world.pair.a.memory.read(4000, 13), b"written there");
        assert_eq!(world.pair.a.memory.read(7000, 8), 70_u64.to_ne_bytes());
        assert_eq!(world.memory.read(8192, 8), 74_u64.to_ne_bytes());
        let wcs = poll(&world.cq);
        assert_eq!((wcs.len(), wcs[0].op), (1, WcOp::ReceiveWriteImm));
        assert_eq!((wcs[0].immediate, wcs[0].len), (Some(6), 2000));
    }
}

#[test]
fn long_read_is_answered_in_order() {
    let mut world = World::new(Setup::default());
    let there = world.remote(0);
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
    world.memory.write(0, &bytes);
    let sink = [world.pair.a.sge(0, 8192)];
    for id in 1..=4 {
        world.post(id, read(world_offset(there, id * 8192)), &sink);
    }
    world.run();
    assert_eq!(world.pair.a.statuses().len(), 4);
    let last = world.pair.a.memory.read(0, 8192);
    assert_eq!(last, bytes[4 * 8192..5 * 8192]);
}

fn world_offset(remote: RemoteAddr, by: u64) -> RemoteAddr {
    RemoteAddr {
        to: To::new(remote.to.get() + by),
        ..remote
    }
}

#[test]
fn refusals_of_the_other_process_reach_the_initiator() {
    type Prepare = fn(&World) -> SendOp;
    let cases: [(Prepare, Status); 3] = [
        (|w| write(w.remote((1 << 20) - 4)), Status::RemAccessErr),
        (|w| read(w.remote((1 << 20) - 4)), Status::RemAccessErr),
        (|w| write(w.pair.b.remote(0)), Status::RemAccessErr),
    ];
    for (op, status) in cases {
        let mut world = World::new(Setup::default());
        let op = op(&world);
        let gather = [world.pair.a.sge(0, 8)];
        world.post(1, op, &gather);
        world.run();
        assert_eq!(world.pair.a.statuses(), [(1, status)]);
    }
}

#[test]
fn missing_receive_delays_the_message() {
    let mut world = World::new(Setup::default());
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.run();
    assert_eq!(world.pair.a.statuses(), []);
    assert_eq!(world.pair.b.qp.counters().rnr_sent, 1);
    world.receive(10, 100);
    assert!(world.executor.holds_receive(), "reserved");
    world.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(world.received(), [(10, Status::Success, 8)]);
    assert!(!world.executor.holds_receive());
}

#[test]
fn receive_posted_behind_the_answer_is_taken() {
    for destroyed in [false, true] {
        let mut world = World::new(Setup::default());
        let gather = [world.pair.a.sge(0, 8)];
        world.post(1, SEND, &gather);
        world.pair.run();
        assert_eq!(world.execute(10), 2, "greeting and claim");
        // Both records are there when the target is woken.
        if destroyed {
            world.there.remove(world.number, &mut world.out);
            world.wake_executor();
        } else {
            world.receive(10, 100);
        }
        assert_eq!(world.wires.answers.lock().len(), 2);
        world.run();
        let status = if destroyed {
            Status::RemInvReqErr
        } else {
            Status::Success
        };
        assert_eq!(world.pair.a.statuses(), [(1, status)]);
        assert_eq!(world.pair.b.qp.counters().rnr_sent, 0);
    }
}

#[test]
fn message_longer_than_its_receive_fails_both() {
    let mut world = World::new(Setup::default());
    world.receive(10, 100);
    let gather = [world.pair.a.sge(0, 2000)];
    world.post(1, SEND, &gather);
    world.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    assert_eq!(world.received(), [(10, Status::LocLenErr, 0)]);
}

#[test]
fn end_of_the_other_process_fails_the_message_in_progress() {
    // After how many records.
    for executed in 0..=4 {
        let mut world = World::new(Setup::default());
        world.receive(10, 3000);
        let gather = [world.pair.a.sge(0, 8)];
        world.post(1, SEND, &gather);
        world.pair.run();
        world.execute(executed.min(2));
        if executed >= 2 {
            world.wake_target();
            world.execute(executed - 2);
        }
        world.wires.answers.lock().clear();
        world.kill();
        let failed = [(1, Status::RemInvReqErr)];
        assert_eq!(world.pair.a.statuses(), failed, "{executed}");
        let cause = world.pair.b.qp.cause().unwrap();
        assert!(cause.contains("ended"), "{cause}");
        assert_eq!(world.received().len(), usize::from(executed >= 2));
    }
}

#[test]
fn end_of_an_idle_process_fails_the_next_message_only() {
    let mut world = World::new(Setup::default());
    world.receive(10, 3000);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.run();
    world.kill();
    assert_eq!(world.pair.b.qp.cause(), None);
    world.post(2, SEND, &gather);
    world.run();
    let done = [(1, Status::Success), (2, Status::RemInvReqErr)];
    assert_eq!(world.pair.a.statuses(), done);
}

#[test]
fn end_of_a_process_that_was_not_ready_fails_the_message() {
    let mut world = World::new(Setup::default());
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.run();
    world.kill();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
}

#[test]
fn silent_process_fails_the_message_in_time() {
    let setup = Setup {
        rnr_retry: RnrRetry::Forever,
        ..Setup::default()
    };
    let mut world = World::new(setup);
    world.receive(10, 3000);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.pair.run();
    assert_eq!(world.pair.a.statuses(), []);
    world.pair.wait();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    let cause = world.pair.b.qp.cause().unwrap();
    assert!(cause.contains("did not answer"), "{cause}");
}

#[test]
fn destroyed_queue_completes_nothing_for_another_process() {
    let mut world = World::new(Setup::default());
    world.receive(10, 3000);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.pair.run();
    world.execute(2);
    world.there.remove(world.number, &mut world.out);
    world.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    assert_eq!(world.received(), []);
    // Of one that waits for a receive, the target is told.
    let mut world = World::new(Setup::default());
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.run();
    world.there.remove(world.number, &mut world.out);
    assert_eq!(world.out.take_woken(), [Wake::Receive(WAITER)]);
    world.wake_executor();
    world.run();
    assert_eq!(world.pair.a.statuses(), [(1, Status::RemInvReqErr)]);
}

#[test]
fn executor_survives_any_record() {
    let mut seed = 1_u64;
    for _ in 0..200 {
        let mut world = World::new(Setup::default());
        world.receive(10, 64);
        let mut bytes = [0; HEAD + 60];
        let mut hello = crate::xrc::record::Request::Hello { version: 1, qpn: 2 }
            .emit()
            .to_vec();
        for _ in 0..20 {
            let mut reply = Vec::new();
            if world
                .executor
                .handle(&hello, &mut reply, &mut world.out)
                .is_err()
            {
                break;
            }
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (seed >> 33) as u8;
            }
            bytes[0] = bytes[0] % 10 + 1;
            bytes[4..8].copy_from_slice(&world.number.get().to_le_bytes());
            if bytes[1] & 1 == 0 {
                let small = u32::from(bytes[9] % 80);
                bytes[8..12].copy_from_slice(&small.to_le_bytes());
            }
            let len = HEAD + usize::from(bytes[2]) % 61;
            hello = bytes[..len].to_vec();
        }
        world.executor.end(&mut world.out);
        let left = world.srq.len();
        assert_eq!(world.received_count() + left, 1, "no receive is lost");
    }
}

impl World {
    fn received_count(&self) -> usize {
        poll(&self.cq).len()
    }
}

#[test]
fn iwarp_personality_ends_the_stream_without_a_receive() {
    let setup = Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    };
    let mut world = World::new(setup);
    let gather = [world.pair.a.sge(0, 8)];
    world.post(1, SEND, &gather);
    world.run();
    let cause = world.pair.b.qp.cause().unwrap();
    assert!(cause.contains("no receive"), "{cause}");
}
