//! Shared send queues over real connections (V6): one order over many channels, isolation of failures, and stalls.
//! The subscribers are on another device.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use verbena::events::Event;
use verbena::low::{
    Cq, Data, Pd, PostError, PostSendError, Qp, QpOptions, QpState, RecvWr, RemoteAddr, SendOp,
    Ssq, SsqOptions, SsqOutcome, Wc,
};
use verbena::{Access, Device, Error, Listener, Memory, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

/// A publisher with one shared queue, and subscribers on their own device.
struct World {
    ssq: Ssq,
    sent: Cq,
    got: Cq,
    channels: Vec<Qp>,
    subscribers: Vec<Qp>,
    memory: Memory,
    ours: Pd,
    theirs: Pd,
    listener: Listener,
    publisher: Device,
    _subscriber: Device,
}

const STALL: Duration = Duration::from_millis(300);

impl World {
    fn new(channels: usize) -> World {
        let mut world = World::without_channels(64);
        for _ in 0..channels {
            let at = world.listener.local_addr().unwrap();
            world.subscribe(at);
        }
        world
    }

    fn without_channels(requests: usize) -> World {
        World::with_stall(requests, STALL)
    }

    fn with_stall(requests: usize, stall: Duration) -> World {
        let (publisher, subscriber) = (device(&[]), device(&[]));
        let (ours, theirs) = (publisher.pd().unwrap(), subscriber.pd().unwrap());
        // As many as any test posts: the send queue has a slot for the next request before the completion is polled.
        let sent = publisher.cq(512).unwrap();
        let options = SsqOptions::default().requests(requests).stall(Some(stall));
        World {
            ssq: ours.ssq(&sent, options).unwrap(),
            sent,
            got: subscriber.cq(1024).unwrap(),
            channels: Vec::new(),
            subscribers: Vec::new(),
            memory: theirs.memory(1 << 20, Access::ALL).unwrap(),
            ours,
            theirs,
            listener: subscriber.listen("127.0.0.1:0").unwrap(),
            publisher,
            _subscriber: subscriber,
        }
    }

    /// Adds a channel, which connects to this address.
    fn subscribe(&mut self, at: SocketAddr) {
        let channel = Qp::with_ssq(&self.ssq, &self.sent, None, QpOptions::default()).unwrap();
        let (got, options) = (&self.got, QpOptions::default());
        let subscriber = Qp::new(&self.theirs, got, got, options).unwrap();
        subscriber.modify(QpState::Init).unwrap();
        if at == self.listener.local_addr().unwrap() {
            connect_qps(&self.listener, &channel, &subscriber);
        } else {
            let joining = channel.connect(at, b"").unwrap();
            let request = self.listener.next().wait().unwrap();
            request.accept_on(&subscriber, b"").unwrap().wait().unwrap();
            joining.wait().unwrap();
        }
        self.channels.push(channel);
        self.subscribers.push(subscriber);
    }

    fn post_receives(&self, at: usize, count: u64) {
        for id in 0..count {
            let scatter = &[self.memory.sge(0, 64).unwrap()];
            self.subscribers[at]
                .post_recv(&[RecvWr { id, scatter }])
                .unwrap();
        }
    }

    fn send(&self, at: usize, id: u64) {
        let request = wr(id, SEND, Data::Inline(b"news"));
        self.ssq
            .post(self.channels[at].number(), &[request])
            .unwrap();
    }
}

fn ids(all: &[Wc]) -> Vec<u64> {
    all.iter().map(|wc| wc.id).collect()
}

#[test]
fn channels_complete_in_posting_order() {
    let world = World::new(8);
    for at in 0..8 {
        world.post_receives(at, 125);
    }
    // The channels take turns irregularly.
    let turn = |id: u64| (id.wrapping_mul(0x9E37_79B9) >> 7) as usize % 8;
    let mut counts = [0; 8];
    let (mut next, mut ended) = (0, Vec::new());
    while ended.len() < 600 {
        while next < 600 && next - (ended.len() as u64) < 64 {
            world.send(turn(next), next);
            counts[turn(next)] += 1;
            next += 1;
        }
        ended.extend(complete(&world.sent, 1));
    }
    assert_eq!(ids(&ended), Vec::from_iter(0..600));
    for wc in &ended {
        assert_eq!(wc.status, Status::Success);
        assert_eq!(wc.qpn, world.channels[turn(wc.id)].number());
    }
    let arrived = complete(&world.got, 600);
    for (at, count) in counts.into_iter().enumerate() {
        let here = |wc: &&Wc| wc.qpn == world.subscribers[at].number();
        assert_eq!(
            arrived.iter().filter(here).count(),
            count,
            "subscriber {at}"
        );
        let channel = world
            .ssq
            .query_channel(world.channels[at].number())
            .unwrap();
        assert_eq!(channel.counters.completed, count as u64);
    }
    let info = world.ssq.query().unwrap();
    assert_eq!(
        (info.waiting, info.channels, info.counters.completed),
        (0, 8, 600)
    );
}

#[test]
fn killed_subscriber_fails_only_its_requests() {
    let mut world = World::new(3);
    let wire = Relay::to(world.listener.local_addr().unwrap());
    world.subscribe(wire.at);
    for at in 0..3 {
        world.post_receives(at, 10);
    }
    // It has no receive posted, so its requests are outstanding when it is killed.
    for id in 0..20 {
        world.send(id as usize % 4, id);
    }
    wire.set(CLOSED);
    let ended = complete(&world.sent, 20);
    assert_eq!(ids(&ended), Vec::from_iter(0..20));
    for wc in &ended {
        assert_eq!(wc.status == Status::Success, wc.id % 4 != 3, "{wc:?}");
    }
    world.send(3, 20);
    world.send(0, 21);
    let after: Vec<_> = complete(&world.sent, 2)
        .iter()
        .map(|wc| wc.status)
        .collect();
    assert_eq!(after, [Status::WrFlushErr, Status::Success]);
}

#[test]
fn subscriber_without_receives_stalls_others_until_limit() {
    let world = World::new(3);
    world.post_receives(0, 2);
    world.post_receives(2, 2);
    let begin = Instant::now();
    for (at, id) in [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4), (2, 5)] {
        world.send(at, id);
    }
    let ended = complete(&world.sent, 6);
    let took = begin.elapsed();
    assert_eq!(ids(&ended), [0, 1, 2, 3, 4, 5]);
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    let statuses: Vec<_> = ended.iter().map(|wc| wc.status).collect();
    let expected = [well, Status::RetryExcErr, well, well, flushed, well];
    assert_eq!(statuses, expected);
    assert!(took >= STALL, "{took:?}");
    assert_eq!(world.channels[1].state(), QpState::Err);
    assert_eq!(world.ssq.query().unwrap().counters.stalls, 1);
}

