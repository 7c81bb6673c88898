//! One-touch memory and registration by work request over real connections: what both sides observe (M4, M9, M11).
//! A second access to one-touch memory ends the connection with a Terminate.

use verbena::function::PageQuota;
use verbena::low::{
    Cq, Data, OnFailure, Pd, Qp, QpOptions, QpState, RecvWr, RegisterError, Registration, SendOp,
    Sge, Wc, WcOp,
};
use verbena::mr::WindowType;
use verbena::{Access, Device, Error, Fault, Memory, RemoteMemory, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

const NO_DATA: Data<'static> = Data::Gather(&[]);

/// A peer `a`, and `b`, which has memory and may register more by work requests.
struct World {
    a: Qp,
    b: Qp,
    a_cq: Cq,
    b_cq: Cq,
    memory: Memory,
    pd: Pd,
    /// The peer's domain.
    other: Pd,
    device: Device,
}

fn sink() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

impl World {
    fn new(on_failure: OnFailure) -> World {
        let device = device(&[]);
        let pd = device.pd().unwrap();
        let (a_cq, b_cq) = (device.cq(64).unwrap(), device.cq(64).unwrap());
        let other = device.pd().unwrap();
        let a = Qp::new(&other, &a_cq, &a_cq, QpOptions::default()).unwrap();
        let registration = Registration {
            enabled: true,
            on_failure,
        };
        let options = QpOptions::default().registration(registration);
        let b = Qp::new(&pd, &b_cq, &b_cq, options).unwrap();
        connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);
        let rights = Access::LOCAL_WRITE | Access::BIND;
        World {
            a,
            b,
            a_cq,
            b_cq,
            memory: pd.memory(3 * 4096, rights).unwrap(),
            pd,
            other,
            device,
        }
    }

    /// `b` executes a request.
    fn run(&self, op: SendOp) -> Wc {
        self.b.post_send(&[wr(1, op, NO_DATA)]).unwrap();
        complete(&self.b_cq, 1)[0]
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

    /// Both sides have the reason: a Terminate was sent.
    fn assert_second_touch(&self) {
        wait_until("the peer's end", || self.b.state() == QpState::Err);
        let why = self.b.view().cause.unwrap();
        assert!(why.contains("second touch of a one-touch STag"), "{why}");
        let cause = self.a.view().cause.unwrap();
        assert!(cause.contains("the peer sent Terminate"), "{cause}");
    }
}

#[test]
fn one_touch_window_allows_one_write_per_bind() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = World::new(OnFailure::Anticipatory);
        let mut window = world.pd.window(ty).unwrap().one_touch();
        let mut last = None;
        for round in 0..3 {
            let bound = window.bind(&world.memory, round * 64, 64, Access::REMOTE_WRITE);
            let (op, handle) = bound.unwrap();
            assert_eq!(world.run(op).status, Status::Success, "{ty:?} {round}");
            assert_eq!(world.write(&handle, b"once"), Status::Success);
            if round == 1 {
                // Unbinding after the touch has no effect.
                assert_eq!(world.run(window.unbind()).status, Status::Success);
            }
            last = Some(handle);
        }
        assert_eq!(world.b.state(), QpState::Rts, "it has not failed yet");
        let again = world.write(&last.unwrap(), b"more");
        assert_eq!(again, Status::RemAccessErr, "{ty:?}");
        world.assert_second_touch();
        assert_eq!(world.memory.get::<[u8; 4]>(128).unwrap(), *b"once");
    }
}

/// M11: a read whose sink is registered by the request before it, and invalid once the data is there.
#[test]
fn read_with_invalidate_ends_its_sink() {
    let world = World::new(OnFailure::Anticipatory);
    let source = world
        .other
        .memory(64, Access::REMOTE_READ | Access::LOCAL_WRITE);
    let source = source.unwrap();
    source.write_at(0, b"fetched").unwrap();
    let mut tag = world.pd.fast_reg_mr(1).unwrap();
    let sink = tag.register(&world.memory, 0, 64, Access::LOCAL_WRITE);
    let (ticket, handle) = sink.unwrap();
    let stag = ticket.stag();
    let piece = [Sge {
        addr: handle.remote_addr().to.get(),
        len: 7,
        stag,
    }];
    let read = |id, local_invalidate| {
        let remote = source.remote_addr(0).unwrap();
        let op = SendOp::Read {
            remote,
            local_invalidate,
        };
        wr(id, op, Data::Gather(&piece))
    };
    let register = wr(1, SendOp::Register(ticket), NO_DATA);
    let list = [register, read(2, None), read(3, Some(stag))];
    world.b.post_send(&list).unwrap();
    let done = complete(&world.b_cq, 3);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(world.memory.get::<[u8; 7]>(0).unwrap(), *b"fetched");
    world.b.post_send(&[read(4, None)]).unwrap();
    assert_eq!(complete(&world.b_cq, 1)[0].status, Status::LocProtErr);
}

