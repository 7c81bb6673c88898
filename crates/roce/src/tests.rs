//! Both machines against each other over a link that loses, repeats and reorders packets: every request completes once and in order, and
//! the bytes are those of the requester, whatever the link does.

use core::time::Duration;
use std::collections::VecDeque;

use proptest::prelude::*;
use verbena_stream::Time;
use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::{AtomicEth, Packet, Psn, Qpn, Service, Tail};
use verbena_wire::{Stag, To};

use crate::requester::State;
use crate::responder::Atomic;
use crate::{Message, Mtu, Refusal, RequestStep, Requester, Responder, ResponseStep, Settings};

const RKEY: Stag = Stag::new(0x1234);

pub(crate) fn settings(service: Service) -> Settings {
    Settings {
        service,
        mtu: Mtu::B256,
        dest_qpn: Qpn::wrapping(0x11),
        send_psn: Psn::wrapping(0xff_fffa),
        receive_psn: Psn::wrapping(0xff_fffa),
        initiator_depth: 2,
        responder_resources: 2,
        timeout: Some(Duration::from_millis(67)),
        retry_count: 7,
        is_lossy: true,
        rnr_retry: Settings::RNR_FOREVER,
    }
}

/// Table of states and events, for snapshots.
pub(crate) fn table<S: Copy + core::fmt::Debug, E: Copy + core::fmt::Debug>(
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> S,
) -> String {
    let mut rows = Vec::new();
    for &state in states {
        for &event in events {
            rows.push(format!("{state:?} + {event:?} -> {:?}", next(state, event)));
        }
    }
    rows.join("\n")
}

/// A packet under way, with its payload.
type Flying = (Packet<'static>, Vec<u8>);

/// What the link does with each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Deliver,
    Lose,
    Repeat,
    /// Behind the next one.
    Delay,
}

#[derive(Default)]
struct Link {
    fates: VecDeque<Fate>,
    flying: VecDeque<Flying>,
    delayed: Vec<Flying>,
}

impl Link {
    fn send(&mut self, packet: Flying) {
        let fate = self.fates.pop_front().unwrap_or(Fate::Deliver);
        match fate {
            Fate::Lose => {}
            Fate::Deliver => self.flying.push_back(packet),
            Fate::Repeat => self.flying.extend([packet.clone(), packet]),
            Fate::Delay => {
                self.delayed.push(packet);
                return;
            }
        }
        self.flying.extend(self.delayed.drain(..));
    }

    fn take(&mut self) -> Option<Flying> {
        let next = self.flying.pop_front();
        next.or_else(|| self.delayed.pop())
    }
}

/// What the responder's program sees.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Send(Vec<u8>, Tail),
    Immediate([u8; 4]),
}

struct World {
    requester: Requester,
    responder: Responder,
    there: Link,
    back: Link,
    now: Time,
    /// The payload of each request, or its sink.
    data: Vec<Vec<u8>>,
    memory: Vec<u8>,
    message: Vec<u8>,
    seen: Vec<Seen>,
    /// Packets that find no receive.
    not_ready: u32,
    originals: Vec<(u64, u64)>,
}

impl World {
    fn new(settings: &Settings) -> World {
        World {
            requester: Requester::new(settings),
            responder: Responder::new(settings),
            there: Link::default(),
            back: Link::default(),
            now: Time::ZERO,
            data: Vec::new(),
            memory: (0..8192_u32).map(|at| (at % 251) as u8).collect(),
            message: Vec::new(),
            seen: Vec::new(),
            not_ready: 0,
            originals: Vec::new(),
        }
    }

    fn begin(&mut self, message: Message, data: Vec<u8>) {
        let number = self.requester.begin(message).unwrap();
        assert_eq!(number, self.data.len() as u64);
        self.data.push(data);
    }

    /// Moves packets until nothing happens any more.
    fn run(&mut self) {
        for _ in 0..100_000 {
            let mut busy = false;
            while let Some(out) = self.requester.poll(self.now) {
                busy = true;
                let data = &self.data[out.request as usize];
                let from = out.offset as usize;
                let payload = data.get(from..from + out.len as usize).unwrap_or_default();
                assert_eq!(payload.len(), out.len as usize);
                self.there.send((out.packet, payload.to_vec()));
            }
            while let Some((packet, payload)) = self.there.take() {
                busy = true;
                self.arrive(&Packet {
                    payload: &payload,
                    ..packet
                });
            }
            while let Some(out) = self.responder.poll() {
                busy = true;
                let payload = out.source.map_or(Vec::new(), |part| {
                    let reth = part.memory;
                    assert_eq!(reth.rkey, RKEY);
                    let at = reth.va.get() as usize;
                    self.memory[at..at + reth.len as usize].to_vec()
                });
                self.back.send((out.packet, payload));
            }
            while let Some((packet, payload)) = self.back.take() {
                busy = true;
                self.answered(&Packet {
                    payload: &payload,
                    ..packet
                });
            }
            if !busy {
                let Some(deadline) = self.requester.deadline() else {
                    return;
                };
                self.now = deadline;
                let step = self.requester.handle_timeout(self.now);
                assert_eq!(step, ResponseStep::Progress, "gave up");
            }
            self.now = self.now + Duration::from_micros(10);
        }
        panic!("no end: {:?}", self.requester);
    }

