//! Tests of the decision of M9: every combination of its six arguments, with numbers around the wrap.

use super::*;

/// The same table, with numbers that do not wrap: `end` and `next` count from the start of an endless stream.
fn naive(last: bool, enabled: bool, touched: bool, end: i64, next: i64, window: i64) -> Action {
    if !last || !enabled {
        return Action::Place;
    }
    if touched {
        return Action::Terminate;
    }
    if end == next - 1 {
        Action::Spend
    } else if end >= next && end < next + window {
        Action::Remember
    } else {
        Action::Drop
    }
}

fn wrapped(number: i64) -> Seq {
    Seq::new(number.rem_euclid(1 << 32) as u32)
}

#[test]
fn touch_decisions_match_unwrapped_arithmetic() {
    let mut seen = std::collections::HashMap::new();
    // Streams that expect a byte in the middle of the number range, and ones that are about to wrap or just did.
    for base in [0, 1, 5, 1 << 31, (1 << 32) - 6, (1 << 32) - 1, 1 << 32] {
        for next in base..base + 12 {
            for end in base - 4..base + 20 {
                for window in 0..10 {
                    for flags in 0..8 {
                        let [last, enabled, touched] = [1, 2, 4].map(|bit| flags & bit != 0);
                        let expected = naive(last, enabled, touched, end, next, window);
                        let (e, n, w) = (wrapped(end), wrapped(next), window as u32);
                        let decided = decide(last, enabled, touched, e, n, w);
                        let case = (last, enabled, touched, end, next, window);
                        assert_eq!(decided, expected, "{case:?}");
                        *seen.entry(format!("{decided:?}")).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), 5, "every action occurs: {seen:?}");
}

#[test]
fn largest_window_remembers_and_empty_window_drops() {
    let next = Seq::new(7);
    let decided = |end| decide(true, true, false, Seq::new(end), next, u32::MAX);
    assert_eq!(decided(6), Action::Spend, "in order, whatever the window");
    assert_eq!(decided(7), Action::Remember);
    assert_eq!(decided(5), Action::Remember, "2^32 - 2 bytes ahead");
    let none = |end| decide(true, true, false, Seq::new(end), next, 0);
    assert_eq!(none(6), Action::Spend);
    assert_eq!(none(7), Action::Drop);
    assert_eq!(none(5), Action::Drop, "a segment that came before");
}

#[test]
fn sequence_comparison_is_serial() {
    for next in [0, 3, u32::MAX, 1 << 31] {
        let next = Seq::new(next);
        assert!(next.previous().is_before(next));
        assert!(!next.is_before(next), "it is the next one");
        assert!(!Seq::new(next.get().wrapping_add(1)).is_before(next));
        assert!(Seq::new(next.get().wrapping_sub((1 << 31) - 1)).is_before(next));
        assert!(!Seq::new(next.get().wrapping_sub(1 << 31)).is_before(next));
    }
}

#[test]
fn in_order_arrival_spends_or_places() {
    let decided = |last| {
        let arrival = Arrival::in_order(last);
        let Arrival {
            last,
            end,
            next,
            window,
        } = arrival;
        decide(last, true, false, end, next, window)
    };
    assert_eq!(decided(true), Action::Spend);
    assert_eq!(decided(false), Action::Place);
}
