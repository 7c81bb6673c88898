//! The negotiated keys of a session and their result functions (RFC 7143 §13, RFC 7145 §6), as a table. Booleans are 0 and 1, so that AND
//! is the minimum of two values and OR the maximum.

use core::ops::RangeInclusive;

use verbena_storage_wire::iscsi::MAX_DATA;
use verbena_storage_wire::iscsi::text;

use super::error::LoginError;

#[cfg(test)]
mod tests;

/// Range of data lengths.
pub(super) const SIZES: RangeInclusive<u32> = 512..=MAX_DATA;
/// Upper bound of DefaultTime2Wait and DefaultTime2Retain, in seconds.
pub(super) const MAX_TIME: u32 = 3600;

const BOOLEAN: RangeInclusive<u32> = 0..=1;
const COUNT: RangeInclusive<u32> = 1..=65535;
const TIME: RangeInclusive<u32> = 0..=MAX_TIME;

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Boolean,
    Number,
}

/// Result function of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultFunction {
    Minimum,
    Maximum,
}

/// When we offer a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// In every session.
    Always,
    /// In normal sessions.
    Normal,
    /// On RDMA; otherwise the key is not understood.
    Iser,
    /// Never: we only answer the target's offer.
    OnRequest,
}

/// Keys that are negotiated (not declared).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    RdmaExtensions,
    InitiatorRecv,
    TargetRecv,
    MaxConnections,
    InitialR2t,
    ImmediateData,
    MaxBurst,
    FirstBurst,
    MaxR2t,
    Time2Wait,
    Time2Retain,
    PduInOrder,
    SequenceInOrder,
    RecoveryLevel,
    ProtocolLevel,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) key: Key,
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) result: ResultFunction,
    pub(super) range: RangeInclusive<u32>,
    /// The value if neither side offers the key.
    pub(super) default: u32,
    pub(super) when: When,
}

const fn number(
    key: Key,
    name: &'static str,
    pick: ResultFunction,
    range: RangeInclusive<u32>,
    default: u32,
    when: When,
) -> Rule {
    Rule {
        key,
        name,
        form: Form::Number,
        result: pick,
        range,
        default,
        when,
    }
}

const fn boolean(
    key: Key,
    name: &'static str,
    pick: ResultFunction,
    default: bool,
    when: When,
) -> Rule {
    Rule {
        key,
        name,
        form: Form::Boolean,
        result: pick,
        range: BOOLEAN,
        default: default as u32,
        when,
    }
}

/// The table, in the order in which keys are offered: RDMAExtensions before the keys that depend on it.
#[rustfmt::skip]
pub(super) const RULES: [Rule; 15] = {
    use {Key as K, ResultFunction::*, When::*};
    [
        boolean(K::RdmaExtensions, "RDMAExtensions", Minimum, false, Iser),
        number(K::InitiatorRecv, "InitiatorRecvDataSegmentLength", Minimum, SIZES, 8192, Iser),
        number(K::TargetRecv, "TargetRecvDataSegmentLength", Minimum, SIZES, 8192, Iser),
        number(K::MaxConnections, "MaxConnections", Minimum, COUNT, 1, Normal),
        boolean(K::InitialR2t, "InitialR2T", Maximum, true, Normal),
        boolean(K::ImmediateData, "ImmediateData", Minimum, true, Normal),
        number(K::MaxBurst, "MaxBurstLength", Minimum, SIZES, 262_144, Normal),
        number(K::FirstBurst, "FirstBurstLength", Minimum, SIZES, 65_536, Normal),
        number(K::MaxR2t, "MaxOutstandingR2T", Minimum, COUNT, 1, Normal),
        number(K::Time2Wait, "DefaultTime2Wait", Maximum, TIME, 2, Always),
        number(K::Time2Retain, "DefaultTime2Retain", Minimum, TIME, 20, Always),
        boolean(K::PduInOrder, "DataPDUInOrder", Maximum, true, Normal),
        boolean(K::SequenceInOrder, "DataSequenceInOrder", Maximum, true, Normal),
        number(K::RecoveryLevel, "ErrorRecoveryLevel", Minimum, 0..=2, 0, Always),
        number(K::ProtocolLevel, "iSCSIProtocolLevel", Minimum, 0..=31, 1, OnRequest),
    ]
};

impl Rule {
    /// The result of the values of both sides.
    pub(super) fn combine(&self, a: u32, b: u32) -> u32 {
        match self.result {
            ResultFunction::Minimum => a.min(b),
            ResultFunction::Maximum => a.max(b),
        }
    }

    /// Parses a value.
    pub(super) fn read(&self, value: &str) -> Result<u32, LoginError> {
        match self.form {
            Form::Number => ranged(self.name, value, &self.range),
            Form::Boolean => text::yes_no(value)
                .map(u32::from)
                .map_err(|_| LoginError::value(self.name, value, "Yes or No")),
        }
    }

    /// Formats a value.
    pub(super) fn write(&self, value: u32) -> String {
        match self.form {
            Form::Number => value.to_string(),
            Form::Boolean => text::from_bool(value != 0).to_owned(),
        }
    }
}

/// A number within a range, or an error that names the range.
pub(super) fn ranged(
    name: &str,
    value: &str,
    range: &RangeInclusive<u32>,
) -> Result<u32, LoginError> {
    let number = text::number(value).ok().and_then(|n| u32::try_from(n).ok());
    let wants = match (*range.start(), *range.end()) {
        (512, MAX_DATA) => "a number from 512 to 16777215",
        (0, MAX_TIME) => "a number from 0 to 3600",
        (1, 65535) => "a number from 1 to 65535",
        (0, 2) => "a number from 0 to 2",
        (0, 65535) => "a number from 0 to 65535",
        _ => "a number within its range",
    };
    let fits = number.filter(|n| range.contains(n));
    fits.ok_or_else(|| LoginError::value(name, value, wants))
}

/// One of the three answers that are not values (RFC 7143 §6.2).
pub(super) fn is_refusal(value: &str) -> bool {
    matches!(value, "NotUnderstood" | "Irrelevant" | "Reject")
}
