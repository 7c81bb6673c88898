//! Bandwidth, priorities, limits and faults of one direction of a link.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn lane(limit: usize) -> Lane {
    Lane::new(limit, Rng::new(7))
}

/// A frame of 1000 bytes with a priority in its tag.
fn frame(priority: u8, mark: u8) -> Frame {
    let mut bytes = vec![mark; 1000];
    bytes[12..16].copy_from_slice(&[0x81, 0, priority << 5, 1]);
    Frame::plain(bytes)
}

#[test]
fn bandwidth_spaces_frames_after_a_burst() {
    // 8 Mbit/s: a millisecond for each frame, and sixteen of them at once.
    let faults = Faults {
        bandwidth: Some(8_000_000),
        ..Faults::NONE
    };
    let mut lane = lane(1 << 20);
    let (mut out, mut wake) = (Vec::new(), None);
    for mark in 0..30 {
        wake = wake.or(lane.enter(frame(0, mark), &faults, 100 * MS, &mut out));
    }
    let burst = out.len();
    assert!((16..=18).contains(&burst), "{burst}");
    let mut last = 100 * MS;
    while let Some(at) = wake {
        assert!(at > last);
        last = at;
        wake = lane.wake(&faults, at, &mut out);
    }
    assert_eq!(out.len(), 30);
    let marks: Vec<u8> = out.iter().map(|(_, frame)| frame.bytes[0]).collect();
    assert_eq!(marks, (0..30).collect::<Vec<u8>>());
    assert!(last >= 111 * MS, "{last:?}");
}

#[test]
fn higher_priority_leaves_the_queue_first() {
    let faults = Faults {
        bandwidth: Some(1),
        ..Faults::NONE
    };
    let mut lane = lane(1 << 20);
    let mut out = Vec::new();
    // At time zero there is no burst to use up.
    lane.enter(frame(0, 0), &faults, Duration::ZERO, &mut out);
    for (priority, mark) in [(0, 1), (7, 2), (3, 3), (7, 4)] {
        lane.enter(frame(priority, mark), &faults, Duration::ZERO, &mut out);
    }
    lane.wake(&Faults::NONE, Duration::ZERO, &mut out);
    let marks: Vec<u8> = out.iter().map(|(_, frame)| frame.bytes[0]).collect();
    assert_eq!(marks, [0, 2, 4, 3, 1]);
}

#[test]
fn full_queue_drops_and_counts() {
    let faults = Faults {
        bandwidth: Some(1),
        ..Faults::NONE
    };
    let mut lane = lane(10_000);
    let mut out = Vec::new();
    for mark in 0..50 {
        lane.enter(frame(0, mark), &faults, Duration::ZERO, &mut out);
    }
    assert_eq!((out.len(), lane.counters.overflowed), (1, 39));
    lane.clear();
    assert_eq!((lane.queued, lane.counters.cut), (0, 10));
}

#[test]
fn frames_in_flight_are_limited() {
    let faults = Faults {
        delay: Duration::from_secs(3600),
        ..Faults::NONE
    };
    let mut lane = lane(10_000);
    let mut out = Vec::new();
    let tiny = || Frame::plain(vec![0; 14]);
    for _ in 0..FLIGHT_LIMIT / SHORTEST + 5 {
        lane.enter(tiny(), &faults, Duration::ZERO, &mut out);
    }
    assert_eq!(lane.counters.overflowed, 5);
    lane.arrived(&tiny(), false);
    assert_eq!(lane.enter(tiny(), &faults, MS, &mut out), None);
    assert_eq!(lane.counters.overflowed, 5);
}

#[test]
fn faults_happen_at_their_ratio() {
    let tenth = Ratio::millionths(100_000);
    let faults = Faults {
        loss: tenth,
        repeat: tenth,
        corrupt: tenth,
        reorder: tenth,
        ..Faults::NONE
    };
    let run = |seed| {
        let mut lane = Lane::new(1 << 20, Rng::new(seed));
        let mut out = Vec::new();
        for _ in 0..10_000 {
            lane.enter(frame(0, 1), &faults, MS, &mut out);
            for (at, frame) in out.drain(..) {
                assert!(at == MS || at == MS + HOLD);
                lane.arrived(&frame, false);
            }
        }
        lane.counters
    };
    let counters = run(3);
    assert_eq!(run(3), counters, "a seed gives one run");
    assert_ne!(run(4), counters);
    for count in [counters.lost, counters.repeated, counters.corrupted] {
        assert!((800..1200).contains(&count), "{counters:?}");
    }
    assert_eq!(counters.frames, 10_000 - counters.lost + counters.repeated);
}

#[test]
fn corruption_inverts_one_bit_behind_the_addresses() {
    let faults = Faults {
        corrupt: Ratio::ALWAYS,
        ..Faults::NONE
    };
    let mut lane = lane(1 << 20);
    let mut out = Vec::new();
    for _ in 0..100 {
        lane.enter(frame(0, 9), &faults, MS, &mut out);
    }
    for (_, got) in out {
        let sent = frame(0, 9).bytes;
        let pairs = got.bytes.iter().zip(&sent);
        let wrong: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((wrong, &got.bytes[..ETH_LEN]), (1, &sent[..ETH_LEN]));
    }
}

#[test]
fn frame_without_faults_passes_at_once() {
    let mut lane = lane(0);
    let mut out = Vec::new();
    assert_eq!(lane.enter(frame(0, 1), &Faults::NONE, MS, &mut out), None);
    assert_eq!(out, [(MS, frame(0, 1))]);
}
