//! Two whole adapters over our own TCP/IP and a network of switches whose links lose, repeat and reorder frames, in virtual time from a seed.
//! Sends, Writes, Reads, atomics and invalidations in both directions are compared byte by byte with what was posted. Every FPDU
//! is a segment, and the queue pairs get segments as they arrive (M9, M10, M17).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use verbena_fabric::{
    Fabric, Faults, Frame, LinkId, LinkOptions, NodeId, PortRef, Ratio, SwitchOptions,
};
use verbena_mem::{Access, Bind, Buffer, Pd, Policy, Tpt, WindowType};
use verbena_nic::qp::{Limits, Segment};
use verbena_nic::trace::ObserverCell;
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{
    Cq, Flags, MemoryCarrier, Outbox, Personality, Qp, QpInit, QpState, QpType, ReceiveWr,
    Registration, SendOp, SendWr, Sge, Status, Transfer, Wc,
};
use verbena_stream::startup::{Agreement, Rtr};
use verbena_stream::{Alignment, RnrRetry, Role, Settings, Stream, Time};
use verbena_tcpip::tcp::{Framing, TcpConfig};
use verbena_tcpip::{
    Arrival, ConnectionId, InterfaceAddress, ListenConfig, Mac, Outgoing, Stack, StackConfig,
    StackEvent, TrafficClass,
};
use verbena_wire::ext::{Caps, Features, RnrTimer};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::{Stag, To};

const PD: Pd = Pd(1);
const PORT: u16 = 4321;
/// A segment of this many bytes fits the links, and so does the FPDU around such a ULPDU.
const MAX_ULPDU: u16 = 1400;
/// Bytes of a stream that wait for acknowledgement.
const MAX_QUEUED: u64 = 256 << 10;
const SEEDS: u64 = 150;

/// Each operation has its own part of every zone.
const SLOT: u64 = 8192;
const OPERATIONS: u64 = 24;
/// Zones of a side's memory: what it sends, what the peer writes, receives, what the peer reads, sinks, words of atomics.
const SOURCES: u64 = 0;
const TARGETS: u64 = SLOT * OPERATIONS;
const RECEIVES: u64 = TARGETS * 2;
const READABLE: u64 = TARGETS * 3;
const SINKS: u64 = TARGETS * 4;
const WORDS: u64 = TARGETS * 5;
const SIZE: u64 = WORDS + 4096;

/// Deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn millionths(&mut self, most: u64) -> Ratio {
        Ratio::millionths(self.below(most) as u32)
    }
}

/// What one side posted, and how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    /// Through a window, which a Send invalidates behind it.
    WriteAndInvalidate,
    /// Through a one-touch window (M9).
    WriteOnce,
    Read,
    Add(u64),
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    kind: Kind,
    len: u32,
}

struct Side {
    stack: Stack,
    at: PortRef,
    connection: Option<ConnectionId>,
    role: Role,
    qp: Qp,
    tpt: Arc<Tpt>,
    memory: Buffer,
    out: Outbox,
    /// Bytes of the stream from `released` on.
    stream: Vec<u8>,
    released: u64,
    queued: u64,
    processed: u64,
    /// Segments that arrived ahead of a gap.
    ahead: u64,
    windows: Vec<Stag>,
    sent: Vec<Wc>,
    received: Vec<Wc>,
}

struct World {
    now: Time,
    fabric: Fabric,
    sides: [Side; 2],
    links: Vec<LinkId>,
    faults: Faults,
    terms: Terms,
}

/// Checksums and markers, in both directions.
#[derive(Debug, Clone, Copy)]
struct Terms {
    crc: bool,
    markers: bool,
}

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn tcp() -> TcpConfig {
    TcpConfig {
        framing: Framing::Messages,
        ..TcpConfig::default()
    }
}

