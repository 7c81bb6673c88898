//! Segments with sequence numbers (M9, M10): whatever the order of their arrival, bytes and completions are those of the order of the stream,
//! and hostile ones end the connection as they would in order.

use verbena_events::event::Event;
use verbena_mem::{Access, Bind, WindowType};
use verbena_stream::reassembly::MAX_AHEAD_BYTES;
use verbena_stream::{Alignment, Role};
use verbena_wire::crc::crc32c;
use verbena_wire::mpa::fpdu::{Layout, Phase};
use verbena_wire::{Stag, To};

use crate::qp::{Receiving, Segment, SegmentTaken};
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, SEND, Setup, Side, read, transmit, write};
use crate::wc::{Status, Wc};
use crate::wr::{RemoteAddr, SendOp};

const A: usize = 0;
const B: usize = 1;
/// Bytes from RCV.NXT on that the carrier accepts.
const WINDOW: u32 = 1 << 20;

/// A frame of a stream.
#[derive(Debug, Clone)]
struct Frame {
    position: u64,
    bytes: Vec<u8>,
}

/// What a direction of the connection knows of sequence numbers.
#[derive(Debug, Clone, Default)]
struct Direction {
    /// Bytes sent, all of them.
    sent: u64,
    /// Ranges that arrived.
    arrived: Vec<(u64, u64)>,
    alignment: Alignment,
}

impl Direction {
    fn in_order(&self) -> u64 {
        let mut at = 0;
        while let Some((_, to)) = self.arrived.iter().find(|(a, b)| *a <= at && at < *b) {
            at = *to;
        }
        at
    }
}

/// Two queue pairs whose bytes move in segments.
struct Wire {
    pair: Pair,
    setup: Setup,
    directions: [Direction; 2],
}

impl Wire {
    fn new(setup: Setup) -> Wire {
        let mut pair = Pair::unconnected(setup);
        pair.a.attach(Role::Initiator, setup);
        pair.b.attach(Role::Responder, setup);
        if !setup.extensions {
            let remote = pair.b.remote(0);
            pair.a.post(0, write(remote), &[]);
        }
        let mut wire = Wire {
            pair,
            setup,
            directions: [0, 1].map(|_| Direction {
                alignment: Alignment::Frames,
                ..Direction::default()
            }),
        };
        wire.settle();
        wire.pair.a.events();
        wire.pair.b.events();
        wire.pair.a.sent();
        wire
    }

    fn side(&mut self, at: usize) -> &mut Side {
        match at {
            A => &mut self.pair.a,
            _ => &mut self.pair.b,
        }
    }

    /// What a side sends now, as frames.
    fn frames(&mut self, from: usize) -> Vec<Frame> {
        let (now, markers) = (self.pair.now, self.setup.markers);
        let side = self.side(from);
        let bytes = transmit(&side.qp, 1 << 20, now, &mut side.out);
        let sent = &mut self.directions[from].sent;
        let mut frames = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let size = frame_size(*sent, &bytes[at..], markers);
            frames.push(Frame {
                position: *sent,
                bytes: bytes[at..at + size].to_vec(),
            });
            at += size;
            *sent += size as u64;
        }
        frames
    }

    /// A part of the stream of `from` arrives at the other side.
    fn arrive(&mut self, from: usize, frame: &Frame) -> SegmentTaken {
        self.arrive_within(from, frame, WINDOW)
    }

    fn arrive_within(&mut self, from: usize, frame: &Frame, window: u32) -> SegmentTaken {
        let direction = &mut self.directions[from];
        let end = frame.position.saturating_add(frame.bytes.len() as u64);
        direction.arrived.push((frame.position, end));
        let segment = Segment {
            position: frame.position,
            bytes: &frame.bytes,
            in_order: direction.in_order(),
            window,
            alignment: direction.alignment,
        };
        let now = self.pair.now;
        let side = self.side(1 - from);
        side.qp.receive_segment(&segment, now, &mut side.out)
    }

    /// Moves everything in order until nothing is sent.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for from in [A, B] {
                for frame in self.frames(from) {
                    self.arrive(from, &frame);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
    }

    /// Moves everything; the frames of each turn arrive in the order that `order` makes of their number. Returns the most of a turn.
    fn settle_by(&mut self, mut order: impl FnMut(usize) -> Vec<usize>) -> usize {
        let mut most = 0;
        loop {
            let mut moved = false;
            for from in [A, B] {
                let frames = self.frames(from);
                most = most.max(frames.len());
                moved |= !frames.is_empty();
                for at in order(frames.len()) {
                    self.arrive(from, &frames[at]);
                }
            }
            if !moved {
                return most;
            }
        }
    }
}

