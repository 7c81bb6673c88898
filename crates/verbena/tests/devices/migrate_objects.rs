//! Queue pairs connected by number, windows and channels of shared send queues that migrate, and the refusals that name what to do (V1).
//! Handovers are between two devices of one process: only bytes and descriptors are passed. After a refusal the peer's next request
//! succeeds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use verbena::function::FunctionOptions;
use verbena::handover::{FailedHandover, Handover, HandoverListener, IncomingHandover};
use verbena::low::{Cq, Data, Pd, Qp, QpOptions, QpState, RecvWr, SendOp, Ssq, SsqOptions, Wc};
use verbena::mr::{Window, WindowType};
use verbena::{Access, Device, Error, Memory, RemoteMemory, Status};

use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};
use crate::common::{LOOPBACK, device, small_function, virtual_function};

const NO_DATA: Data<'static> = Data::Gather(&[]);
const LEN: usize = 4096;

/// One end of a connection.
struct Side {
    qp: Qp,
    cq: Cq,
    pd: Pd,
    device: Device,
}

impl Side {
    fn new(device: &Device, oob: bool) -> Side {
        let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
        let options = QpOptions::default().oob(oob);
        let qp = Qp::new(&pd, &cq, &cq, options).unwrap();
        qp.modify(QpState::Init).unwrap();
        let device = device.clone();
        Side { qp, cq, pd, device }
    }

    fn number(&self) -> u32 {
        self.qp.endpoint().unwrap().number
    }
}

/// A message from one side to the other; returns the completion of the receive.
fn send_message(from: &Side, to: &Side) -> Wc {
    to.qp
        .post_recv(&[RecvWr {
            id: 1,
            scatter: &[],
        }])
        .unwrap();
    from.qp.post_send(&[wr(2, SEND, NO_DATA)]).unwrap();
    let sent = complete(&from.cq, 1)[0];
    assert_eq!((sent.id, sent.status), (2, Status::Success));
    let received = complete(&to.cq, 1)[0];
    assert_eq!((received.id, received.status), (1, Status::Success));
    received
}

/// Connects two queue pairs by number, and lets each hear from the other.
fn connect_by_number(a: &Side, b: &Side) {
    a.qp.set_peer(b.qp.endpoint().unwrap()).unwrap();
    b.qp.set_peer(a.qp.endpoint().unwrap()).unwrap();
    for side in [a, b] {
        side.qp.modify(QpState::Rts).unwrap();
    }
    send_message(a, b);
    send_message(b, a);
}

/// Hands over to another device; `take` is the successor. Returns what it returns, or the handover if that failed.
fn hand_over<T: Send + 'static>(
    handover: Handover,
    take: impl FnOnce(IncomingHandover) -> Result<T, Error> + Send + 'static,
) -> Result<T, Box<FailedHandover>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("verbena-objects-{}-{count}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = HandoverListener::bind(&path).unwrap();
    let taking = std::thread::spawn(move || IncomingHandover::connect(&path).and_then(take));
    let next = listener.accept(Duration::from_secs(15)).unwrap().unwrap();
    next.send(handover, |_| ())?;
    Ok(taking.join().unwrap().unwrap())
}

