//! Memory windows over real connections: what a peer may do through one, and the error after the window was invalidated.
//! The memory itself grants no remote access.

use verbena::low::{Cq, Data, Pd, Qp, QpOptions, RecvWr, SendOp};
use verbena::mr::WindowType;
use verbena::{Access, Device, Error, Memory, RemoteMemory, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wr};

const NO_DATA: Data<'static> = Data::Gather(&[]);

/// A peer `a`, and `b`, whose memory grants no remote access but allows windows.
struct World {
    a: Qp,
    b: Qp,
    a_cq: Cq,
    b_cq: Cq,
    memory: Memory,
    pd: Pd,
    device: Device,
}

impl World {
    fn new() -> World {
        let device = device(&[]);
        let pd = device.pd().unwrap();
        let (a_cq, b_cq) = (device.cq(64).unwrap(), device.cq(64).unwrap());
        // M21: both are queue pairs of one device. The peer has its own domain.
        let other = device.pd().unwrap();
        let a = Qp::new(&other, &a_cq, &a_cq, QpOptions::default()).unwrap();
        let b = Qp::new(&pd, &b_cq, &b_cq, QpOptions::default()).unwrap();
        connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
        let rights = Access::LOCAL_WRITE | Access::BIND;
        World {
            a,
            b,
            a_cq,
            b_cq,
            memory: pd.memory(4096, rights).unwrap(),
            pd,
            device,
        }
    }

    /// `b` executes a request.
    fn run(&self, op: SendOp) -> Status {
        self.b.post_send(&[wr(1, op, NO_DATA)]).unwrap();
        complete(&self.b_cq, 1)[0].status
    }

    /// `a` writes to the beginning of the memory of a handle.
    fn write(&self, to: &RemoteMemory, bytes: &[u8]) -> Status {
        let op = SendOp::Write {
            remote: to.remote_addr(),
            immediate: None,
        };
        let list = [wr(2, op, Data::Inline(bytes))];
        self.a.post_send(&list).unwrap();
        complete(&self.a_cq, 1)[0].status
    }
}

#[test]
fn window_limits_access_to_its_range() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = World::new();
        let mut window = world.pd.window(ty).unwrap();
        let bound = window.bind(&world.memory, 100, 8, Access::REMOTE_WRITE);
        let (op, handle) = bound.unwrap();
        assert_eq!(world.run(op), Status::Success, "{ty:?}");
        assert_eq!(world.write(&handle, b"through!"), Status::Success);
        assert_eq!(world.memory.get::<[u8; 8]>(100).unwrap(), *b"through!");
        assert_eq!(world.write(&handle, b"too long!"), Status::RemAccessErr);
        assert_eq!(world.memory.get::<u8>(108).unwrap(), 0);
    }
}

#[test]
fn unbound_window_refuses_access() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = World::new();
        let mut window = world.pd.window(ty).unwrap();
        // Bound, unbound and bound again elsewhere: only the last handle is valid.
        let mut handles = Vec::new();
        for round in 0..3 {
            let bound = window.bind(&world.memory, round * 64, 64, Access::REMOTE_WRITE);
            let (op, handle) = bound.unwrap();
            assert_eq!(world.run(op), Status::Success, "{ty:?} {round}");
            assert_eq!(world.write(&handle, &[round as u8]), Status::Success);
            assert_eq!(world.memory.get::<u8>(round * 64).unwrap(), round as u8);
            if round < 2 {
                assert_eq!(world.run(window.unbind()), Status::Success);
                handles.push(handle);
            }
        }
        assert_eq!(world.write(&handles[1], b"late"), Status::RemAccessErr);
        assert_eq!(world.memory.get::<u8>(64).unwrap(), 1);
    }
}

/// M11: the peer invalidates the window with a message.
#[test]
fn send_with_invalidate_invalidates_window() {
    let world = World::new();
    let mut window = world.pd.window(WindowType::TwoB).unwrap();
    let bound = window.bind(&world.memory, 0, 64, Access::REMOTE_WRITE);
    let (op, handle) = bound.unwrap();
    assert_eq!(world.run(op), Status::Success);
    let (id, scatter) = (5, &[][..]);
    world.b.post_recv(&[RecvWr { id, scatter }]).unwrap();
    let stag = handle.remote_addr().stag;
    let done = SendOp::Send {
        invalidate: Some(stag),
        immediate: None,
    };
    assert_eq!(world.write(&handle, b"all of it"), Status::Success);
    world.a.post_send(&[wr(3, done, NO_DATA)]).unwrap();
    let completion = complete(&world.b_cq, 1)[0];
    assert_eq!(
        (completion.status, completion.invalidated),
        (Status::Success, Some(stag))
    );
    assert_eq!(complete(&world.a_cq, 1)[0].status, Status::Success);
    // Its owner may bind it again at once; the old handle stays invalid.
    let bound = window.bind(&world.memory, 0, 64, Access::REMOTE_WRITE);
    assert_eq!(world.run(bound.unwrap().0), Status::Success);
    assert_eq!(world.write(&handle, b"late"), Status::RemAccessErr);
    assert_eq!(world.memory.get::<[u8; 4]>(0).unwrap(), *b"all ");
}