fn frame_size(position: u64, bytes: &[u8], markers: bool) -> usize {
    let phase = markers.then(|| {
        let distance = (512 - position % 512) % 512;
        Phase::new(distance as u16).unwrap()
    });
    let lead = if phase == Some(Phase::START) { 4 } else { 0 };
    let len = u16::from_be_bytes([bytes[lead], bytes[lead + 1]]);
    Layout::new(len, phase).size()
}

/// What programs see at the end.
#[derive(Debug, PartialEq)]
struct Outcome {
    completions: [Vec<Wc>; 4],
    memory: [Vec<u8>; 2],
    states: [QpState; 2],
    causes: [Option<String>; 2],
}

fn outcome(wire: &Wire) -> Outcome {
    let (a, b) = (&wire.pair.a, &wire.pair.b);
    let read = |side: &Side| side.memory.read(0, side.memory.len());
    Outcome {
        completions: [a.sent(), a.received(), b.sent(), b.received()],
        memory: [read(a), read(b)],
        states: [a.qp.state(), b.qp.state()],
        causes: [a.qp.cause(), b.qp.cause()],
    }
}

/// What both sides post.
type Script = fn(&mut Wire);

fn fill(side: &Side, seed: u8) {
    let bytes: Vec<u8> = (0..side.memory.len())
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect();
    side.memory.write(0, &bytes);
}

fn sends(wire: &mut Wire) {
    for (id, len) in [(1, 2500), (2, 1500), (3, 100)] {
        let to = wire.pair.b.sge((id - 1) * 700, 700);
        let rest = wire.pair.b.sge(2100 + (id - 1) * 1900, 1900);
        wire.pair.b.receive(id, &[to, rest]);
        let from = [wire.pair.a.sge(id * 300, len)];
        wire.pair.a.post(id, SEND, &from);
    }
}

fn writes(wire: &mut Wire) {
    for (id, at, len) in [(1, 0, 2500), (2, 3000, 1500)] {
        let (to, from) = (wire.pair.b.remote(at), [wire.pair.a.sge(at + 7, len)]);
        wire.pair.a.post(id, write(to), &from);
    }
    let to = [wire.pair.b.sge(6000, 100)];
    wire.pair.b.receive(9, &to);
    let from = [wire.pair.a.sge(1, 100)];
    wire.pair.a.post(3, SEND, &from);
}

fn reads(wire: &mut Wire) {
    for (id, at, len) in [(1, 0, 2500), (2, 3000, 1500), (3, 5000, 8)] {
        let (from, to) = (wire.pair.b.remote(at + 5), [wire.pair.a.sge(at, len)]);
        wire.pair.a.post(id, read(from), &to);
    }
}

fn mixture(wire: &mut Wire) {
    let to = [wire.pair.b.sge(6000, 2000)];
    wire.pair.b.receive(9, &to);
    let (to, from) = (wire.pair.b.remote(0), [wire.pair.a.sge(100, 1500)]);
    wire.pair.a.post(1, write(to), &from);
    let (from, to) = (wire.pair.b.remote(3000), [wire.pair.a.sge(4000, 1800)]);
    wire.pair.a.post(2, read(from), &to);
    let add = SendOp::FetchAdd {
        remote: wire.pair.b.remote(5000),
        add: 5,
        mask: 0,
    };
    let to = [wire.pair.a.sge(6000, 8)];
    wire.pair.a.post(3, add, &to);
    let from = [wire.pair.a.sge(200, 1500)];
    wire.pair.a.post(4, SEND, &from);
}

