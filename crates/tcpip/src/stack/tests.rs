//! Two stacks on a wire that loses, reorders and corrupts frames, and a stack against frames of an attacker.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::frame::{Carried, parse};
use crate::tcp::{Framing, Segment, TcpFlags, TcpOptions};

const START: Time = Time::from_nanos(5_000_000_000_000);

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

fn v4(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn v6(number: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number))
}

fn config(number: u8) -> StackConfig {
    let own = |address, prefix| InterfaceAddress { address, prefix };
    StackConfig {
        mac: mac(number),
        addresses: vec![own(v4(number), 24), own(v6(u16::from(number)), 64)],
        ..StackConfig::default()
    }
}

fn stack(number: u8) -> Stack {
    Stack::new(config(number), [number; 32])
}

/// The byte at an offset of every stream.
fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A frame as it is on the wire.
fn on_the_wire(outgoing: Outgoing) -> Vec<u8> {
    match outgoing {
        Outgoing::Frame(frame) => frame,
        Outgoing::Segment(mut segment) => {
            let payload: Vec<u8> = segment.payload.clone().map(byte).collect();
            // In two parts, as from a ring.
            let (front, back) = payload.split_at(payload.len() / 3);
            segment.complete([front, back]);
            [segment.headers(), &payload].concat()
        }
    }
}

fn drain(stack: &mut Stack, now: Time) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(outgoing) = stack.poll_transmit(now) {
        out.push(on_the_wire(outgoing));
        assert!(out.len() < 100_000, "it sends without end");
    }
    out
}

/// Two stacks and the wire between them.
struct Wire {
    now: Time,
    stacks: [Stack; 2],
    random: u64,
    loss: u64,
    corrupt: u64,
    events: [Vec<StackEvent>; 2],
    arrived: [u64; 2],
    frames: Vec<Vec<u8>>,
}

