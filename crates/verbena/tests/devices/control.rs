//! Control queue pairs of the Rust API (V5): requests that depend on each other, in order, with results that can be connected and used.
//! Failures leave nothing behind, and a request that cannot be queued changes nothing.

use verbena::control::{ControlOp, ControlQueue, CqChange};
use verbena::events::{Cause, HandlerOptions};
use verbena::low::{Arm, Cq, Data, Qp, QpOptions, QpState, RecvWr, SendOp, Wc, WcOp};
use verbena::mr::WindowType;
use verbena::{Access, Device, Error, Status};

use crate::common::device;
use crate::common::low::{complete, connect_qps, wr};

/// The id, operation and status of the next completions.
fn done(control: &ControlQueue, count: usize) -> Vec<(u64, ControlOp, Status)> {
    let entry = |wc: Wc| {
        assert_eq!(wc.qpn, control.number());
        match wc.op {
            WcOp::Control(op) => (wc.id, op, wc.status),
            other => panic!("not a control request: {other:?}"),
        }
    };
    let all = complete(control.cq(), count);
    all.into_iter().map(entry).collect()
}

fn drop_error<T, R>(result: Result<R, (T, Error)>) -> R {
    result.map_err(|(_, error)| error).unwrap()
}

#[test]
fn queued_objects_connect_and_transfer() {
    let device = device(&[]);
    let pd = device.pd().unwrap();
    let control = device.control_queue(64).unwrap();
    // All of it is queued before any result is looked at.
    let cq = control.create_cq(1, 64).unwrap();
    let create = |id| control.create_qp(id, &pd, &cq, &cq, QpOptions::default());
    let (a, b) = (create(2).unwrap(), create(3).unwrap());
    let ready = control.modify_qp(4, &a, QpState::Init).unwrap();
    let (memory, registering) = control.register(5, &pd, 1 << 20, Access::ALL).unwrap();
    let expected = [
        (1, ControlOp::CreateCq, Status::Success),
        (2, ControlOp::CreateQp, Status::Success),
        (3, ControlOp::CreateQp, Status::Success),
        (4, ControlOp::ModifyQp, Status::Success),
        (5, ControlOp::Register, Status::Success),
    ];
    assert_eq!(done(&control, 5), expected);
    ready.wait().unwrap();
    registering.wait().unwrap();
    let (cq, a, b): (Cq, Qp, Qp) = (cq.wait().unwrap(), a.wait().unwrap(), b.wait().unwrap());
    assert_eq!((a.state(), b.state()), (QpState::Init, QpState::Reset));
    connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
    let op = SendOp::Write {
        remote: memory.remote_addr(4096).unwrap(),
        immediate: None,
    };
    let request = wr(9, op, Data::Inline(b"through queued objects"));
    a.post_send(&[request]).unwrap();
    assert_eq!(complete(&cq, 1)[0].status, Status::Success);
    let got: [u8; 22] = memory.get(4096).unwrap();
    assert_eq!(&got, b"through queued objects");
    // Removed in the same way.
    let removals = [
        drop_error(control.destroy_qp(10, a)),
        drop_error(control.destroy_qp(11, b)),
        drop_error(control.destroy_cq(12, cq)),
        drop_error(control.deregister(13, memory)),
    ];
    let expected = [
        (10, ControlOp::DestroyQp, Status::Success),
        (11, ControlOp::DestroyQp, Status::Success),
        (12, ControlOp::DestroyCq, Status::Success),
        (13, ControlOp::Deregister, Status::Success),
    ];
    assert_eq!(done(&control, 4), expected);
    for removal in removals {
        removal.wait().unwrap();
    }
    let used = device.used();
    // The completion queue that is left is that of the control queue pair.
    assert_eq!((used.qps, used.cqs, used.stags), (0, 1, 0));
}

