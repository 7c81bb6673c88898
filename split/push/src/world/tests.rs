//! Random programs on two sessions over a perfect, a slow and a lossy carrier, in every arrangement.

use proptest::prelude::*;

use super::World;
use crate::{Arrangement, IndicationMode, OwnPoolState, Refused, Settings};

#[derive(Debug, Clone, Copy)]
enum Op {
    Send {
        side: usize,
        len: u32,
    },
    GiveBack {
        side: usize,
        which: usize,
    },
    Flush {
        side: usize,
        which: usize,
    },
    Release {
        side: usize,
        which: usize,
    },
    Advertise {
        side: usize,
        count: u32,
        size: u32,
    },
    Request {
        side: usize,
    },
    Deliver {
        to: usize,
        lane: usize,
        times: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let side = 0..2usize;
    prop_oneof![
        8 => (side.clone(), prop_oneof![0..64u32, 0..70_000u32])
            .prop_map(|(side, len)| Op::Send { side, len }),
        6 => (side.clone(), any::<usize>()).prop_map(|(side, which)| Op::GiveBack { side, which }),
        1 => (side.clone(), any::<usize>()).prop_map(|(side, which)| Op::Flush { side, which }),
        1 => (side.clone(), any::<usize>()).prop_map(|(side, which)| Op::Release { side, which }),
        2 => (side.clone(), 1..9u32, prop_oneof![1..100u32, 60_000..80_000u32])
            .prop_map(|(side, count, size)| Op::Advertise { side, count, size }),
        1 => side.clone().prop_map(|side| Op::Request { side }),
        10 => (side, 0..3usize, 1..6usize)
            .prop_map(|(to, lane, times)| Op::Deliver { to, lane, times }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let arrangements = proptest::sample::select(&Arrangement::ALL[..]);
    let namings = [
        IndicationMode::Immediate,
        IndicationMode::Element,
        IndicationMode::Address,
    ];
    let namings = proptest::sample::select(namings.to_vec());
    (arrangements, namings, 64..200u32, 8..20u32, 0..6u32).prop_map(
        |(arrangement, naming, frame, messages, low)| Settings {
            indication: naming,
            frame,
            messages,
            low,
            ..Settings::new(arrangement)
        },
    )
}

/// References that fit the immediate data and some that do not.
const REFERENCES: [u32; 5] = [0, 1, 255, 256, 70_000];

fn run(world: &mut World, op: Op, next: &mut u32, asked: &mut [usize; 2]) {
    let pick = |list: Vec<u32>, which: usize| (!list.is_empty()).then(|| list[which % list.len()]);
    match op {
        Op::Send { side, len } => match world.send(side, len) {
            Ok(_) | Err(Refused::Full { .. } | Refused::TooLong { .. }) => world.drain(side),
            Err(other) => panic!("{other}"),
        },
        Op::GiveBack { side, which } => world.give_back(side, which),
        Op::Flush { side, which } => {
            let own: Vec<u32> = world.sides[side].memory.keys().copied().collect();
            if let Some(pool) = pick(own, which) {
                // An error if it was flushed already.
                let _ = world.sides[side].session.flush(&[pool]);
                world.drain(side);
            }
        }
        Op::Release { side, which } => {
            let lent = world.sides[side].lent.iter().copied().collect();
            if let Some(pool) = pick(lent, which) {
                let _ = world.sides[side].session.release(pool);
                world.drain(side);
            }
        }
        Op::Advertise { side, count, size } => {
            // A number for each pool, so that handles are distinct; the first ones are at the limits.
            let reference = REFERENCES.get(*next as usize).copied();
            let reference = reference.unwrap_or(1000 + *next);
            *next += 1;
            let _ = world.advertise(side, &[World::pool(reference, count, size)]);
        }
        Op::Request { side } => {
            asked[side] += usize::from(world.request(side).is_some());
        }
        Op::Deliver { to, lane, times } => {
            for _ in 0..times {
                world.deliver(to, lane);
            }
        }
    }
}

fn run_program(settings: Settings, ops: &[Op], perfect: bool) {
    let mut world = World::new(settings);
    let mut next = 0;
    let mut asked = [0, 0];
    for side in 0..2 {
        let size = 40 + 60 * side as u32;
        let pool = World::pool(2 + side as u32, 6, size);
        world.advertise(side, &[pool]).unwrap();
    }
    for op in ops {
        run(&mut world, *op, &mut next, &mut asked);
        if perfect {
            world.settle();
        }
    }
    world.finish();
    for (side, asked) in asked.into_iter().enumerate() {
        assert_eq!(world.sides[side].answers.len(), asked);
        let own = world.sides[side].session.own_pools();
        assert!(own.iter().all(|(_, tenure)| *tenure == OwnPoolState::Lent));
        // Both sides have the same pools.
        let references: Vec<u32> = own.iter().map(|(pool, _)| pool.reference).collect();
        let lent: Vec<u32> = world.sides[1 - side].lent.iter().copied().collect();
        assert_eq!(references, lent);
        // All credit has returned, except for fewer elements than justify a message.
        let all: u64 = own.iter().map(|(pool, _)| u64::from(pool.count)).sum();
        let free = world.sides[1 - side].session.free();
        assert!(free <= all && 4 * free >= 3 * all, "{free} of {all}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sessions_agree_over_an_immediate_carrier(settings in settings(), ops in prop::collection::vec(op(), 0..150)) {
        run_program(settings, &ops, true);
    }

    #[test]
    fn sessions_agree_over_a_delaying_carrier(settings in settings(), ops in prop::collection::vec(op(), 0..300)) {
        run_program(settings, &ops, false);
    }

    #[test]
    fn sessions_recover_from_a_lossy_carrier(
        single in any::<bool>(),
        steps in prop::collection::vec((0..2usize, 0..8u8, any::<usize>()), 0..200),
    ) {
        lossy(single, &steps);
    }
}

/// P5 A, C without acknowledgement: after any loss memory is consistent and traffic continues.
fn lossy(single: bool, steps: &[(usize, u8, usize)]) {
    let arrangement = match single {
        true => Arrangement::Single,
        false => Arrangement::Sends,
    };
    let settings = Settings {
        messages: 8,
        ..Settings::new(arrangement)
    };
    let mut world = World::new(settings);
    world.lossy = true;
    for side in 0..2 {
        world.advertise(side, &[World::pool(1, 5, 50)]).unwrap();
    }
    for &(side, kind, which) in steps {
        match kind {
            0..3 => drop(world.send(side, which as u32 % 50)),
            3 => world.give_back(side, which),
            4 => world.lose(side, which % 2),
            5 => drop(world.request(side)),
            _ => {
                world.deliver(side, which % 3);
            }
        }
        world.drain(side);
    }
    refresh(&mut world);
    for side in 0..2 {
        let session = &mut world.sides[side].session;
        assert_eq!(session.free(), 5, "credit was lost");
        assert_eq!(session.open_requests(), 0, "a request was lost");
        world.send(side, 50).unwrap();
        world.sides[side].session.flush(&[1]).unwrap();
        world.drain(side);
    }
    // Flushing survives losses too.
    for side in 0..2 {
        world.lose(side, 0);
    }
    refresh(&mut world);
    assert_eq!(world.sides.each_ref().map(|s| s.freed.len()), [1, 1]);
    assert_eq!(world.sides.each_ref().map(|s| s.closed.len()), [1, 1]);
}

fn refresh(world: &mut World) {
    for _ in 0..8 {
        world.finish();
        for side in 0..2 {
            world.sides[side].session.refresh();
            world.drain(side);
        }
    }
    world.finish();
}

/// P6: a pool whose flush was answered is not advertised again because the answer was lost.
#[test]
fn lost_flush_reply_is_repeated() {
    let mut world = World::new(Settings::new(Arrangement::Sends));
    world.lossy = true;
    world.advertise(0, &[World::pool(1, 5, 50)]).unwrap();
    world.settle();
    world.sides[0].session.flush(&[1]).unwrap();
    world.drain(0);
    world.deliver(1, 0);
    // The announcement and the answer.
    world.lose(0, 0);
    world.lose(0, 0);
    assert_eq!(world.sides[1].closed, [1]);
    world.settle();
    assert_eq!(world.sides[0].freed, []);
    refresh(&mut world);
    assert_eq!(world.sides[0].freed, [1]);
    assert_eq!(world.sides[1].closed, [1]);
}

/// Traffic in both directions at once, with far fewer messages than packets.
#[test]
fn packets_flow_in_every_arrangement() {
    for arrangement in Arrangement::ALL {
        let mut world = World::new(Settings::new(arrangement));
        for side in 0..2 {
            world.advertise(side, &[World::pool(1, 32, 1500)]).unwrap();
        }
        world.settle();
        let mut sent = [0u64; 2];
        while sent.iter().any(|sent| *sent < 1000) {
            for (side, sent) in sent.iter_mut().enumerate() {
                match world.send(side, 1500) {
                    Ok(_) => *sent += 1,
                    Err(_) => (0..20).for_each(|_| world.give_back(1 - side, 3)),
                }
            }
            world.settle();
        }
        world.finish();
        for (side, sent) in sent.into_iter().enumerate() {
            let counters = *world.sides[side].session.counters();
            assert_eq!(counters.packets_out, sent);
            assert!(counters.packets_in >= 1000);
            assert_eq!(counters.violations.total(), 0);
            let packets = match arrangement {
                Arrangement::Single => sent,
                _ => 0,
            };
            let messages = counters.messages_out - packets;
            assert!(messages < sent / 3, "{arrangement:?}: {messages}");
        }
        assert!(world.sides.iter().any(|side| side.room_events > 0));
        assert!(world.sides.iter().all(|side| side.requested > 0));
    }
}

/// Refreshes both sides and delivers all messages, but no packets.
fn refresh_past_packets(world: &mut World) {
    for side in [0, 1] {
        world.sides[side].session.refresh();
        world.drain(side);
    }
    while (0..2).any(|side| world.deliver(side, 0)) {}
}

/// P5, A: packets that an announcement overtakes, in our queues or in flight, are not counted as lost.
#[test]
fn overtaken_packets_are_not_given_up() {
    for left in [false, true] {
        let mut world = World::new(Settings::new(Arrangement::Sends));
        world.lossy = true;
        for side in 0..2 {
            world.advertise(side, &[World::pool(1, 8, 50)]).unwrap();
        }
        world.settle();
        for _ in 0..8 {
            world.send(0, 50).unwrap();
        }
        // Those that have not left are never given up, and others not at the first refresh.
        while left && world.deliver(0, 2) {}
        let rounds = if left { 1 } else { 9 };
        for _ in 0..rounds {
            refresh_past_packets(&mut world);
        }
        world.finish();
        refresh(&mut world);
        for side in 0..2 {
            let counters = world.sides[side].session.counters();
            assert_eq!((counters.lost, counters.violations.total()), (0, 0));
            assert_eq!(world.sides[side].session.free(), 8);
        }
    }
}

/// P5, A: packets that arrive after they were given up make the count wrong; it is corrected, and traffic continues.
#[test]
fn late_packets_do_not_stop_traffic() {
    let mut world = World::new(Settings::new(Arrangement::Sends));
    world.lossy = true;
    for side in 0..2 {
        world.advertise(side, &[World::pool(1, 8, 50)]).unwrap();
    }
    world.settle();
    for round in 0..20 {
        for _ in 0..6 {
            world.send(0, 50).unwrap();
        }
        while world.deliver(0, 2) {}
        for _ in 0..3 {
            refresh_past_packets(&mut world);
        }
        assert_eq!(world.sides[1].session.counters().lost, 6 * (round + 1));
        world.finish();
        refresh(&mut world);
        assert_eq!(world.sides[0].session.free(), 8, "round {round}");
    }
    let counters = world.sides.each_ref().map(|side| *side.session.counters());
    assert_eq!(counters[1].packets_in, 120);
    // Until it is corrected, the grants are above what is possible, and the user rejects them.
    let number = counters[0].violations.of(crate::ViolationKind::Number);
    assert!((20..200).contains(&number), "{number}");
    assert_eq!(counters[0].violations.total(), number);
    assert_eq!(counters[1].violations.total(), 0);
}

/// P6: a request that was repeated because its answer was late is answered twice, which is no violation.
#[test]
fn duplicate_reply_is_no_violation() {
    let mut world = World::new(Settings::new(Arrangement::Sends));
    world.lossy = true;
    world.advertise(0, &[World::pool(1, 5, 50)]).unwrap();
    world.settle();
    world.request(0).unwrap();
    world.sides[0].session.flush(&[1]).unwrap();
    world.drain(0);
    world.sides[0].session.refresh();
    world.drain(0);
    world.settle();
    assert_eq!(world.sides[0].answers.len(), 1);
    assert_eq!(world.sides[0].freed, [1]);
    let counters = world.sides.each_ref().map(|side| *side.session.counters());
    assert_eq!(counters.map(|counters| counters.violations.total()), [0, 0]);
}
