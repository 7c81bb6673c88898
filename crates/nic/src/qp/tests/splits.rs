//! Tests at every split: however bytes are cut on their way and whatever room there is to read them, the same things happen.

use verbena_mem::Access;
use verbena_stream::Time;
use verbena_wire::{Stag, To};

use crate::carrier::Hand;
use crate::qp::{Receiving, Transfer};
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SIZE, Setup, Side};
use crate::wc::Wc;
use crate::wr::{Data, Flags, Remote, SendOp, SendWr, Sge};

/// How bytes travel: so many at once, read with so much room.
#[derive(Debug, Clone, Copy)]
struct Cutting {
    chunk: usize,
    scratch: usize,
}

/// Nothing is cut.
const WHOLE: Cutting = Cutting {
    chunk: usize::MAX,
    scratch: 60_000,
};

/// What a consumer can see in the end.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    memory: [Vec<u8>; 2],
    sent: [Vec<Wc>; 2],
    received: [Vec<Wc>; 2],
    states: [QpState; 2],
    causes: [Option<String>; 2],
}

/// Reads all of `bytes`, cut as told.
fn read(side: &mut Side, bytes: &[u8], cutting: Cutting, now: Time) {
    let mut scratch = vec![0; cutting.scratch];
    for chunk in bytes.chunks(cutting.chunk) {
        let mut hand = Hand::with(chunk);
        let mut idle = 0;
        while !hand.came.is_empty() && idle < 3 {
            let left = hand.came.len();
            let (qp, out) = (&side.qp, &mut side.out);
            match qp.receive(&mut hand, &mut scratch, now, out) {
                Receiving::Some(_) | Receiving::Dry => {}
                Receiving::Held => panic!("nothing waits here"),
                Receiving::Ended => return,
            }
            idle = if left == hand.came.len() { idle + 1 } else { 0 };
        }
        assert!(hand.came.is_empty(), "bytes that nobody reads: {cutting:?}");
    }
}

fn carry(from: &mut Side, to: &mut Side, cutting: Cutting, now: Time) -> usize {
    // The sender is cut as well: a carrier takes what it likes.
    let mut bytes = Vec::new();
    loop {
        let mut hand = Hand::open(cutting.chunk);
        from.qp.transmit(&mut hand, now, &mut from.out);
        if hand.went.is_empty() {
            break;
        }
        bytes.extend(hand.went);
    }
    read(to, &bytes, cutting, now);
    bytes.len()
}

fn run(pair: &mut Pair, cutting: Cutting) {
    loop {
        let there = carry(&mut pair.a, &mut pair.b, cutting, pair.now);
        let back = carry(&mut pair.b, &mut pair.a, cutting, pair.now);
        if there + back == 0 {
            break;
        }
    }
}

/// The same as if it had been said with addresses and STags of every run.
fn seen(pair: &Pair) -> Seen {
    let sides = [&pair.a, &pair.b];
    let erased = |wcs: Vec<Wc>| -> Vec<Wc> {
        let erase = |wc: Wc| Wc {
            invalidated: wc.invalidated.map(|_| Stag::new(1)),
            ..wc
        };
        wcs.into_iter().map(erase).collect()
    };
    Seen {
        memory: sides.map(|s| s.memory.read(0, SIZE)),
        sent: sides.map(|s| erased(s.sent())),
        received: sides.map(|s| erased(s.received())),
        states: sides.map(|s| s.qp.state()),
        causes: sides.map(|s| {
            s.qp.cause()
                .map(|c| c.split(':').next().unwrap().to_owned())
        }),
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256 + seed) as u8).collect()
}

fn inline(side: &mut Side, id: u64, op: SendOp, bytes: &[u8]) {
    let wr = SendWr {
        id,
        op,
        flags: Flags::SIGNALED,
        data: Data::Inline(bytes),
    };
    side.qp.post_send(&wr, &mut side.out).unwrap();
}

/// Another name of a side's memory, for a peer to invalidate.
fn window(side: &Side) -> Stag {
    use verbena_mem::{Bind, WindowType};
    let window = side.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let bind = Bind {
        window,
        region: side.memory.stag(),
        at: side.memory.at(),
        len: 1000,
        access: Access::REMOTE_WRITE,
        pd: PD,
        qp: side.qp.number(),
        key: 0x11,
        zero_based: false,
        one_touch: false,
    };
    side.tpt.bind(&bind).unwrap()
}

