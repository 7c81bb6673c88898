//! The states of a connection and every transition between them (RFC 9293, 3.3.2), as one total function.
//! The state × event table is a snapshot test. A listener is no state of a connection: it makes connections in `SynReceived`.

/// Where a connection is in its life (RFC 9293, 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Data flows.
    Established,
    /// The end of our data was sent, and is not acknowledged.
    FinWait1,
    /// The end of our data is acknowledged.
    FinWait2,
    /// The peer's data has ended.
    CloseWait,
    /// Both have ended at once, and the end of our data is not acknowledged.
    Closing,
    /// Both have ended, the peer first, and the end of our data is not acknowledged.
    LastAck,
    /// Both ends are acknowledged; late segments are answered for a while.
    TimeWait,
    /// The connection is no more.
    Closed,
}

/// What changes the state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent {
    /// A SYN without an acknowledgement, while our SYN is not acknowledged.
    Syn,
    /// A SYN that acknowledges ours.
    SynAck,
    /// Our SYN is acknowledged by a segment without a SYN.
    AckOfSyn,
    /// The consumer sends no more.
    Close,
    /// The end of our data is acknowledged.
    AckOfFin,
    /// All data of the peer has arrived, and its end.
    Fin,
    /// A valid reset of the peer.
    Reset,
    /// The consumer gives the connection up.
    Abort,
    /// The peer did not answer in time, or the wait in `TimeWait` or `FinWait2` is over.
    Timeout,
}

impl State {
    /// Every state.
    pub const ALL: [State; 10] = [
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
        State::Closed,
    ];

    /// The state after an event; `None` where the event cannot happen or changes nothing.
    pub const fn next(self, event: StateEvent) -> Option<State> {
        use StateEvent as E;
        Some(match (self, event) {
            (State::SynSent, E::Syn) => State::SynReceived,
            (State::SynSent, E::SynAck) => State::Established,
            (State::SynReceived, E::AckOfSyn | E::SynAck) => State::Established,
            // In `SynReceived` the FIN waits until the SYN is acknowledged (RFC 9293, 3.10.4).
            (State::Established, E::Close) => State::FinWait1,
            (State::SynSent, E::Close) => State::Closed,
            (State::Established, E::Fin) => State::CloseWait,
            (State::FinWait1, E::AckOfFin) => State::FinWait2,
            (State::FinWait1, E::Fin) => State::Closing,
            (State::FinWait2, E::Fin) => State::TimeWait,
            (State::CloseWait, E::Close) => State::LastAck,
            (State::Closing, E::AckOfFin) => State::TimeWait,
            (State::LastAck, E::AckOfFin) => State::Closed,
            // RFC 1337: a reset does not end TIME-WAIT early.
            (State::TimeWait, E::Reset) | (State::Closed, _) => return None,
            (_, E::Reset | E::Abort | E::Timeout) => State::Closed,
            _ => return None,
        })
    }

    /// Both SYNs are acknowledged (RFC 9293, 3.3.2: synchronized).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// The peer may still send data.
    pub const fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// What the consumer queued may still be sent, or sent again.
    pub const fn transmits(self) -> bool {
        matches!(
            self,
            State::Established
                | State::FinWait1
                | State::CloseWait
                | State::Closing
                | State::LastAck
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [StateEvent; 9] = [
        StateEvent::Syn,
        StateEvent::SynAck,
        StateEvent::AckOfSyn,
        StateEvent::Close,
        StateEvent::AckOfFin,
        StateEvent::Fin,
        StateEvent::Reset,
        StateEvent::Abort,
        StateEvent::Timeout,
    ];

    #[test]
    fn state_table() {
        let mut table = String::new();
        for state in State::ALL {
            for event in EVENTS {
                let to = state
                    .next(event)
                    .map_or("-".to_owned(), |to| format!("{to:?}"));
                let (state, event) = (format!("{state:?}"), format!("{event:?}"));
                table += &format!("{state:<12} {event:<9} -> {to}\n");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_state_reaches_closed() {
        for state in State::ALL {
            let ends = state.next(StateEvent::Timeout);
            assert_eq!(
                ends,
                (state != State::Closed).then_some(State::Closed),
                "{state:?}"
            );
        }
    }
}
