//! A host with our stack on a TAP, whose other end is an interface of the kernel, with faults on the way if a test wants them.
//! The test's thread drives it: each wait reads frames, hands them to the stack, and sends what the stack has to send. Payload that
//! arrives out of order is placed at once, at its offset in the connection's stream.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_lan::{MAX_FRAME_LEN, Offloads, ReadOutcome, Tap, Vnet};
use verbena_stream::Time;
use verbena_tcpip::tcp::TcpConfig;
use verbena_tcpip::{
    Arrival, ConnectionId, InterfaceAddress, ListenConfig, Mac, Outgoing, Stack, StackConfig,
    StackEvent, TrafficClass,
};

/// After this time a wait fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are queued and not acknowledged.
const IN_FLIGHT: u64 = 1 << 20;

/// The kernel's addresses on the link.
pub(crate) const KERNEL: [&str; 2] = ["10.7.0.1", "fd07::1"];
/// The stack's.
pub(crate) const OURS: [&str; 2] = ["10.7.0.2", "fd07::2"];

/// Faults on the way, in thousandths of frames, in both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    /// Frames that come behind the next ones.
    pub(crate) reorder: u64,
}

/// The bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// What arrived: from the first byte that the test has not taken.
    inbox: VecDeque<u8>,
    taken: u64,
    in_order: u64,
    pub(crate) finished: bool,
    pub(crate) closed: bool,
    /// What is sent: from the first byte that is not released.
    outbox: VecDeque<u8>,
    released: u64,
    queued: u64,
}

pub(crate) struct Host {
    pub(crate) stack: Stack,
    tap: Tap,
    began: Instant,
    pub(crate) streams: BTreeMap<ConnectionId, Streams>,
    pub(crate) accepted: VecDeque<(u16, ConnectionId)>,
    pub(crate) connected: Vec<ConnectionId>,
    faults: Faults,
    random: u64,
    held_in: Option<Vec<u8>>,
    held_out: Option<Vec<u8>>,
    room: Vec<u8>,
    /// Segments that brought data out of order.
    pub(crate) out_of_order: u64,
    /// Datagrams that arrived.
    pub(crate) datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip(8)").success(), "ip {arguments}");
}

