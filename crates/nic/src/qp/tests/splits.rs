//! Tests at every split: however bytes are cut and whatever room there is to read them, the results are the same.

use verbena_mem::Access;
use verbena_stream::Time;
use verbena_wire::{Stag, To};

use crate::carrier::MemoryCarrier;
use crate::qp::{Receiving, Transfer};
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SIZE, Setup, Side};
use crate::wc::{Status, Wc};
use crate::wr::{Data, Flags, RemoteAddr, SendOp, SendWr, Sge};

/// How bytes are carried: so many at once, read with so much room.
#[derive(Debug, Clone, Copy)]
struct SplitPlan {
    chunk: usize,
    scratch: usize,
}

/// Nothing is cut.
const WHOLE: SplitPlan = SplitPlan {
    chunk: usize::MAX,
    scratch: 60_000,
};

/// What a program can see in the end.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    memory: [Vec<u8>; 2],
    sent: [Vec<Wc>; 2],
    received: [Vec<Wc>; 2],
    states: [QpState; 2],
    causes: [Option<String>; 2],
}

/// Reads all of `bytes`, cut as given.
fn read_all(side: &mut Side, bytes: &[u8], cutting: SplitPlan, now: Time) {
    let mut scratch = vec![0; cutting.scratch];
    for chunk in bytes.chunks(cutting.chunk) {
        let mut io = MemoryCarrier::with_input(chunk);
        let mut idle = 0;
        while !io.input.is_empty() && idle < 3 {
            let left = io.input.len();
            let (qp, out) = (&side.qp, &mut side.out);
            match qp.receive(&mut io, &mut scratch, now, out).receiving {
                Receiving::Some(_) | Receiving::WouldBlock => {}
                Receiving::Held => panic!("nothing waits here"),
                Receiving::Ended => return,
            }
            idle = if left == io.input.len() { idle + 1 } else { 0 };
        }
        assert!(io.input.is_empty(), "bytes are left unread: {cutting:?}");
    }
}

fn carry(from: &mut Side, to: &mut Side, cutting: SplitPlan, now: Time) -> usize {
    // The sender is cut as well: a carrier may take any number.
    let mut bytes = Vec::new();
    loop {
        let mut io = MemoryCarrier::with_room(cutting.chunk);
        from.qp.transmit(&mut io, now, &mut from.out);
        if io.output.is_empty() {
            break;
        }
        bytes.extend(io.output);
    }
    read_all(to, &bytes, cutting, now);
    bytes.len()
}

fn run(pair: &mut Pair, cutting: SplitPlan) {
    loop {
        let there = carry(&mut pair.a, &mut pair.b, cutting, pair.now);
        let back = carry(&mut pair.b, &mut pair.a, cutting, pair.now);
        if there + back == 0 {
            break;
        }
    }
}