const SCRIPTS: [Script; 4] = [sends, writes, reads, mixture];

fn run(setup: Setup, script: Script, order: impl FnMut(usize) -> Vec<usize>) -> (Outcome, usize) {
    let mut wire = Wire::new(setup);
    fill(&wire.pair.a, 1);
    fill(&wire.pair.b, 2);
    wire.pair.b.memory.write(5000, &77_u64.to_ne_bytes());
    script(&mut wire);
    let most = wire.settle_by(order);
    (outcome(&wire), most)
}

fn in_order(n: usize) -> Vec<usize> {
    (0..n).collect()
}

/// Permutation number `k` of `n` items.
fn permutation(n: usize, mut k: usize) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..n).collect();
    let mut order = Vec::new();
    while !rest.is_empty() {
        order.push(rest.remove(k % rest.len()));
        k /= rest.len() + 1;
    }
    order
}

fn factorial(n: usize) -> usize {
    (1..=n).product()
}

/// Deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % bound.max(1)
    }

    /// Every one of `n` at least once, some several times, in any order.
    fn arrivals(&mut self, n: usize) -> Vec<usize> {
        let mut order = permutation(n, self.below(factorial(n.min(12))));
        for _ in 0..n / 2 {
            if self.below(2) == 0 {
                let (again, at) = (self.below(n), self.below(order.len() + 1));
                order.insert(at, again);
            }
        }
        order
    }
}

fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    for personality in [Personality::Iwarp, Personality::Roce] {
        for (crc, markers, extensions) in [
            (true, false, true),
            (false, false, true),
            (false, true, true),
            (true, true, false),
        ] {
            all.push(Setup {
                personality,
                crc,
                markers,
                extensions,
                ..Setup::default()
            });
        }
    }
    all
}

fn iwarp() -> Setup {
    Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    }
}

/// Compares with the run in order. Addresses differ between runs, and what is compared has none.
fn assert_same(setup: Setup, script: Script, got: &Outcome, context: &str) {
    let (expected, _) = run(setup, script, in_order);
    assert!(expected.causes == [None, None], "{:?}", expected.causes);
    assert_eq!(*got, expected, "{setup:?} {context}");
}

#[test]
fn every_permutation_ends_like_the_order_sent() {
    for script in SCRIPTS {
        let (expected, most) = run(iwarp(), script, in_order);
        assert!((2..=6).contains(&most), "{most}");
        for k in 0..factorial(most) {
            let (got, _) = run(iwarp(), script, |n| permutation(n, k));
            assert_eq!(got, expected, "{k}");
        }
    }
}

#[test]
fn random_arrivals_end_like_the_order_sent() {
    for (number, setup) in setups().into_iter().enumerate() {
        for (at, script) in SCRIPTS.into_iter().enumerate() {
            for seed in 0..12 {
                let mut random = Random((number * 1000 + at * 100 + seed) as u64);
                let (got, _) = run(setup, script, |n| random.arrivals(n));
                assert_same(setup, script, &got, &format!("script {at} seed {seed}"));
            }
        }
    }
}

/// Segments that do not begin with frames, some of them twice, with what is known of them.
#[test]
fn arbitrary_cuts_end_like_the_order_sent() {
    for setup in setups() {
        for (at, script) in SCRIPTS.into_iter().enumerate() {
            for seed in 0..6 {
                let mut random = Random(seed * 7 + at as u64);
                let mut wire = Wire::new(setup);
                wire.directions[A].alignment = Alignment::Unknown;
                wire.directions[B].alignment = Alignment::Unknown;
                fill(&wire.pair.a, 1);
                fill(&wire.pair.b, 2);
                wire.pair.b.memory.write(5000, &77_u64.to_ne_bytes());
                script(&mut wire);
                loop {
                    let mut moved = false;
                    for from in [A, B] {
                        let frames = wire.frames(from);
                        moved |= !frames.is_empty();
                        let cut = cut(&frames, &mut random);
                        for piece in random.arrivals(cut.len()) {
                            wire.arrive(from, &cut[piece]);
                        }
                    }
                    if !moved {
                        break;
                    }
                }
                assert_same(setup, script, &outcome(&wire), &format!("{at} {seed}"));
            }
        }
    }
}

