//! The state machine of a host's driver: one table. An event that does not apply in a state leaves it unchanged, and the actions of a
//! transition are the caller's.

use core::fmt;

/// The state of the connection to the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No connection; the unit is dialled again after a wait.
    Disconnected,
    /// Channels are being connected.
    Dialling,
    /// Connected; the unit is told about the interface.
    Starting,
    /// Frames can pass.
    Up,
    /// Disconnecting: pools are flushed.
    Leaving,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    /// Channels were requested.
    Dialled,
    /// All channels are connected.
    Opened,
    /// The unit has answered the first requests.
    Configured,
    /// The connection has ended.
    Lost,
    /// A stop was requested.
    StopRequested,
}

impl Phase {
    /// Every phase, for tables.
    pub const ALL: [Phase; 5] = [
        Phase::Disconnected,
        Phase::Dialling,
        Phase::Starting,
        Phase::Up,
        Phase::Leaving,
    ];

    /// The state after an event; the same if the event does not apply.
    #[must_use]
    pub fn after(self, happening: PhaseEvent) -> Phase {
        use Phase as P;
        match (self, happening) {
            (P::Disconnected, PhaseEvent::Dialled) => P::Dialling,
            (P::Dialling, PhaseEvent::Opened) => P::Starting,
            (P::Starting, PhaseEvent::Configured) => P::Up,
            (P::Starting | P::Up, PhaseEvent::StopRequested) => P::Leaving,
            (_, PhaseEvent::Lost) => P::Disconnected,
            (phase, _) => phase,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Disconnected => "apart",
            Phase::Dialling => "dialling",
            Phase::Starting => "starting",
            Phase::Up => "up",
            Phase::Leaving => "leaving",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, a row per phase: Dialled, Opened, Agreed, Lost, Wished.
    #[test]
    fn transition_table_is_complete() {
        use PhaseEvent as H;
        let all = [
            H::Dialled,
            H::Opened,
            H::Configured,
            H::Lost,
            H::StopRequested,
        ];
        let row = |phase: &Phase| {
            all.map(|happening| phase.after(happening).to_string())
                .join(" ")
        };
        let rows: Vec<String> = Phase::ALL.iter().map(row).collect();
        let expected = [
            "dialling apart apart apart apart",
            "dialling starting dialling apart dialling",
            "starting starting up apart leaving",
            "up up up apart leaving",
            "leaving leaving leaving apart leaving",
        ];
        assert_eq!(rows, expected);
    }
}