#[test]
fn subscriber_not_reading_stalls_others_until_limit() {
    let mut world = World::new(2);
    let wire = Relay::to(world.listener.local_addr().unwrap());
    world.subscribe(wire.at);
    world.post_receives(0, 1);
    world.post_receives(1, 1);
    wire.set(PAUSED);
    let bytes = world.ours.memory(1 << 20, Access::ALL).unwrap();
    let remote = RemoteAddr {
        stag: world.memory.remote_addr(0).unwrap().stag,
        to: world.memory.remote_addr(0).unwrap().to,
    };
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let piece = [bytes.sge(0, 1 << 20).unwrap()];
    let stuck = world.channels[2].number();
    for id in 0..40 {
        let request = wr(id, write, Data::Gather(&piece));
        world.ssq.post(stuck, &[request]).unwrap();
    }
    world.send(0, 40);
    world.send(1, 41);
    let ended = complete(&world.sent, 42);
    assert_eq!(ids(&ended), Vec::from_iter(0..42));
    assert_eq!(ended[0].status, Status::RetryExcErr);
    assert!(
        ended[1..40]
            .iter()
            .all(|wc| wc.status == Status::WrFlushErr)
    );
    assert!(ended[40..].iter().all(|wc| wc.status == Status::Success));
    // The memory may be freed now: nothing of it is transmitted any more.
    drop(bytes);
}