#[test]
fn queued_queue_gets_size_and_handler() {
    let device = device(&[]);
    let control = device.control_queue(16).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let handler = device
        .set_handler(&HandlerOptions::new(move |completion| {
            let _ = tell.send(completion.cq);
        }))
        .unwrap();
    // All of it is queued before the queue exists.
    let cq = control.create_cq(1, 4).unwrap();
    let grown = control.modify_cq(2, &cq, CqChange::Entries(256)).unwrap();
    let attached = control.modify_cq(3, &cq, CqChange::Handler(&handler));
    let attached = attached.unwrap();
    let expected = [
        (1, ControlOp::CreateCq, Status::Success),
        (2, ControlOp::ModifyCq, Status::Success),
        (3, ControlOp::ModifyCq, Status::Success),
    ];
    assert_eq!(done(&control, 3), expected);
    grown.wait().unwrap();
    attached.wait().unwrap();
    let cq = cq.wait().unwrap();
    let info = cq.query().unwrap();
    assert!(info.cq.entries >= 256);
    assert_eq!(info.handler.map(|id| id.0), Some(handler.id()));
    // A completion calls it.
    let pd = device.pd().unwrap();
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    qp.modify(QpState::Init).unwrap();
    let scatter = &[];
    qp.post_recv(&[RecvWr { id: 9, scatter }]).unwrap();
    cq.arm(Arm::Next);
    qp.modify(QpState::Err).unwrap();
    assert_eq!(told.recv().unwrap(), cq.number());
    assert_eq!(complete(&cq, 1)[0].status, Status::WrFlushErr);
    let detached = control.modify_cq(4, &cq, CqChange::NoHandler).unwrap();
    detached.wait().unwrap();
    assert_eq!(cq.query().unwrap().handler, None);
}

#[test]
fn refused_changes_of_completion_queue_change_nothing() {
    let (device, other) = (device(&[]), device(&[]));
    let control = device.control_queue(16).unwrap();
    let cq = device.cq(64).unwrap();
    let before = cq.query().unwrap();
    // Not executed when it is posted: another device's handler is refused at once.
    let foreign = other.set_handler(&HandlerOptions::default()).unwrap();
    let refused = control.modify_cq(1, &cq, CqChange::Handler(&foreign));
    assert!(matches!(refused, Err(Error::Foreign)));
    assert_eq!(control.outstanding(), 0);
    let refused = control.modify_cq(2, &cq, CqChange::Entries(0)).unwrap();
    let error = refused.wait().unwrap_err().to_string();
    assert!(error.contains('0'), "{error}");
    let strange = other.cq(64).unwrap();
    let refused = control.modify_cq(3, &strange, CqChange::Entries(128));
    assert!(refused.unwrap().wait().is_err());
    assert!(strange.query().unwrap().cq.entries < 128);
    // One that is cleared before its turn, also if its id is used again: requests before it hold the queue pair's turn.
    let handler = device.set_handler(&HandlerOptions::default()).unwrap();
    let pd = device.pd().unwrap();
    let (_memory, _) = control.register(4, &pd, 64 << 20, Access::ALL).unwrap();
    let late = control.modify_cq(5, &cq, CqChange::Handler(&handler));
    let id = handler.id();
    drop(handler);
    let next = device.set_handler(&HandlerOptions::default()).unwrap();
    assert_eq!(next.id(), id);
    // Executed before the first one was cleared, or refused: never with the handler that has its id now.
    let refused = late.unwrap().wait().is_err();
    let statuses: Vec<Status> = done(&control, 4).into_iter().map(|done| done.2).collect();
    assert_eq!(statuses[0], Status::LocQpOpErr);
    assert_eq!(statuses[1], Status::LocQpOpErr);
    assert_eq!(statuses[3] == Status::LocQpOpErr, refused);
    assert_eq!(cq.query().unwrap().cq.entries, before.cq.entries);
    if refused {
        assert_eq!(cq.query().unwrap().handler, None);
    }
}