#[test]
fn numbered_queue_pair_keeps_its_number() {
    let adapter = device(LOOPBACK);
    let (a, b) = (
        Side::new(&adapter, true),
        Side::new(&device(LOOPBACK), true),
    );
    connect_by_number(&a, &b);
    let number = a.number();
    // A completion that was not polled moves along.
    let receive = RecvWr {
        id: 7,
        scatter: &[],
    };
    a.qp.post_recv(&[receive]).unwrap();
    b.qp.post_send(&[wr(8, SEND, NO_DATA)]).unwrap();
    assert_eq!(complete(&b.cq, 1)[0].id, 8);
    let function = virtual_function(&adapter);
    let home = Side::new(&function, false);
    let qp = a.qp.migrate(&home.pd, &home.cq, &home.cq, None).unwrap();
    let moved = Side { qp, ..home };
    let waiting = complete(&moved.cq, 1)[0];
    assert_eq!((waiting.id, waiting.qpn), (7, number));
    assert_eq!(moved.number(), number);
    assert_eq!(send_message(&b, &moved).qpn, number);
    assert_eq!(send_message(&moved, &b).qpn, b.number());
    // The number names no other queue pair of its adapter meanwhile: a port has 256.
    let others: Vec<Side> = (0..256).map(|_| Side::new(&adapter, true)).collect();
    assert!(others.iter().all(|other| other.number() != number));
    // To the same queue of the same function: completions of both queue pairs have the same number.
    let qp = moved.qp.migrate(&moved.pd, &moved.cq, &moved.cq, None);
    let moved = Side {
        qp: qp.unwrap(),
        ..moved
    };
    assert_eq!(send_message(&b, &moved).qpn, number);
    // It cannot be connected by number again; the error says what to do, and the state stays.
    moved.qp.modify(QpState::Reset).unwrap();
    let refused = moved.qp.set_peer(b.qp.endpoint().unwrap()).unwrap_err();
    assert!(
        refused.to_string().contains("create a queue pair"),
        "{refused}"
    );
    assert_eq!(moved.qp.state(), QpState::Reset);
}

#[test]
fn refused_numbered_queue_pair_stays_connected() {
    let adapter = device(LOOPBACK);
    let (a, b) = (
        Side::new(&adapter, true),
        Side::new(&device(LOOPBACK), true),
    );
    connect_by_number(&a, &b);
    let number = a.number();
    // A function without room for one more: the connection is taken out and put back.
    let full = adapter.function(&FunctionOptions {
        qps: 1,
        ..small_function()
    });
    let home = Side::new(&full.unwrap(), false);
    let refused = a.qp.migrate(&home.pd, &home.cq, &home.cq, None);
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    let a = Side {
        qp: refused.qp,
        ..a
    };
    assert_eq!(send_message(&b, &a).qpn, number);
    assert_eq!(send_message(&a, &b).qpn, b.number());
    // Its handshake is that of the same connection: a reset begins another one.
    for side in [&a, &b] {
        side.qp.modify(QpState::Reset).unwrap();
        side.qp.modify(QpState::Init).unwrap();
    }
    connect_by_number(&a, &b);
}

#[test]
fn numbered_queue_pair_is_handed_over() {
    let adapter = device(LOOPBACK);
    let (a, b) = (
        Side::new(&adapter, true),
        Side::new(&device(LOOPBACK), true),
    );
    connect_by_number(&a, &b);
    let number = a.number();
    // Another device whose queue pairs get numbers with the same port, at another address.
    let port = (number >> 8).to_string();
    let ports = format!("{port}-{port}");
    let settings = [("device", "127.0.0.2"), ("ports", ports.as_str())];
    let successor = device(&settings);
    let mut others = Vec::new();
    while others.last().map(Side::number) != Some(number) {
        others.push(Side::new(&successor, true));
    }
    let mut handover = Handover::default();
    handover.qp(1, a.qp);
    let to = successor.clone();
    let kept = hand_over(handover, move |mut incoming| {
        let side = Side::new(&to, false);
        incoming.qp(1, &side.pd, &side.cq, &side.cq, None)
    });
    let kept = kept.map(drop).unwrap_err();
    assert!(kept.to_string().contains("has number"), "{kept}");
    let (_, mut qps, _) = kept.handover.into_parts();
    let a = Side {
        qp: qps.pop().unwrap().1,
        ..a
    };
    assert_eq!(send_message(&b, &a).qpn, number);
    // Without that queue pair the number is free.
    others.clear();
    let mut handover = Handover::default();
    handover.qp(1, a.qp);
    let moved = hand_over(handover, move |mut incoming| {
        let side = Side::new(&successor, false);
        let qp = incoming.qp(1, &side.pd, &side.cq, &side.cq, None)?;
        incoming.accept(&successor, |_| ())?;
        Ok(Side { qp, ..side })
    });
    let moved = moved.unwrap();
    assert_eq!(moved.number(), number);
    assert_eq!(send_message(&b, &moved).qpn, number);
    assert_eq!(send_message(&moved, &b).qpn, b.number());
}

/// A peer, and a server with memory that grants no remote access but allows windows.
struct Windows {
    peer: Side,
    server: Side,
    memory: Memory,
}

