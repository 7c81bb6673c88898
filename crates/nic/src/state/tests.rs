//! Tests of queue pair states: the tables of both personalities, and what programs that use verbs rely on.

use super::*;

fn table(next: impl Fn(QpState, QpEvent) -> Option<QpState>) -> String {
    let modifies = QpState::ALL.map(QpEvent::Modify);
    let events = [
        QpEvent::Connected,
        QpEvent::Failed,
        QpEvent::PeerTerminated,
        QpEvent::PeerClosed,
        QpEvent::PeerLost,
        QpEvent::Closed,
        QpEvent::SendFailed,
    ];
    let mut out = String::new();
    for state in QpState::ALL {
        for event in modifies.into_iter().chain(events) {
            let next = next(state, event).map_or("-".to_owned(), |s| format!("{s:?}"));
            let (state, event) = (format!("{state:?}"), format!("{event:?}"));
            out += &format!("{state:<10} {event:<18} -> {next}\n");
        }
    }
    out
}

#[test]
fn roce_transitions_match_snapshot() {
    insta::assert_snapshot!(table(|state, event| state.next(Personality::Roce, event)));
}

#[test]
fn iwarp_transitions_match_snapshot() {
    insta::assert_snapshot!(table(|state, event| state.next(Personality::Iwarp, event)));
}

#[test]
fn ud_transitions_match_snapshot() {
    insta::assert_snapshot!(table(QpState::next_ud));
}

#[test]
fn rts_is_reached_through_init_and_rtr() {
    let up = [QpState::Init, QpState::Rtr, QpState::Rts];
    let mut state = QpState::Reset;
    for next in up {
        state = state
            .next(Personality::Roce, QpEvent::Modify(next))
            .unwrap();
        assert_eq!(state, next);
    }
    let short = QpState::Reset.next(Personality::Roce, QpEvent::Modify(QpState::Rts));
    assert_eq!(short, None);
}

#[test]
fn peer_close_keeps_roce_queue_pair_in_rts() {
    let after = QpState::Rts.next(Personality::Roce, QpEvent::PeerClosed);
    assert_eq!(after, Some(QpState::Rts));
    let after = QpState::Rts.next(Personality::Iwarp, QpEvent::PeerClosed);
    assert_eq!(after, Some(QpState::Closing));
}
