//! The kinds of reports, with the names that docs/check.md explains. A hint is about a program that works, and could do with less.

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    SendBufferChanged,
    ReceiveBufferChanged,
    OverlappingReceives,
    OverlappingReads,
    SendQueueOverrun,
    CqOverrun,
    WrongState,
    PostRefused,
    StaleKey,
    UnknownKey,
    MemoryUnmapped,
    MemoryFreed,
    LeakedObject,
    EventUnacknowledged,
    CompletionUnpolled,
    UnusedAccess,
    BusyPoll,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::SendBufferChanged => "send-buffer-changed",
            Kind::ReceiveBufferChanged => "receive-buffer-changed",
            Kind::OverlappingReceives => "overlapping-receives",
            Kind::OverlappingReads => "overlapping-reads",
            Kind::SendQueueOverrun => "send-queue-overrun",
            Kind::CqOverrun => "cq-overrun",
            Kind::WrongState => "wrong-state",
            Kind::PostRefused => "post-refused",
            Kind::StaleKey => "stale-key",
            Kind::UnknownKey => "unknown-key",
            Kind::MemoryUnmapped => "memory-unmapped",
            Kind::MemoryFreed => "memory-freed",
            Kind::LeakedObject => "leaked-object",
            Kind::EventUnacknowledged => "event-unacknowledged",
            Kind::CompletionUnpolled => "completion-unpolled",
            Kind::UnusedAccess => "unused-access",
            Kind::BusyPoll => "busy-poll",
        }
    }

    pub(super) fn is_hint(self) -> bool {
        matches!(self, Kind::UnusedAccess | Kind::BusyPoll)
    }
}