#[test]
fn slow_subscriber_is_never_failed() {
    let world = World::new(2);
    world.post_receives(1, 1);
    let bytes = world.ours.memory(1 << 20, Access::ALL).unwrap();
    let remote = world.memory.remote_addr(0).unwrap();
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let piece = [bytes.sge(0, 1 << 20).unwrap()];
    for id in 0..32 {
        let request = wr(id, write, Data::Gather(&piece));
        world
            .ssq
            .post(world.channels[0].number(), &[request])
            .unwrap();
    }
    world.send(1, 32);
    let ended = complete(&world.sent, 33);
    assert_eq!(ids(&ended), Vec::from_iter(0..33));
    assert!(ended.iter().all(|wc| wc.status == Status::Success));
    let counters = world.ssq.query().unwrap().counters;
    assert_eq!((counters.bytes, counters.stalls), ((32 << 20) + 4, 0));
}

#[test]
fn requests_of_each_posting_thread_keep_order() {
    let world = World::new(4);
    for at in 0..4 {
        world.post_receives(at, 100);
    }
    std::thread::scope(|scope| {
        for at in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for id in 0..100 {
                    let request = [wr((at as u64) << 32 | id, SEND, Data::Inline(b"x"))];
                    let channel = world.channels[at].number();
                    while let Err(PostSendError { source: error, .. }) =
                        world.ssq.post(channel, &request)
                    {
                        assert_eq!(error, PostError::Full(64));
                        std::thread::yield_now();
                    }
                }
            });
        }
        let ended = complete(&world.sent, 400);
        assert!(ended.iter().all(|wc| wc.status == Status::Success));
        for at in 0..4 {
            let own = ended.iter().filter(|wc| wc.id >> 32 == at);
            let own: Vec<u64> = own.map(|wc| wc.id & 0xffff).collect();
            assert_eq!(own, Vec::from_iter(0..100));
        }
    });
}

#[test]
fn destroyed_channel_flushes_its_pending_requests() {
    let mut world = World::new(3);
    world.post_receives(0, 2);
    world.post_receives(2, 2);
    for (at, id) in [(0, 0), (1, 1), (2, 2), (1, 3), (0, 4), (2, 5)] {
        world.send(at, id);
    }
    let gone = world.channels.remove(1);
    let number = gone.number();
    drop(gone);
    let ended = complete(&world.sent, 6);
    assert_eq!(ids(&ended), [0, 1, 2, 3, 4, 5]);
    let own = |wc: &&Wc| wc.qpn == number;
    let flushed = |wc: &Wc| wc.status == Status::WrFlushErr;
    assert!(ended.iter().filter(own).all(flushed));
    let records = world.ssq.history(Some(number)).unwrap();
    let flushed = SsqOutcome::Completed(Status::WrFlushErr);
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.outcome == flushed));
    let posted = world.ssq.post(number, &[wr(9, SEND, Data::Inline(b""))]);
    assert_eq!(
        posted,
        Err(PostSendError {
            posted: 0,
            source: PostError::Channel(number)
        })
    );
    let (ssq, error) = world.ssq.destroy().unwrap_err();
    assert!(error.to_string().contains("in use by 2"), "{error}");
    drop(world.channels);
    ssq.destroy().map_err(|(_, error)| error).unwrap();
}

