//! The table of a connection's states as text, so that a change to it is noticed, and what holds for every entry.

use super::*;

const UNTIL: Time = Time::from_nanos(50);

const STATES: [LinkState; 11] = [
    LinkState::Open,
    LinkState::Ending { reset: false },
    LinkState::Ending { reset: true },
    LinkState::Gone,
    LinkState::Unnoticed,
    LinkState::Grace { until: UNTIL },
    LinkState::Severed,
    LinkState::SeveredEnding { reset: false },
    LinkState::SeveredEnding { reset: true },
    LinkState::SeveredGone,
    LinkState::Retired,
];

const EVENTS: [LinkEvent; 13] = [
    LinkEvent::Attach,
    LinkEvent::EndBehindMessage { reset: false },
    LinkEvent::EndBehindMessage { reset: true },
    LinkEvent::End { grace: false },
    LinkEvent::End { grace: true },
    LinkEvent::Close,
    LinkEvent::PeerDead,
    LinkEvent::NoPeer,
    LinkEvent::Need {
        now: Time::from_nanos(40),
        grace: Duration::ZERO,
    },
    LinkEvent::Need {
        now: Time::from_nanos(40),
        grace: Duration::from_nanos(10),
    },
    LinkEvent::Need {
        now: UNTIL,
        grace: Duration::from_nanos(10),
    },
    LinkEvent::Sever,
    LinkEvent::Retire,
];

#[test]
fn table_matches_snapshot() {
    let mut out = String::new();
    for state in STATES {
        for event in EVENTS {
            let (next, act) = state.next(event);
            let (from, event) = (format!("{state:?}"), format!("{event:?}"));
            let next = format!("{next:?}");
            out += &format!("{from:<30} {event:<36} -> {next:<30} {act:?}\n");
        }
    }
    insta::assert_snapshot!(out);
}

#[test]
fn only_an_attach_revives_a_link() {
    for state in STATES {
        for event in EVENTS.iter().filter(|e| **e != LinkEvent::Attach) {
            let (next, _) = state.next(*event);
            assert!(!state.is_gone() || next.is_gone() || next.is_retired());
            assert!(!state.is_severed() || next.is_severed() || next.is_retired());
            assert!(!state.is_retired() || next.is_retired());
        }
    }
}

#[test]
fn disconnection_is_raised_with_the_change() {
    for state in STATES {
        for event in EVENTS {
            let (next, act) = state.next(event);
            let changes = !state.is_gone() && next.is_gone();
            let raised = act == LinkAct::RaiseDisconnected;
            // A peer that is found dead is reported in any case, one that never was in none.
            let exempt = matches!(event, LinkEvent::PeerDead | LinkEvent::NoPeer);
            assert!(raised == changes || exempt, "{state:?} {event:?}");
        }
    }
}