/// V5: a window that was only queued is bound by a request that waits for its allocation.
#[test]
fn queued_window_is_bound_and_used() {
    let device = device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let control = device.control_queue(16).unwrap();
    let create = || Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let (a, b) = (create(), create());
    connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
    let (memory, registering) = control.register(1, &pd, 64 << 20, Access::ALL).unwrap();
    let (mut window, allocating) = control.allocate_window(2, &pd, WindowType::TwoB).unwrap();
    let (bind, handle) = window.bind(&memory, 64, 64, Access::REMOTE_WRITE).unwrap();
    // Posted while the window and its memory may be pending.
    b.post_send(&[wr(3, bind, Data::Gather(&[]))]).unwrap();
    assert_eq!(complete(&cq, 1)[0].status, Status::Success);
    let op = SendOp::Write {
        remote: handle.remote_addr(),
        immediate: None,
    };
    a.post_send(&[wr(4, op, Data::Inline(b"window"))]).unwrap();
    assert_eq!(complete(&cq, 1)[0].status, Status::Success);
    assert_eq!(&memory.get::<[u8; 6]>(64).unwrap(), b"window");
    registering.wait().unwrap();
    allocating.wait().unwrap();
    let gone = drop_error(control.deallocate_window(5, window));
    gone.wait().unwrap();
    let expected = [
        (1, ControlOp::Register, Status::Success),
        (2, ControlOp::AllocateWindow, Status::Success),
        (5, ControlOp::Deregister, Status::Success),
    ];
    assert_eq!(done(&control, 3), expected);
    assert_eq!(device.used().stags, 1);
    a.post_send(&[wr(6, op, Data::Inline(b"closed"))]).unwrap();
    assert_eq!(complete(&cq, 1)[0].status, Status::RemAccessErr);
}

/// V5, M5: both registrations are queued; the second one outlives the first.
#[test]
fn queued_share_outlives_its_memory() {
    let device = device(&[]);
    let (owner, reader) = (device.pd().unwrap(), device.pd().unwrap());
    let control = device.control_queue(16).unwrap();
    let (memory, _) = control.register(1, &owner, 1 << 20, Access::ALL).unwrap();
    let (view, registering) = control
        .share(2, &memory, &reader, Access::REMOTE_READ)
        .unwrap();
    memory.write_at(0, b"shared").unwrap();
    registering.wait().unwrap();
    drop_error(control.deregister(3, memory)).wait().unwrap();
    assert_eq!(&view.get::<[u8; 6]>(0).unwrap(), b"shared");
    assert_eq!(view.remote().access(), Access::REMOTE_READ);
    assert_eq!(device.used().stags, 1);
    done(&control, 3);
    // Memory that may be gone when the turn of the request comes.
    let (memory, _) = control.register(4, &owner, 1 << 20, Access::ALL).unwrap();
    let (late, registering) = control
        .share(5, &memory, &reader, Access::REMOTE_READ)
        .unwrap();
    drop(memory);
    let is_registered = registering.wait().is_ok();
    let statuses: Vec<Status> = done(&control, 2).into_iter().map(|done| done.2).collect();
    assert_eq!(statuses[1] == Status::Success, is_registered);
    assert_eq!(device.used().stags, 1 + u32::from(is_registered));
    assert_eq!(late.len(), 1 << 20);
    late.write_at(0, b"kept").unwrap();
    drop((late, view));
    assert_eq!(device.used().stags, 0);
}

#[test]
fn requests_that_depend_on_failed_one_fail() {
    let device = device(&[("max_cqs", "2")]);
    let pd = device.pd().unwrap();
    let control = device.control_queue(16).unwrap();
    let _last = device.cq(16).unwrap();
    let cq = control.create_cq(1, 16).unwrap();
    let options = QpOptions::default();
    let qp = control.create_qp(2, &pd, &cq, &cq, options).unwrap();
    let modified = control.modify_qp(3, &qp, QpState::Init).unwrap();
    let statuses: Vec<Status> = done(&control, 3).into_iter().map(|done| done.2).collect();
    assert_eq!(statuses, [Status::LocQpOpErr; 3]);
    let error = cq.wait().unwrap_err().to_string();
    assert!(error.contains("completion queue"), "{error}");
    let error = qp.wait().unwrap_err().to_string();
    assert!(error.contains("depends on"), "{error}");
    assert!(modified.wait().is_err());
    assert_eq!(device.used().qps, 0);
}

#[test]
fn forbidden_transition_fails_and_changes_nothing() {
    let device = device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let control = device.control_queue(16).unwrap();
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let refused = control.modify_qp(1, &qp, QpState::Sqd).unwrap();
    assert_eq!(
        done(&control, 1),
        [(1, ControlOp::ModifyQp, Status::LocQpOpErr)]
    );
    let error = refused.wait().unwrap_err();
    assert_eq!(qp.state(), QpState::Reset, "{error}");
}

