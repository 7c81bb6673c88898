//! The state tables of our pools, and what a pool accepts.

use verbena_wire::{Stag, To};

use super::*;

fn pool(count: u32, size: u32) -> Pool {
    Pool {
        reference: 3,
        count,
        size,
        handle: Stag::new(1),
        at: To::new(1000),
        context: 0,
    }
}

#[test]
fn element_states_advance_in_one_cycle() {
    use OwnElementEvent::*;
    use OwnElementState::*;
    for hold in [Lent, Held, Returning] {
        for event in [Arrive, GiveBack, Update] {
            let expected = match (hold, event) {
                (Lent, Arrive) => Some(Held),
                (Held, GiveBack) => Some(Returning),
                (Returning, Update) => Some(Lent),
                _ => None,
            };
            assert_eq!(hold.next(event), expected, "{hold:?} {event:?}");
        }
    }
}

/// P6: the owner frees only after the user has stopped.
#[test]
fn pool_is_freed_after_peer_has_stopped() {
    use OwnPoolEvent::*;
    use OwnPoolState::*;
    let table = [
        (Lent, [Some(Recalled), Some(Draining), None]),
        (Recalled, [None, Some(Draining), None]),
        (Draining, [None, Some(Draining), Some(Free)]),
        (Free, [None, Some(Free), None]),
    ];
    for (tenure, row) in table {
        assert_eq!([Recall, Stopped, Drained].map(|e| tenure.next(e)), row);
    }
}

#[test]
fn arrival_is_accepted_once_within_element_bounds() {
    let mut owned = OwnPool::new(pool(2, 10), false);
    assert_eq!(owned.arrive(0, 10), Ok(()));
    let again = Violation::NotLent {
        pool: 3,
        element: 0,
    };
    assert_eq!(owned.arrive(0, 10), Err(again));
    assert!(matches!(owned.arrive(1, 11), Err(Violation::Length { .. })));
    assert!(matches!(owned.arrive(2, 1), Err(Violation::NotLent { .. })));
    assert_eq!(owned.arrive(1, 0), Ok(()));
    owned.invariants();
}

#[test]
fn an_address_names_the_element_that_begins_there() {
    let owned = OwnPool::new(pool(4, 10), false);
    let at = [999, 1000, 1001, 1010, 1030, 1031, 1040, u64::MAX];
    let elements = at.map(|at| owned.element_at(at));
    let expected = [None, Some(0), None, Some(1), Some(3), None, None, None];
    assert_eq!(elements, expected);
}

#[test]
fn adjacent_elements_share_a_range() {
    let mut owned = OwnPool::new(pool(8, 10), false);
    for element in [5, 1, 2, 7, 6] {
        owned.arrive(element, 1).unwrap();
        assert_eq!(owned.give_back(element), Some(true));
        assert_eq!(owned.give_back(element), None);
    }
    let mut ranges = Vec::new();
    owned.update(1, &mut ranges);
    let range = |first, count| Range {
        pool: 3,
        first,
        count,
    };
    assert_eq!(ranges, [range(1, 2)]);
    ranges.clear();
    owned.update(9, &mut ranges);
    assert_eq!(ranges, [range(5, 3)]);
    owned.invariants();
}

/// A message for every element is waste while the peer has others, and needed when it has none.
#[test]
fn returns_are_batched_unless_peer_is_empty() {
    let mut owned = OwnPool::new(pool(8, 10), false);
    owned.arrive(0, 1).unwrap();
    owned.give_back(0);
    assert!(!owned.is_due(false) && owned.is_due(true));
    owned.arrive(1, 1).unwrap();
    owned.give_back(1);
    assert!(owned.is_due(false));
    let mut owned = OwnPool::new(pool(8, 10), false);
    (0..8).for_each(|element| owned.arrive(element, 1).unwrap());
    owned.give_back(3);
    assert!(owned.is_due(false));
}

/// A: announced packets are given up at the second call; older numbers do no harm, and impossible ones are an error.
#[test]
fn announced_packets_are_given_up_at_second_call() {
    let mut owned = OwnPool::new(pool(8, 10), true);
    assert_eq!(owned.announce(9), Err((0, 8)));
    owned.announce(3).unwrap();
    assert_eq!(owned.give_up(), 0);
    owned.consume_descriptor(1).unwrap();
    assert_eq!(owned.give_up(), 2);
    assert_eq!(owned.give_up(), 0);
    // Packets arrived before an announcement that was sent before them.
    owned.consume_descriptor(1).unwrap();
    owned.announce(3).unwrap();
    assert_eq!(owned.give_up(), 0);
    owned.invariants();
}
