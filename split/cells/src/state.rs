//! The states of a work queue pair and the events that change them, in one table. A rejected event changes nothing. What a transition
//! does is up to the callers.

/// The state of a work queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Of a connected kind, and not connected. Receives may be posted.
    Idle,
    /// A Connect was sent.
    Connecting,
    /// Connected to a peer.
    Connected,
    /// Of a connectionless kind: it sends and receives.
    Open,
    /// Failed or disconnected: everything posted flushes until it is reset.
    Ended,
}

/// An event that changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The consumer connects.
    Connect,
    /// The consumer accepts a request.
    Accept,
    /// The peer accepted.
    Accepted,
    /// The peer rejected, or did not answer.
    Refused,
    /// The consumer disconnects.
    Disconnect,
    /// The peer disconnected.
    PeerDisconnected,
    /// The channel failed.
    Failed,
    /// The consumer resets a connected kind.
    Reset,
    /// The consumer resets a connectionless kind.
    Reopen,
}

impl State {
    /// All states.
    pub const ALL: [State; 5] = [
        State::Idle,
        State::Connecting,
        State::Connected,
        State::Open,
        State::Ended,
    ];

    /// The state after `event`; `None` if the event is rejected.
    pub fn next(self, event: Event) -> Option<State> {
        use State as S;
        match (self, event) {
            (S::Idle, Event::Connect) => Some(S::Connecting),
            (S::Idle, Event::Accept) => Some(S::Connected),
            (S::Connecting, Event::Accepted) => Some(S::Connected),
            (S::Connecting, Event::Refused | Event::Disconnect) => Some(S::Idle),
            (S::Connected, Event::Disconnect | Event::PeerDisconnected | Event::Failed) => {
                Some(S::Ended)
            }
            (S::Idle | S::Connecting | S::Open, Event::Failed) => Some(S::Ended),
            (S::Ended, Event::Reset) => Some(S::Idle),
            (S::Ended, Event::Reopen) => Some(S::Open),
            _ => None,
        }
    }

    /// A descriptor may be posted to the send queue: it is executed or flushed.
    pub fn takes_sends(self) -> bool {
        matches!(self, State::Connected | State::Open | State::Ended)
    }

    /// Packets are sent and received.
    pub fn is_active(self) -> bool {
        matches!(self, State::Connected | State::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, a row per state.
    #[test]
    fn state_table_matches_every_transition() {
        use Event as E;
        let events = [
            E::Connect,
            E::Accept,
            E::Accepted,
            E::Refused,
            E::Disconnect,
            E::PeerDisconnected,
            E::Failed,
            E::Reset,
            E::Reopen,
        ];
        let rows: Vec<String> = State::ALL
            .iter()
            .map(|state| {
                let cells = events.map(|event| match state.next(event) {
                    Some(next) => format!("{next:?}"),
                    None => "-".to_owned(),
                });
                format!("{state:?}: {}", cells.join(" "))
            })
            .collect();
        let expected = [
            "Idle: Connecting Connected - - - - Ended - -",
            "Connecting: - - Connected Idle Idle - Ended - -",
            "Connected: - - - - Ended Ended Ended - -",
            "Open: - - - - - - Ended - -",
            "Ended: - - - - - - - Idle Open",
        ];
        assert_eq!(rows, expected);
    }
}
