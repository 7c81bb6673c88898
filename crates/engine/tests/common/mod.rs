//! Two engines on loopback, and helpers of the tests.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test program uses a part of it"
)]

pub mod capture;
pub mod datagrams;
pub mod mpa;
pub mod process;
pub mod roce;
pub mod tcp;
pub mod ulp;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use verbena_engine::{
    CompletionQueue, Config, Engine, Error, QueuePair, QueuePairOptions, StreamPath,
};
use verbena_mem::{Access, Buffer, Pd};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{Flags, ReceiveWr, SendOp, SendWr, Sge, Status, Wc};
use verbena_wire::To;

/// Longer than any successful operation takes.
pub(crate) const TEST_TIMEOUT: Duration = verbena_testing::WAIT_LIMIT;

pub(crate) const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

pub(crate) const LIMITS: Limits = Limits {
    sends: 512,
    receives: 512,
    max_sge: 16,
    inline: 256,
};

/// One engine with memory and a queue pair.
pub(crate) struct Side {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: Buffer,
    pub(crate) pd: Pd,
    pub(crate) engine: Engine,
}

pub(crate) fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    config
}

impl Side {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Side {
        let engine = Engine::new(config(settings)).unwrap();
        let pd = engine.function().allocate_pd().unwrap();
        let cq = engine.create_cq(4096).unwrap();
        let memory = engine
            .function()
            .register_buffer(pd, 4 << 20, Access::ALL)
            .unwrap();
        let qp = make_qp(&engine, &cq, pd);
        Side {
            qp,
            cq,
            memory,
            pd,
            engine,
        }
    }

    pub(crate) fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.memory.at() + offset as u64,
            len: len as u32,
            stag: self.memory.stag(),
        }
    }

    pub(crate) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at() + offset as u64),
        }
    }

    pub(crate) fn post(&self, id: u64, op: SendOp, sges: &[Sge]) {
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(sges),
        };
        self.qp.post_send(&wr).unwrap();
    }

    pub(crate) fn receive(&self, id: u64, scatter: &[Sge]) {
        self.qp.post_receive(&ReceiveWr { id, scatter }).unwrap();
    }

    /// Polls until `count` completions have come.
    pub(crate) fn complete(&self, count: usize) -> Vec<Wc> {
        complete(&self.cq, count)
    }

    pub(crate) fn statuses(&self, count: usize) -> Vec<(u64, Status)> {
        let done = self.complete(count);
        done.iter().map(|wc| (wc.id, wc.status)).collect()
    }
}

pub(crate) fn make_qp(engine: &Engine, cq: &CompletionQueue, pd: Pd) -> QueuePair {
    let options = QueuePairOptions {
        limits: LIMITS,
        ..QueuePairOptions::new(pd)
    };
    engine.create_qp(cq, cq, options).unwrap()
}

pub(crate) fn complete(cq: &CompletionQueue, count: usize) -> Vec<Wc> {
    let (mut done, end) = (Vec::new(), Instant::now() + TEST_TIMEOUT);
    let mut some = [Wc::default(); 64];
    while done.len() < count {
        let most = some.len().min(count - done.len());
        let n = cq.poll(&mut some[..most]);
        done.extend_from_slice(&some[..n]);
        assert!(Instant::now() < end, "{} of {count} came", done.len());
    }
    done
}

/// Any port of a loopback address that this process has to itself, as far as that goes: ports in TIME-WAIT run short at one address when
/// many tests make thousands of connections in a minute.
pub(crate) fn loopback() -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    ([127, 128 | high, low, 1], 0).into()
}

/// Connects two queue pairs; the second side listens.
pub(crate) fn connect_sides(a: &Side, b: &Side) {
    try_connect_sides(a, b, b"hello", b"welcome").unwrap();
}

pub(crate) fn try_connect_sides(a: &Side, b: &Side, asks: &[u8], says: &[u8]) -> Result<(), Error> {
    let listener = b.engine.listen(loopback(), 16).unwrap();
    let (done, notified) = mpsc::channel();
    let ours = done.clone();
    a.qp.connect(listener.local_addr().unwrap(), asks, move |r| {
        ours.send(r).unwrap();
    })?;
    let incoming = listener.next().unwrap().unwrap();
    assert_eq!(incoming.private_data(), asks);
    let (sure, accepted) = mpsc::channel();
    incoming.accept(&b.qp, says, move |r| sure.send(r).unwrap())?;
    assert_eq!(notified.recv_timeout(TEST_TIMEOUT).unwrap()?, says);
    accepted.recv_timeout(TEST_TIMEOUT).unwrap()?;
    Ok(())
}