impl Wire {
    fn new(seed: u64) -> Wire {
        Wire {
            now: START,
            stacks: [stack(1), stack(2)],
            random: seed,
            loss: 0,
            corrupt: 0,
            events: [Vec::new(), Vec::new()],
            arrived: [0; 2],
            frames: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// Moves frames and time until nothing is left to do, or a condition holds.
    fn run(&mut self, mut holds: impl FnMut(&Wire) -> bool) {
        for _ in 0..200_000 {
            let mut moved = false;
            for from in 0..2 {
                let mut frames = drain(&mut self.stacks[from], self.now);
                moved |= !frames.is_empty();
                while !frames.is_empty() {
                    let at = self.below(frames.len().min(3) as u64) as usize;
                    let frame = frames.remove(at);
                    self.carry(1 - from, frame);
                }
            }
            for at in 0..2 {
                while let Some(event) = self.stacks[at].poll_event() {
                    self.events[at].push(event);
                }
            }
            if holds(self) {
                return;
            }
            if moved {
                self.now = self.now + Duration::from_micros(100);
                continue;
            }
            let deadlines = self.stacks.iter().filter_map(Stack::deadline);
            let Some(next) = deadlines.min() else { return };
            assert!(next > self.now || !moved);
            self.now = self.now.max(next);
            for stack in &mut self.stacks {
                stack.handle_timeout(self.now);
            }
        }
        panic!("it never ends");
    }

    fn carry(&mut self, to: usize, mut frame: Vec<u8>) {
        if self.below(1000) < self.loss {
            return;
        }
        if self.below(1000) < self.corrupt {
            let bit = self.below(frame.len() as u64 * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let arrival = self.stacks[to].handle_frame(&frame, false, self.now);
        if let Arrival::Segment {
            connection,
            received,
            payload,
        } = arrival
        {
            for run in &received.runs {
                let data = &frame[payload.clone()][run.payload.clone()];
                for (offset, value) in (run.offset..).zip(data) {
                    assert_eq!(*value, byte(offset));
                }
            }
            if received.in_order > self.arrived[to] {
                let len = received.in_order - self.arrived[to];
                self.arrived[to] = received.in_order;
                self.stacks[to].consume(connection, len);
            }
        }
        self.frames.push(frame);
    }

    fn accepted(&self, at: usize) -> Option<ConnectionId> {
        self.events[at].iter().find_map(|event| match event {
            StackEvent::Accepted { connection, .. } => Some(*connection),
            _ => None,
        })
    }

    fn closed(&self, at: usize) -> Option<CloseReason> {
        self.events[at].iter().find_map(|event| match event {
            StackEvent::Closed(_, reason) => Some(*reason),
            _ => None,
        })
    }
}

fn connect(wire: &mut Wire, address: IpAddr, class: TrafficClass) -> ConnectionId {
    let peer = SocketAddr::new(address, 80);
    let now = wire.now;
    wire.stacks[0]
        .connect(peer, None, TcpConfig::default(), class, now)
        .unwrap()
}

fn transfer(seed: u64, address: IpAddr, loss: u64, corrupt: u64) {
    let mut wire = Wire::new(seed);
    (wire.loss, wire.corrupt) = (loss, corrupt);
    wire.stacks[1].listen(80, ListenConfig::default()).unwrap();
    let id = connect(&mut wire, address, TrafficClass::default());
    wire.run(|wire| wire.accepted(1).is_some() || wire.closed(0).is_some());
    let Some(peer) = wire.accepted(1) else {
        // The neighbour was not found in three questions.
        assert!(loss + corrupt > 0);
        return;
    };
    wire.stacks[0].queue(id, 100_000).unwrap();
    wire.stacks[1].queue(peer, 50_000).unwrap();
    let now = wire.now;
    wire.stacks[0].close(id, now);
    wire.stacks[1].close(peer, now);
    wire.run(|_| false);
    assert_eq!(wire.arrived, [50_000, 100_000]);
    assert_eq!(wire.closed(0), Some(CloseReason::Finished));
    assert_eq!(wire.closed(1), Some(CloseReason::Finished));
}

#[test]
fn streams_pass_a_perfect_wire() {
    for address in [v4(2), v6(2)] {
        transfer(1, address, 0, 0);
    }
}

#[test]
fn streams_pass_a_wire_that_corrupts_frames() {
    for seed in 0..60 {
        let address = if seed % 2 == 0 { v4(2) } else { v6(2) };
        transfer(seed, address, 30, 30);
    }
}

#[test]
fn addresses_are_resolved_before_segments_are_sent() {
    let mut stack = stack(1);
    let peer = SocketAddr::new(v4(2), 80);
    let class = TrafficClass::default();
    let id = stack.connect(peer, None, TcpConfig::default(), class, START);
    let frames = drain(&mut stack, START);
    assert_eq!(frames.len(), 1);
    let (ether, carried) = parse(&frames[0], false).unwrap();
    assert_eq!(ether.destination.to_string(), "ff:ff:ff:ff:ff:ff");
    assert!(matches!(carried, Carried::Arp(_)));
    let mut now = START;
    while let Some(deadline) = stack.deadline() {
        now = now.max(deadline);
        stack.handle_timeout(now);
        for frame in drain(&mut stack, now) {
            assert!(matches!(parse(&frame, false).unwrap().1, Carried::Arp(_)));
        }
    }
    let events: Vec<StackEvent> = core::iter::from_fn(|| stack.poll_event()).collect();
    assert_eq!(
        events,
        [StackEvent::Closed(id.unwrap(), CloseReason::Refused)]
    );
}

#[test]
fn class_of_a_connection_is_in_its_frames() {
    let mut wire = Wire::new(1);
    for stack in &mut wire.stacks {
        stack.config.vlan = Some(Vlan { id: 5, priority: 1 });
    }
    wire.stacks[1].listen(80, ListenConfig::default()).unwrap();
    let class = TrafficClass {
        dscp: 46,
        priority: Some(6),
    };
    connect(&mut wire, v4(2), class);
    wire.run(|wire| wire.accepted(1).is_some());
    let mut priorities = Vec::new();
    for frame in &wire.frames {
        let (ether, carried) = parse(frame, false).unwrap();
        let priority = ether.vlan.unwrap().priority;
        match carried {
            Carried::Ip(packet) if ether.source == mac(1) => {
                assert_eq!((packet.dscp, priority), (46, 6));
            }
            _ => priorities.push(priority),
        }
    }
    assert!(priorities.iter().all(|priority| *priority == 1));
    // A frame of another VLAN is not for this stack.
    let mut other = wire.frames[0].clone();
    other[15] = 9;
    let arrival = wire.stacks[1].handle_frame(&other, false, START);
    assert_eq!(arrival, Arrival::Foreign);
}

/// A frame from a peer at 10.0.0.9 with the Ethernet address 9.
fn segment_frame(segment: &Segment, source: IpAddr) -> Vec<u8> {
    let mut peer = Stack::new(config(9), [9; 32]);
    let here = SocketAddr::new(source, segment.source_port);
    let there = SocketAddr::new(v4(1), segment.destination_port);
    peer.answer_segment(&(here, there), segment, mac(1));
    drain(&mut peer, START).remove(0)
}

fn syn(port: u16, seq: u32) -> Segment {
    Segment {
        source_port: port,
        destination_port: 80,
        seq,
        flags: TcpFlags {
            syn: true,
            ..TcpFlags::default()
        },
        window: 1000,
        options: TcpOptions {
            mss: Some(1460),
            ..TcpOptions::default()
        },
        ..Segment::default()
    }
}

/// The TCP headers among frames.
fn segments(frames: &[Vec<u8>]) -> Vec<Segment> {
    let parsed = frames.iter().filter_map(|frame| {
        let (_, carried) = parse(frame, false).ok()?;
        let Carried::Ip(packet) = carried else {
            return None;
        };
        let is_tcp = packet.protocol == demux::TCP;
        is_tcp.then(|| Segment::parse(&frame[packet.payload]).unwrap().0)
    });
    parsed.collect()
}

/// A stack that listens and knows where 10.0.0.9 is.
fn listening(backlog: usize) -> Stack {
    let mut stack = stack(1);
    let config = ListenConfig {
        backlog,
        ..ListenConfig::default()
    };
    stack.listen(80, config).unwrap();
    stack.neighbors.asked_us(v4(9), mac(9), START);
    stack
}

#[test]
fn flood_of_syns_takes_bounded_memory_and_locks_out_none() {
    let mut stack = listening(16);
    for number in 0..5000u32 {
        let source = v4(10 + (number % 200) as u8);
        let port = 1000 + (number / 200) as u16;
        let frame = segment_frame(&syn(port, number), source);
        stack.handle_frame(&frame, false, START);
        drain(&mut stack, START);
    }
    assert_eq!(stack.connections.len(), 16);
    assert_eq!(stack.counters().cookies_out, 5000 - 16);
    // A real peer still gets in.
    stack.handle_frame(&segment_frame(&syn(7, 70), v4(9)), false, START);
    let frames = drain(&mut stack, START);
    let answers = segments(&frames);
    let answer = answers.last().unwrap();
    assert_eq!((answer.ack, answer.flags.syn), (Some(71), true));
    let mut ack = syn(7, 71);
    ack.flags.syn = false;
    ack.ack = Some(answer.seq.wrapping_add(1));
    ack.options = TcpOptions::default();
    let mut forged = ack.clone();
    forged.ack = Some(answer.seq);
    stack.handle_frame(&segment_frame(&forged, v4(9)), false, START);
    assert_eq!(stack.poll_event(), None);
    stack.handle_frame(&segment_frame(&ack, v4(9)), false, START);
    let event = stack.poll_event();
    assert!(matches!(event, Some(StackEvent::Accepted { port: 80, .. })));
    assert_eq!(stack.counters().cookies_in, 1);
}

#[test]
fn cookie_without_a_flood_is_refused() {
    let mut stack = listening(16);
    let tuple = (SocketAddr::new(v4(1), 80), SocketAddr::new(v4(9), 7));
    let cookie = stack.key.cookie(&tuple, 70, 1460, START);
    let mut ack = syn(7, 71);
    ack.flags.syn = false;
    ack.ack = Some(cookie.wrapping_add(1));
    stack.handle_frame(&segment_frame(&ack, v4(9)), false, START);
    assert_eq!(stack.poll_event(), None);
    let frames = drain(&mut stack, START);
    assert!(segments(&frames)[0].flags.rst);
}

#[test]
fn time_wait_is_replaced_by_a_newer_connection() {
    let mut wire = Wire::new(1);
    wire.stacks[1].listen(80, ListenConfig::default()).unwrap();
    let peer = SocketAddr::new(v4(2), 80);
    let mut last = None;
    for _ in 0..3 {
        wire.events = [Vec::new(), Vec::new()];
        let (class, now) = (TrafficClass::default(), wire.now);
        let id = wire.stacks[0]
            .connect(peer, Some(5000), TcpConfig::default(), class, now)
            .unwrap();
        wire.run(|wire| wire.accepted(1).is_some());
        let accepted = wire.accepted(1).unwrap();
        let initial = wire.stacks[1].connection(accepted).unwrap();
        let initial = initial.initial_sequence();
        if let Some(last) = last {
            assert!(crate::tcp::seq::is_before(last, initial));
        }
        // The listening side closes first and waits.
        let now = wire.now;
        wire.stacks[1].close(accepted, now);
        wire.run(|wire| wire.events[0].contains(&StackEvent::PeerFinished(id)));
        let now = wire.now;
        wire.stacks[0].close(id, now);
        wire.run(|wire| wire.closed(0).is_some());
        let waiting = wire.stacks[1].connection(accepted).unwrap();
        assert_eq!(waiting.state(), State::TimeWait);
        last = Some(waiting.last_sequence());
    }
}

#[test]
fn refusals_are_limited() {
    let mut stack = stack(1);
    let mut out = 0;
    for port in 1..2000u16 {
        let frame = segment_frame(&syn(port, 5), v4(9));
        assert_eq!(stack.handle_frame(&frame, false, START), Arrival::Foreign);
        let frames = drain(&mut stack, START);
        assert!(segments(&frames).iter().all(|segment| segment.flags.rst));
        out += frames.len();
    }
    assert_eq!(out, MAX_REFUSALS_PER_SECOND as usize);
    // A reset is never answered.
    let mut reset = syn(1, 1);
    reset.flags = TcpFlags {
        rst: true,
        ..TcpFlags::default()
    };
    let later = START + Duration::from_secs(2);
    stack.handle_frame(&segment_frame(&reset, v4(9)), false, later);
    assert!(drain(&mut stack, later).is_empty());
}

/// M13: what belongs to nothing of the stack is the host's, which answers it.
#[test]
fn shared_address_leaves_other_frames_to_the_host() {
    let shared = StackConfig {
        is_shared: true,
        ..config(1)
    };
    let mut stack = Stack::new(shared, [1; 32]);
    let frame = segment_frame(&syn(7, 5), v4(9));
    assert_eq!(stack.handle_frame(&frame, false, START), Arrival::Foreign);
    assert!(drain(&mut stack, START).is_empty());
    stack.listen(80, ListenConfig::default()).unwrap();
    let arrival = stack.handle_frame(&frame, false, START);
    assert_eq!(arrival, Arrival::Handled);
    // A port that listens answers for itself.
    let mut stray = syn(8, 5);
    (stray.flags.syn, stray.ack) = (false, Some(1));
    stack.handle_frame(&segment_frame(&stray, v4(9)), false, START);
    let resets = segments(&drain(&mut stack, START));
    assert!(resets.iter().any(|segment| segment.flags.rst));
    // Both need the answers of neighbours.
    let mut other = Stack::new(config(9), [9; 32]);
    let (class, to) = (TrafficClass::default(), SocketAddr::new(v4(1), 80));
    other
        .connect(to, None, TcpConfig::default(), class, START)
        .unwrap();
    let question = drain(&mut other, START).remove(0);
    assert_eq!(
        stack.handle_frame(&question, false, START),
        Arrival::Foreign
    );
}

#[test]
fn liar_does_not_take_over_an_address() {
    let mut wire = Wire::new(1);
    wire.stacks[1].listen(80, ListenConfig::default()).unwrap();
    connect(&mut wire, v4(2), TrafficClass::default());
    wire.run(|wire| wire.accepted(1).is_some());
    // Unasked answers and questions in the name of 10.0.0.2, and of the stack's own address.
    let mut liar = Stack::new(config(2), [9; 32]);
    liar.config.mac = mac(66);
    let question = crate::neighbor::Question {
        address: v4(1),
        mac: None,
    };
    let lie = liar.ask(question).unwrap();
    wire.stacks[0].handle_frame(&lie, false, wire.now);
    let mut own = Stack::new(config(1), [9; 32]);
    own.config.mac = mac(66);
    let question = crate::neighbor::Question {
        address: v4(3),
        mac: None,
    };
    let claim = own.ask(question).unwrap();
    wire.stacks[0].handle_frame(&claim, false, wire.now);
    let now = wire.now;
    let known = wire.stacks[0].neighbors.lookup(v4(2), now);
    assert_eq!(known, crate::neighbor::Lookup::Known(mac(2)));
}

#[test]
fn datagram_to_a_closed_port_is_reported() {
    let mut stack = stack(1);
    stack.neighbors.asked_us(v4(9), mac(9), START);
    let mut peer = Stack::new(config(9), [9; 32]);
    peer.neighbors.asked_us(v4(1), mac(1), START);
    let to = SocketAddr::new(v4(1), 53);
    peer.send_datagram(9, to, b"question", START).unwrap();
    let frame = drain(&mut peer, START).remove(0);
    assert_eq!(stack.handle_frame(&frame, false, START), Arrival::Foreign);
    assert_eq!(drain(&mut stack, START).len(), 1);
    assert!(stack.bind_datagrams(53));
    let arrival = stack.handle_frame(&frame, false, START);
    let Arrival::Datagram {
        port: 53, payload, ..
    } = arrival
    else {
        panic!("{arrival:?}")
    };
    assert_eq!(&frame[payload], b"question");
    let long = vec![0; 1473];
    let refused = peer.send_datagram(9, to, &long, START);
    assert_eq!(
        refused,
        Err(StackError::TooLong {
            len: 1473,
            most: 1472
        })
    );
}

#[test]
fn frames_to_others_are_foreign() {
    let mut stack = listening(1);
    let mut frame = segment_frame(&syn(7, 7), v4(9));
    frame[5] = 77;
    assert_eq!(stack.handle_frame(&frame, false, START), Arrival::Foreign);
    // A packet for this host in a frame to all stations.
    frame[..6].fill(0xff);
    assert_eq!(stack.handle_frame(&frame, false, START), Arrival::Foreign);
    assert!(drain(&mut stack, START).is_empty());
}

#[test]
fn time_wait_is_bounded() {
    let mut stack = stack(1);
    for number in 0..MAX_TIME_WAIT as u32 + 10 {
        let port = SocketAddr::new(v4(9), 1);
        let tuple = (
            SocketAddr::new(v4((number >> 16) as u8), number as u16),
            port,
        );
        let secrets = stack.key.secrets(&tuple, START);
        let config = TcpConfig {
            framing: Framing::Bytes,
            ..TcpConfig::default()
        };
        let connection = Connection::connect(config, (number as u16, 1), secrets, START);
        let id = stack.insert(connection, tuple, TrafficClass::default(), None);
        let entry = stack.connections.get_mut(&id).unwrap();
        entry.is_time_wait = true;
        stack.time_wait.push_back(id);
        stack.touch(id);
    }
    assert_eq!(stack.connections.len(), MAX_TIME_WAIT);
}

#[test]
fn arbitrary_frames_break_nothing() {
    let mut wire = Wire::new(9);
    wire.stacks[1].listen(80, ListenConfig::default()).unwrap();
    let id = connect(&mut wire, v4(2), TrafficClass::default());
    wire.stacks[0].queue(id, 20_000).unwrap();
    wire.run(|wire| wire.arrived[1] == 20_000);
    let frames = core::mem::take(&mut wire.frames);
    for _ in 0..20_000 {
        let mut frame = frames[wire.below(frames.len() as u64) as usize].clone();
        for _ in 0..=wire.below(3) {
            let at = wire.below(frame.len() as u64) as usize;
            frame[at] = wire.below(256) as u8;
        }
        let len = frame.len() as u64;
        let keep = if wire.below(4) == 0 {
            wire.below(len)
        } else {
            len
        };
        frame.truncate(keep as usize);
        let (to, is_verified) = (wire.below(2) as usize, wire.below(4) > 0);
        let now = wire.now;
        wire.stacks[to].handle_frame(&frame, is_verified, now);
        drain(&mut wire.stacks[to], now);
        while wire.stacks[to].poll_event().is_some() {}
    }
}