/// Every operation from `a` to `b`. Sources lie below 3000, sinks of reads from 6000 on.
fn everything(a: &mut Side, b: &mut Side, setup: Setup) {
    a.memory.write(0, &pattern(1, 3000));
    b.memory.write(0, &pattern(5, 2000));
    for id in 0..8 {
        let at = 3000 + 200 * id;
        // Pieces that do not touch, an empty one among them.
        let scatter = [b.sge(at, 7), b.sge(at + 20, 0), b.sge(at + 21, 150)];
        let long = [b.sge(4600, 1), b.sge(4602, 1300)];
        let scatter: &[Sge] = if id == 1 { &long } else { &scatter };
        b.receive(100 + id, scatter);
    }
    let send = |invalidate, immediate| SendOp::Send {
        invalidate,
        immediate,
    };
    let uc = setup.qp_type == QpType::Uc;
    let immediate = setup.rfc7306.then_some(0x1234_5678);
    let remote = |offset| b.remote(offset);
    let gathered = [a.sge(10, 33), a.sge(50, 0), a.sge(60, 100)];
    a.post(1, send(None, None), &gathered);
    let long = [a.sge(100, 500), a.sge(700, 801)];
    a.post(2, send(None, None), &long);
    a.post(3, send(None, None), &[]);
    inline(a, 4, send(Some(window(b)), None), b"inline");
    let write = |at, immediate| SendOp::Write {
        remote: remote(at),
        immediate,
    };
    a.post(5, write(6000, immediate), &long);
    a.post(6, write(6000, None), &[]);
    a.post(7, write(0, immediate), &[]);
    let small = [a.sge(3, 5)];
    a.post(8, send(None, immediate), &small);
    if uc {
        // Dropped, with what it would have told.
        let lost = Remote {
            stag: Stag::new(0xdead_0000),
            to: To::new(0),
        };
        let write = SendOp::Write {
            remote: lost,
            immediate,
        };
        a.post(9, write, &long);
        a.post(10, send(None, None), &small);
        return;
    }
    let sink = [a.sge(6000, 400), a.sge(6500, 600)];
    let read = |at| SendOp::Read {
        remote: remote(at),
        local_invalidate: None,
    };
    a.post(11, read(100), &sink);
    let none: [Sge; 0] = [];
    a.post(12, read(100), &none);
    if setup.rfc7306 {
        let result = [a.sge(7200, 8)];
        let add = SendOp::FetchAdd {
            remote: remote(8000),
            add: 5,
            mask: 0,
        };
        a.post(13, add, &result);
        let swap = SendOp::CmpSwap {
            remote: remote(8000),
            compare: 5,
            compare_mask: u64::MAX,
            swap: 77,
            swap_mask: u64::MAX,
        };
        let result = [a.sge(7208, 8)];
        a.post(14, swap, &result);
    }
    a.post_flagged(
        15,
        write(7900, None),
        &small,
        Flags::SIGNALED | Flags::FENCE,
    );
}

fn story(setup: Setup, cutting: Cutting, tell: fn(&mut Pair, Setup)) -> Seen {
    let mut pair = Pair::new(setup);
    tell(&mut pair, setup);
    run(&mut pair, cutting);
    seen(&pair)
}

fn one_way(pair: &mut Pair, setup: Setup) {
    everything(&mut pair.a, &mut pair.b, setup);
}

/// Both sides ask at once. Their memory does not collide: what one writes the other does not send.
fn both_ways(pair: &mut Pair, setup: Setup) {
    everything(&mut pair.a, &mut pair.b, setup);
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    for id in 0..4 {
        let scatter = [pair.a.sge(5000 + 100 * id, 90)];
        pair.a.receive(200 + id, &scatter);
        pair.b.memory.write(2000, &pattern(9, 90));
        let gather = [pair.b.sge(2000, 90)];
        pair.b.post(300 + id, op, &gather);
    }
}