/// The same bytes in other parts, of at most a hundred or two thousand bytes, which may overlap.
fn cut(frames: &[Frame], random: &mut Random) -> Vec<Frame> {
    let Some(first) = frames.first() else {
        return Vec::new();
    };
    let bytes: Vec<u8> = frames.iter().flat_map(|f| f.bytes.clone()).collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < bytes.len() && parts.len() < 11 {
        let back = random.below(20).min(at);
        let len = if parts.len() == 10 {
            bytes.len()
        } else {
            1 + random.below(2000)
        };
        let end = (at + len).min(bytes.len());
        parts.push(Frame {
            position: first.position + (at - back) as u64,
            bytes: bytes[at - back..end].to_vec(),
        });
        at = end;
    }
    parts
}

#[test]
fn payload_is_placed_ahead_and_delivered_in_order() {
    let mut wire = Wire::new(iwarp());
    fill(&wire.pair.a, 3);
    sends(&mut wire);
    let frames = wire.frames(A);
    assert_eq!(frames.len(), 6);
    for frame in frames[1..].iter().rev() {
        let taken = wire.arrive(A, frame);
        assert_eq!(taken.taken, frame.bytes.len());
        assert_eq!(taken.processed, frames[0].position);
    }
    assert!(wire.pair.b.received().is_empty());
    // The last message is in the third receive already.
    assert_eq!(
        wire.pair.b.memory.read(1400, 100),
        wire.pair.a.memory.read(900, 100)
    );
    wire.arrive(A, &frames[0]);
    let ids: Vec<u64> = wire.pair.b.received().iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn roce_places_writes_in_their_order() {
    for (personality, ahead) in [(Personality::Roce, false), (Personality::Iwarp, true)] {
        let setup = Setup {
            personality,
            ..Setup::default()
        };
        let mut wire = Wire::new(setup);
        fill(&wire.pair.a, 3);
        writes(&mut wire);
        let frames = wire.frames(A);
        wire.arrive(A, &frames[4]);
        let (there, sent) = (
            wire.pair.b.memory.read(4400, 50),
            wire.pair.a.memory.read(4407, 50),
        );
        assert_eq!(there == sent, ahead, "{personality:?}");
    }
}

#[test]
fn sinks_that_overlap_are_filled_in_order() {
    for setup in setups() {
        let mut wire = Wire::new(setup);
        fill(&wire.pair.b, 9);
        for (id, at) in [(1, 0), (2, 3000)] {
            let (from, to) = (wire.pair.b.remote(at), [wire.pair.a.sge(100, 900)]);
            wire.pair.a.post(id, read(from), &to);
        }
        for frame in wire.frames(A) {
            wire.arrive(A, &frame);
        }
        for frame in wire.frames(B).iter().rev() {
            wire.arrive(B, frame);
        }
        let second = wire.pair.b.memory.read(3000, 900);
        assert_eq!(wire.pair.a.memory.read(100, 900), second, "{setup:?}");
    }
}

#[test]
fn unaligned_segments_without_proof_are_held() {
    let setup = Setup {
        crc: false,
        ..iwarp()
    };
    let mut wire = Wire::new(setup);
    wire.directions[A].alignment = Alignment::Unknown;
    fill(&wire.pair.a, 3);
    writes(&mut wire);
    let frames = wire.frames(A);
    for frame in &frames[1..] {
        wire.arrive(A, frame);
    }
    assert_eq!(wire.pair.b.memory.read(3000, 1500), [0; 1500]);
    wire.arrive(A, &frames[0]);
    let sent = wire.pair.a.memory.read(3007, 1500);
    assert_eq!(wire.pair.b.memory.read(3000, 1500), sent);
}

/// A frame ahead of a gap, changed by `change`, then the rest: the stream ends like the same in order.
fn hostile(setup: Setup, script: Script, at: usize, change: impl Fn(&mut Vec<u8>)) -> Wire {
    let causes = [true, false].map(|ahead| {
        let mut wire = Wire::new(setup);
        fill(&wire.pair.a, 3);
        script(&mut wire);
        let mut frames = wire.frames(A);
        change(&mut frames[at].bytes);
        let mut order = in_order(frames.len());
        if ahead {
            order.reverse();
        }
        for at in order {
            wire.arrive(A, &frames[at]);
        }
        let done: Vec<_> = wire.pair.b.received();
        // Checksums cover addresses, which differ from run to run.
        let cause = wire.pair.b.qp.cause();
        let cause = cause.map(|text| text.split(" is 0x").next().map(str::to_owned));
        (cause, done, wire)
    });
    let [(ahead, done, wire), (expected, completed, _)] = causes;
    assert!(expected.is_some());
    assert_eq!((ahead, done), (expected, completed));
    wire
}

fn with_crc(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    let sum = crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn wrong_checksum_ahead_places_nothing() {
    let wire = hostile(iwarp(), writes, 4, |bytes| bytes[100] ^= 1);
    assert!(wire.pair.b.qp.cause().unwrap().contains("checksum"));
    assert_eq!(wire.pair.b.memory.read(4100, 100), [0; 100]);
}

#[test]
fn wrong_length_ahead_is_found_in_order() {
    hostile(iwarp(), writes, 4, |bytes| {
        bytes[1] -= 4;
        with_crc(bytes);
    });
    // Shorter than its header.
    hostile(iwarp(), sends, 2, |bytes| {
        bytes[0] = 0;
        bytes[1] = 3;
    });
}

#[test]
fn broken_headers_ahead_are_found_in_order() {
    // Version, opcode, STag, address; queue, number, offset.
    for (script, at) in [(writes as Script, 4), (sends as Script, 4)] {
        for byte in [2, 3, 4, 5, 8, 9, 12, 15] {
            for flip in [0x01, 0x10, 0x80] {
                let mut wire = Wire::new(iwarp());
                fill(&wire.pair.a, 3);
                script(&mut wire);
                let mut frames = wire.frames(A);
                frames[at].bytes[byte] ^= flip;
                with_crc(&mut frames[at].bytes);
                for frame in frames.iter().rev() {
                    wire.arrive(A, frame);
                }
                let ids: Vec<u64> = wire
                    .pair
                    .b
                    .received()
                    .iter()
                    .filter(|wc| wc.status == Status::Success)
                    .map(|wc| wc.id)
                    .collect();
                assert!(ids.windows(2).all(|two| two[0] < two[1]), "{ids:?}");
            }
        }
    }
}

#[test]
fn other_content_for_the_same_bytes_is_ignored() {
    let mut wire = Wire::new(iwarp());
    fill(&wire.pair.a, 3);
    writes(&mut wire);
    let frames = wire.frames(A);
    wire.arrive(A, &frames[4]);
    let mut other = frames[4].clone();
    other.bytes[50..90].fill(0xee);
    with_crc(&mut other.bytes);
    wire.arrive(A, &other);
    for frame in &frames {
        wire.arrive(A, frame);
    }
    wire.arrive(A, &other);
    let sent = wire.pair.a.memory.read(3007, 1500);
    assert_eq!(wire.pair.b.memory.read(3000, 1500), sent);
    assert_eq!(wire.pair.b.received().len(), 1);
    assert_eq!(wire.pair.b.qp.cause(), None);
}

#[test]
fn bytes_beyond_the_limit_are_not_taken() {
    let mut wire = Wire::new(iwarp());
    writes(&mut wire);
    let frames = wire.frames(A);
    let far = Frame {
        position: frames[0].position + MAX_AHEAD_BYTES,
        bytes: frames[1].bytes.clone(),
    };
    assert_eq!(wire.arrive(A, &far).taken, 0);
    let wraps = Frame {
        position: u64::MAX - 3,
        bytes: vec![0; 8],
    };
    assert_eq!(wire.arrive(A, &wraps).taken, 0);
    assert_eq!(wire.pair.b.qp.cause(), None);
}

/// A one-touch window of the first 4000 bytes of a side.
fn window(wire: &mut Wire) -> RemoteAddr {
    let b = &mut wire.pair.b;
    let window = b.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let bind = Bind {
        window,
        region: b.memory.stag(),
        addr: b.memory.at(),
        len: 4000,
        access: Access::REMOTE_WRITE,
        pd: PD,
        qp: b.qp.number(),
        key: 0x5a,
        zero_based: true,
        one_touch: true,
    };
    b.post(90, SendOp::Bind(bind), &[]);
    wire.settle();
    assert_eq!(wire.pair.b.statuses(), [(90, Status::Success)]);
    RemoteAddr {
        stag: Stag::from_parts(window.index(), 0x5a).unwrap(),
        to: To::new(0),
    }
}

/// Three segments of one Write to a one-touch window, and the window.
fn touching() -> (Wire, Vec<Frame>, RemoteAddr) {
    let mut wire = Wire::new(iwarp());
    fill(&wire.pair.a, 3);
    let remote = window(&mut wire);
    let from = [wire.pair.a.sge(0, 2500)];
    wire.pair.a.post(1, write(remote), &from);
    let frames = wire.frames(A);
    assert_eq!(frames.len(), 3);
    (wire, frames, remote)
}

fn is_valid(wire: &Wire, remote: RemoteAddr) -> bool {
    wire.pair.b.tpt.find_entry(remote.stag).is_some()
}

/// M9, first row: what is not one-touch is placed.
#[test]
fn ordinary_entry_takes_any_number_of_last_segments() {
    let mut wire = Wire::new(iwarp());
    fill(&wire.pair.a, 3);
    for id in [1, 2] {
        let (to, from) = (wire.pair.b.remote(0), [wire.pair.a.sge(id * 9, 900)]);
        wire.pair.a.post(id, write(to), &from);
    }
    let frames = wire.frames(A);
    wire.arrive(A, &frames[1]);
    let second = wire.pair.a.memory.read(18, 900);
    assert_eq!(wire.pair.b.memory.read(0, 900), second);
    wire.arrive(A, &frames[0]);
    assert_eq!(wire.pair.b.qp.cause(), None);
}

/// M9, third row.
#[test]
fn last_segment_in_order_spends_the_entry() {
    let (mut wire, frames, remote) = touching();
    for frame in &frames {
        assert!(is_valid(&wire, remote));
        wire.arrive(A, frame);
    }
    assert!(!is_valid(&wire, remote));
    assert_eq!(wire.pair.b.qp.cause(), None);
}

/// M9, fourth row: the entry lives until the stream reaches the segment that touched it.
#[test]
fn last_segment_ahead_spends_the_entry_when_reached() {
    let (mut wire, frames, remote) = touching();
    for at in [2, 1] {
        wire.arrive(A, &frames[at]);
        assert!(is_valid(&wire, remote));
    }
    let sent = wire.pair.a.memory.read(0, 2500);
    assert_ne!(wire.pair.b.memory.read(0, 2500), sent);
    assert_eq!(wire.pair.b.memory.read(1500, 1000), sent[1500..]);
    wire.arrive(A, &frames[2]);
    assert!(is_valid(&wire, remote));
    wire.arrive(A, &frames[0]);
    assert!(!is_valid(&wire, remote));
    assert_eq!(wire.pair.b.memory.read(0, 2500), sent);
    assert_eq!(wire.pair.b.qp.cause(), None);
}

/// M9, second row: a second last segment ahead of a gap.
#[test]
fn second_touch_ahead_terminates_at_once() {
    let (mut wire, frames, remote) = touching();
    let from = [wire.pair.a.sge(5000, 700)];
    wire.pair.a.post(2, write(remote), &from);
    let again = wire.frames(A);
    wire.arrive(A, &frames[2]);
    assert!(is_valid(&wire, remote));
    wire.arrive(A, &again[0]);
    assert!(!is_valid(&wire, remote));
    assert!(wire.pair.b.qp.cause().unwrap().contains("second touch"));
    assert!(wire.pair.b.events().contains(&Event::QpAccess { qp: 2 }));
    wire.settle();
    let cause = wire.pair.a.qp.cause().unwrap();
    assert!(cause.contains("Terminate"), "{cause}");
}

/// M9, sixth row: outside the window nothing is placed or taken, and the segment counts when it is sent again.
#[test]
fn last_segment_outside_the_window_is_not_taken() {
    let (mut wire, frames, remote) = touching();
    let before = wire.directions[A].clone();
    let taken = wire.arrive_within(A, &frames[2], 1500);
    assert_eq!(taken.taken, 0);
    assert_eq!(wire.pair.b.memory.read(2200, 300), [0; 300]);
    wire.directions[A] = before;
    for frame in &frames {
        assert_eq!(wire.arrive(A, frame).taken, frame.bytes.len());
    }
    assert!(!is_valid(&wire, remote));
    assert_eq!(wire.pair.b.qp.cause(), None);
}

/// M9: a message that was begun in an entry, and whose connection ends, has filled a part of it.
#[test]
fn entry_touched_ahead_ends_with_the_connection() {
    for reset in [false, true] {
        let (mut wire, frames, remote) = touching();
        wire.arrive(A, &frames[2]);
        assert!(is_valid(&wire, remote));
        let b = &mut wire.pair.b;
        b.qp.handle_eof(reset, &mut b.out);
        assert!(!is_valid(&wire, remote));
    }
}

/// The Write arrives while its right is valid, and before the Send in front of it that ends the right.
#[test]
fn write_behind_its_invalidation_fails_as_in_order() {
    let script = |wire: &mut Wire| {
        let b = &mut wire.pair.b;
        let window = b.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
        let bind = Bind {
            window,
            region: b.memory.stag(),
            addr: b.memory.at(),
            len: 4000,
            access: Access::REMOTE_WRITE,
            pd: PD,
            qp: b.qp.number(),
            key: 0x5a,
            zero_based: true,
            one_touch: false,
        };
        b.post(90, SendOp::Bind(bind), &[]);
        let to = [b.sge(6000, 100)];
        b.receive(9, &to);
        wire.settle();
        let stag = Stag::from_parts(window.index(), 0x5a).unwrap();
        let invalidate = SendOp::Send {
            invalidate: Some(stag),
            immediate: None,
        };
        let from = [wire.pair.a.sge(0, 100)];
        wire.pair.a.post(1, invalidate, &from);
        let to = To::new(0);
        let from = [wire.pair.a.sge(500, 900)];
        wire.pair.a.post(2, write(RemoteAddr { stag, to }), &from);
    };
    let causes = [[0, 1], [1, 0]].map(|order| {
        let mut wire = Wire::new(iwarp());
        script(&mut wire);
        let frames = wire.frames(A);
        for at in order {
            wire.arrive(A, &frames[at]);
        }
        let done = wire.pair.b.received();
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].status, Status::Success);
        wire.pair.b.qp.cause()
    });
    assert!(causes[0].as_ref().unwrap().contains("invalid STag"));
    assert_eq!(causes[0], causes[1]);
}