#[test]
fn completion_queue_in_use_is_not_destroyed() {
    let device = device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let control = device.control_queue(16).unwrap();
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let refused = drop_error(control.destroy_cq(1, cq));
    let error = refused.wait().unwrap_err().to_string();
    assert!(error.contains("in use by 1"), "{error}");
    assert_eq!(done(&control, 1)[0].2, Status::LocQpOpErr);
    // It ends with its queue pair.
    assert_eq!(device.used().cqs, 2);
    drop(qp);
    assert_eq!(device.used().cqs, 1);
}

#[test]
fn memory_with_other_handles_is_returned() {
    let device = device(&[]);
    let pd = device.pd().unwrap();
    let control = device.control_queue(16).unwrap();
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let other = memory.clone();
    let (memory, error) = control.deregister(1, memory).unwrap_err();
    assert!(error.to_string().contains("in use by 1"), "{error}");
    assert_eq!((control.outstanding(), memory.len()), (0, 4096));
    drop(other);
    drop_error(control.deregister(2, memory)).wait().unwrap();
    assert_eq!(device.used().stags, 0);
}

#[test]
fn foreign_domain_is_refused_when_posted() {
    let (one, other) = (device(&[]), device(&[]));
    let control = one.control_queue(16).unwrap();
    let (pd, cq) = (other.pd().unwrap(), one.cq(16).unwrap());
    let refused = control.create_qp(1, &pd, &cq, &cq, QpOptions::default());
    assert!(matches!(refused, Err(Error::Foreign)));
    let refused = control.register(2, &pd, 4096, Access::ALL);
    assert!(matches!(refused, Err(Error::Foreign)));
    let (own, theirs) = (one.pd().unwrap(), pd.memory(4096, Access::ALL).unwrap());
    let ours = own.memory(4096, Access::ALL).unwrap();
    let refused = control.share(3, &theirs, &own, Access::ALL);
    assert!(matches!(refused, Err(Error::Foreign)));
    let refused = control.share(4, &ours, &pd, Access::ALL);
    assert!(matches!(refused, Err(Error::Foreign)));
    let refused = control.allocate_window(5, &pd, WindowType::One);
    assert!(matches!(refused, Err(Error::Foreign)));
    assert_eq!(control.outstanding(), 0);
    assert!(one.control_queue(0).is_err());
}

#[test]
fn dropped_control_queue_ends_its_requests() {
    let device = device(&[]);
    let pd = device.pd().unwrap();
    let control = device.control_queue(256).unwrap();
    let queued: Vec<_> = (0..200)
        .map(|id| control.create_cq(id, 16).unwrap())
        .collect();
    let (memory, registering) = control.register(200, &pd, 4096, Access::ALL).unwrap();
    drop(control);
    // Each request was executed, or ends with an error; none waits for ever.
    let results: Vec<_> = queued
        .into_iter()
        .map(verbena::control::Queued::wait)
        .collect();
    let executed = results.iter().filter(|result| result.is_ok()).count();
    assert!(results[executed..].iter().all(Result::is_err), "in order");
    assert_eq!(registering.wait().is_ok(), device.used().stags == 1);
    drop((results, memory));
    assert_eq!((device.used().cqs, device.used().stags), (0, 0));
}

/// The last handles of a device may be dropped with the results of its control queue pair.
#[test]
fn device_ends_with_its_queued_objects() {
    let opened: Device = device(&[]);
    let control = opened.control_queue(16).unwrap();
    let cq = control.create_cq(1, 16).unwrap();
    drop(opened);
    drop(control);
    drop(cq);
}

/// E7: an observer sees the event of each command after the command was executed.
#[test]
fn commands_raise_events_for_observers() {
    let device = device(&[]);
    let control = device.control_queue(8).unwrap();
    control.create_cq(1, 64).unwrap().wait().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let observation = device.observe(move |cause| {
        if let Cause::CommandDone { command } = cause {
            let _ = tell.send(command);
        }
    });
    for id in [7, (1 << 24) + 8] {
        control.create_cq(id, 64).unwrap().wait().unwrap();
    }
    drop(observation);
    let seen: Vec<u32> = told.iter().collect();
    assert_eq!(seen, [7, 8], "the low 24 bits of the ids");
}
