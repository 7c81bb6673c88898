//! The states of one element of a peer's pool. An element becomes free again only after the peer gave it back and our write has
//! completed.

/// The state of an element of the peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    /// May be taken.
    Free,
    /// A write with immediate data is in flight.
    Pushed,
    /// A write without immediate data is in flight; a message will indicate it.
    Writing,
    /// The write has completed and the message is due.
    Written,
    /// The peer has it, until it gives it back.
    Used,
    /// The peer gave it back before the completion of our write was reported.
    Returned,
}

/// An event of an element of the peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UseEvent {
    /// A write with immediate data begins.
    Push,
    /// A write without immediate data begins.
    Write,
    /// The write has completed.
    Complete,
    /// The message that indicates it was sent.
    Indicate,
    /// The peer gives it back.
    Return,
}

impl Use {
    /// The element after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: UseEvent) -> Option<Use> {
        match (self, event) {
            (Use::Free, UseEvent::Push) => Some(Use::Pushed),
            (Use::Free, UseEvent::Write) => Some(Use::Writing),
            (Use::Pushed, UseEvent::Complete) => Some(Use::Used),
            (Use::Pushed, UseEvent::Return) => Some(Use::Returned),
            (Use::Returned, UseEvent::Complete) => Some(Use::Free),
            (Use::Writing, UseEvent::Complete) => Some(Use::Written),
            (Use::Written, UseEvent::Indicate) => Some(Use::Used),
            (Use::Used, UseEvent::Return) => Some(Use::Free),
            _ => None,
        }
    }

    /// Whether it has a transfer in flight, so that its pool cannot be left yet.
    pub fn is_busy(self) -> bool {
        !matches!(self, Use::Free | Use::Used)
    }
}