impl Host {
    /// A TAP with the kernel on one end and a stack on the other, in a network namespace of the test's own.
    pub(crate) fn new(faults: Faults) -> Host {
        let tap = Tap::create("tap0", 1).expect("a TAP");
        tap.set_offloads(Offloads::NONE).expect("no offloads");
        ip("link set lo up");
        ip("link set tap0 up");
        ip(&format!("address add {}/24 dev tap0", KERNEL[0]));
        ip(&format!("address add {}/64 dev tap0 nodad", KERNEL[1]));
        let own = |address: &str, prefix| InterfaceAddress {
            address: address.parse().expect("an address"),
            prefix,
        };
        let config = StackConfig {
            mac: Mac([2, 0, 0, 0, 7, 2]),
            addresses: vec![own(OURS[0], 24), own(OURS[1], 64)],
            ..StackConfig::default()
        };
        Host {
            stack: Stack::new(config, [7; 32]),
            tap,
            began: Instant::now(),
            streams: BTreeMap::new(),
            accepted: VecDeque::new(),
            connected: Vec::new(),
            faults,
            random: 1,
            held_in: None,
            held_out: None,
            room: vec![0; MAX_FRAME_LEN + 1],
            out_of_order: 0,
            datagrams: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + Duration::from_secs(1000) + self.began.elapsed()
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1000 < per_mille
    }

    /// One turn; waits for at most a moment if nothing is to be done.
    fn turn(&mut self) {
        let mut is_idle = true;
        for _ in 0..64 {
            let Some(frame) = self.read() else { break };
            is_idle = false;
            if self.happens(self.faults.loss) {
                continue;
            }
            if self.held_in.is_none() && self.happens(self.faults.reorder) {
                self.held_in = Some(frame);
                continue;
            }
            self.arrive(&frame);
            if let Some(held) = self.held_in.take() {
                self.arrive(&held);
            }
        }
        if is_idle && let Some(held) = self.held_in.take() {
            self.arrive(&held);
        }
        let now = self.now();
        if self.stack.deadline().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
        self.events();
        self.send_queued();
        self.transmit();
        if is_idle {
            self.wait();
        }
    }

    fn read(&mut self) -> Option<Vec<u8>> {
        let queue = &self.tap.queues()[0];
        match queue.read_frame(&mut self.room).expect("the TAP") {
            ReadOutcome::Frame(_, len) => Some(self.room[..len].to_vec()),
            _ => None,
        }
    }

    fn arrive(&mut self, frame: &[u8]) {
        let now = self.now();
        let arrival = self.stack.handle_frame(frame, false, now);
        if let Arrival::Datagram {
            source, payload, ..
        } = &arrival
        {
            let bytes = frame[payload.clone()].to_vec();
            self.datagrams.push((*source, bytes));
        }
        let Arrival::Segment {
            connection,
            received,
            payload,
        } = arrival
        else {
            return;
        };
        let streams = self.streams.entry(connection).or_default();
        let data = &frame[payload];
        for run in received.runs {
            if run.offset > streams.in_order {
                self.out_of_order += 1;
            }
            let from = usize::try_from(run.offset - streams.taken).expect("a window");
            let bytes = &data[run.payload];
            if streams.inbox.len() < from + bytes.len() {
                streams.inbox.resize(from + bytes.len(), 0);
            }
            for (at, byte) in bytes.iter().enumerate() {
                streams.inbox[from + at] = *byte;
            }
        }
        streams.in_order = streams.in_order.max(received.in_order);
    }

    fn events(&mut self) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                StackEvent::Connected(id) => self.connected.push(id),
                StackEvent::Accepted {
                    port, connection, ..
                } => {
                    self.streams.entry(connection).or_default();
                    self.accepted.push_back((port, connection));
                }
                StackEvent::PeerFinished(id) => {
                    self.streams.entry(id).or_default().finished = true;
                }
                StackEvent::Closed(id, _) => self.streams.entry(id).or_default().closed = true,
            }
        }
    }

    fn send_queued(&mut self) {
        for (id, streams) in &mut self.streams {
            let Some(connection) = self.stack.connection(*id) else {
                continue;
            };
            let released = connection.released();
            let gone = usize::try_from(released - streams.released).expect("in memory");
            streams.outbox.drain(..gone);
            streams.released = released;
            let end = released + streams.outbox.len() as u64;
            let until = end.min(released + IN_FLIGHT);
            if until > streams.queued {
                let len = until - streams.queued;
                if self.stack.queue(*id, len).is_ok() {
                    streams.queued = until;
                }
            }
        }
    }

    fn transmit(&mut self) {
        let now = self.now();
        while let Some(outgoing) = self.stack.poll_transmit(now) {
            let frame = match outgoing {
                Outgoing::Frame(frame) => frame,
                Outgoing::Segment(mut segment) => {
                    let streams = self.streams.entry(segment.connection).or_default();
                    let place = |at: u64| usize::try_from(at - streams.released).expect("held");
                    let range = if segment.payload.is_empty() {
                        0..0
                    } else {
                        place(segment.payload.start)..place(segment.payload.end)
                    };
                    let payload: Vec<u8> = streams.outbox.range(range).copied().collect();
                    segment.complete([&payload[..]]);
                    [segment.headers(), &payload].concat()
                }
            };
            if self.happens(self.faults.loss) {
                continue;
            }
            if self.held_out.is_none() && self.happens(self.faults.reorder) {
                self.held_out = Some(frame);
                continue;
            }
            self.write(&frame);
            if let Some(held) = self.held_out.take() {
                self.write(&held);
            }
        }
        if let Some(held) = self.held_out.take() {
            self.write(&held);
        }
    }

    fn write(&self, frame: &[u8]) {
        let queue = &self.tap.queues()[0];
        queue.write_frame(&Vnet::PLAIN, frame).expect("the TAP");
    }

    fn wait(&self) {
        let now = self.now();
        let most = Duration::from_millis(50);
        let wait = self
            .stack
            .deadline()
            .map_or(most, |at| at.since(now).min(most));
        let timeout = Timespec::try_from(wait).expect("a short time");
        let fd = PollFd::new(&self.tap.queues()[0], PollFlags::IN);
        let _ = poll(&mut [fd], Some(&timeout));
    }

    /// Runs until a condition holds.
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&mut Host) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "did not happen: {what}");
            self.turn();
        }
    }

    pub(crate) fn listen(&mut self, port: u16) {
        let config = ListenConfig::default();
        self.stack.listen(port, config).expect("a free port");
    }

    /// The next connection to a port.
    pub(crate) fn accept(&mut self, port: u16) -> ConnectionId {
        let mut found = None;
        self.run_until("a connection", |host| {
            let at = host.accepted.iter().position(|(to, _)| *to == port);
            found = at.and_then(|at| host.accepted.remove(at));
            found.is_some()
        });
        found.expect("a connection").1
    }

    /// A connection to the kernel.
    pub(crate) fn connect(&mut self, address: &str, port: u16) -> ConnectionId {
        let peer = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port);
        let class = TrafficClass::default();
        let now = self.now();
        let id = self
            .stack
            .connect(peer, None, TcpConfig::default(), class, now);
        let id = id.expect("a route");
        self.streams.entry(id).or_default();
        self.run_until("the connection is established", |host| {
            host.connected.contains(&id)
        });
        id
    }

    /// Whether a connection is refused.
    pub(crate) fn is_refused(&mut self, address: &str, port: u16) -> bool {
        let peer = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port);
        let class = TrafficClass::default();
        let now = self.now();
        let id = self
            .stack
            .connect(peer, None, TcpConfig::default(), class, now)
            .expect("a route");
        self.run_until("the connection ends", |host| {
            host.streams.get(&id).is_some_and(|streams| streams.closed)
        });
        !self.connected.contains(&id)
    }

    /// Sends bytes; returns before they are acknowledged.
    pub(crate) fn send(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.streams.entry(id).or_default().outbox.extend(bytes);
    }

    /// Bytes that are not acknowledged.
    pub(crate) fn unsent(&self, id: ConnectionId) -> usize {
        self.streams
            .get(&id)
            .map_or(0, |streams| streams.outbox.len())
    }

    /// What has arrived in order.
    pub(crate) fn take(&mut self, id: ConnectionId) -> Vec<u8> {
        let streams = self.streams.entry(id).or_default();
        let len = streams.in_order - streams.taken;
        let bytes = streams
            .inbox
            .drain(..usize::try_from(len).expect("held"))
            .collect();
        streams.taken += len;
        self.stack.consume(id, len);
        bytes
    }

    /// Exactly `len` bytes.
    pub(crate) fn receive(&mut self, id: ConnectionId, len: usize) -> Vec<u8> {
        self.run_until("bytes arrive", |host| {
            let streams = &host.streams[&id];
            streams.in_order - streams.taken >= len as u64
        });
        let streams = self.streams.entry(id).or_default();
        let bytes = streams.inbox.drain(..len).collect();
        streams.taken += len as u64;
        self.stack.consume(id, len as u64);
        bytes
    }

    /// Everything until the peer's end.
    pub(crate) fn receive_all(&mut self, id: ConnectionId) -> Vec<u8> {
        let mut all = Vec::new();
        self.run_until("the peer's end", |host| {
            all.extend(host.take(id));
            host.streams[&id].finished
        });
        all.extend(self.take(id));
        all
    }

    /// A datagram from a port of the stack, as soon as the station is known.
    pub(crate) fn send_datagram(&mut self, port: u16, to: SocketAddr, payload: &[u8]) {
        self.run_until("the datagram is sent", |host| {
            let now = host.now();
            host.stack.send_datagram(port, to, payload, now).is_ok()
        });
    }

    /// Runs a program beside the stack until it ends.
    pub(crate) fn run_program(&mut self, command: &mut Command) -> Output {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        self.run_until("the program ends", |_| {
            child.try_wait().expect("a child").is_some()
        });
        child.wait_with_output().expect("its output")
    }

    /// Sends what is left, and then the end.
    pub(crate) fn finish(&mut self, id: ConnectionId) {
        self.run_until("all is queued", |host| {
            let streams = &host.streams[&id];
            streams.queued == streams.released + streams.outbox.len() as u64
        });
        let now = self.now();
        self.stack.close(id, now);
        self.turn();
    }
}