fn side(number: u8, node: NodeId, role: Role, personality: Personality) -> Side {
    let tpt = Arc::new(Tpt::new(1..5000, Policy::Verbs, u64::from(number)));
    let memory = Buffer::new(&tpt, SIZE as usize, PD, Access::ALL).unwrap();
    let cq = |n: u32| Arc::new(Cq::new(n, 256).unwrap());
    let qp = Qp::new(QpInit {
        number: number.into(),
        wc_qpn: number.into(),
        pd: PD,
        personality,
        qp_type: QpType::Rc,
        send_cq: cq(1),
        recv_cq: cq(2),
        srq: None,
        xrcd: None,
        xrc_sends: 0,
        tpt: tpt.clone().into(),
        limits: Limits::default(),
        transfer: Transfer::default(),
        registration: Registration::default(),
        observer: ObserverCell::default(),
    });
    let own = InterfaceAddress {
        address: address(number),
        prefix: 24,
    };
    let config = StackConfig {
        mac: Mac([2, 0, 0, 0, 0, number]),
        addresses: vec![own],
        ..StackConfig::default()
    };
    Side {
        stack: Stack::new(config, [number; 32]),
        at: PortRef { node, port: 0 },
        connection: None,
        role,
        qp,
        tpt,
        memory,
        out: Outbox::new(),
        stream: Vec::new(),
        released: 0,
        queued: 0,
        processed: 0,
        ahead: 0,
        windows: Vec::new(),
        sent: Vec::new(),
        received: Vec::new(),
    }
}

impl Side {
    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.at() + offset,
            len,
            stag: self.memory.stag(),
        }
    }

    fn post(&mut self, id: u64, op: SendOp, sges: &[Sge]) {
        let wr = SendWr {
            id,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(sges),
        };
        self.qp.post_send(&wr, &mut self.out).unwrap();
    }

    /// Windows over the slots that the peer writes, of which every second one is one-touch.
    fn bind(&mut self, operations: &[Operation]) {
        for (slot, operation) in operations.iter().enumerate() {
            let one_touch = operation.kind == Kind::WriteOnce;
            let window = self.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
            self.windows
                .push(Stag::from_parts(window.index(), 0x77).unwrap());
            let bind = Bind {
                window,
                region: self.memory.stag(),
                addr: self.memory.at() + TARGETS + slot as u64 * SLOT,
                len: SLOT,
                access: Access::REMOTE_WRITE,
                pd: PD,
                qp: self.qp.number(),
                key: 0x77,
                zero_based: true,
                one_touch,
            };
            self.post(1000, SendOp::Bind(bind), &[]);
        }
    }

    fn stream_of(&self, terms: Terms) -> Stream {
        let agreement = Agreement {
            role: self.role,
            revision: Revision::Two,
            crc: terms.crc,
            markers_tx: terms.markers,
            markers_rx: terms.markers,
            ird: 8,
            ord: 8,
            rtr: Rtr::Caps,
            extensions: true,
            private_data: Vec::new(),
        };
        let settings = Settings {
            max_ulpdu: MAX_ULPDU,
            rfc7306: true,
            rnr_retry: RnrRetry::Forever,
            drop_overlong: false,
            caps: Caps {
                version: Caps::VERSION,
                max_ulpdu: u16::MAX,
                features: Features::READ_V2 | Features::SEND_IMM,
                personality: self.qp.init().personality,
                qp_type: QpType::Rc,
                min_rnr_timer: RnrTimer::DEFAULT,
                ird: 8,
                nonce: 1,
                same_host: None,
                path: None,
            },
        };
        Stream::new(&agreement, settings)
    }

    fn handle_events(&mut self, terms: Terms) -> bool {
        let mut any = false;
        while let Some(event) = self.stack.poll_event() {
            any = true;
            match event {
                StackEvent::Connected(connection) | StackEvent::Accepted { connection, .. } => {
                    self.connection = Some(connection);
                    self.qp.modify(QpState::Init, &mut self.out).unwrap();
                    let stream = self.stream_of(terms);
                    assert!(self.qp.attach(stream, true, &mut self.out));
                }
                other => panic!("{other:?}"),
            }
        }
        any
    }

    /// Queues what the queue pair sends, each FPDU as a message.
    fn transmit(&mut self, markers: bool, now: Time) {
        let Some(id) = self.connection else {
            return;
        };
        let Some(connection) = self.stack.connection(id) else {
            return;
        };
        let gone = (connection.released() - self.released) as usize;
        self.stream.drain(..gone);
        self.released += gone as u64;
        let room = MAX_QUEUED.saturating_sub(self.stream.len() as u64);
        let mut carrier = MemoryCarrier::with_room(room as usize);
        self.qp.transmit(&mut carrier, now, &mut self.out);
        self.stream.extend(carrier.output);
        loop {
            let begun = (self.queued - self.released) as usize;
            let Some(size) = frame_size(self.queued, &self.stream[begun..], markers) else {
                break;
            };
            // A frame of which the carrier took a part only waits for the rest.
            if begun + size > self.stream.len() {
                break;
            }
            self.stack.queue(id, size as u64).unwrap();
            self.queued += size as u64;
        }
    }

    fn handle_frame(&mut self, frame: &[u8], terms: Terms, now: Time) {
        let Arrival::Segment {
            connection,
            received,
            payload,
        } = self.stack.handle_frame(frame, false, now)
        else {
            return;
        };
        // Data may come with the last segment of the handshake.
        self.handle_events(terms);
        let bytes = &frame[payload];
        for run in &received.runs {
            let segment = Segment {
                position: run.offset,
                bytes: &bytes[run.payload.clone()],
                in_order: received.in_order,
                window: tcp().receive_window as u32,
                alignment: Alignment::Frames,
            };
            self.ahead += u64::from(run.offset > self.processed);
            let taken = self.qp.receive_segment(&segment, now, &mut self.out);
            assert_eq!(
                taken.taken,
                segment.bytes.len(),
                "acknowledged, and not taken"
            );
            self.stack
                .consume(connection, taken.processed - self.processed);
            self.processed = taken.processed;
        }
    }

    fn complete(&mut self) {
        let drain = |cq: &Cq| {
            let mut all = vec![Wc::default(); cq.len()];
            let n = cq.poll(&mut all);
            all.truncate(n);
            all
        };
        self.sent.extend(drain(&self.qp.init().send_cq));
        self.received.extend(drain(&self.qp.init().recv_cq));
    }
}