    fn arrive(&mut self, packet: &Packet<'_>) {
        match self.responder.handle(packet) {
            RequestStep::Nothing => {}
            RequestStep::Receive {
                is_first,
                offset,
                end,
            } => {
                if is_first && self.not_ready > 0 {
                    self.not_ready -= 1;
                    return self.responder.refuse(Refusal::NotReady(RnrTimer::DEFAULT));
                }
                if is_first {
                    self.message.clear();
                }
                assert_eq!(self.message.len(), offset as usize);
                self.message.extend(packet.payload);
                if let Some(end) = end {
                    assert_eq!(self.message.len(), end.len as usize);
                    self.seen.push(Seen::Send(self.message.clone(), end.tail));
                }
                self.responder.accept();
            }
            RequestStep::Write {
                rkey,
                va,
                message,
                end,
            } => {
                assert_eq!(rkey, RKEY);
                if let Some(reth) = message {
                    assert!(reth.va.get() as usize + reth.len as usize <= self.memory.len());
                }
                let at = va.get() as usize;
                self.memory[at..at + packet.payload.len()].copy_from_slice(packet.payload);
                if let Some(data) = end.and_then(|end| end.immediate) {
                    self.seen.push(Seen::Immediate(data));
                }
                self.responder.accept();
            }
            RequestStep::Read(_) => self.responder.accept(),
            RequestStep::Atomic(Atomic::FetchAdd(atomic)) => {
                let at = atomic.va.get() as usize;
                let word = &mut self.memory[at..at + 8];
                let original = u64::from_be_bytes(word.try_into().unwrap());
                let sum = original.wrapping_add(atomic.swap_or_add);
                word.copy_from_slice(&sum.to_be_bytes());
                self.responder.accept_atomic(original);
            }
            step => panic!("{step:?}"),
        }
    }

    fn answered(&mut self, packet: &Packet<'_>) {
        match self.requester.handle(packet, self.now) {
            ResponseStep::Progress | ResponseStep::Ignored => {}
            ResponseStep::Sink {
                request, offset, ..
            } => {
                let sink = &mut self.data[request as usize];
                assert_eq!(sink.len(), offset as usize, "each byte once");
                sink.extend(packet.payload);
            }
            ResponseStep::Atomic { request, original } => {
                self.originals.push((request, original));
            }
            ResponseStep::Failed(failure) => panic!("{failure:?}"),
        }
    }
}

fn pattern(len: u32, seed: u64) -> Vec<u8> {
    (0..len)
        .map(|at| (u64::from(at) * 7 + seed * 13) as u8)
        .collect()
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Deliver),
        2 => Just(Fate::Lose),
        1 => Just(Fate::Repeat),
        1 => Just(Fate::Delay),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Send,
    Write,
    Read,
    Add,
}