/// A window of type 2 belongs to the queue pair that bound it, one of type 1 to its domain.
#[test]
fn type_two_window_belongs_to_binding_qp() {
    for (ty, expected) in [
        (WindowType::One, Status::Success),
        (WindowType::TwoA, Status::RemAccessErr),
        (WindowType::TwoB, Status::RemAccessErr),
    ] {
        let world = World::new();
        let mut window = world.pd.window(ty).unwrap();
        let bound = window.bind(&world.memory, 0, 64, Access::REMOTE_WRITE);
        let (op, handle) = bound.unwrap();
        assert_eq!(world.run(op), Status::Success);
        // Another connection in the same domain.
        let (pd, cq) = (&world.pd, &world.a_cq);
        let client = Qp::new(pd, cq, cq, QpOptions::default()).unwrap();
        let server = Qp::new(pd, &world.b_cq, &world.b_cq, QpOptions::default()).unwrap();
        let listener = world.device.listen("127.0.0.1:0").unwrap();
        connect_qps(&listener, &client, &server);
        let world = World { a: client, ..world };
        assert_eq!(world.write(&handle, b"x"), expected, "{ty:?}");
    }
}

#[test]
fn dropped_window_refuses_and_frees_memory() {
    let world = World::new();
    let mut window = world.pd.window(WindowType::One).unwrap();
    let bound = window.bind(&world.memory, 0, 64, Access::REMOTE_WRITE);
    let (op, handle) = bound.unwrap();
    assert_eq!(world.run(op), Status::Success);
    let stags = world.device.used().stags;
    // The window keeps its memory alive.
    let World { memory, .. } = world;
    drop(memory);
    assert_eq!(world.device.used().stags, stags);
    drop(window);
    assert_eq!(world.device.used().stags, stags - 2);
    let op = SendOp::Write {
        remote: handle.remote_addr(),
        immediate: None,
    };
    let list = [wr(2, op, Data::Inline(b"x"))];
    world.a.post_send(&list).unwrap();
    assert_eq!(complete(&world.a_cq, 1)[0].status, Status::RemAccessErr);
}

#[test]
fn invalid_binds_are_refused() {
    let world = World::new();
    let mut window = world.pd.window(WindowType::TwoB).unwrap();
    let closed = world.pd.memory(64, Access::ALL & Access::LOCAL_WRITE);
    let refused = window.bind(&closed.unwrap(), 0, 8, Access::REMOTE_READ);
    assert!(matches!(refused, Err(Error::MissingAccess { needs, .. }) if needs == Access::BIND));
    let refused = window.bind(&world.memory, 0, 8, Access::LOCAL_WRITE);
    assert!(matches!(refused, Err(Error::MissingAccess { .. })));
    let refused = window.bind(&world.memory, 4090, 7, Access::REMOTE_READ);
    assert!(matches!(
        refused,
        Err(Error::OutOfBounds { limit: 4096, .. })
    ));
    let other = world.device.pd().unwrap().memory(64, Access::ALL).unwrap();
    let refused = window.bind(&other, 0, 8, Access::REMOTE_READ);
    assert!(matches!(refused, Err(Error::Foreign)));
    // Bound twice without unbinding: the second request fails when it is executed.
    let first = window.bind(&world.memory, 0, 8, Access::REMOTE_READ);
    assert_eq!(world.run(first.unwrap().0), Status::Success);
    let second = window.bind(&world.memory, 8, 8, Access::REMOTE_READ);
    assert_eq!(world.run(second.unwrap().0), Status::MwBindErr);
    let late = world.b.post_send(&[wr(1, SEND, NO_DATA)]);
    assert_eq!(late, Ok(()));
    assert_eq!(complete(&world.b_cq, 1)[0].status, Status::WrFlushErr);
}