fn frame_size(position: u64, bytes: &[u8], markers: bool) -> Option<usize> {
    use verbena_wire::mpa::fpdu::{Layout, Phase};
    let phase = markers.then(|| {
        let distance = (512 - position % 512) % 512;
        Phase::new(distance as u16).unwrap()
    });
    let lead = if phase == Some(Phase::START) { 4 } else { 0 };
    let field = bytes.get(lead..lead + 2)?;
    let len = u16::from_be_bytes([field[0], field[1]]);
    Some(Layout::new(len, phase).size())
}

impl World {
    fn new(seed: u64, random: &mut Random) -> World {
        let mut fabric = Fabric::new(seed);
        let switch = fabric.add_switch(SwitchOptions::default()).unwrap();
        let faults = Faults {
            loss: random.millionths(60_000),
            repeat: random.millionths(30_000),
            reorder: random.millionths(100_000),
            delay: Duration::from_micros(random.below(500)),
            jitter: Duration::from_micros(random.below(3) * 400),
            ..Faults::NONE
        };
        let personality = match random.below(2) {
            0 => Personality::Iwarp,
            _ => Personality::Roce,
        };
        let mut links = Vec::new();
        let sides = [(1, Role::Initiator), (2, Role::Responder)].map(|(number, role)| {
            let node = fabric.add_host().unwrap();
            let link = fabric.link(node, switch, &LinkOptions::default());
            links.push(link.unwrap());
            side(number, node, role, personality)
        });
        World {
            now: Time::from_nanos(1_000_000_000),
            fabric,
            sides,
            links,
            faults,
            terms: Terms {
                crc: random.below(3) > 0,
                markers: random.below(4) == 0,
            },
        }
    }