fn requests() -> impl Strategy<Value = Vec<(Kind, u32)>> {
    let kind = prop_oneof![
        Just(Kind::Send),
        Just(Kind::Write),
        Just(Kind::Read),
        Just(Kind::Add)
    ];
    proptest::collection::vec((kind, 0..1500_u32), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn requests_complete_once_over_bad_links(
        requests in requests(),
        there in proptest::collection::vec(fate(), 0..60),
        back in proptest::collection::vec(fate(), 0..60),
        not_ready in 0..3_u32,
    ) {
        // More than the link can lose: only a requester that makes no progress uses them up.
        let patient = Settings { retry_count: u8::MAX, ..settings(Service::Rc) };
        let mut world = World::new(&patient);
        world.there.fates = there.into();
        world.back.fates = back.into();
        world.not_ready = not_ready;
        let mut wanted = Vec::new();
        for (at, &(kind, len)) in requests.iter().enumerate() {
            let data = pattern(len, at as u64);
            // Writes, reads and atomics use different parts of the memory, so that reads do not depend on the order of repetitions.
            match kind {
                Kind::Send => {
                    let tail = Tail::Immediate([at as u8; 4]);
                    wanted.push(Seen::Send(data.clone(), tail));
                    world.begin(Message::Send { len, tail, solicited: false }, data);
                }
                Kind::Write => {
                    let immediate = Some([at as u8; 4]);
                    wanted.push(Seen::Immediate([at as u8; 4]));
                    let va = To::new(2048);
                    world.begin(Message::Write { va, rkey: RKEY, len, immediate, solicited: false }, data);
                }
                Kind::Read => {
                    world.begin(Message::Read { va: To::new(4096), rkey: RKEY, len }, Vec::new());
                }
                Kind::Add => {
                    let atomic = AtomicEth { va: To::new(8), rkey: RKEY, swap_or_add: 1, compare: 0 };
                    world.begin(Message::FetchAdd(atomic), Vec::new());
                }
            }
        }
        let before = world.memory.clone();
        world.run();
        prop_assert_eq!(world.requester.completed(), requests.len() as u64);
        prop_assert_eq!(&world.seen, &wanted);
        let mut adds = 0;
        let first = u64::from_be_bytes(before[8..16].try_into().unwrap());
        for (at, &(kind, len)) in requests.iter().enumerate() {
            match kind {
                Kind::Read => prop_assert_eq!(&world.data[at], &before[4096..4096 + len as usize]),
                Kind::Add => {
                    prop_assert_eq!(world.originals[adds], (at as u64, first + adds as u64));
                    adds += 1;
                }
                Kind::Send | Kind::Write => {}
            }
        }
        prop_assert_eq!(u64::from_be_bytes(world.memory[8..16].try_into().unwrap()), first + adds as u64);
        if let Some(last) = requests.iter().rposition(|(kind, _)| matches!(kind, Kind::Write)) {
            let data = &world.data[last];
            prop_assert_eq!(&world.memory[2048..2048 + data.len()], &data[..]);
        }
    }

    #[test]
    fn unreliable_messages_arrive_whole_or_not(
        lens in proptest::collection::vec(0..1500_u32, 1..12),
        there in proptest::collection::vec(fate(), 0..60),
    ) {
        let mut world = World::new(&settings(Service::Uc));
        world.there.fates = there.into();
        let mut sent = Vec::new();
        for (at, &len) in lens.iter().enumerate() {
            let data = pattern(len, at as u64);
            let tail = Tail::Immediate([at as u8; 4]);
            sent.push(Seen::Send(data.clone(), tail));
            world.begin(Message::Send { len, tail, solicited: false }, data);
        }
        world.run();
        prop_assert_eq!(world.requester.completed(), lens.len() as u64);
        // Each at most once, and in order.
        let mut rest = sent.iter();
        for seen in &world.seen {
            prop_assert!(rest.any(|message| message == seen), "{:?}", seen);
        }
    }
}

#[test]
fn perfect_link_repeats_nothing() {
    let mut world = World::new(&settings(Service::Rc));
    for len in [0, 1, 256, 257, 5000] {
        let send = Message::Send {
            len,
            tail: Tail::Plain,
            solicited: true,
        };
        world.begin(send, pattern(len, 1));
        let read = Message::Read {
            va: To::new(16),
            rkey: RKEY,
            len,
        };
        world.begin(read, Vec::new());
    }
    world.run();
    let counters = world.requester.counters();
    assert_eq!(
        (counters.repeated, counters.timeouts, counters.ignored),
        (0, 0, 0)
    );
    assert_eq!(world.requester.state(), State::Flowing);
    assert_eq!(world.requester.outstanding(), 0);
    assert_eq!(world.responder.counters().repeated, 0);
}

#[test]
fn silence_exhausts_the_retries() {
    let settings = settings(Service::Rc);
    let mut requester = Requester::new(&settings);
    let send = Message::Send {
        len: 1,
        tail: Tail::Plain,
        solicited: false,
    };
    requester.begin(send).unwrap();
    let mut now = Time::ZERO;
    let failed = loop {
        while requester.poll(now).is_some() {}
        now = requester.deadline().unwrap();
        let step = requester.handle_timeout(now);
        if step != ResponseStep::Progress {
            break step;
        }
    };
    assert_eq!(failed, ResponseStep::Failed(crate::Failure::RetryExceeded));
    // The first time and seven retries, each with the program's timeout.
    assert_eq!(now.since(Time::ZERO), Duration::from_millis(67) * 8);
    assert_eq!(requester.deadline(), None);
    assert_eq!(requester.begin(send), Err(crate::BeginError::Failed));
}
