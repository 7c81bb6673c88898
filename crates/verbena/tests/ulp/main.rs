//! The extension point for upper-layer protocols (docs/upper-protocols.md), used as a crate outside of the adapter would: with a protocol
//! of the test's own, against plain TCP sockets. Nothing here uses an inner crate.

mod framed;
mod tcp;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use framed::FramedQp;
use verbena::low::{Cq, Pd, QpState, Wc, WcOp};
use verbena::{Access, Device, Error, Memory, Status};

/// More than sockets buffer, so that a message takes several system calls in each direction.
const LONG: usize = 8 << 20;

struct World {
    device: Device,
    pd: Pd,
    cq: Cq,
    memory: Memory,
    /// Completions taken from the queue and not asked for yet.
    early: HashMap<(WcOp, u64), Wc>,
}

impl World {
    fn new(bytes: usize) -> World {
        let device = Device::open().unwrap();
        let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
        let memory = pd.memory(bytes, Access::ALL).unwrap();
        let early = HashMap::new();
        World {
            device,
            pd,
            cq,
            memory,
            early,
        }
    }

    fn connect(&self, to: SocketAddr, reply_limit: Option<Duration>) -> FramedQp {
        FramedQp::connect(&self.pd, (&self.cq, &self.cq), to, reply_limit).unwrap()
    }

    fn sge(&self, at: usize, len: usize) -> verbena::low::Sge {
        self.memory.sge(at, len).unwrap()
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(at, &mut bytes).unwrap();
        bytes
    }

    /// The completion of a request.
    fn wait(&mut self, op: WcOp, id: u64) -> Wc {
        let mut completions = [Wc::default(); 8];
        loop {
            if let Some(wc) = self.early.remove(&(op, id)) {
                return wc;
            }
            let n = self.cq.wait(&mut completions).unwrap();
            self.early
                .extend(completions[..n].iter().map(|wc| ((wc.op, wc.id), *wc)));
        }
    }

    #[track_caller]
    fn expect(&mut self, op: WcOp, id: u64, status: Status, len: usize) {
        let wc = self.wait(op, id);
        assert_eq!((wc.status, wc.len as usize), (status, len), "{op:?} {id}");
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    (listener, to)
}

/// A server that returns every byte to its client until the client closes the connection.
fn echo() -> (SocketAddr, std::thread::JoinHandle<u64>) {
    let (listener, to) = listen();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = stream.try_clone().unwrap();
        let mut writer = stream;
        std::io::copy(&mut reader, &mut writer).unwrap()
    });
    (to, server)
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u32).to_be_bytes();
    [&len[..], bytes].concat()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn messages_travel_between_registered_memory() {
    let mut world = World::new(2 * LONG);
    let (to, server) = echo();
    let qp = world.connect(to, None);
    world.memory.write_at(0, &pattern(LONG)).unwrap();
    let mut sent = 0;
    for (id, len) in [0, 1, 4096, LONG].into_iter().enumerate() {
        let id = id as u64;
        qp.receive(id, world.sge(LONG, len)).unwrap();
        qp.send(id, world.sge(0, len)).unwrap();
        world.expect(WcOp::Send, id, Status::Success, 0);
        world.expect(WcOp::Receive, id, Status::Success, len);
        assert_eq!(world.bytes(LONG, len), pattern(len));
        sent += 4 + len as u64;
    }
    drop(qp);
    assert_eq!(server.join().unwrap(), sent);
}

#[test]
fn deferred_messages_leave_together() {
    let mut world = World::new(4096);
    let (listener, to) = listen();
    let qp = world.connect(to, None);
    let (mut peer, _) = listener.accept().unwrap();
    world.memory.write_at(0, b"onetwo").unwrap();
    qp.send_all(&[(1, world.sge(0, 3)), (2, world.sge(3, 3))])
        .unwrap();
    world.expect(WcOp::Send, 1, Status::Success, 0);
    world.expect(WcOp::Send, 2, Status::Success, 0);
    let mut got = [0; 14];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(got[..], [frame(b"one"), frame(b"two")].concat());
}

/// The queue is not polled in between, and no more bytes arrive: each receive alone lets the next message proceed.
#[test]
fn message_without_receive_waits_for_one() {
    let mut world = World::new(4096);
    let (listener, to) = listen();
    let qp = world.connect(to, None);
    let (mut peer, _) = listener.accept().unwrap();
    let messages = [frame(b"first"), frame(b""), frame(b"third")].concat();
    peer.write_all(&messages).unwrap();
    for (id, text) in [&b"first"[..], b"", b"third"].into_iter().enumerate() {
        qp.receive(id as u64, world.sge(0, 64)).unwrap();
        world.expect(WcOp::Receive, id as u64, Status::Success, text.len());
        assert_eq!(world.bytes(0, text.len()), text);
    }
}