    fn clock(&self) -> Duration {
        Duration::from_nanos(self.now.nanos())
    }

    /// Everything that can happen now; false if nothing did.
    fn turn(&mut self) -> bool {
        let (now, clock, terms) = (self.now, self.clock(), self.terms);
        let mut moved = false;
        self.fabric.advance(clock);
        while let Some((at, frame)) = self.fabric.take_output() {
            moved = true;
            let side = self.sides.iter_mut().find(|side| side.at == at);
            let side = side.expect("a port of a side");
            side.handle_frame(&frame.bytes, terms, now);
            side.handle_events(terms);
        }
        for side in &mut self.sides {
            if side.stack.deadline().is_some_and(|at| at <= now) {
                side.stack.handle_timeout(now);
            }
            if side.qp.deadline().is_some_and(|at| at <= now) {
                side.qp.handle_timeout(now, &mut side.out);
            }
            moved |= side.handle_events(terms);
            side.transmit(terms.markers, now);
            while let Some(outgoing) = side.stack.poll_transmit(now) {
                moved = true;
                let bytes = match outgoing {
                    Outgoing::Frame(frame) => frame,
                    Outgoing::Segment(mut segment) => {
                        // Without payload it has no place in the stream.
                        let place = |at: u64| at.saturating_sub(side.released) as usize;
                        let range = place(segment.payload.start)..place(segment.payload.end);
                        let payload = &side.stream[range];
                        segment.complete([payload]);
                        [segment.headers(), payload].concat()
                    }
                };
                self.fabric
                    .inject(side.at, Frame::plain(bytes), clock)
                    .unwrap();
            }
            side.complete();
        }
        moved
    }

    /// Runs until a condition holds.
    fn run(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..200_000 {
            let moved = self.turn();
            if holds(self) {
                return;
            }
            if moved {
                continue;
            }
            let ends = self.sides.iter();
            let deadlines = ends.flat_map(|side| [side.stack.deadline(), side.qp.deadline()]);
            let arrival = self.fabric.next_event();
            let arrival = arrival.map(|at| Time::from_nanos(at.as_nanos() as u64));
            let next = deadlines.flatten().chain(arrival).min();
            let Some(next) = next else {
                break;
            };
            self.now = self.now.max(next) + Duration::from_nanos(u64::from(next <= self.now));
        }
        let causes = [0, 1].map(|at| self.sides[at].qp.cause());
        panic!("{what}: never, {causes:?}");
    }
}

