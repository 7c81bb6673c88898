//! Tests of control queue pairs by the verbs of a function: order, pending objects, failures, and what is rejected.

use std::sync::Arc;

use verbena_events::event::{Event, Wake};
use verbena_mem::{Access, Buffer, MemAccess, Pd, Policy, Refusal, WindowType};
use verbena_wire::To;

use super::*;
use crate::adapter::Adapter;
use crate::error::Kind;
use crate::function::{Function, Shares};
use crate::object::Object;
use crate::state::QpState;
use crate::testing::{new_qp, poll};

struct World {
    function: Arc<Function>,
    pd: Pd,
    cq: Arc<Cq>,
    control: u32,
    out: Outbox,
}

fn world(depth: usize) -> World {
    let shares = Shares {
        qps: 8,
        cqs: 8,
        srqs: 8,
        ssqs: 8,
        pds: 8,
        stags: 8,
        event_queues: 8,
        vectors: 8,
    };
    let adapter = Adapter::new(shares, Policy::Verbs, 1).unwrap();
    let function = adapter.function(0).unwrap();
    let pd = function.allocate_pd().unwrap();
    let cq = function.create_cq(4).unwrap();
    let control = function.create_control(depth, Some(cq.number())).unwrap();
    World {
        pd,
        cq,
        control: control.number(),
        function,
        out: Outbox::new(),
    }
}

impl World {
    fn new_qp(&self, cq: u32) -> NewQp {
        new_qp(self.pd, cq)
    }

    /// Memory whose registration is queued.
    fn register(&self, id: u64) -> Buffer {
        let mut memory = None;
        let reserve = |tpt: &Arc<verbena_mem::Tpt>| {
            let (buffer, reserved) = Buffer::pending(tpt, 64, self.pd, Access::ALL)?;
            memory = Some(buffer);
            Ok(reserved)
        };
        let posted = self
            .function
            .post_register(self.control, id, self.pd, reserve);
        let (memory, stag) = (memory.unwrap(), posted.unwrap());
        assert_eq!(memory.stag(), stag);
        memory
    }

    fn run(&mut self) -> Option<ControlResult> {
        self.function
            .run_control(self.control, &mut self.out)
            .unwrap()
    }

