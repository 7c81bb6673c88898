//! Tests of moderation: what is held, and what an adaptive queue chooses.

use super::*;

const MICROSECOND: u64 = 1000;

/// Events at this interval for so long; returns the changes of level as counts.
fn stream(adaptive: &mut Adaptive, from: u64, every: u64, until: u64) -> Vec<u32> {
    let mut changes = Vec::new();
    let mut now = from;
    while now < until {
        let change = adaptive.observe(Time::from_nanos(now));
        changes.extend(change.map(|hold| hold.count));
        now += every;
    }
    changes
}

#[test]
fn hold_ends_at_count_and_validates_input() {
    let hold = Hold::new(4, Duration::from_micros(10)).unwrap();
    assert!(hold.holds(1) && hold.holds(3) && !hold.holds(4));
    assert!(!Hold::OFF.holds(0));
    for (count, delay) in [(4, 0), (0, 10), (1, 10), (4, 100_001)] {
        let delay = Duration::from_micros(delay);
        assert_eq!(Hold::new(count, delay), Err(BadHold { count, delay }));
    }
}

#[test]
fn adaptive_level_follows_event_rate() {
    let mut adaptive = Adaptive::default();
    let ms = 1000 * MICROSECOND;
    assert!(stream(&mut adaptive, ms, 100 * MICROSECOND, 50 * ms).is_empty());
    assert_eq!(adaptive.hold(), Hold::OFF);
    // A million a second: one level per window.
    let changes = stream(&mut adaptive, 50 * ms, MICROSECOND, 60 * ms);
    assert_eq!(changes, [4, 16, 64]);
    // Quiet again: the window in which it ended counts in part.
    let changes = stream(&mut adaptive, 80 * ms, 500 * MICROSECOND, 90 * ms);
    assert_eq!(changes, [4, 1]);
}

/// A stream of 5 events per millisecond is not a burst because it ran for long.
#[test]
fn a_long_window_is_judged_by_its_rate() {
    let mut adaptive = Adaptive::default();
    adaptive.observe(Time::from_nanos(1));
    for _ in 0..100 {
        adaptive.observe(Time::from_nanos(2));
    }
    let late = Time::ZERO + 50 * WINDOW;
    assert_eq!(adaptive.observe(late), None, "two per window");
}

#[test]
fn levels_are_strictly_increasing() {
    for pair in LEVELS.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[0].1.count < pair[1].1.count);
        assert!(pair[1].1 == Hold::new(pair[1].1.count, pair[1].1.delay).unwrap());
    }
}
