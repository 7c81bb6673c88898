//! The complete table of transitions.

use super::*;

#[test]
fn state_event_table_is_complete() {
    use Event::*;
    use State::*;
    let events = [ChoseNone, ChoseChap, Challenged, Stayed, Moved];
    let table = [
        (
            Method,
            [
                Some(Leave),
                Some(Algorithms),
                None,
                Some(Method),
                Some(Operational),
            ],
        ),
        (
            Algorithms,
            [None, None, Some(Response), Some(Algorithms), None],
        ),
        (Response, [None, None, None, Some(Leave), Some(Operational)]),
        (Leave, [None, None, None, Some(Leave), Some(Operational)]),
        (
            Operational,
            [None, None, None, Some(Operational), Some(FullFeature)],
        ),
        (FullFeature, [None; 5]),
        (Finished, [None; 5]),
    ];
    assert_eq!(table.map(|(state, _)| state), State::ALL);
    for (state, row) in table {
        for (event, expected) in events.into_iter().zip(row) {
            assert_eq!(state.next(event), expected, "{state:?} {event:?}");
        }
    }
}

/// No request asks for a stage at or before its own, and the target can only move to the stage that was requested.
#[test]
fn stages_go_forward_only() {
    for state in State::ALL {
        for open in [false, true] {
            if let Some(next) = state.requested_stage(open) {
                assert!(next.code() > state.stage().code(), "{state:?}");
                let moved = state.next(Event::Moved).map(State::stage);
                assert_eq!(moved, Some(next), "{state:?}");
            }
        }
    }
    assert_eq!(State::Method.requested_stage(true), None);
}