    fn completions(&self) -> Vec<(u64, ControlOp, Status)> {
        let done = poll(&self.cq);
        done.iter()
            .map(|wc| match wc.op {
                WcOp::Control(op) if wc.qpn == self.control => (wc.id, op, wc.status),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn reaches(&self, memory: &Buffer) -> Result<(), Refusal> {
        let reach = MemAccess {
            stag: memory.stag(),
            at: memory.at(),
            len: 8,
            pd: self.pd,
            qp: 2,
            needs: Access::LOCAL_WRITE,
        };
        self.function.tpt().place_local(&reach).map(drop)
    }
}

#[test]
fn requests_are_done_in_order_and_complete() {
    let mut w = world(10);
    let memory = w.register(1);
    let stag = memory.stag();
    w.function.post_deregister(w.control, 2, stag).unwrap();
    let window = w
        .function
        .post_allocate_window(w.control, 3, WindowType::One, w.pd);
    assert_eq!(w.reaches(&memory), Err(Refusal::Pending { stag }));
    assert!(w.completions().is_empty(), "it was not run");
    assert_eq!(w.run().unwrap().subject, Subject::Stag(stag));
    assert_eq!(w.reaches(&memory), Ok(()));
    let done = w.run().unwrap();
    assert_eq!((done.id, done.op), (2, ControlOp::Deregister));
    assert_eq!(w.reaches(&memory), Err(Refusal::Stag { stag }));
    assert_eq!(w.run().unwrap().subject, Subject::Stag(window.unwrap()));
    assert_eq!(w.run(), None);
    let ended = [
        (1, ControlOp::Register, Status::Success),
        (2, ControlOp::Deregister, Status::Success),
        (3, ControlOp::AllocateWindow, Status::Success),
    ];
    assert_eq!(w.completions(), ended);
    assert_eq!(w.function.control(w.control).unwrap().outstanding(), 0);
}

#[test]
fn dependent_creations_may_be_queued() {
    let mut w = world(10);
    let (function, control) = (w.function.clone(), w.control);
    let cq = function.post_create_cq(control, 1, 10).unwrap();
    let qp = function.post_create_qp(control, 2, w.new_qp(cq)).unwrap();
    let pending = |object, number| Error::Pending { object, number };
    assert_eq!(function.qp(qp).unwrap_err(), pending(Object::Qp, qp));
    assert_eq!(function.cq(cq).unwrap_err(), pending(Object::Cq, cq));
    let out = &mut Outbox::new();
    let refused = [
        function.modify_qp(qp, QpState::Init, out).unwrap_err(),
        function.query_qp(qp).unwrap_err(),
        function.destroy_qp(qp, out).unwrap_err(),
    ];
    assert_eq!(refused, [pending(Object::Qp, qp); 3]);
    assert_eq!(function.destroy_cq(cq), Err(pending(Object::Cq, cq)));
    assert_eq!(
        function.create_qp(w.new_qp(cq)).unwrap_err(),
        pending(Object::Cq, cq)
    );
    assert_eq!(function.used().qps, 1, "its place is taken");

    w.run();
    w.run();
    assert!(function.modify_qp(qp, QpState::Init, out).is_ok());
    assert_eq!(function.query_cq(cq).unwrap().users, 1);
    // In use when its turn comes: it stays. After the queue pair is destroyed, it is destroyed.
    function.post_destroy_cq(control, 3, cq).unwrap();
    let in_use = w.run().unwrap().outcome;
    assert!(matches!(in_use, Err(Error::InUse { users: 1, .. })));
    function.post_destroy_qp(control, 4, qp).unwrap();
    function.post_destroy_cq(control, 5, cq).unwrap();
    w.run();
    w.run();
    let ops: Vec<_> = w.completions().iter().map(|c| (c.1, c.2)).collect();
    assert_eq!(
        ops[2..4],
        [
            (ControlOp::DestroyCq, Status::LocQpOpErr),
            (ControlOp::DestroyQp, Status::Success)
        ]
    );
    assert_eq!((function.used().qps, function.used().cqs), (0, 1));
}

#[test]
fn failed_creation_frees_its_number() {
    let mut w = world(10);
    let function = w.function.clone();
    let qp = function.post_create_qp(w.control, 1, w.new_qp(77)).unwrap();
    let done = w.run().unwrap();
    let (object, number) = (Object::Cq, 77);
    assert_eq!(done.outcome, Err(Error::NoSuch { object, number }));
    let (object, number) = (Object::Qp, qp);
    assert_eq!(
        function.qp(qp).unwrap_err(),
        Error::NoSuch { object, number }
    );
    assert_eq!(function.used().qps, 0);
    assert_eq!(
        w.completions(),
        [(1, ControlOp::CreateQp, Status::LocQpOpErr)]
    );
}

#[test]
fn failed_registration_completes_and_wakes_waiters() {
    let mut w = world(10);
    let original = w.register(1);
    let of = original.stag();
    let terms = (To::new(0), w.pd, Access::LOCAL_READ);
    let shared = w.function.post_register_shared(w.control, 2, of, terms);
    let shared = shared.unwrap();
    assert!(w.function.tpt().wait(shared, 6));
    assert_eq!(w.run().unwrap().outcome, Ok(()));
    drop(original);
    let done = w.run().unwrap();
    assert_eq!(done.outcome, Err(Misuse::Stag(of).into()));
    let failed = (2, ControlOp::Register, Status::LocQpOpErr);
    assert_eq!(w.completions()[1], failed);
    assert_eq!(w.out.take_woken(), [Wake::Memory(6)]);
    assert_eq!(w.function.used().stags, 0);
}

#[test]
fn unmapped_memory_is_a_protection_error() {
    let unmapped = Misuse::Unmapped {
        at: 4096,
        len: 8,
        write: true,
    };
    assert_eq!(status_of(&Err(unmapped.into())), Status::LocProtErr);
}

#[test]
fn invalid_requests_are_refused_without_effect() {
    let mut w = world(2);
    let function = w.function.clone();
    let object = Object::Control;
    for number in [0, 9, u32::MAX] {
        let no_such = Error::NoSuch { object, number };
        assert_eq!(function.control(number).unwrap_err(), no_such);
        assert_eq!(function.run_control(number, &mut w.out), Err(no_such));
        assert_eq!(function.destroy_control(number, &mut w.out), Err(no_such));
        assert_eq!(function.post_create_cq(number, 1, 5), Err(no_such));
    }
    for depth in [0, MAX_REQUESTS + 1] {
        let size = function.create_control(depth, None).unwrap_err();
        assert_eq!(size, ControlError::Size(depth).into());
    }
    assert!(function.create_control(1, Some(99)).is_err());

    let memory = w.register(1);
    let stag = memory.stag();
    let before = function.used();
    let unknown = Pd(7);
    let gone = function.post_register(w.control, 9, unknown, |_| panic!("no such domain"));
    assert_eq!(
        gone,
        Err(Error::NoSuch {
            object: Object::Pd,
            number: 7
        })
    );
    let in_use = function.free_pd(w.pd);
    assert!(
        matches!(in_use, Err(Error::InUse { users: 1, .. })),
        "pending memory is its own"
    );
    let unknown = verbena_wire::Stag::new(0x7777);
    assert_eq!(
        function.post_deregister(w.control, 9, unknown),
        Err(Misuse::Stag(unknown).into())
    );
    assert!(function.post_create_cq(w.control, 9, 0).is_err());
    assert!(function.post_destroy_qp(w.control, 9, 50).is_err());
    function.post_deregister(w.control, 2, stag).unwrap();
    let full = function.post_create_cq(w.control, 9, 5).unwrap_err();
    assert_eq!(full, ControlError::Full(2).into());
    assert_eq!(full.kind(), Kind::Exhausted);
    assert_eq!(function.used(), before);
    w.run();
    let twice = function.post_deregister(w.control, 3, stag);
    assert_eq!(
        twice,
        Err(ControlError::BeingRemoved(Subject::Stag(stag)).into())
    );
    w.run();
    let late = function.post_deregister(w.control, 4, stag);
    assert_eq!(late, Err(Misuse::Stag(stag).into()));
    assert_eq!(w.completions().len(), 2);
}

#[test]
fn destroying_control_queue_drops_pending_requests() {
    let mut w = world(10);
    let function = w.function.clone();
    let memory = w.register(1);
    assert!(function.tpt().wait(memory.stag(), 5));
    function.post_create_cq(w.control, 2, 10).unwrap();
    let before = w.cq.number();
    assert!(function.destroy_cq(before).is_err(), "it completes there");
    function.destroy_control(w.control, &mut w.out).unwrap();
    assert_eq!(w.out.take_woken(), [Wake::Memory(5)]);
    let stag = memory.stag();
    assert_eq!(w.reaches(&memory), Err(Refusal::Stag { stag }));
    assert!(w.completions().is_empty());
    assert_eq!((function.used().cqs, function.used().stags), (1, 0));
    function.destroy_cq(before).unwrap();
    assert!(function.run_control(w.control, &mut w.out).is_err());
}

#[test]
fn completion_overflow_ends_control_queue() {
    let mut w = world(10);
    for id in 0..6 {
        w.function.post_create_cq(w.control, id, 1).unwrap();
    }
    let ran = core::iter::from_fn(|| w.function.run_control(w.control, &mut w.out).unwrap());
    assert_eq!(ran.count(), 5, "the fifth found no room");
    let cq = w.cq.number();
    assert!(w.out.events().contains(&Event::CqOverflow { cq }));
    let ended = w.function.post_create_cq(w.control, 9, 1);
    assert_eq!(ended, Err(ControlError::Ended.into()));
    assert_eq!(w.function.used().cqs, 6, "what was given up is no more");
}

/// Two threads run one control queue pair while others post: each request is done once, in posting order.
#[test]
fn concurrent_runs_keep_posting_order() {
    let w = world(MAX_REQUESTS);
    let control = w.function.create_control(1000, None).unwrap().number();
    let ids = parking_lot::Mutex::new(Vec::new());
    let done = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = Outbox::new();
                while !done.load(core::sync::atomic::Ordering::Acquire) {
                    w.function.run_control(control, &mut out).unwrap();
                }
            });
        }
        for id in 0..500 {
            let mut memory = None;
            let reserve = |tpt: &Arc<verbena_mem::Tpt>| {
                let (buffer, reserved) = Buffer::pending(tpt, 8, w.pd, Access::ALL)?;
                memory = Some(buffer);
                Ok(reserved)
            };
            let stag = w
                .function
                .post_register(control, id, w.pd, reserve)
                .unwrap();
            w.function.post_deregister(control, id, stag).unwrap();
            while w.function.tpt().contains(stag) {
                std::thread::yield_now();
            }
            ids.lock().push(stag);
        }
        done.store(true, core::sync::atomic::Ordering::Release);
    });
    assert_eq!(ids.lock().len(), 500);
    assert_eq!(w.function.used().stags, 0);
}
