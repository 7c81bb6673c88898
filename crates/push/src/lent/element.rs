//! One element of a peer's pool, from being taken to being given back.
//! The table promises that an element is free again only when the peer gave it back and our write has ended.
//! It refuses to know which element it is.

/// What we do with an element of the peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    /// Ours to write.
    Free,
    /// A write with immediate data is under way.
    Pushed,
    /// A write is under way that a message will indicate.
    Writing,
    /// The write has ended and the message is due.
    Written,
    /// The peer's, until it gives it back.
    Used,
    /// The peer gave it back before we learnt that the write has ended.
    Returned,
}

/// What happens to an element of the peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UseEvent {
    /// A write with immediate data begins.
    Push,
    /// A write without begins.
    Write,
    /// The write has ended.
    Complete,
    /// The message that indicates it is sent.
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

    /// The pool cannot be left yet because of it.
    pub fn is_busy(self) -> bool {
        !matches!(self, Use::Free | Use::Used)
    }
}
