//! Runs never overlap, and all of them can be released.

use super::*;

#[test]
fn first_fitting_hole_is_allocated() {
    let mut slots = Slots::new();
    let first = slots.allocate(1).unwrap();
    let second = slots.allocate(UNIT + 1).unwrap();
    let third = slots.allocate(0).unwrap();
    let offsets = [&first, &second, &third].map(Run::offset);
    assert_eq!(offsets, [0, UNIT, 3 * UNIT]);
    slots.release(first);
    assert_eq!(slots.allocate(2 * UNIT).unwrap().offset(), 4 * UNIT);
    slots.release(second);
    assert_eq!(slots.allocate(3 * UNIT).unwrap().offset(), 0);
}

#[test]
fn allocation_is_limited_to_the_total() {
    let mut slots = Slots::new();
    assert_eq!(slots.allocate(TOTAL + 1), None);
    let all = slots.allocate(TOTAL).unwrap();
    assert_eq!(slots.allocate(1), None);
    slots.release(all);
    let single: Vec<Run> = (0..UNITS).map(|_| slots.allocate(UNIT).unwrap()).collect();
    assert_eq!(slots.allocate(1), None);
    for run in single {
        slots.release(run);
    }
    assert!(slots.allocate(TOTAL).is_some());
}
