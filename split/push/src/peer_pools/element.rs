//! The states of one element of a peer's pool. An element becomes free again only after the peer gave it back and our write has
//! completed.

/// The state of an element of the peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerElementState {
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
pub enum PeerElementEvent {
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

impl PeerElementState {
    /// The element after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: PeerElementEvent) -> Option<PeerElementState> {
        match (self, event) {
            (PeerElementState::Free, PeerElementEvent::Push) => Some(PeerElementState::Pushed),
            (PeerElementState::Free, PeerElementEvent::Write) => Some(PeerElementState::Writing),
            (PeerElementState::Pushed, PeerElementEvent::Complete) => Some(PeerElementState::Used),
            (PeerElementState::Pushed, PeerElementEvent::Return) => {
                Some(PeerElementState::Returned)
            }
            (PeerElementState::Returned, PeerElementEvent::Complete) => {
                Some(PeerElementState::Free)
            }
            (PeerElementState::Writing, PeerElementEvent::Complete) => {
                Some(PeerElementState::Written)
            }
            (PeerElementState::Written, PeerElementEvent::Indicate) => Some(PeerElementState::Used),
            (PeerElementState::Used, PeerElementEvent::Return) => Some(PeerElementState::Free),
            _ => None,
        }
    }

    /// Whether it has a transfer in flight, so that its pool cannot be left yet.
    pub fn is_busy(self) -> bool {
        !matches!(self, PeerElementState::Free | PeerElementState::Used)
    }
}