fn pattern(seed: u64, side: usize, zone: u64, len: u64) -> Vec<u8> {
    let key = seed ^ (side as u64) << 40 ^ zone << 20;
    (0..len)
        .map(|at| ((at ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn draw(random: &mut Random) -> Vec<Operation> {
    let count = 4 + random.below(OPERATIONS - 4);
    let draw = |_| Operation {
        kind: match random.below(7) {
            0 | 1 => Kind::Send,
            2 => Kind::Write,
            3 => Kind::WriteAndInvalidate,
            4 => Kind::WriteOnce,
            5 => Kind::Read,
            _ => Kind::Add(1 + random.below(1000)),
        },
        len: 1 + match random.below(3) {
            0 => random.below(100),
            1 => random.below(1500),
            _ => random.below(SLOT - 1),
        } as u32,
    };
    (0..count).map(draw).collect()
}

fn post(world: &mut World, from: usize, operations: &[Operation]) {
    let [a, b] = &mut world.sides;
    let (side, peer) = if from == 0 { (a, b) } else { (b, a) };
    for (slot, operation) in operations.iter().enumerate() {
        let (id, slot) = (slot as u64, slot as u64 * SLOT);
        let source = [side.sge(SOURCES + slot, operation.len)];
        let remote = |zone: u64| RemoteAddr {
            stag: peer.memory.stag(),
            to: To::new(peer.memory.at() + zone),
        };
        let through = |to: &Side| RemoteAddr {
            stag: to.windows[id as usize],
            to: To::new(0),
        };
        let write = |remote| SendOp::Write {
            remote,
            immediate: None,
        };
        let send = |invalidate| SendOp::Send {
            invalidate,
            immediate: None,
        };
        match operation.kind {
            Kind::Send => side.post(id, send(None), &source),
            Kind::Write => side.post(id, write(remote(TARGETS + slot)), &source),
            Kind::WriteOnce => side.post(id, write(through(peer)), &source),
            Kind::WriteAndInvalidate => {
                side.post(id, write(through(peer)), &source);
                let stag = peer.windows[id as usize];
                side.post(500 + id, send(Some(stag)), &source);
            }
            Kind::Read => {
                let read = SendOp::Read {
                    remote: remote(READABLE + slot),
                    local_invalidate: None,
                };
                let sink = [side.sge(SINKS + slot, operation.len)];
                side.post(id, read, &sink);
            }
            Kind::Add(add) => {
                let op = SendOp::FetchAdd {
                    remote: remote(WORDS),
                    add,
                    mask: 0,
                };
                let sink = [side.sge(SINKS + slot, 8)];
                side.post(id, op, &sink);
            }
        }
    }
}

fn receives(operations: &[Operation]) -> impl Iterator<Item = (u64, Operation)> {
    let takes = |kind| matches!(kind, Kind::Send | Kind::WriteAndInvalidate);
    let all = operations.iter().enumerate();
    all.filter(move |(_, op)| takes(op.kind))
        .map(|(slot, op)| (slot as u64, *op))
}

/// What `from` posted has had its effects, and no other.
fn check(world: &World, seed: u64, from: usize, operations: &[Operation]) {
    let (side, peer) = (&world.sides[from], &world.sides[1 - from]);
    let ids: Vec<u64> = side.sent.iter().map(|wc| wc.id).collect();
    let expected: Vec<u64> = operations
        .iter()
        .enumerate()
        .flat_map(|(at, op)| {
            let again = (op.kind == Kind::WriteAndInvalidate).then_some(500 + at as u64);
            core::iter::once(at as u64).chain(again)
        })
        .collect();
    assert_eq!(ids, expected);
    assert!(side.sent.iter().all(|wc| wc.status == Status::Success));
    let mut delivered = peer.received.iter();
    let mut sum = 0;
    let source = pattern(seed, from, SOURCES, SLOT * OPERATIONS);
    let readable = pattern(seed, 1 - from, READABLE, SLOT * OPERATIONS);
    for (at, operation) in operations.iter().enumerate() {
        let (slot, len) = (at as u64 * SLOT, operation.len as usize);
        let sent = &source[slot as usize..slot as usize + len];
        let read = |side: &Side, zone: u64| side.memory.read((zone + slot) as usize, len + 1);
        let assert_written = |side: &Side, zone: u64, bytes: &[u8]| {
            let got = read(side, zone);
            assert!(got[..len] == *bytes && got[len] == 0, "{at} {operation:?}");
        };
        match operation.kind {
            Kind::Send => {}
            Kind::Write => assert_written(peer, TARGETS, sent),
            Kind::WriteAndInvalidate | Kind::WriteOnce => {
                assert_written(peer, TARGETS, sent);
                assert!(peer.tpt.find_entry(peer.windows[at]).is_none());
            }
            Kind::Read => {
                let bytes = &readable[slot as usize..slot as usize + len];
                assert_written(side, SINKS, bytes);
            }
            Kind::Add(add) => {
                let got = side.memory.read((SINKS + slot) as usize, 8);
                assert_eq!(got, u64::to_ne_bytes(sum));
                sum += add;
            }
        }
        if matches!(operation.kind, Kind::Send | Kind::WriteAndInvalidate) {
            let wc = delivered.next().expect("a message");
            assert_eq!((wc.id, wc.status), (at as u64, Status::Success));
            assert_eq!(wc.len as usize, len);
            let invalidates = operation.kind == Kind::WriteAndInvalidate;
            assert_eq!(wc.invalidated, invalidates.then(|| peer.windows[at]));
            assert_written(peer, RECEIVES, sent);
        }
    }
    assert_eq!(delivered.next(), None);
    let word = peer.memory.read(WORDS as usize, 8);
    assert_eq!(word, u64::to_ne_bytes(sum));
    assert_eq!(side.qp.cause(), None);
}

/// One world; returns how many segments arrived ahead of a gap.
fn run(seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut world = World::new(seed, &mut random);
    for (at, side) in world.sides.iter_mut().enumerate() {
        for zone in [SOURCES, READABLE] {
            let bytes = pattern(seed, at, zone, SLOT * OPERATIONS);
            side.memory.write(zone as usize, &bytes);
        }
    }
    let listen = ListenConfig {
        tcp: tcp(),
        ..ListenConfig::default()
    };
    world.sides[1].stack.listen(PORT, listen).unwrap();
    let to = SocketAddr::new(address(2), PORT);
    let now = world.now;
    world.sides[0]
        .stack
        .connect(to, None, tcp(), TrafficClass::default(), now)
        .unwrap();
    world.run("connect", |world| {
        let running = |side: &Side| side.qp.state() == QpState::Rts;
        world.sides.iter().all(running)
    });
    // A connection attempt may fail where questions for Ethernet addresses are lost, so the faults begin here.
    let clock = world.clock();
    for link in world.links.clone() {
        world.fabric.set_faults(link, world.faults, clock);
    }
    let operations = [draw(&mut random), draw(&mut random)];
    for (at, theirs) in [(0, &operations[1]), (1, &operations[0])] {
        let side = &mut world.sides[at];
        for (slot, operation) in receives(theirs) {
            let scatter = [side.sge(RECEIVES + slot * SLOT, operation.len)];
            let wr = ReceiveWr {
                id: slot,
                scatter: &scatter,
            };
            side.qp.post_receive(&wr, &mut side.out).unwrap();
        }
        side.bind(theirs);
    }
    world.run("bind", |world| {
        let bound = |(at, side): (usize, &Side)| side.sent.len() == operations[1 - at].len();
        world.sides.iter().enumerate().all(bound)
    });
    for side in &mut world.sides {
        assert!(side.sent.iter().all(|wc| wc.status == Status::Success));
        side.sent.clear();
    }
    for (at, own) in operations.iter().enumerate() {
        post(&mut world, at, own);
    }
    world.run("work", |world| {
        let failed = world.sides.iter().any(|side| side.qp.cause().is_some());
        assert!(!failed, "{:?}", [0, 1].map(|at| world.sides[at].qp.cause()));
        [0, 1].into_iter().all(|at| {
            let again = |op: &&Operation| op.kind == Kind::WriteAndInvalidate;
            let count = operations[at].len() + operations[at].iter().filter(again).count();
            let messages = receives(&operations[at]).count();
            // An iWARP Write completes when it has been handed to the connection.
            let (side, peer) = (&world.sides[at], &world.sides[1 - at]);
            side.sent.len() == count
                && peer.received.len() == messages
                && side.queued == peer.processed
        })
    });
    for (at, own) in operations.iter().enumerate() {
        check(&world, seed, at, own);
    }
    world.sides.iter().map(|side| side.ahead).sum()
}

#[test]
fn adapters_over_a_faulty_network_agree() {
    let seeds = match std::env::var("VERBENA_TCPIP_SEEDS") {
        Ok(count) => count.parse().expect("a number of seeds"),
        Err(_) => SEEDS,
    };
    let mut ahead = 0;
    for seed in 0..seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        ahead += ran.unwrap_or_else(|_| panic!("seed {seed} failed"));
    }
    assert!(
        ahead > seeds,
        "{ahead} segments ahead of a gap in {seeds} worlds"
    );
}