#[test]
fn several_queue_pairs_share_one_completion_queue() {
    let mut world = World::new(4096);
    let servers: Vec<_> = (0..6).map(|_| echo()).collect();
    // More than a polling thread tries one by one.
    let qps: Vec<FramedQp> = servers
        .iter()
        .map(|(to, _)| world.connect(*to, None))
        .collect();
    for (at, qp) in qps.iter().enumerate() {
        qp.receive(at as u64, world.sge(64 * at, 64)).unwrap();
        qp.send(at as u64, world.sge(2048, 48)).unwrap();
    }
    for (at, qp) in qps.iter().enumerate() {
        let wc = world.wait(WcOp::Receive, at as u64);
        assert_eq!((wc.qpn, wc.len), (qp.number(), 48));
    }
}

#[test]
fn memory_may_be_registered_after_posting() {
    let mut world = World::new(64);
    let (to, _server) = echo();
    let qp = world.connect(to, None);
    let (late, registering) = world.pd.memory_async(4096, Access::ALL).unwrap();
    qp.receive(1, late.sge(2048, 64).unwrap()).unwrap();
    qp.send(1, late.sge(0, 64).unwrap()).unwrap();
    registering.wait().unwrap();
    world.expect(WcOp::Receive, 1, Status::Success, 64);
}

#[test]
fn missing_reply_ends_queue_pair_at_deadline() {
    let mut world = World::new(4096);
    let (listener, to) = listen();
    let qp = world.connect(to, Some(Duration::from_millis(20)));
    let (mut peer, _) = listener.accept().unwrap();
    qp.receive(1, world.sge(0, 64)).unwrap();
    qp.send(2, world.sge(64, 64)).unwrap();
    world.expect(WcOp::Receive, 1, Status::WrFlushErr, 0);
    assert_eq!(
        qp.cause().as_deref(),
        Some("no reply within the time limit")
    );
    // The connection was closed, behind what was sent before.
    assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 68);
}

#[test]
fn reply_in_time_cancels_deadline() {
    let mut world = World::new(4096);
    let (to, _server) = echo();
    let qp = world.connect(to, Some(Duration::from_secs(60)));
    for id in 0..3 {
        qp.receive(id, world.sge(0, 64)).unwrap();
        qp.send(id, world.sge(64, 64)).unwrap();
        world.expect(WcOp::Receive, id, Status::Success, 64);
    }
    assert_eq!(qp.state(), QpState::Rts);
}

type EndConnection = fn(&World, &FramedQp, TcpStream);

#[test]
fn every_end_flushes_posted_receives() {
    let ends: [(&str, EndConnection, Status); 4] = [
        ("close", |_, _, peer| drop(peer), Status::WrFlushErr),
        (
            "too long",
            |_, _, mut peer| peer.write_all(&frame(&[7; 65])).unwrap(),
            Status::LocLenErr,
        ),
        ("fail", |_, qp, _| qp.fail("enough"), Status::WrFlushErr),
        (
            "shutdown",
            |world, _, _| {
                world.device.shut_down(Duration::ZERO).unwrap();
            },
            Status::WrFlushErr,
        ),
    ];
    for (name, end, first) in ends {
        let mut world = World::new(4096);
        let (listener, to) = listen();
        let qp = world.connect(to, None);
        let (peer, _) = listener.accept().unwrap();
        let mut other = peer.try_clone().unwrap();
        qp.receive(1, world.sge(0, 64)).unwrap();
        qp.receive(2, world.sge(64, 64)).unwrap();
        end(&world, &qp, peer);
        if name == "close" {
            other.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert_eq!(world.wait(WcOp::Receive, 1).status, first, "{name}");
        let second = world.wait(WcOp::Receive, 2).status;
        assert_eq!(second, Status::WrFlushErr, "{name}");
        assert_eq!(qp.state(), QpState::Err, "{name}");
        // The connection was closed.
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0, "{name}");
    }
}

#[test]
fn destroyed_queue_pair_leaves_no_completions() {
    let world = World::new(4096);
    let (listener, to) = listen();
    let qp = world.connect(to, None);
    let (mut peer, _) = listener.accept().unwrap();
    qp.receive(1, world.sge(0, 64)).unwrap();
    qp.send(2, world.sge(64, 64)).unwrap();
    drop(qp);
    assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 68);
    assert_eq!(world.cq.poll(&mut [Wc::default(); 8]), 0);
}

#[test]
fn completion_queue_of_other_device_is_refused() {
    let (world, other) = (World::new(64), World::new(64));
    let (listener, to) = listen();
    listener.set_nonblocking(true).unwrap();
    let refused = FramedQp::connect(&world.pd, (&world.cq, &other.cq), to, None);
    assert!(matches!(refused, Err(Error::Foreign)));
    // Checked before any packet is sent.
    let accepted = listener.accept().map(drop).unwrap_err();
    assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
}
