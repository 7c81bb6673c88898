//! The states of a peer's pool (P6). A pool is left only when no transfer is in flight, and no event makes it usable again.

/// The state of a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// In use.
    Usable,
    /// The peer recalls it; transfers in flight complete first.
    Leaving,
    /// The program released it; transfers in flight complete first.
    Closing,
    /// The peer was asked to take it back.
    Asked,
    /// No longer used.
    Gone,
}

/// An event of a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// The peer recalls it.
    Recall,
    /// The program releases it.
    Release,
    /// No transfer is in flight any more.
    Drained,
    /// The peer answers our request.
    Reply,
}

impl Lease {
    /// The pool after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: LeaseEvent) -> Option<Lease> {
        match (self, event) {
            // Recalled twice, or recalled and released at the same time.
            (Lease::Usable | Lease::Closing | Lease::Leaving, LeaseEvent::Recall) => {
                Some(Lease::Leaving)
            }
            (Lease::Asked, LeaseEvent::Recall) => Some(Lease::Gone),
            (Lease::Usable, LeaseEvent::Release) => Some(Lease::Closing),
            (Lease::Leaving, LeaseEvent::Drained) => Some(Lease::Gone),
            (Lease::Closing, LeaseEvent::Drained) => Some(Lease::Asked),
            (Lease::Asked, LeaseEvent::Reply) => Some(Lease::Gone),
            _ => None,
        }
    }
}