impl Windows {
    fn new() -> Windows {
        let (peer, server) = (
            Side::new(&device(LOOPBACK), false),
            Side::new(&device(LOOPBACK), false),
        );
        let listener = server.device.listen("127.0.0.1:0").unwrap();
        connect_qps(&listener, &peer.qp, &server.qp);
        let rights = Access::LOCAL_WRITE | Access::BIND;
        let memory = server.pd.shared_memory(LEN, rights).unwrap();
        Windows {
            peer,
            server,
            memory,
        }
    }

    /// The server executes a request.
    fn run(&self, op: SendOp) -> Status {
        self.server.qp.post_send(&[wr(1, op, NO_DATA)]).unwrap();
        complete(&self.server.cq, 1)[0].status
    }

    fn bind(&self, window: &mut Window) -> RemoteMemory {
        let bound = window.bind(&self.memory, 100, 8, Access::REMOTE_WRITE);
        let (op, handle) = bound.unwrap();
        assert_eq!(self.run(op), Status::Success);
        handle
    }

    /// The peer writes to the beginning of the memory of a handle.
    fn write(&self, to: &RemoteMemory, bytes: &[u8]) -> Status {
        let op = SendOp::Write {
            remote: to.remote_addr(),
            immediate: None,
        };
        let list = [wr(2, op, Data::Inline(bytes))];
        self.peer.qp.post_send(&list).unwrap();
        complete(&self.peer.cq, 1)[0].status
    }

    fn bytes(&self) -> [u8; 9] {
        self.memory.get(100).unwrap()
    }

    /// Hands memory, queue pair and window over to another device.
    fn hand_over(self, window: Window) -> (Windows, Window) {
        let Windows {
            peer,
            server,
            memory,
        } = self;
        let mut handover = Handover::default();
        handover
            .memory(1, memory)
            .qp(2, server.qp)
            .window(3, window);
        let taken = hand_over(handover, |mut incoming| {
            let side = Side::new(&device(LOOPBACK), false);
            assert_eq!(incoming.windows(), [3]);
            let memory = incoming.memory(1, &side.pd)?;
            let qp = incoming.qp(2, &side.pd, &side.cq, &side.cq, None)?;
            let window = incoming.window(3, &side.pd)?;
            incoming.accept(&side.device, |_| ())?;
            Ok((Side { qp, ..side }, memory, window))
        });
        let (server, memory, window) = taken.unwrap();
        let windows = Windows {
            peer,
            server,
            memory,
        };
        (windows, window)
    }

    /// The handover is refused before anything is sent to the successor. Returns the window, if that was to be handed over.
    fn refused(
        self,
        give: impl FnOnce(&mut Handover, Memory, Qp),
        why: &str,
    ) -> (Windows, Option<Window>) {
        let Windows {
            peer,
            server,
            memory,
        } = self;
        let mut handover = Handover::default();
        // Handles of the same memory.
        give(&mut handover, memory.clone(), server.qp);
        let kept = hand_over(handover, |_| Ok(())).unwrap_err();
        assert!(kept.to_string().contains(why), "{kept}");
        assert!(kept.sender.is_some(), "nothing was sent");
        let mut handover = kept.handover;
        let window = handover.take_windows().pop();
        let (_, mut qps, _) = handover.into_parts();
        let qp = qps.pop().unwrap().1;
        let server = Side { qp, ..server };
        let windows = Windows {
            peer,
            server,
            memory,
        };
        (windows, window.map(|(_, window)| window))
    }
}

#[test]
fn bound_window_is_handed_over() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = Windows::new();
        let mut window = world.server.pd.window(ty).unwrap();
        let handle = world.bind(&mut window);
        assert_eq!(world.write(&handle, b"before"), Status::Success);
        let (world, mut window) = world.hand_over(window);
        assert_eq!(world.write(&handle, b"after it"), Status::Success, "{ty:?}");
        assert_eq!(&world.bytes(), b"after it\0");
        // The successor revokes it as the running process could.
        assert_eq!(world.run(window.unbind()), Status::Success);
        let next = world.bind(&mut window);
        assert_eq!(world.write(&next, b"again"), Status::Success);
        assert_eq!(world.write(&handle, b"late"), Status::RemAccessErr);
        assert_eq!(&world.bytes()[..8], b"again it");
    }
}

