//! Flow control: the receiver has a ring that the sender writes, and receives that the sender's messages consume. A sender stays within
//! what it was granted, and a receiver grants more before the sender runs out. Impossible counts of the peer are an [`Violation`], which
//! ends the connection.
//!
//! Bytes and messages are counted from the beginning of the connection. A receiver sends its counts when half of a ring or half of the
//! messages are new. So at most two credits for each reason are in flight before the sender has seen one of them: [`CREDITS`] receives
//! beside those for messages are always enough for the credits themselves.

/// Receives for credits: the peer sends no more of them before it has seen a new count.
pub(crate) const CREDITS: usize = 4;
/// Receives beside those for messages: for credits, and for the one End of the stream.
pub(crate) const RESERVE: usize = CREDITS + 1;

/// An impossible count of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

/// Credit of this side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    /// Length of the peer's ring.
    ring: u64,
    /// Messages that may be in flight.
    slots: u64,
    sent: u64,
    read: u64,
    messages: u64,
    taken: u64,
}

impl Outgoing {
    pub(crate) fn new(ring: u64, slots: u16) -> Outgoing {
        Outgoing {
            ring,
            slots: slots.into(),
            sent: 0,
            read: 0,
            messages: 0,
            taken: 0,
        }
    }

    /// A message may be sent.
    pub(crate) fn has_slot(&self) -> bool {
        self.messages - self.taken < self.slots
    }

    /// Bytes that one message may carry now: free and contiguous.
    pub(crate) fn room(&self) -> u64 {
        if self.has_slot() { self.space() } else { 0 }
    }

    fn space(&self) -> u64 {
        let free = self.ring - (self.sent - self.read);
        free.min(self.ring - self.sent % self.ring)
    }

    /// Bytes that may be added to the last message, which has some and was not sent yet: they follow it without a wrap.
    pub(crate) fn growth(&self) -> u64 {
        let at_end = self.sent.is_multiple_of(self.ring);
        if at_end { 0 } else { self.space() }
    }

    /// Adds so many bytes, at most [`growth`](Outgoing::growth), to it.
    pub(crate) fn grow(&mut self, len: u64) {
        self.sent += len;
    }

    /// Records a message with so many bytes, at most [`room`](Outgoing::room); returns their offset in the ring.
    pub(crate) fn send(&mut self, len: u64) -> u64 {
        let at = self.sent % self.ring;
        self.sent += len;
        self.messages += 1;
        at
    }

    /// Records a message without bytes.
    pub(crate) fn send_control(&mut self) {
        self.messages += 1;
    }

    /// Handles the peer's counts.
    pub(crate) fn credit(&mut self, read: u64, messages: u64) -> Result<(), Violation> {
        if !(self.read..=self.sent).contains(&read) {
            return Err(Violation(
                "it has read what was not sent, or less than before",
            ));
        }
        if !(self.taken..=self.messages).contains(&messages) {
            return Err(Violation(
                "it has taken messages that were not sent, or fewer than before",
            ));
        }
        (self.read, self.taken) = (read, messages);
        Ok(())
    }
}

/// Credit of the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    ring: u64,
    slots: u64,
    arrived: u64,
    read: u64,
    messages: u64,
    /// The counts that the peer was last sent.
    sent_credit: (u64, u64),
}

impl Incoming {
    pub(crate) fn new(ring: u64, slots: u16) -> Incoming {
        Incoming {
            ring,
            slots: slots.into(),
            arrived: 0,
            read: 0,
            messages: 0,
            sent_credit: (0, 0),
        }
    }

    /// Records a message with so many bytes.
    pub(crate) fn arrive(&mut self, len: u64) -> Result<(), Violation> {
        let free = self.ring - (self.arrived - self.sent_credit.0);
        let piece = self.ring - self.arrived % self.ring;
        if len == 0 || len > free || len > piece {
            return Err(Violation(
                "it has sent more than the ring holds, or nothing",
            ));
        }
        self.arrived += len;
        self.take_message();
        Ok(())
    }

    /// Counts a message, with or without bytes.
    pub(crate) fn take_message(&mut self) {
        self.messages += 1;
    }

    /// Bytes that are not read yet.
    pub(crate) fn unread(&self) -> u64 {
        self.arrived - self.read
    }

    /// The offset of the unread bytes behind the first `skip`, and how many are contiguous.
    pub(crate) fn unread_chunk(&self, skip: u64) -> (u64, u64) {
        let at = (self.read + skip) % self.ring;
        let waiting = self.unread().saturating_sub(skip);
        (at, waiting.min(self.ring - at))
    }

    /// Records that so many bytes were read.
    pub(crate) fn consume(&mut self, len: u64) {
        self.read += len;
    }

    /// A credit is due.
    pub(crate) fn is_credit_due(&self) -> bool {
        // Rounded up: it is due at most twice for each reason before the peer has seen the first.
        let half = |all: u64| all.div_ceil(2);
        self.read - self.sent_credit.0 >= half(self.ring)
            || self.messages - self.sent_credit.1 >= half(self.slots)
    }

    /// The counts, which are sent to the peer now.
    pub(crate) fn take_credit(&mut self) -> (u64, u64) {
        self.sent_credit = (self.read, self.messages);
        self.sent_credit
    }
}

#[cfg(test)]
mod tests;