/// Two connected sides with the same settings.
pub(crate) fn pair(settings: &[(&str, &str)]) -> (Side, Side) {
    let (a, b) = (Side::new(settings), Side::new(settings));
    connect_sides(&a, &b);
    (a, b)
}

pub(crate) fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt)
        .collect()
}

/// Runs `work` on another thread; fails if it takes longer than `limit`.
pub fn within(limit: Duration, work: impl FnOnce() + Send + 'static) {
    let (done, notified) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        // The receiver is gone if the limit was reached.
        let _ = done.send(());
    });
    match notified.recv_timeout(limit) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: not over after {limit:?}"),
        // A panic of the worker is propagated.
        _ => worker.join().unwrap(),
    }
}

pub use verbena_testing::wait_until as wait;

/// Descriptors are counted per process: tests that count them run one at a time.
pub fn serialize_tests() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Exchanges messages until those of both directions are in shared memory: a side changes to it with a message that follows the first ones,
/// and opens descriptors for it.
pub(crate) fn exchange_until_shared(sides: [&Side; 2], exchange: impl Fn()) {
    let is_shared = |side: &&Side| {
        let path = side.qp.query().unwrap().path;
        matches!(path, Some(StreamPath::SharedMemory(_)))
    };
    wait("shared memory", || {
        exchange();
        sides.iter().all(is_shared)
    });
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

/// Pseudorandom numbers, the same in every run.
pub fn pseudo_random(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

/// Connects to `to` and waits for the result.
pub fn dial(qp: &QueuePair, to: SocketAddr) -> Result<Vec<u8>, Error> {
    let (done, notified) = mpsc::channel();
    qp.connect(to, b"", move |r| done.send(r).unwrap())?;
    notified.recv_timeout(TEST_TIMEOUT).unwrap()
}

/// Accepts the next request, and waits until the connection is established.
pub fn accept_next(listener: &verbena_engine::Listening, qp: &QueuePair) {
    let (done, notified) = mpsc::channel();
    let incoming = listener.next().unwrap().unwrap();
    let told_of = move |r: Result<Vec<u8>, Error>| done.send(r).unwrap();
    incoming.accept(qp, b"", told_of).unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
}

/// Connects one queue pair to another, through a listener of the second one's engine.
pub fn connect_pair(one: &QueuePair, listener: &verbena_engine::Listening, other: &QueuePair) {
    let (done, notified) = mpsc::channel();
    let at = listener.local_addr().unwrap();
    one.connect(at, b"", move |r| done.send(r).unwrap())
        .unwrap();
    accept_next(listener, other);
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
}

/// Reads to the end of the stream or a reset; panics if neither comes.
pub fn read_to_end(mut raw: &TcpStream) {
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut waste = [0; 4096];
    loop {
        match raw.read(&mut waste) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("it is kept open"),
            Err(_) => return,
        }
    }
}

pub fn write_to(remote: RemoteAddr) -> SendOp {
    let immediate = None;
    SendOp::Write { remote, immediate }
}

pub fn read_from(remote: RemoteAddr) -> SendOp {
    let local_invalidate = None;
    SendOp::Read {
        remote,
        local_invalidate,
    }
}

/// Sends a message each way.
pub(crate) fn exchange(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        to.receive(1, &[to.sge(0, 64)]);
        from.post(2, SEND, &[from.sge(0, 64)]);
        assert_eq!(to.statuses(1), [(1, Status::Success)]);
        assert_eq!(from.statuses(1), [(2, Status::Success)]);
    }
}

/// A side whose queue pair can be called by its number.
pub(crate) fn callable_side(settings: &[(&str, &str)]) -> Side {
    let mut side = Side::new(settings);
    let options = QueuePairOptions {
        oob: true,
        limits: LIMITS,
        ..QueuePairOptions::new(side.pd)
    };
    side.qp = side.engine.create_qp(&side.cq, &side.cq, options).unwrap();
    side
}
