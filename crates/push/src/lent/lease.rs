//! A peer's pool, from being usable to being gone (P6).
//! The table promises that a pool is left only when nothing is under way, and never comes back by itself.
//! It refuses to know which pool it is.

/// How far we are from being done with a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// In use.
    Usable,
    /// The peer wants it back; transfers under way end first.
    Leaving,
    /// We want to be rid of it; transfers under way end first.
    Closing,
    /// We asked the peer to take it back.
    Asked,
    /// Done.
    Gone,
}

/// What happens to a peer's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// The peer asks for it.
    Recall,
    /// The program releases it.
    Release,
    /// Nothing is under way any more.
    Drained,
    /// The peer answers our request.
    Reply,
}

impl Lease {
    /// The pool after the event; `None` if the event cannot happen to it.
    pub fn next(self, event: LeaseEvent) -> Option<Lease> {
        match (self, event) {
            // Asked twice, or by both sides at once.
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
