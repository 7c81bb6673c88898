//! The kinds of violations, with a name and a counter for each. The names are stable, since operators and programs search for
//! them; the numbers of a single violation are in its message only.

use crate::error::Violation;

/// The kind of a [`Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the violations")]
pub enum ViolationKind {
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

impl ViolationKind {
    /// Every kind, in the order of its number.
    pub const ALL: [ViolationKind; 17] = [
        ViolationKind::Malformed,
        ViolationKind::Channel,
        ViolationKind::MessageOverrun,
        ViolationKind::PacketOverrun,
        ViolationKind::Late,
        ViolationKind::BadPool,
        ViolationKind::TooMuch,
        ViolationKind::UnknownPool,
        ViolationKind::Range,
        ViolationKind::NotUsed,
        ViolationKind::NotLent,
        ViolationKind::Address,
        ViolationKind::Length,
        ViolationKind::Number,
        ViolationKind::StrayReply,
        ViolationKind::TooManyRequests,
        ViolationKind::Backlog,
    ];

    /// The name in a status.
    pub fn name(self) -> &'static str {
        match self {
            ViolationKind::Malformed => "malformed",
            ViolationKind::Channel => "channel",
            ViolationKind::MessageOverrun => "message-overrun",
            ViolationKind::PacketOverrun => "packet-overrun",
            ViolationKind::Late => "late",
            ViolationKind::BadPool => "bad-pool",
            ViolationKind::TooMuch => "too-much",
            ViolationKind::UnknownPool => "unknown-pool",
            ViolationKind::Range => "range",
            ViolationKind::NotUsed => "not-used",
            ViolationKind::NotLent => "not-lent",
            ViolationKind::Address => "address",
            ViolationKind::Length => "length",
            ViolationKind::Number => "number",
            ViolationKind::StrayReply => "stray-reply",
            ViolationKind::TooManyRequests => "too-many-requests",
            ViolationKind::Backlog => "backlog",
        }
    }
}

impl From<&Violation> for ViolationKind {
    fn from(violation: &Violation) -> ViolationKind {
        match violation {
            Violation::Malformed(_) => ViolationKind::Malformed,
            Violation::Channel(_) => ViolationKind::Channel,
            Violation::MessageOverrun { .. } => ViolationKind::MessageOverrun,
            Violation::PacketOverrun => ViolationKind::PacketOverrun,
            Violation::Late { .. } => ViolationKind::Late,
            Violation::BadPool { .. } => ViolationKind::BadPool,
            Violation::TooMuch { .. } => ViolationKind::TooMuch,
            Violation::UnknownPool { .. } => ViolationKind::UnknownPool,
            Violation::Range { .. } => ViolationKind::Range,
            Violation::NotUsed { .. } => ViolationKind::NotUsed,
            Violation::NotLent { .. } => ViolationKind::NotLent,
            Violation::Address { .. } => ViolationKind::Address,
            Violation::Length { .. } => ViolationKind::Length,
            Violation::Number { .. } => ViolationKind::Number,
            Violation::StrayReply { .. } => ViolationKind::StrayReply,
            Violation::TooManyRequests { .. } => ViolationKind::TooManyRequests,
            Violation::Backlog { .. } => ViolationKind::Backlog,
        }
    }
}

/// Violations, counted by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViolationCounts([u64; ViolationKind::ALL.len()]);

impl ViolationCounts {
    pub(crate) fn add(&mut self, kind: ViolationKind) {
        if let Some(count) = self.0.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Violations of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Violations of this kind.
    pub fn of(&self, kind: ViolationKind) -> u64 {
        self.0.get(kind as usize).copied().unwrap_or_default()
    }

    /// The kinds that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (ViolationKind, u64)> + '_ {
        let each = ViolationKind::ALL
            .into_iter()
            .map(|kind| (kind, self.of(kind)));
        each.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_separately_under_unique_names() {
        let mut tally = ViolationCounts::default();
        for (at, kind) in ViolationKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            (0..=at).for_each(|_| tally.add(kind));
        }
        for (at, (kind, count)) in tally.iter().enumerate() {
            assert_eq!((kind, count), (ViolationKind::ALL[at], at as u64 + 1));
        }
        assert_eq!(tally.total(), (1..=17).sum());
        let names: std::collections::BTreeSet<&str> =
            ViolationKind::ALL.map(ViolationKind::name).into();
        assert_eq!(names.len(), ViolationKind::ALL.len());
    }
}
