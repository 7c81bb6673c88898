//! The table of E2 as text, so that a change to it is noticed.

use super::*;

#[test]
fn table_matches_snapshot() {
    let mut out = String::new();
    for state in State::ALL {
        for input in Input::ALL {
            let (next, act) = state.next(input);
            let (from, input) = (format!("{state:?}"), format!("{input:?}"));
            let next = format!("{next:?}");
            out += &format!("{from:<9} {input:<22} -> {next:<9} {act:?}\n");
        }
    }
    insta::assert_snapshot!(out);
}

/// A signal also unarms, in one step, and only events shut the adapter down.
#[test]
fn signals_unarm_and_only_events_shut_down() {
    for state in State::ALL {
        for input in Input::ALL {
            let (next, act) = state.next(input);
            assert!(act != Act::Signal || next == State::Unarmed);
            let event = matches!(input, Input::Post { .. } | Input::Overflow | Input::Loss);
            assert!(act != Act::Shutdown || (event && next == State::Undefined));
            assert!(act != Act::Refuse || next == state, "state unchanged");
        }
    }
}
