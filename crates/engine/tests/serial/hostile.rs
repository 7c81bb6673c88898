//! Hostile initiators: whatever they do, memory and descriptors are bounded, and other connections continue.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbena_engine::{Listening, QueuePair, QueuePairOptions, SharedReceiveQueue};
use verbena_nic::{QpState, ReceiveWr, Status, Wc};
use verbena_testing::own_process;

use crate::common::{
    LIMITS, SEND, Side, TEST_TIMEOUT, accept_next, complete, connect_pair, connect_sides,
    descriptors, exchange_until_shared, loopback, make_qp, pseudo_random, read_to_end,
    resident_bytes, wait,
};

/// Short times for short tests; the limits are what is tested.
const SHORT_TIMEOUTS: &[(&str, &str)] = &[
    ("startup_timeout", "300ms"),
    ("linger", "200ms"),
    ("half_open", "64"),
];

/// Also raises the descriptor limit to the maximum.
fn serialize_tests() -> MutexGuard<'static, ()> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).unwrap();
    crate::common::serialize_tests()
}

/// A valid connection beside a listener that is under attack.
struct AttackedListener {
    a: Side,
    b: Side,
    listener: Listening,
}

impl AttackedListener {
    fn new() -> AttackedListener {
        let (a, b) = (Side::new(&[]), Side::new(SHORT_TIMEOUTS));
        AttackedListener::beside_connection(a, b)
    }

    fn beside_connection(a: Side, b: Side) -> AttackedListener {
        connect_sides(&a, &b);
        let listener = b.engine.listen(loopback(), 16).unwrap();
        let target = AttackedListener { a, b, listener };
        exchange_until_shared([&target.a, &target.b], || target.check_connection());
        target
    }

    fn at(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The valid connection still works.
    fn check_connection(&self) {
        for id in 0..10 {
            self.b.receive(id, &[self.b.sge(0, 64)]);
            self.a.post(id, SEND, &[self.a.sge(0, 64)]);
            assert_eq!(self.b.statuses(1), [(id, Status::Success)]);
            assert_eq!(self.a.statuses(1), [(id, Status::Success)]);
        }
    }

    /// The listener still accepts valid connections.
    fn check_accepts(&self) {
        let (one, two) = (
            make_qp(&self.a.engine, &self.a.cq, self.a.pd),
            make_qp(&self.b.engine, &self.b.cq, self.b.pd),
        );
        connect_pair(&one, &self.listener, &two);
    }
}

/// An MPA Request (RFC 5044 §7.1.1): key, flags, revision, private data.
fn request(flags: u8, revision: u8, private: &[u8], length: u16) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([flags, revision]);
    frame.extend(length.to_be_bytes());
    frame.extend(private);
    frame
}

/// Connects as a standard peer without checksums and markers, and reads the Reply.
fn standard(target: &AttackedListener, qp: &verbena_engine::QueuePair) -> TcpStream {
    let mut raw = TcpStream::connect(target.at()).unwrap();
    raw.write_all(&request(0, 1, b"", 0)).unwrap();
    accept_next(&target.listener, qp);
    let mut reply = [0; 20];
    raw.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[..16], b"MPA ID Rep Frame");
    raw
}

#[test]
fn invalid_startup_frames_are_refused() {
    let _alone = serialize_tests();
    own_process!();
    let target = AttackedListener::new();
    target.check_accepts();
    let before = descriptors();
    let mut raws = Vec::new();
    for n in 0..48_u64 {
        let mut raw = TcpStream::connect(target.at()).unwrap();
        let bytes = match n % 8 {
            0 => (0..pseudo_random(n) % 4000)
                .map(|i| pseudo_random(i ^ n) as u8)
                .collect(),
            1 => request(0, 9, b"", 0),
            2 => request(0, 1, b"", u16::MAX),
            3 => request(0xff, 2, b"no", 2),
            4 => request(0, 1, &[7; 600], 0),
            5 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            6 => b"MPA ID Rep Frame\0\x01\0\0".to_vec(),
            _ => request(0, 1, b"", 0)[..(n as usize) % 20].to_vec(),
        };
        raw.write_all(&bytes).unwrap();
        raws.push(raw);
    }
    target.check_connection();
    for raw in &raws {
        read_to_end(raw);
    }
    drop(raws);
    wait("descriptors", || descriptors() <= before);
    target.check_connection();
}

