//! The state tables of the peer's pools, and the choice of elements.

use verbena_wire::Stag;

use super::*;

fn pool(reference: u32, count: u32, size: u32) -> Pool {
    Pool {
        reference,
        count,
        size,
        handle: Stag::new(1),
        at: To::new(1000),
        context: 0,
    }
}

#[test]
fn element_is_free_after_completion_and_return() {
    use PeerElementState::*;
    let events = [
        PeerElementEvent::Push,
        PeerElementEvent::Write,
        PeerElementEvent::Complete,
        PeerElementEvent::Indicate,
        PeerElementEvent::Return,
    ];
    let table = [
        (Free, [Some(Pushed), Some(Writing), None, None, None]),
        (Pushed, [None, None, Some(Used), None, Some(Returned)]),
        (Writing, [None, None, Some(Written), None, None]),
        (Written, [None, None, None, Some(Used), None]),
        (Used, [None, None, None, None, Some(Free)]),
        (Returned, [None, None, Some(Free), None, None]),
    ];
    for (state, row) in table {
        assert_eq!(events.map(|e| state.next(e)), row, "{state:?}");
    }
}

/// P6: the user stops before it replies.
#[test]
fn pool_is_gone_only_after_draining() {
    use PeerPoolState::*;
    let events = [
        PeerPoolEvent::Recall,
        PeerPoolEvent::Release,
        PeerPoolEvent::Drained,
        PeerPoolEvent::Reply,
    ];
    let table = [
        (Usable, [Some(Recalled), Some(Releasing), None, None]),
        (Recalled, [Some(Recalled), None, Some(Closed), None]),
        (
            Releasing,
            [Some(Recalled), None, Some(ReleaseRequested), None],
        ),
        (ReleaseRequested, [Some(Closed), None, None, Some(Closed)]),
        (Closed, [None, None, None, None]),
    ];
    for (state, row) in table {
        assert_eq!(events.map(|e| state.next(e)), row, "{state:?}");
    }
}

#[test]
fn smallest_fitting_element_is_taken_in_turn() {
    let mut lents = PeerPools::default();
    lents.insert(pool(9, 2, 100), false);
    lents.insert(pool(4, 1, 2000), false);
    assert_eq!(lents.take(50), Ok((9, 0)));
    assert_eq!(lents.take(101), Ok((4, 0)));
    assert_eq!(lents.take(100), Ok((9, 1)));
    assert_eq!(lents.take(1), Err(Shortage::Full));
    assert_eq!(lents.take(2001), Err(Shortage::TooLong { most: 2000 }));
    lents.invariants();
}

#[test]
fn leaving_pool_gives_no_elements() {
    let mut lents = PeerPools::default();
    lents.insert(pool(1, 4, 100), false);
    lents.change(1, |lent| lent.state = PeerPoolState::Recalled);
    assert_eq!(lents.take(1), Err(Shortage::Full));
    lents.invariants();
    lents.remove(1);
    assert_eq!((lents.len(), lents.elements(), lents.free()), (0, 0, 0));
    lents.invariants();
}