/// Without addresses and STags, which differ between runs.
fn seen(pair: &Pair) -> Observed {
    let sides = [&pair.a, &pair.b];
    let erased = |wcs: Vec<Wc>| -> Vec<Wc> {
        let erase = |wc: Wc| Wc {
            invalidated: wc.invalidated.map(|_| Stag::new(1)),
            ..wc
        };
        wcs.into_iter().map(erase).collect()
    };
    Observed {
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

/// Another STag of a side's memory, for a peer to invalidate.
fn window(side: &Side) -> Stag {
    use verbena_mem::{Bind, WindowType};
    let window = side.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let bind = Bind {
        window,
        region: side.memory.stag(),
        addr: side.memory.at(),
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
fn post_all_operations(a: &mut Side, b: &mut Side, setup: Setup) {
    a.memory.write(0, &pattern(1, 3000));
    b.memory.write(0, &pattern(5, 2000));
    for id in 0..8 {
        let at = 3000 + 200 * id;
        // Elements that do not touch, an empty one among them.
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
        // Dropped, together with its immediate data.
        let lost = RemoteAddr {
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

fn run_scenario(setup: Setup, cutting: SplitPlan, tell: fn(&mut Pair, Setup)) -> Observed {
    let mut pair = Pair::new(setup);
    tell(&mut pair, setup);
    run(&mut pair, cutting);
    seen(&pair)
}

fn one_way(pair: &mut Pair, setup: Setup) {
    post_all_operations(&mut pair.a, &mut pair.b, setup);
}

/// Both sides send at once. Their memory does not overlap: what one writes the other does not send.
fn both_ways(pair: &mut Pair, setup: Setup) {
    post_all_operations(&mut pair.a, &mut pair.b, setup);
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

/// Requests that succeed, and then one that does not; the peer has work of its own in progress.
fn with_failing_request(pair: &mut Pair, setup: Setup) {
    both_ways(pair, setup);
    let remote = RemoteAddr {
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
                ..Transfer::default()
            },
            ..roce
        };
        [roce, standard, plain, uc, staged]
    })
}

fn split_plans() -> impl Iterator<Item = SplitPlan> {
    let small = (1..=30).map(|chunk| SplitPlan {
        chunk,
        scratch: 1 + chunk * 13 % 31,
    });
    let room = (1..=40).chain([64, 100, 511, 600, 1100, 4096]);
    let rooms = room.map(|scratch| SplitPlan {
        chunk: [1500, 777, 60_000][scratch % 3],
        scratch,
    });
    small.chain(rooms)
}

fn at_every_split(tell: fn(&mut Pair, Setup), judge: fn(&Setup, &Observed)) {
    for setup in settings() {
        let whole = run_scenario(setup, WHOLE, tell);
        judge(&setup, &whole);
        for cutting in split_plans() {
            let cut = run_scenario(setup, cutting, tell);
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

fn all_succeed(setup: &Setup, seen: &Observed) {
    for wcs in seen.sent.iter().chain(&seen.received) {
        let failed = wcs.iter().find(|wc| wc.status != Status::Success);
        assert_eq!(failed, None, "{setup:?} {:?}", seen.causes);
    }
    assert!(seen.sent[0].len() >= 9);
    assert!(seen.received[1].len() >= 5);
}

#[test]
fn operations_succeed_at_every_split() {
    at_every_split(one_way, all_succeed);
}

#[test]
fn operations_both_ways_succeed_at_every_split() {
    at_every_split(both_ways, all_succeed);
}

#[test]
fn failures_are_identical_at_every_split() {
    at_every_split(with_failing_request, |setup, seen| {
        if setup.qp_type == QpType::Rc {
            assert!(seen.causes[1].is_some());
        }
    });
}

/// RFC 5041 §7.1: the segment is checked as a whole. One that exceeds its buffer is not placed, however much of it has arrived.
#[test]
fn out_of_bounds_segment_is_not_placed() {
    for setup in settings() {
        for cutting in split_plans() {
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
            // A marker cuts a segment into runs, which are checked one by one.
            let placed = pair.b.memory.read(SIZE - 200, 200);
            assert!(setup.markers || placed == [0; 200], "{setup:?} {cutting:?}");
        }
    }
}

/// Two rounds of messages that find no receive until later.
#[test]
fn rnr_outcome_is_identical_at_every_split() {
    let setups = settings().filter(|s| s.personality == Personality::Roce && s.extensions);
    for setup in setups.filter(|s| s.qp_type == QpType::Rc) {
        let outcome = |cutting| {
            let mut pair = Pair::new(setup);
            let send = SendOp::Send {
                invalidate: None,
                immediate: None,
            };
            let write = SendOp::Write {
                remote: pair.b.remote(100),
                immediate: Some(9),
            };
            pair.a.memory.write(0, &pattern(3, 1500));
            let (long, short) = ([pair.a.sge(0, 1500)], [pair.a.sge(7, 70)]);
            pair.a.post(1, send, &short);
            pair.a.post(2, write, &long);
            let read = SendOp::Read {
                remote: pair.b.remote(4000),
                local_invalidate: None,
            };
            let sink = [pair.a.sge(6000, 300)];
            pair.a.post(3, read, &sink);
            pair.a.post(4, send, &long);
            for id in 0..3 {
                run(&mut pair, cutting);
                let scatter = [pair.b.sge(2000 + 1600 * id, 1500)];
                pair.b.receive(10 + id, &scatter);
            }
            run(&mut pair, cutting);
            seen(&pair)
        };
        let whole = outcome(WHOLE);
        assert_eq!((whole.sent[0].len(), whole.received[1].len()), (4, 3));
        for cutting in split_plans() {
            assert!(outcome(cutting) == whole, "{setup:?} {cutting:?}");
        }
    }
}

/// Memory of one side is revoked after so many bytes. Whatever fails because of that, its peer can parse every byte that
/// arrives, and each request ends once, in order.
fn deregister_after(bytes: usize, setup: Setup, cutting: SplitPlan) {
    let mut pair = Pair::new(setup);
    let (of, start) = (pair.a.memory.stag(), To::new(pair.a.memory.at()));
    let rights = Access::LOCAL_READ | Access::REMOTE_READ;
    let stag = pair.a.tpt.register_shared(of, start, PD, rights).unwrap();
    let (to, at) = (start, pair.a.memory.at());
    let write = SendOp::Write {
        remote: pair.b.remote(0),
        immediate: None,
    };
    let send = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    let read = |remote| SendOp::Read {
        remote,
        local_invalidate: None,
    };
    let (safe, sink) = (pair.a.sge(0, 150), pair.b.sge(5000, 1300));
    let lost = Sge {
        addr: at,
        len: 1300,
        stag,
    };
    let (result, source) = (pair.a.sge(5000, 200), pair.b.remote(0));
    for id in 0..2 {
        let (there, here) = (pair.b.sge(7000, 200), pair.a.sge(7000, 200));
        pair.b.receive(50 + id, &[there]);
        pair.a.receive(60 + id, &[here]);
        pair.a.post(4 * id, write, &[lost]);
        pair.a.post(4 * id + 1, send, &[safe]);
        pair.a.post(4 * id + 2, read(source), &[result]);
        pair.a.post(4 * id + 3, write, &[safe]);
        pair.b.post(4 * id, read(RemoteAddr { stag, to }), &[sink]);
        pair.b.post(4 * id + 1, send, &[there]);
        let main = pair.a.remote(300);
        pair.b.post(4 * id + 2, read(main), &[sink]);
        pair.b.post(4 * id + 3, send, &[there]);
        pair.b.receive(70 + id, &[there]);
        pair.a.receive(80 + id, &[here]);
    }
    let mut left = bytes;
    let mut taken = false;
    loop {
        let mut moved = 0;
        for way in 0..2 {
            let (from, to) = match way {
                0 => (&mut pair.a, &mut pair.b),
                _ => (&mut pair.b, &mut pair.a),
            };
            let mut io = MemoryCarrier::with_room(cutting.chunk.min(left.max(1)));
            from.qp.transmit(&mut io, pair.now, &mut from.out);
            moved += io.output.len();
            left = left.saturating_sub(io.output.len());
            read_all(to, &io.output, cutting, pair.now);
            if left == 0 && !taken {
                taken = true;
                pair.a.tpt.deregister(stag).unwrap();
            }
        }
        if moved == 0 {
            break;
        }
    }
    let cause = pair.b.qp.cause().unwrap_or_default();
    assert!(!cause.contains("violated"), "{bytes} {cutting:?} {cause}");
    if pair.a.qp.wants_close() {
        let reset = pair.a.qp.wants_reset();
        pair.b.qp.handle_eof(reset, &mut pair.b.out);
    }
    for side in [&mut pair.a, &mut pair.b] {
        side.qp.modify(QpState::Err, &mut side.out).unwrap();
        let statuses = side.statuses();
        assert!(statuses.iter().map(|s| s.0).eq(0..8), "{statuses:?}");
        let good = statuses.iter().filter(|s| s.1 == Status::Success).count();
        assert!(statuses[..good].iter().all(|s| s.1 == Status::Success));
        let struck = statuses.iter().filter(|s| s.1 != Status::WrFlushErr);
        assert!(struck.count() <= good + 1, "{statuses:?}");
        let received: Vec<_> = side.received().iter().map(|wc| wc.id).collect();
        assert_eq!(received.len(), 4);
    }
}

#[test]
fn deregistration_midstream_ends_each_request_once() {
    for batch in [1, 700, 1 << 18] {
        for markers in [false, true] {
            let setup = Setup {
                crc: false,
                markers,
                transfer: Transfer {
                    direct_min: 1,
                    batch,
                    ..Transfer::default()
                },
                ..Setup::default()
            };
            for bytes in (1..7000).step_by(29) {
                let chunk = 1 + bytes * 31 % 900;
                let cutting = SplitPlan {
                    chunk,
                    scratch: 300,
                };
                deregister_after(bytes, setup, cutting);
            }
        }
    }
}