#[test]
fn reset_channel_is_flushed_and_reconnectable() {
    // A stall limit that the test never reaches: no time limit is involved here.
    let mut world = World::with_stall(64, Duration::from_secs(3600));
    let at = world.listener.local_addr().unwrap();
    world.subscribe(at);
    world.subscribe(at);
    world.post_receives(1, 1);
    for (at, id) in [(0, 1), (1, 2), (0, 3)] {
        world.send(at, id);
    }
    let channel = &world.channels[0];
    channel.modify(QpState::Reset).unwrap();
    let ended = complete(&world.sent, 3);
    let ends: Vec<_> = ended.iter().map(|wc| (wc.id, wc.status)).collect();
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    assert_eq!(ends, [(1, flushed), (2, well), (3, flushed)]);
    // The same channel is connected again, to another subscriber.
    let got = &world.got;
    let next = Qp::new(&world.theirs, got, got, QpOptions::default()).unwrap();
    next.modify(QpState::Init).unwrap();
    wait_until("the connection is gone", || channel.peer_addr().is_none());
    connect_qps(&world.listener, channel, &next);
    world.subscribers[0] = next;
    world.post_receives(0, 1);
    world.send(0, 4);
    let ended = complete(&world.sent, 1);
    assert_eq!((ended[0].id, ended[0].status), (4, well));
}

#[test]
fn foreign_objects_are_refused() {
    let world = World::new(1);
    let strange = world.theirs.ssq(&world.sent, SsqOptions::default());
    assert!(matches!(strange, Err(Error::Foreign)));
    let strange = Qp::with_ssq(&world.ssq, &world.got, None, QpOptions::default());
    assert!(matches!(strange, Err(Error::Foreign)));
    let request = [wr(0, SEND, Data::Inline(b"x"))];
    let own = world.channels[0].post_send(&request);
    assert_eq!(
        own,
        Err(PostSendError {
            posted: 0,
            source: PostError::Shared
        })
    );
    let plain = Qp::new(&world.ours, &world.sent, &world.sent, QpOptions::default()).unwrap();
    let posted = world.ssq.post(plain.number(), &request);
    assert_eq!(
        posted,
        Err(PostSendError {
            posted: 0,
            source: PostError::Channel(plain.number())
        })
    );
    let used = world.publisher.used().ssqs;
    assert_eq!(used, 1);
}

#[test]
fn failed_channel_wakes_consumer_and_raises_event() {
    let world = World::new(2);
    let raised = Arc::new(AtomicU8::new(0));
    let received = raised.clone();
    world.publisher.on_event(move |event| {
        if matches!(event, Event::Disconnected { .. }) {
            received.store(1, Ordering::Release);
        }
    });
    world.post_receives(1, 1);
    world.send(0, 1);
    world.send(1, 2);
    // `complete` sleeps on the queue's descriptor.
    assert_eq!(ids(&complete(&world.sent, 2)), [1, 2]);
    wait_until("the event", || raised.load(Ordering::Acquire) == 1);
}

const FORWARD: u8 = 0;
const PAUSED: u8 = 1;
const CLOSED: u8 = 2;

/// A TCP relay between two adapters that can stop reading, or close.
struct Relay {
    at: SocketAddr,
    mode: Arc<(Mutex<u8>, Condvar)>,
}

impl Relay {
    fn to(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mode = Arc::new((Mutex::new(FORWARD), Condvar::new()));
        let (there, back) = (mode.clone(), mode.clone());
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || forward(from, to, &back));
            forward(client, server, &there);
        });
        Relay { at, mode }
    }

    fn set(&self, mode: u8) {
        *self.mode.0.lock().unwrap() = mode;
        self.mode.1.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.set(CLOSED);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, mode: &(Mutex<u8>, Condvar)) {
    from.set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let mut bytes = [0; 4096];
    loop {
        let now = mode.0.lock().unwrap();
        let now = *mode.1.wait_while(now, |now| *now == PAUSED).unwrap();
        if now == CLOSED {
            let _ = from.shutdown(std::net::Shutdown::Both);
            return;
        }
        match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => to.write_all(&bytes[..n]).unwrap(),
            Err(_) => {}
        }
    }
}