#[test]
fn handed_over_window_has_the_same_end() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = Windows::new();
        let mut window = world.server.pd.window(ty).unwrap();
        let handle = world.bind(&mut window);
        let (world, _window) = world.hand_over(window);
        assert_eq!(world.write(&handle, b"too long!"), Status::RemAccessErr);
        assert_eq!(world.bytes(), [0; 9]);
    }
}

#[test]
fn invalidated_window_is_handed_over_invalid() {
    for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let world = Windows::new();
        let mut window = world.server.pd.window(ty).unwrap();
        let handle = world.bind(&mut window);
        assert_eq!(world.run(window.unbind()), Status::Success);
        let (world, mut window) = world.hand_over(window);
        let next = world.bind(&mut window);
        assert_eq!(world.write(&next, b"bound"), Status::Success, "{ty:?}");
        assert_eq!(world.write(&handle, b"late"), Status::RemAccessErr);
        assert_eq!(&world.bytes()[..5], b"bound");
    }
}

/// M9: one message in all, whichever process it ends in.
#[test]
fn one_touch_window_is_touched_once() {
    for touched_before in [false, true] {
        let world = Windows::new();
        let window = world.server.pd.window(WindowType::TwoB).unwrap();
        let mut window = window.one_touch();
        let handle = world.bind(&mut window);
        if touched_before {
            assert_eq!(world.write(&handle, b"once"), Status::Success);
        }
        let (world, _window) = world.hand_over(window);
        if !touched_before {
            assert_eq!(world.write(&handle, b"once"), Status::Success);
        }
        assert_eq!(world.write(&handle, b"twice"), Status::RemAccessErr);
        assert_eq!(&world.bytes()[..5], b"once\0");
    }
}

#[test]
fn window_refusals_name_what_to_do() {
    let world = Windows::new();
    let mut window = world.server.pd.window(WindowType::TwoB).unwrap();
    let handle = world.bind(&mut window);
    // The window stays.
    let (world, _) = world.refused(
        |handover, memory, qp| {
            handover.memory(1, memory).qp(1, qp);
        },
        "hand them over too, or unbind them first",
    );
    assert_eq!(world.write(&handle, b"stay 1"), Status::Success);
    // Its memory stays.
    let (world, window) = world.refused(
        |handover, _memory, qp| {
            handover.qp(1, qp).window(1, window);
        },
        "hand it over too, or unbind the window first",
    );
    assert_eq!(world.write(&handle, b"stay 2"), Status::Success);
    // Its queue pair stays, and another one goes.
    let other = Side::new(&world.server.device, false);
    let number = world.server.qp.number();
    let mut handover = Handover::default();
    handover
        .memory(1, world.memory.clone())
        .window(1, window.unwrap())
        .qp(1, other.qp);
    let mut kept = hand_over(handover, |_| Ok(())).unwrap_err();
    let expected = format!("belongs to queue pair {number}, which is not handed over");
    assert!(kept.to_string().contains(&expected), "{kept}");
    let (_, mut window) = kept.handover.take_windows().pop().unwrap();
    assert_eq!(world.write(&handle, b"stay 3"), Status::Success);
    // A request that was made and not executed.
    assert_eq!(world.run(window.unbind()), Status::Success);
    let bound = window.bind(&world.memory, 100, 8, Access::REMOTE_WRITE);
    let (op, handle) = bound.unwrap();
    let (world, window) = world.refused(
        |handover, memory, qp| {
            handover.memory(1, memory).qp(1, qp).window(1, window);
        },
        "try again when they have completed",
    );
    assert_eq!(world.run(op), Status::Success);
    assert_eq!(world.write(&handle, b"stay 4"), Status::Success);
    // One-touch memory that every queue pair of the domain can access.
    let first = world.server.pd.window(WindowType::One).unwrap();
    let mut first = first.one_touch();
    let once = world.bind(&mut first);
    let (world, first) = world.refused(
        |handover, memory, qp| {
            let window = window.unwrap();
            handover.memory(1, memory).qp(1, qp);
            handover.window(1, window).window(2, first);
        },
        "use a window of type 2",
    );
    assert!(first.is_some());
    assert_eq!(world.write(&once, b"stay 5"), Status::Success);
}

