//! Where a host's driver stands with its unit: one table.
//! It promises that a happening which makes no sense changes nothing.
//! It refuses to know what a change does; callers act on it.

use core::fmt;

/// Where a driver stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No connection; it is dialled again by and by.
    Apart,
    /// Channels are being connected.
    Dialling,
    /// Connected; the unit is told of the interface.
    Starting,
    /// Frames pass.
    Up,
    /// Taking leave: pools are flushed.
    Leaving,
}

/// What moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// The unit is asked for channels.
    Dialled,
    /// All channels are there.
    Opened,
    /// The unit has answered everything.
    Agreed,
    /// The connection is no more.
    Lost,
    /// Somebody wants the driver to end.
    Wished,
}

impl Phase {
    /// Every phase, for tables.
    pub const ALL: [Phase; 5] = [
        Phase::Apart,
        Phase::Dialling,
        Phase::Starting,
        Phase::Up,
        Phase::Leaving,
    ];

    /// The phase after something happened; the same if it makes no sense here.
    #[must_use]
    pub fn after(self, happening: Happening) -> Phase {
        use Phase as P;
        match (self, happening) {
            (P::Apart, Happening::Dialled) => P::Dialling,
            (P::Dialling, Happening::Opened) => P::Starting,
            (P::Starting, Happening::Agreed) => P::Up,
            (P::Starting | P::Up, Happening::Wished) => P::Leaving,
            (_, Happening::Lost) => P::Apart,
            (phase, _) => phase,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Apart => "apart",
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
    fn the_table() {
        use Happening as H;
        let all = [H::Dialled, H::Opened, H::Agreed, H::Lost, H::Wished];
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
