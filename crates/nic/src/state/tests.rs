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
fn the_table_of_roce() {
    insta::assert_snapshot!(table(|state, event| state.next(Personality::Roce, event)));
}

#[test]
fn the_table_of_iwarp() {
    insta::assert_snapshot!(table(|state, event| state.next(Personality::Iwarp, event)));
}

#[test]
fn the_table_of_datagrams() {
    insta::assert_snapshot!(table(QpState::next_ud));
}

#[test]
fn the_verbs_way_up_works_and_cannot_be_shortened() {
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
fn a_peer_that_leaves_politely_changes_nothing_in_roce() {
    let after = QpState::Rts.next(Personality::Roce, QpEvent::PeerClosed);
    assert_eq!(after, Some(QpState::Rts));
    let after = QpState::Rts.next(Personality::Iwarp, QpEvent::PeerClosed);
    assert_eq!(after, Some(QpState::Closing));
}
