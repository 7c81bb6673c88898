//! Operations and status codes of the configuration service (docs/push.md, P8). Unknown numbers are kept, so that they can be
//! answered; the data of an operation is decoded by the drivers.

use core::fmt;

/// An operation of the configuration service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// No operation: in the reply to an unknown message.
    None,
    /// Start; exchanges features and MTU.
    Initialise,
    /// The MAC address of the LAN port.
    GetMac,
    /// Sets the MAC address.
    SetMac,
    /// Whether the link is up.
    GetLink,
    /// Sets the link up or down.
    SetLink,
    /// Counters.
    Statistics,
    /// Resets the counters.
    ResetStatistics,
    /// Sets the MTU.
    SetMtu,
    /// Switches promiscuous mode.
    Promiscuous,
    /// Sets the multicast filter.
    MulticastFilter,
    /// Stop.
    Shutdown,
    /// Attaches a disk of the unit instead of the LAN.
    OpenDisk,
    /// A code without a variant: answered with [`Status::UnknownOperation`].
    Unknown(u16),
}

impl Operation {
    const KNOWN: [(Operation, &'static str); 13] = [
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
        (Operation::OpenDisk, "open-disk"),
    ];

    /// The operation with this code.
    pub fn from_code(code: u16) -> Operation {
        let known = Operation::KNOWN.get(usize::from(code));
        known.map_or(Operation::Unknown(code), |(operation, _)| *operation)
    }

    /// The code of this operation.
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

/// The status of a configuration reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Ok,
    /// The operation is not known here.
    UnknownOperation,
    /// The data of the operation is invalid.
    BadData,
    /// The operation is not allowed, or not now.
    NotAllowed,
    /// The function or version of the message is unknown.
    UnknownMessage,
    /// A code without a variant.
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

    /// The code of this status.
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
