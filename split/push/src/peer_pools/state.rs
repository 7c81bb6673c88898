//! The states of a peer's pool (P6). A pool is left only when no transfer is in flight, and no event makes it usable again.

/// The state of a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerPoolState {
    /// In use.
    Usable,
    /// The peer recalls it; transfers in flight complete first.
    Recalled,
    /// The program released it; transfers in flight complete first.
    Releasing,
    /// The peer was asked to take it back.
    ReleaseRequested,
    /// No longer used.
    Closed,
}

/// An event of a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerPoolEvent {
    /// The peer recalls it.
    Recall,
    /// The program releases it.
    Release,
    /// No transfer is in flight any more.
    Drained,
    /// The peer answers our request.
    Reply,
}

impl PeerPoolState {
    /// The pool after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: PeerPoolEvent) -> Option<PeerPoolState> {
        match (self, event) {
            // Recalled twice, or recalled and released at the same time.
            (
                PeerPoolState::Usable | PeerPoolState::Releasing | PeerPoolState::Recalled,
                PeerPoolEvent::Recall,
            ) => Some(PeerPoolState::Recalled),
            (PeerPoolState::ReleaseRequested, PeerPoolEvent::Recall) => Some(PeerPoolState::Closed),
            (PeerPoolState::Usable, PeerPoolEvent::Release) => Some(PeerPoolState::Releasing),
            (PeerPoolState::Recalled, PeerPoolEvent::Drained) => Some(PeerPoolState::Closed),
            (PeerPoolState::Releasing, PeerPoolEvent::Drained) => {
                Some(PeerPoolState::ReleaseRequested)
            }
            (PeerPoolState::ReleaseRequested, PeerPoolEvent::Reply) => Some(PeerPoolState::Closed),
            _ => None,
        }
    }
}