#[test]
fn window_is_unpacked_after_what_it_needs() {
    let world = Windows::new();
    let mut window = world.server.pd.window(WindowType::TwoA).unwrap();
    let handle = world.bind(&mut window);
    let Windows {
        peer,
        server,
        memory,
    } = world;
    let mut handover = Handover::default();
    handover
        .memory(1, memory)
        .qp(2, server.qp)
        .window(3, window);
    let kept = hand_over(handover, |mut incoming| {
        let side = Side::new(&device(LOOPBACK), false);
        let early = incoming.window(3, &side.pd).unwrap_err().to_string();
        assert!(
            early.contains("memory with tag 1: unpack that first"),
            "{early}"
        );
        let _memory = incoming.memory(1, &side.pd)?;
        let elsewhere = incoming.window(3, &side.device.pd()?);
        assert!(matches!(elsewhere, Err(Error::Foreign)), "{elsewhere:?}");
        let early = incoming.window(3, &side.pd).unwrap_err().to_string();
        assert!(early.contains("connection with tag 2: unpack"), "{early}");
        let _qp = incoming.qp(2, &side.pd, &side.cq, &side.cq, None)?;
        // The window is left out: nothing is taken.
        incoming.accept(&side.device, |_| ()).map(drop)
    });
    let mut kept = kept.unwrap_err();
    let expected = "window with tag 3 was received and not unpacked";
    assert!(kept.to_string().contains(expected), "{kept}");
    let window = kept.handover.take_windows().pop().unwrap().1;
    let (mut memories, mut qps, _) = kept.handover.into_parts();
    let world = Windows {
        peer,
        server: Side {
            qp: qps.pop().unwrap().1,
            ..server
        },
        memory: memories.pop().unwrap().1,
    };
    assert_eq!(world.write(&handle, b"kept"), Status::Success);
    let (world, _window) = world.hand_over(window);
    assert_eq!(world.write(&handle, b"moved"), Status::Success);
}

/// A shared send queue with one channel, and the channel's peer.
struct Channel {
    ssq: Ssq,
    channel: Qp,
    cq: Cq,
    peer: Side,
}

impl Channel {
    fn new(device: &Device) -> Channel {
        let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
        let ssq = pd.ssq(&cq, SsqOptions::default()).unwrap();
        let channel = Qp::with_ssq(&ssq, &cq, None, QpOptions::default()).unwrap();
        let peer = Side::new(device, false);
        let listener = device.listen("127.0.0.1:0").unwrap();
        connect_qps(&listener, &channel, &peer.qp);
        Channel {
            ssq,
            channel,
            cq,
            peer,
        }
    }

    /// The peer posts a receive.
    fn receive(&self) {
        let scatter = &[];
        self.peer
            .qp
            .post_recv(&[RecvWr { id: 1, scatter }])
            .unwrap();
    }

    fn post(&self, id: u64) {
        let number = self.channel.number();
        self.ssq.post(number, &[wr(id, SEND, NO_DATA)]).unwrap();
    }

    /// A message through the shared send queue arrives.
    fn assert_works(&self, id: u64) {
        self.receive();
        self.post(id);
        let sent = complete(&self.cq, 1)[0];
        let expected = (id, self.channel.number(), Status::Success);
        assert_eq!((sent.id, sent.qpn, sent.status), expected);
        assert_eq!(complete(&self.peer.cq, 1)[0].status, Status::Success);
    }
}