#[test]
fn silent_connections_are_limited_and_time_out() {
    let _alone = serialize_tests();
    own_process!();
    let target = AttackedListener::new();
    target.check_accepts();
    let before = descriptors();
    // One that is rejected at once may see a reset instead of a connection.
    let silent: Vec<_> = (0..600)
        .filter_map(|_| TcpStream::connect(target.at()).ok())
        .collect();
    assert!(silent.len() >= 64, "only {} were let in", silent.len());
    target.check_connection();
    // A batch of 64 may be accepted before the ones that it displaces are closed.
    let held = || descriptors() - before - silent.len();
    assert!(held() <= 64 + 64, "{} at once", held());
    wait("the displaced one is gone", || held() <= 64);
    for raw in &silent {
        read_to_end(raw);
    }
    wait("theirs are closed", || {
        descriptors() <= before + silent.len()
    });
    target.check_accepts();
}

#[test]
fn connection_flood_is_bounded_and_others_continue() {
    let _alone = serialize_tests();
    own_process!();
    let target = AttackedListener::new();
    target.check_accepts();
    let (before, memory) = (descriptors(), resident_bytes());
    let flooding = AtomicBool::new(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut kept = Vec::new();
            for n in 0..2000_u64 {
                let Ok(mut raw) = TcpStream::connect(target.at()) else {
                    continue;
                };
                // Complete requests, too: those must not stay longer than others.
                if n % 3 == 0 {
                    let _ = raw.write_all(&request(0, 1, b"", 0));
                }
                if n % 4 != 0 {
                    kept.push(raw);
                }
            }
            flooding.store(false, Ordering::Release);
        });
        while flooding.load(Ordering::Acquire) {
            target.check_connection();
        }
    });
    // Complete requests wait for the program's answer, as many as the backlog holds.
    wait("descriptors", || descriptors() <= before + 16);
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 16 << 20, "{grown} bytes");
    // Those have timed out; a new request is answered.
    std::thread::scope(|s| {
        let dialler = s.spawn(|| {
            let qp = make_qp(&target.a.engine, &target.a.cq, target.a.pd);
            let (done, notified) = mpsc::channel();
            let done = move |result| done.send(result).unwrap();
            qp.connect(target.at(), b"honest", done).unwrap();
            notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
            qp
        });
        let two = make_qp(&target.b.engine, &target.b.cq, target.b.pd);
        loop {
            let incoming = target.listener.next().unwrap().unwrap();
            if incoming.private_data() == b"honest" {
                incoming.accept(&two, b"", |_| ()).unwrap();
                break;
            }
        }
        dialler.join().unwrap();
    });
}

#[test]
fn frame_flood_ends_only_its_connection() {
    let _alone = serialize_tests();
    own_process!();
    let target = AttackedListener::new();
    target.check_accepts();
    let (before, memory) = (descriptors(), resident_bytes());
    let floods = [vec![0xa5; 64 << 10], {
        // Valid Sends of length zero, one after the other, for which there is no receive.
        let frame = b"\0\x12\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0";
        frame.repeat(2000)
    }];
    for flood in floods {
        let cq = target.b.engine.create_cq(64).unwrap();
        let qp = make_qp(&target.b.engine, &cq, target.b.pd);
        let mut raw = standard(&target, &qp);
        raw.set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            match raw.write(&flood) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        target.check_connection();
        // A message without a receive is left unread for up to a second (docs/connections.md).
        wait("its end", || qp.state() == QpState::Err);
        drop(raw);
        wait("its connection is gone", || qp.peer_addr().is_none());
    }
    wait("descriptors", || descriptors() <= before);
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 16 << 20, "{grown} bytes");
}