/// M10: numbers within the free entries wait for their turn, whatever the order; a repetition of a number ends the stream.
#[test]
fn read_requests_ahead_are_answered_in_order() {
    for personality in [Personality::Iwarp, Personality::Roce] {
        let setup = Setup {
            personality,
            ..Setup::default()
        };
        for k in 0..factorial(4) {
            let mut wire = Wire::new(setup);
            fill(&wire.pair.b, 9);
            for id in 1..=4 {
                let (from, to) = (
                    wire.pair.b.remote(id * 100),
                    [wire.pair.a.sge(id * 1000, 90)],
                );
                wire.pair.a.post(id, read(from), &to);
            }
            let frames = wire.frames(A);
            assert_eq!(frames.len(), 4);
            for at in permutation(4, k) {
                wire.arrive(A, &frames[at]);
            }
            wire.settle();
            let done = [1, 2, 3, 4].map(|id| (id, Status::Success));
            assert_eq!(wire.pair.a.statuses(), done);
            for id in 1..=4 {
                let (there, here) = (id * 100, id * 1000);
                let expected = wire.pair.b.memory.read(there, 90);
                assert_eq!(wire.pair.a.memory.read(here, 90), expected);
            }
        }
    }
}

/// M10: the number of a read request is where an untagged header has it (RFC 5041 §4.3).
#[test]
fn read_number_repeated_or_beyond_the_queue_terminates() {
    const MSN_AT: usize = 2 + 2 + 4 + 4;
    for (number, fails) in [(4, true), (3, false), (5, true), (1, true), (900, true)] {
        let mut wire = Wire::new(iwarp());
        // The first has been answered.
        for id in 1..=4 {
            let (from, to) = (
                wire.pair.b.remote(id * 100),
                [wire.pair.a.sge(id * 1000, 90)],
            );
            wire.pair.a.post(id, read(from), &to);
        }
        let mut frames = wire.frames(A);
        wire.arrive(A, &frames[0]);
        wire.arrive(A, &frames[3]);
        assert_eq!(wire.pair.b.qp.cause(), None);
        let other = &mut frames[2].bytes;
        other[MSN_AT..MSN_AT + 4].copy_from_slice(&(number as u32).to_be_bytes());
        with_crc(other);
        wire.arrive(A, &frames[2]);
        let cause = wire.pair.b.qp.cause();
        assert_eq!(cause.is_some(), fails, "{number}: {cause:?}");
        if fails {
            let cause = cause.unwrap();
            assert!(cause.contains("queue 1: got message"), "{cause}");
        }
    }
}

