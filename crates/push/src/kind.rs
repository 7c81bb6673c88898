//! The kinds of violations, with a name and a counter for each. The names are stable, since operators and programs search for
//! them; the numbers of a single violation are in its message only.

use crate::error::Violation;

/// The kind of a [`Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the violations")]
pub enum Kind {
    Malformed,
    Channel,
    MessageOverrun,
    PacketOverrun,
    Late,
    BadPool,
    TooMuch,
    UnknownPool,
    Range,
    NotUsed,
    NotLent,
    Address,
    Length,
    Number,
    StrayReply,
    TooManyRequests,
    Backlog,
}

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Kind; 17] = [
        Kind::Malformed,
        Kind::Channel,
        Kind::MessageOverrun,
        Kind::PacketOverrun,
        Kind::Late,
        Kind::BadPool,
        Kind::TooMuch,
        Kind::UnknownPool,
        Kind::Range,
        Kind::NotUsed,
        Kind::NotLent,
        Kind::Address,
        Kind::Length,
        Kind::Number,
        Kind::StrayReply,
        Kind::TooManyRequests,
        Kind::Backlog,
    ];

    /// The name in a status.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Malformed => "malformed",
            Kind::Channel => "channel",
            Kind::MessageOverrun => "message-overrun",
            Kind::PacketOverrun => "packet-overrun",
            Kind::Late => "late",
            Kind::BadPool => "bad-pool",
            Kind::TooMuch => "too-much",
            Kind::UnknownPool => "unknown-pool",
            Kind::Range => "range",
            Kind::NotUsed => "not-used",
            Kind::NotLent => "not-lent",
            Kind::Address => "address",
            Kind::Length => "length",
            Kind::Number => "number",
            Kind::StrayReply => "stray-reply",
            Kind::TooManyRequests => "too-many-requests",
            Kind::Backlog => "backlog",
        }
    }
}

impl From<&Violation> for Kind {
    fn from(violation: &Violation) -> Kind {
        match violation {
            Violation::Malformed(_) => Kind::Malformed,
            Violation::Channel(_) => Kind::Channel,
            Violation::MessageOverrun { .. } => Kind::MessageOverrun,
            Violation::PacketOverrun => Kind::PacketOverrun,
            Violation::Late { .. } => Kind::Late,
            Violation::BadPool { .. } => Kind::BadPool,
            Violation::TooMuch { .. } => Kind::TooMuch,
            Violation::UnknownPool { .. } => Kind::UnknownPool,
            Violation::Range { .. } => Kind::Range,
            Violation::NotUsed { .. } => Kind::NotUsed,
            Violation::NotLent { .. } => Kind::NotLent,
            Violation::Address { .. } => Kind::Address,
            Violation::Length { .. } => Kind::Length,
            Violation::Number { .. } => Kind::Number,
            Violation::StrayReply { .. } => Kind::StrayReply,
            Violation::TooManyRequests { .. } => Kind::TooManyRequests,
            Violation::Backlog { .. } => Kind::Backlog,
        }
    }
}

/// Violations, counted by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally([u64; Kind::ALL.len()]);

impl Tally {
    pub(crate) fn add(&mut self, kind: Kind) {
        if let Some(count) = self.0.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Violations of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Violations of this kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or_default()
    }

    /// The kinds that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        let each = Kind::ALL.into_iter().map(|kind| (kind, self.of(kind)));
        each.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_separately_under_unique_names() {
        let mut tally = Tally::default();
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            (0..=at).for_each(|_| tally.add(kind));
        }
        for (at, (kind, count)) in tally.iter().enumerate() {
            assert_eq!((kind, count), (Kind::ALL[at], at as u64 + 1));
        }
        assert_eq!(tally.total(), (1..=17).sum());
        let names: std::collections::BTreeSet<&str> = Kind::ALL.map(Kind::name).into();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