#[test]
fn peer_that_never_reads_uses_bounded_memory() {
    let _alone = serialize_tests();
    own_process!();
    let target = AttackedListener::new();
    target.check_accepts();
    let before = descriptors();
    let qp = make_qp(&target.b.engine, &target.b.cq, target.b.pd);
    let raw = standard(&target, &qp);
    let memory = resident_bytes();
    for id in 0..200 {
        let wr = verbena_nic::SendWr {
            id,
            op: SEND,
            flags: verbena_nic::Flags::NONE,
            data: verbena_nic::wr::Data::Gather(&[target.b.sge(0, 1 << 20)]),
        };
        qp.post_send(&wr).unwrap();
    }
    target.check_connection();
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 8 << 20, "{grown} bytes");
    // The queue pair is destroyed: its connection lingers for the configured time, although the peer reads nothing.
    drop(qp);
    target.check_connection();
    wait("descriptors", || descriptors() <= before + 1);
    drop(raw);
}

#[test]
fn five_hundred_concurrent_connects_succeed() {
    let _alone = serialize_tests();
    const ALL: usize = 500;
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let acceptor = b.engine.listen(loopback(), ALL).unwrap();
    let to = acceptor.local_addr().unwrap();
    let ours: Vec<_> = (0..ALL).map(|_| make_qp(&a.engine, &a.cq, a.pd)).collect();
    let theirs: Vec<_> = (0..ALL).map(|_| make_qp(&b.engine, &b.cq, b.pd)).collect();
    let (done, notified) = mpsc::channel();
    for qp in &ours {
        let done = done.clone();
        qp.connect(to, b"", move |r| done.send(r).unwrap()).unwrap();
    }
    for qp in &theirs {
        accept_next(&acceptor, qp);
        let scatter = [b.sge(0, 64)];
        let id = 1;
        qp.post_receive(&ReceiveWr {
            id,
            scatter: &scatter,
        })
        .unwrap();
    }
    for n in 0..ALL {
        let result = notified.recv_timeout(TEST_TIMEOUT).unwrap();
        assert!(result.is_ok(), "{n}: {result:?}");
    }
    for qp in &ours {
        let wr = verbena_nic::SendWr {
            id: 1,
            op: SEND,
            flags: verbena_nic::Flags::SIGNALED,
            data: verbena_nic::wr::Data::Gather(&[a.sge(0, 64)]),
        };
        qp.post_send(&wr).unwrap();
    }
    let ended = a.complete(ALL);
    assert!(ended.iter().all(|wc| wc.status == Status::Success));
    b.complete(ALL);
}

#[test]
fn requests_of_one_peer_keep_connection_order() {
    let _alone = serialize_tests();
    let target = AttackedListener::new();
    // Older connections that never send: they are waited for once, and only for a moment.
    let silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(target.at()).unwrap())
        .collect();
    for round in 0..5_u8 {
        let mut all: Vec<_> = (0..12)
            .map(|_| TcpStream::connect(target.at()).unwrap())
            .collect();
        for (number, raw) in all.iter_mut().enumerate().rev() {
            let private = [round, u8::try_from(number).unwrap()];
            raw.write_all(&request(0, 1, &private, 2)).unwrap();
        }
        for number in 0..12 {
            let request = target.listener.next().unwrap().unwrap();
            assert_eq!(request.private_data(), [round, number]);
        }
    }
    drop(silent);
    target.check_accepts();
}

/// A queue pair whose receives come from a shared queue, and what a stalled peer may do with them.
struct SharedReceives {
    // Dropped before the queue that it uses.
    qp: QueuePair,
    srq: SharedReceiveQueue,
    cq: verbena_engine::CompletionQueue,
    attacked: AttackedListener,
}

