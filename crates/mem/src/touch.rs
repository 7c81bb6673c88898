//! One-touch memory (M9): the decision about a segment for an entry that the first message that ends in it invalidates.
//! [`decide`] is a pure function with the six rows of M9's table; [`crate::Tpt`] carries out the [`Action`].

/// The number of a byte in a byte stream, modulo 2^32 as in TCP (RFC 9293 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seq(u32);

impl Seq {
    /// The byte with this number.
    pub const fn new(number: u32) -> Seq {
        Seq(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The byte before it.
    pub const fn previous(self) -> Seq {
        Seq(self.0.wrapping_sub(1))
    }

    /// Bytes from `other` to this one, counted forwards.
    pub const fn beyond(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// A stream that expects `next` has received this byte (RFC 9293 §3.4: of the 2^32 numbers, the half before `next` is old).
    pub const fn is_before(self, next: Seq) -> bool {
        let behind = next.beyond(self);
        behind != 0 && behind < 1 << 31
    }
}

/// A segment of a tagged message and the state of its byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// It is the last of its message.
    pub last: bool,
    /// Its last byte.
    pub end: Seq,
    /// The next byte that the stream expects, this segment counted if it came in order.
    pub next: Seq,
    /// How many bytes from there on the stream accepts.
    pub window: u32,
}

impl Arrival {
    /// A segment of a stream that delivers its bytes in order, as a socket does: it ends right before the next byte.
    pub const fn in_order(last: bool) -> Arrival {
        let next = Seq::new(0);
        Arrival {
            last,
            end: next.previous(),
            next,
            window: 0,
        }
    }
}

/// What is done with a segment and its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is placed.
    Place,
    /// It is placed, and the entry is invalidated.
    Spend,
    /// It is placed, and the entry is touched: it is invalidated when the stream reaches the segment's end.
    Remember,
    /// It is not placed, as if it had not arrived; the sender retransmits it.
    Drop,
    /// The second touch: the entry is invalidated, the stream is terminated.
    Terminate,
}

/// The table of M9.
pub fn decide(
    last: bool,
    enabled: bool,
    touched: bool,
    end: Seq,
    next: Seq,
    window: u32,
) -> Action {
    match (last, enabled, touched) {
        (false, _, _) => Action::Place,
        (true, false, _) => Action::Place,
        (true, true, true) => Action::Terminate,
        (true, true, false) if end == next.previous() => Action::Spend,
        (true, true, false) if end.beyond(next) < window => Action::Remember,
        (true, true, false) => Action::Drop,
    }
}

#[cfg(test)]
mod tests;