#[test]
fn one_touch_memory_allows_one_read() {
    let world = World::new(OnFailure::Anticipatory);
    let once = world.pd.one_touch_memory(4096, Access::ALL).unwrap();
    once.write_at(0, &[7; 4096]).unwrap();
    let op = SendOp::Read {
        remote: once.remote_addr(0).unwrap(),
        local_invalidate: None,
    };
    let into = world.other.memory(4096, Access::LOCAL_WRITE).unwrap();
    let scatter = [into.sge(0, 4096).unwrap()];
    let read = [wr(1, op, Data::Gather(&scatter))];
    // A read of no bytes is not a touch.
    world.a.post_send(&[wr(0, op, NO_DATA)]).unwrap();
    world.a.post_send(&read).unwrap();
    let ends = complete(&world.a_cq, 2);
    assert!(ends.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(into.get::<[u8; 4096]>(0).unwrap(), [7; 4096]);
    once.write_at(0, b"mine").unwrap();
    world.a.post_send(&read).unwrap();
    let end = complete(&world.a_cq, 1)[0];
    assert_eq!(end.status, Status::RemAccessErr);
    world.assert_second_touch();
    assert_eq!(once.get::<[u8; 5]>(0).unwrap(), *b"mine\x07");
}

#[test]
fn registered_pages_are_used_by_next_request() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(2).unwrap();
    world.memory.write_at(0, &[1; 4096]).unwrap();
    world.memory.write_at(8192, &[3; 4096]).unwrap();
    let pages = [(&world.memory, 8192), (&world.memory, 0)];
    let (ticket, handle) = tag.register_pages(&pages, sink()).unwrap();
    let pieces = [Sge {
        addr: 4000,
        len: 200,
        stag: ticket.stag(),
    }];
    let into = world.other.memory(200, Access::LOCAL_WRITE).unwrap();
    let (id, scatter) = (9, &[into.sge(0, 200).unwrap()][..]);
    world.a.post_recv(&[RecvWr { id, scatter }]).unwrap();
    let register = wr(1, SendOp::Register(ticket), NO_DATA);
    let send = wr(2, SEND, Data::Gather(&pieces));
    world.b.post_send(&[register, send]).unwrap();
    let ends = complete(&world.b_cq, 2);
    assert!(ends.iter().all(|wc| wc.status == Status::Success));
    assert_eq!((ends[0].op, ends[1].op), (WcOp::Register, WcOp::Send));
    assert_eq!(complete(&world.a_cq, 1)[0].len, 200);
    // The pages are in the order of the list.
    assert_eq!(into.get::<[u8; 96]>(0).unwrap(), [3; 96]);
    assert_eq!(into.get::<[u8; 104]>(96).unwrap(), [1; 104]);
    assert_eq!(world.write(&handle, b"page three"), Status::Success);
    let seen: [u8; 10] = world.memory.get(8192).unwrap();
    assert_eq!(seen, *b"page three");
}

#[test]
fn register_send_registers_and_announces_memory() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(1).unwrap().one_touch();
    for round in 0..5_u8 {
        let offset = usize::from(round) * 100;
        let made = tag.register(&world.memory, offset, 64, sink());
        let (ticket, handle) = made.unwrap();
        let posted = world.a.post_recv(&[RecvWr {
            id: 7,
            scatter: &[],
        }]);
        posted.unwrap();
        let op = SendOp::RegisterSend {
            ticket,
            invalidate: None,
            immediate: Some(u32::from(round)),
        };
        world.b.post_send(&[wr(1, op, NO_DATA)]).unwrap();
        let sent = complete(&world.b_cq, 1)[0];
        assert_eq!((sent.status, sent.op), (Status::Success, WcOp::Send));
        let received = complete(&world.a_cq, 1)[0];
        assert_eq!(received.immediate, Some(u32::from(round)));
        // The peer's write invalidates the registration, so the STag can be used for the next one.
        assert_eq!(world.write(&handle, &[round + 1; 64]), Status::Success);
        assert_eq!(world.memory.get::<u8>(offset + 63).unwrap(), round + 1);
    }
}

#[test]
fn reactive_registration_failure_is_hidden_from_peer() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(1).unwrap();
    let pages = [(&world.memory, 0), (&world.memory, 4096)];
    let (too_many, _) = tag.register_pages(&pages, sink()).unwrap();
    let end = world.run(SendOp::Register(too_many));
    assert_eq!((end.status, end.op), (Status::MwBindErr, WcOp::Register));
    assert_eq!(world.b.state(), QpState::Sqe);
    let (id, why) = world.b.view().register_error.unwrap();
    assert!(matches!(why, RegisterError::Refused(_)), "{why}");
    assert_eq!(
        (id, why.to_string().contains("room for 1 pages")),
        (1, true)
    );
    assert_eq!(world.run(SEND).status, Status::WrFlushErr);
    // In `Sqe` the receive side still works.
    let (id, scatter) = (9, &[][..]);
    world.b.post_recv(&[RecvWr { id, scatter }]).unwrap();
    world.a.post_send(&[wr(5, SEND, NO_DATA)]).unwrap();
    assert_eq!(complete(&world.a_cq, 1)[0].status, Status::Success);
    assert_eq!(complete(&world.b_cq, 1)[0].id, 9);
    world.b.modify(QpState::Rts).unwrap();
    let mut larger = world.pd.fast_reg_mr(2).unwrap();
    let (fits, handle) = larger.register_pages(&pages, sink()).unwrap();
    assert_eq!(world.run(SendOp::Register(fits)).status, Status::Success);
    assert_eq!(world.write(&handle, b"after all"), Status::Success);
}

