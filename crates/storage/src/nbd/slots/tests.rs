//! Runs never overlap, and all of them can be released.

use super::*;

#[test]
fn first_fitting_hole_is_allocated() {
    let mut slots = Slots::new();
    let first = slots.take(1).unwrap();
    let second = slots.take(UNIT + 1).unwrap();
    let third = slots.take(0).unwrap();
    let offsets = [&first, &second, &third].map(Run::offset);
    assert_eq!(offsets, [0, UNIT, 3 * UNIT]);
    slots.give_back(first);
    assert_eq!(slots.take(2 * UNIT).unwrap().offset(), 4 * UNIT);
    slots.give_back(second);
    assert_eq!(slots.take(3 * UNIT).unwrap().offset(), 0);
}

#[test]
fn allocation_is_limited_to_the_total() {
    let mut slots = Slots::new();
    assert_eq!(slots.take(TOTAL + 1), None);
    let all = slots.take(TOTAL).unwrap();
    assert_eq!(slots.take(1), None);
    slots.give_back(all);
    let single: Vec<Run> = (0..UNITS).map(|_| slots.take(UNIT).unwrap()).collect();
    assert_eq!(slots.take(1), None);
    for run in single {
        slots.give_back(run);
    }
    assert!(slots.take(TOTAL).is_some());
}