/// Requests that end well, and then one that does not; the peer has work of its own under way.
fn ends_badly(pair: &mut Pair, setup: Setup) {
    both_ways(pair, setup);
    let remote = Remote {
        stag: Stag::new(0xdead_0000),
        to: To::new(0),
    };
    let (op, gather) = (
        SendOp::Write {
            remote,
            immediate: None,
        },
        [pair.a.sge(0, 1500)],
    );
    pair.a.post(20, op, &gather);
    pair.a.post(21, op, &gather);
}

fn settings() -> impl Iterator<Item = Setup> {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    all.into_iter().flat_map(|(crc, markers)| {
        let transfer = Transfer {
            direct_min: 1,
            ..Transfer::default()
        };
        let roce = Setup {
            crc,
            markers,
            transfer,
            ..Setup::default()
        };
        let standard = Setup {
            extensions: false,
            personality: Personality::Iwarp,
            features: verbena_wire::ext::Features::NONE,
            ..roce
        };
        let plain = Setup {
            rfc7306: false,
            ..standard
        };
        let uc = Setup {
            qp_type: QpType::Uc,
            ..roce
        };
        let staged = Setup {
            transfer: Transfer {
                direct_min: 600,
                lookahead: 1,
                batch: 1,
            },
            ..roce
        };
        [roce, standard, plain, uc, staged]
    })
}

fn cuttings() -> impl Iterator<Item = Cutting> {
    let small = (1..=30).map(|chunk| Cutting {
        chunk,
        scratch: 1 + chunk * 13 % 31,
    });
    let room = (1..=40).chain([64, 100, 511, 600, 1100, 4096]);
    let rooms = room.map(|scratch| Cutting {
        chunk: [1500, 777, 60_000][scratch % 3],
        scratch,
    });
    small.chain(rooms)
}

fn at_every_split(tell: fn(&mut Pair, Setup), judge: fn(&Setup, &Seen)) {
    for setup in settings() {
        let whole = story(setup, WHOLE, tell);
        judge(&setup, &whole);
        for cutting in cuttings() {
            let cut = story(setup, cutting, tell);
            assert!(
                cut == whole,
                "{setup:?}\n{cutting:?}\nsent {:?}\n  or {:?}\nreceived {:?}\n      or {:?}\n{:?} or {:?} memory {}",
                cut.sent,
                whole.sent,
                cut.received,
                whole.received,
                cut.causes,
                whole.causes,
                cut.memory == whole.memory
            );
        }
    }
}

fn all_succeed(setup: &Setup, seen: &Seen) {
    for wcs in seen.sent.iter().chain(&seen.received) {
        let failed = wcs
            .iter()
            .find(|wc| wc.status != crate::wc::Status::Success);
        assert_eq!(failed, None, "{setup:?} {:?}", seen.causes);
    }
    assert!(seen.sent[0].len() >= 9);
    assert!(seen.received[1].len() >= 5);
}

#[test]
fn every_operation_at_every_split() {
    at_every_split(one_way, all_succeed);
}

#[test]
fn both_ways_at_every_split() {
    at_every_split(both_ways, all_succeed);
}

#[test]
fn a_bad_end_at_every_split() {
    at_every_split(ends_badly, |setup, seen| {
        if setup.qp_type == QpType::Rc {
            assert!(seen.causes[1].is_some());
        }
    });
}

/// RFC 5041 §7.1: it is the segment that is judged. One that leaves its buffer is not placed, whatever has come of it.
#[test]
fn a_segment_out_of_bounds_is_not_placed_in_part() {
    for setup in settings() {
        for cutting in cuttings() {
            let mut pair = Pair::new(setup);
            pair.a.memory.write(0, &[7; 300]);
            let (op, gather) = (
                SendOp::Write {
                    remote: pair.b.remote(SIZE as u64 - 200),
                    immediate: None,
                },
                [pair.a.sge(0, 300)],
            );
            pair.a.post(1, op, &gather);
            run(&mut pair, cutting);
            // A marker cuts a segment in runs, which are judged one by one.
            let placed = pair.b.memory.read(SIZE - 200, 200);
            assert!(setup.markers || placed == [0; 200], "{setup:?} {cutting:?}");
        }
    }
}