#[test]
fn anticipatory_registration_failure_ends_the_connection() {
    let world = World::new(OnFailure::Anticipatory);
    let mut tag = world.pd.fast_reg_mr(0).unwrap();
    let made = tag.register(&world.memory, 0, 64, sink());
    let (ticket, handle) = made.unwrap();
    let end = world.run(SendOp::Register(ticket));
    assert_eq!((end.status, end.op), (Status::MwBindErr, WcOp::Register));
    wait_until("the peer is told", || world.a.state() == QpState::Err);
    let cause = world.a.view().cause.unwrap();
    assert!(cause.contains("the peer sent Terminate"), "{cause}");
    let why = world.b.view().cause.unwrap();
    assert!(why.contains("did not register"), "{why}");
    assert!(handle.len() == 64 && world.b.modify(QpState::Rts).is_err());
}

#[test]
fn invalid_tag_registrations_are_refused() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(1).unwrap();
    let elsewhere = world.device.memory(64, Access::ALL).unwrap();
    let foreign = tag.register(&elsewhere, 0, 64, sink());
    assert!(matches!(foreign, Err(Error::Foreign)));
    assert!(tag.register(&world.memory, 12280, 64, sink()).is_err());
    assert!(tag.register_pages(&[(&world.memory, 8)], sink()).is_err());
    assert!(tag.invalidate().is_none());
    let made: Vec<_> = (0..65)
        .map(|_| tag.register(&world.memory, 0, 64, sink()).is_ok())
        .collect();
    assert_eq!(made.iter().filter(|ok| **ok).count(), 64);
}

#[test]
fn withdrawn_registration_is_not_executed() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(1).unwrap();
    let (first, _) = tag.register(&world.memory, 0, 64, sink()).unwrap();
    assert!(tag.withdraw(first));
    assert!(!tag.withdraw(first), "once");
    assert!(tag.invalidate().is_none());
    // The next one has its STag.
    let (second, handle) = tag.register(&world.memory, 4096, 64, sink()).unwrap();
    assert_eq!(second.stag(), first.stag());
    assert!(!tag.withdraw(first), "not the last");
    assert_eq!(
        world.run(SendOp::Register(first)).status,
        Status::MwBindErr,
        "withdrawn"
    );
    world.b.modify(QpState::Rts).unwrap();
    assert_eq!(world.run(SendOp::Register(second)).status, Status::Success);
    assert!(!tag.withdraw(second), "it was executed");
    assert_eq!(world.write(&handle, b"second"), Status::Success);
    assert_eq!(world.memory.get::<[u8; 6]>(4096).unwrap(), *b"second");
}

#[test]
fn release_frees_memory_of_ended_registrations() {
    let world = World::new(OnFailure::Reactive);
    let mut tag = world.pd.fast_reg_mr(1).unwrap();
    let memory = world.pd.memory(4096, Access::LOCAL_WRITE).unwrap();
    let stags = world.device.used().stags;
    let (ticket, _) = tag.register(&memory, 0, 64, sink()).unwrap();
    drop(memory);
    assert_eq!(world.run(SendOp::Register(ticket)).status, Status::Success);
    tag.release();
    assert_eq!(world.device.used().stags, stags, "it is valid");
    let over = tag.invalidate().unwrap();
    assert_eq!(world.run(over).status, Status::Success);
    assert_eq!(world.device.used().stags, stags);
    tag.release();
    assert_eq!(world.device.used().stags, stags - 1);
}

/// M4: the page capacity of the table is counted for all tags together, reported, and its exhaustion is an error with numbers.
#[test]
fn tags_share_the_page_capacity() {
    let device = device(&[("max_pages", "4")]);
    let pd = device.pd().unwrap();
    let tag = pd.fast_reg_mr(3).unwrap();
    let room = |used| PageQuota { used, limit: 4 };
    assert_eq!(device.page_quota().unwrap(), room(3));
    let refused = pd.fast_reg_mr(2).map(drop).unwrap_err();
    assert_eq!(refused.fault(), Fault::Limit);
    let said = refused.to_string();
    assert!(
        said.contains("2 pages") && said.contains("1 left"),
        "{said}"
    );
    assert_eq!(device.page_quota().unwrap(), room(3), "nothing was taken");
    drop(tag);
    assert_eq!(device.page_quota().unwrap(), room(0));
    let _all = pd.fast_reg_mr(4).unwrap();
    // Memory registered by a call does not count.
    device.memory(1 << 20, Access::ALL).unwrap();
}