#[test]
fn idle_channel_migrates_to_another_queue() {
    let adapter = device(LOOPBACK);
    let start = Channel::new(&adapter);
    let function = virtual_function(&adapter);
    let (pd, cq) = (function.pd().unwrap(), function.cq(64).unwrap());
    let other = pd.ssq(&cq, SsqOptions::default()).unwrap();
    // The peer has no receive: the request waits. The queue accepts more, too.
    start.post(1);
    wait_until("it was refused", || {
        start.peer.qp.view().counters.rnr_sent == 1
    });
    let refused = start.channel.migrate_to_channel(&other, &cq, None);
    let refused = refused.unwrap_err();
    let why = refused.to_string();
    assert!(
        why.contains("accepts requests for it and has 1 requests"),
        "{why}"
    );
    assert!(why.contains("detach it there"), "{why}");
    let start = Channel {
        channel: refused.qp,
        ..start
    };
    start.ssq.detach(start.channel.number()).unwrap();
    let refused = start.channel.migrate(&pd, &cq, &cq, None).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("accepts no more requests for it and has 1"),
        "{refused}"
    );
    let start = Channel {
        channel: refused.qp,
        ..start
    };
    start.receive();
    wait_until("it completes", || start.ssq.query().unwrap().waiting == 0);
    let number = start.channel.number();
    let channel = start.channel.migrate_to_channel(&other, &cq, None);
    // The completion of its request stays in the queue of the shared send queue.
    let sent = complete(&start.cq, 1)[0];
    assert_eq!(
        (sent.id, sent.qpn, sent.status),
        (1, number, Status::Success)
    );
    complete(&start.peer.cq, 1);
    assert!(start.ssq.query_channel(number).is_err(), "it has left");
    let moved = Channel {
        ssq: other,
        channel: channel.unwrap(),
        cq,
        peer: start.peer,
    };
    assert_eq!(start.ssq.query().unwrap().channels, 0);
    moved.assert_works(2);
    // And to a queue pair with a send queue of its own, of the capacity that it had there.
    moved.ssq.detach(moved.channel.number()).unwrap();
    let (pd, cq) = (adapter.pd().unwrap(), adapter.cq(64).unwrap());
    let qp = moved.channel.migrate(&pd, &cq, &cq, None).unwrap();
    let limits = qp.query().unwrap().qp.init_attr.limits;
    assert_eq!(limits.sends, QpOptions::default().limits.sends);
    for id in [1, 2] {
        let scatter = &[];
        moved.peer.qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
    }
    qp.post_send(&[wr(3, SEND, NO_DATA)]).unwrap();
    complete(&moved.peer.cq, 1);
    wait_until("it completes", || qp.view().sends == 0);
    // Back to a channel, but not before its own completions were polled.
    let ssq = pd.ssq(&cq, SsqOptions::default()).unwrap();
    let refused = qp.migrate_to_channel(&ssq, &cq, None).unwrap_err();
    assert!(refused.to_string().contains("poll them first"), "{refused}");
    assert_eq!(complete(&cq, 1)[0].id, 3);
    let channel = refused.qp.migrate_to_channel(&ssq, &cq, None).unwrap();
    let moved = Channel {
        ssq,
        channel,
        cq,
        ..moved
    };
    moved.post(4);
    assert_eq!(complete(&moved.cq, 1)[0].id, 4);
}

#[test]
fn idle_channel_is_handed_over() {
    let start = Channel::new(&device(LOOPBACK));
    start.assert_works(1);
    let mut handover = Handover::default();
    handover.qp(1, start.channel);
    let kept = hand_over(handover, |_| Ok(())).unwrap_err();
    assert!(kept.to_string().contains("detach it there"), "{kept}");
    let (_, mut qps, _) = kept.handover.into_parts();
    let start = Channel {
        channel: qps.pop().unwrap().1,
        ..start
    };
    start.assert_works(2);
    start.ssq.detach(start.channel.number()).unwrap();
    let mut handover = Handover::default();
    handover.qp(1, start.channel);
    let taken = hand_over(handover, |mut incoming| {
        let device = device(LOOPBACK);
        let (pd, cq) = (device.pd()?, device.cq(64)?);
        let ssq = pd.ssq(&cq, SsqOptions::default())?;
        let channel = incoming.channel(1, &ssq, &cq, None)?;
        incoming.accept(&device, |_| ())?;
        Ok((ssq, channel, cq))
    });
    let (ssq, channel, cq) = taken.unwrap();
    let moved = Channel {
        ssq,
        channel,
        cq,
        peer: start.peer,
    };
    moved.assert_works(3);
}