#[test]
fn blocked_stream_continues_with_what_was_held() {
    let setup = Setup {
        personality: Personality::Roce,
        extensions: false,
        ..Setup::default()
    };
    let mut wire = Wire::new(setup);
    fill(&wire.pair.a, 3);
    for id in 1..=3 {
        let from = [wire.pair.a.sge(id * 300, 900)];
        wire.pair.a.post(id, SEND, &from);
    }
    let frames = wire.frames(A);
    for at in [2, 0, 1] {
        let taken = wire.arrive(A, &frames[at]);
        assert_eq!(taken.receiving == Receiving::Held, at != 2, "{at}");
    }
    for id in 1..=3 {
        let to = [wire.pair.b.sge(id * 1000, 1000)];
        wire.pair.b.receive(id, &to);
    }
    let processed = wire.directions[A].in_order();
    let rest = Frame {
        position: processed,
        bytes: Vec::new(),
    };
    let taken = wire.arrive(A, &rest);
    assert_eq!(taken.processed, processed);
    let ids: Vec<u64> = wire.pair.b.received().iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    let sent = wire.pair.a.memory.read(900, 900);
    assert_eq!(wire.pair.b.memory.read(3000, 900), sent);
}

#[test]
fn failed_queue_pair_flushes_receives_claimed_ahead() {
    let mut wire = Wire::new(iwarp());
    sends(&mut wire);
    let frames = wire.frames(A);
    wire.arrive(A, &frames[5]);
    let b = &mut wire.pair.b;
    b.qp.handle_eof(true, &mut b.out);
    let ids: Vec<(u64, Status)> = wire
        .pair
        .b
        .received()
        .iter()
        .map(|wc| (wc.id, wc.status))
        .collect();
    let flushed = [1, 2, 3].map(|id| (id, Status::WrFlushErr));
    assert_eq!(ids, flushed);
}