impl SharedReceives {
    fn new(wait: &str) -> SharedReceives {
        let (a, b) = (Side::new(&[]), Side::new(&[("shared_receive_wait", wait)]));
        let attacked = AttackedListener::beside_connection(a, b);
        let b = &attacked.b;
        let srq = b.engine.create_srq(b.pd, 16, 1).unwrap();
        let cq = b.engine.create_cq(64).unwrap();
        let options = QueuePairOptions {
            limits: LIMITS,
            srq: Some(srq.number()),
            ..QueuePairOptions::new(b.pd)
        };
        let qp = b.engine.create_qp(&cq, &cq, options).unwrap();
        SharedReceives {
            qp,
            srq,
            cq,
            attacked,
        }
    }

    fn receive(&self, id: u64) {
        let scatter = &[self.attacked.b.sge(0, 64)];
        self.srq.post(&[ReceiveWr { id, scatter }]).unwrap();
    }

    fn expect_failure(&self, cause: &str) {
        wait("the connection fails", || self.qp.state() == QpState::Err);
        let said = self.qp.view().cause.unwrap();
        assert!(said.contains(cause), "{said}");
    }
}

/// A Send of 64 bytes by a standard peer, the first of its connection.
fn send_frame() -> Vec<u8> {
    let head = b"\0\x52\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    let mut frame = head.to_vec();
    frame.extend([7; 64 + 4]);
    frame
}

#[test]
fn half_sent_message_frees_its_shared_receive() {
    let shared = SharedReceives::new("300ms");
    let mut raw = standard(&shared.attacked, &shared.qp);
    shared.receive(1);
    raw.write_all(&send_frame()[..40]).unwrap();
    wait("it is taken", || shared.srq.query().unwrap().waiting == 0);
    shared.expect_failure("began a message for a shared receive");
    let ended = complete(&shared.cq, 1)[0];
    assert_eq!((ended.id, ended.status), (1, Status::WrFlushErr));
    read_to_end(&raw);
    shared.attacked.check_connection();
}

#[test]
fn slow_message_keeps_its_shared_receive() {
    let shared = SharedReceives::new("2s");
    let mut raw = standard(&shared.attacked, &shared.qp);
    shared.receive(1);
    for part in send_frame().chunks(18) {
        raw.write_all(part).unwrap();
        // real time: each pause is shorter than the limit, and all together are longer.
        std::thread::sleep(Duration::from_millis(700));
    }
    let ended = complete(&shared.cq, 1)[0];
    assert_eq!(
        (ended.id, ended.status, ended.len),
        (1, Status::Success, 64)
    );
}

/// Forwards one connection to `to` and back; bytes of its initiator only while the gate is not locked.
fn relay(to: SocketAddr, gate: Arc<Mutex<()>>) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut into = TcpStream::connect(to).unwrap();
        let (mut back, mut home) = (into.try_clone().unwrap(), from.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut home));
        let mut some = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut some) {
            let open = gate.lock().unwrap();
            let written = into.write_all(&some[..n]);
            drop(open);
            if written.is_err() {
                return;
            }
        }
    });
    at
}

#[test]
fn unresumed_rnr_leaves_the_shared_receive() {
    let shared = SharedReceives::new("300ms");
    let gate = Arc::new(Mutex::new(()));
    let at = relay(shared.attacked.at(), gate.clone());
    let peer = Side::new(&[]);
    let (done, notified) = mpsc::channel();
    let dialled = move |r| done.send(r).unwrap();
    peer.qp.connect(at, b"", dialled).unwrap();
    accept_next(&shared.attacked.listener, &shared.qp);
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    // It finds no receive, and gets an RNR.
    peer.post(1, SEND, &[peer.sge(0, 64)]);
    wait("RNR", || peer.qp.view().counters.rnr_received > 0);
    let closed = gate.lock().unwrap();
    shared.receive(7);
    shared.expect_failure("did not resume");
    // The receive is left for the next queue pair that shares the queue.
    assert_eq!(shared.srq.query().unwrap().waiting, 1);
    let mut some = [Wc::default(); 4];
    assert_eq!(shared.cq.poll(&mut some), 0, "nothing had taken it");
    drop(closed);
}
