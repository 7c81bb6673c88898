//! What is asked of the configuration service, and how it answers (spec/PUSH.md, P8).
//! Numbers that are not known are kept as they came, so that they can be answered.
//! It refuses to know what the data of an operation means.

use core::fmt;

/// What the configuration service is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// None: stands in the reply to a message that is not known.
    None,
    /// Begin; features and MTU.
    Initialise,
    /// The MAC address of the LAN port.
    GetMac,
    /// Another MAC address.
    SetMac,
    /// Whether the link is up.
    GetLink,
    /// Link up or down.
    SetLink,
    /// Counters.
    Statistics,
    /// Counters back to zero.
    ResetStatistics,
    /// Another MTU.
    SetMtu,
    /// Take every frame, or do not.
    Promiscuous,
    /// Which multicast frames to take.
    MulticastFilter,
    /// The end.
    Shutdown,
    /// Something newer: answered with [`Status::UnknownOperation`].
    Unknown(u16),
}

impl Operation {
    const KNOWN: [(Operation, &'static str); 12] = [
        (Operation::None, "none"),
        (Operation::Initialise, "initialise"),
        (Operation::GetMac, "get-mac"),
        (Operation::SetMac, "set-mac"),
        (Operation::GetLink, "get-link"),
        (Operation::SetLink, "set-link"),
        (Operation::Statistics, "statistics"),
        (Operation::ResetStatistics, "reset-statistics"),
        (Operation::SetMtu, "set-mtu"),
        (Operation::Promiscuous, "promiscuous"),
        (Operation::MulticastFilter, "multicast-filter"),
        (Operation::Shutdown, "shutdown"),
    ];

    /// The operation with this code.
    pub fn from_code(code: u16) -> Operation {
        let known = Operation::KNOWN.get(usize::from(code));
        known.map_or(Operation::Unknown(code), |(operation, _)| *operation)
    }

    /// Its code.
    pub fn code(self) -> u16 {
        if let Operation::Unknown(code) = self {
            return code;
        }
        let at = Operation::KNOWN.iter().position(|(o, _)| *o == self);
        at.unwrap_or_default() as u16
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Operation::KNOWN.get(usize::from(self.code())) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "unknown({})", self.code()),
        }
    }
}

/// How the configuration service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Ok,
    /// The operation is not known here.
    UnknownOperation,
    /// Its data makes no sense.
    BadData,
    /// It is not allowed, or not now.
    NotAllowed,
    /// The message itself was not known: another function or version.
    UnknownMessage,
    /// Something newer.
    Unknown(u16),
}

impl Status {
    const KNOWN: [(Status, &'static str); 5] = [
        (Status::Ok, "ok"),
        (Status::UnknownOperation, "unknown-operation"),
        (Status::BadData, "bad-data"),
        (Status::NotAllowed, "not-allowed"),
        (Status::UnknownMessage, "unknown-message"),
    ];

    /// The status with this code.
    pub fn from_code(code: u16) -> Status {
        let known = Status::KNOWN.get(usize::from(code));
        known.map_or(Status::Unknown(code), |(status, _)| *status)
    }

    /// Its code.
    pub fn code(self) -> u16 {
        if let Status::Unknown(code) = self {
            return code;
        }
        let at = Status::KNOWN.iter().position(|(s, _)| *s == self);
        at.unwrap_or_default() as u16
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Status::KNOWN.get(usize::from(self.code())) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "unknown({})", self.code()),
        }
    }
}
