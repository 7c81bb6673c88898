//! Who may send how much: a ring of the receiver's that the sender writes, and receives that its messages take.
//! It promises that a sender stays within what it was granted, and that a receiver grants again before the sender runs dry.
//! It refuses numbers of the peer's that cannot be: they are an [`Offence`], and the end of the connection.
//!
//! Bytes and messages are counted from the beginning of the connection and never taken back. A receiver tells its counts
//! when half of a ring or half of the messages are new. So at most two of each kind can be on their way before the sender
//! has seen one of them: [`CREDITS`] receives beside those for messages always suffice for the telling itself.

/// Receives kept for credits: the peer sends no more of them before it has been told something new.
pub(crate) const CREDITS: usize = 4;
/// Receives kept beside those for messages: for credits, and for the one word that ends the stream.
pub(crate) const RESERVE: usize = CREDITS + 1;

/// A number of the peer's that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offence(pub(crate) &'static str);

/// What we may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    /// Bytes of the peer's ring.
    ring: u64,
    /// Messages it takes at once.
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

    /// Bytes that one message may carry now: free, and in one piece.
    pub(crate) fn room(&self) -> u64 {
        if self.has_slot() { self.space() } else { 0 }
    }

    fn space(&self) -> u64 {
        let free = self.ring - (self.sent - self.read);
        free.min(self.ring - self.sent % self.ring)
    }

    /// Bytes that may be added to the last message, which has some and has not left yet: they follow it without a wrap.
    pub(crate) fn growth(&self) -> u64 {
        let at_end = self.sent.is_multiple_of(self.ring);
        if at_end { 0 } else { self.space() }
    }

    /// So many bytes, at most [`growth`](Outgoing::growth), are added to it.
    pub(crate) fn grow(&mut self, len: u64) {
        self.sent += len;
    }

    /// A message with so many bytes, at most [`room`](Outgoing::room), is sent; returns where in the ring they go.
    pub(crate) fn send(&mut self, len: u64) -> u64 {
        let at = self.sent % self.ring;
        self.sent += len;
        self.messages += 1;
        at
    }

    /// A message without bytes is sent.
    pub(crate) fn send_word(&mut self) {
        self.messages += 1;
    }

    /// The peer told its counts.
    pub(crate) fn credit(&mut self, read: u64, messages: u64) -> Result<(), Offence> {
        if !(self.read..=self.sent).contains(&read) {
            return Err(Offence(
                "it has read what was not sent, or less than before",
            ));
        }
        if !(self.taken..=self.messages).contains(&messages) {
            return Err(Offence(
                "it has taken messages that were not sent, or fewer than before",
            ));
        }
        (self.read, self.taken) = (read, messages);
        Ok(())
    }
}

/// What the peer may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    ring: u64,
    slots: u64,
    arrived: u64,
    read: u64,
    messages: u64,
    /// What the peer was told of the two.
    told: (u64, u64),
}

impl Incoming {
    pub(crate) fn new(ring: u64, slots: u16) -> Incoming {
        Incoming {
            ring,
            slots: slots.into(),
            arrived: 0,
            read: 0,
            messages: 0,
            told: (0, 0),
        }
    }

    /// A message with so many bytes has come.
    pub(crate) fn arrive(&mut self, len: u64) -> Result<(), Offence> {
        let free = self.ring - (self.arrived - self.told.0);
        let piece = self.ring - self.arrived % self.ring;
        if len == 0 || len > free || len > piece {
            return Err(Offence("it has sent more than the ring holds, or nothing"));
        }
        self.arrived += len;
        self.take_message();
        Ok(())
    }

    /// A message without bytes has come, or one with them.
    pub(crate) fn take_message(&mut self) {
        self.messages += 1;
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.arrived - self.read
    }

    /// Where bytes lie that wait behind the first `skip`, and how many in one piece.
    pub(crate) fn piece(&self, skip: u64) -> (u64, u64) {
        let at = (self.read + skip) % self.ring;
        let waiting = self.waiting().saturating_sub(skip);
        (at, waiting.min(self.ring - at))
    }

    /// So many were read.
    pub(crate) fn consume(&mut self, len: u64) {
        self.read += len;
    }

    /// The peer should be told.
    pub(crate) fn owes(&self) -> bool {
        // Rounded up: half may come twice at most before the peer has seen the first.
        let half = |all: u64| all.div_ceil(2);
        self.read - self.told.0 >= half(self.ring)
            || self.messages - self.told.1 >= half(self.slots)
    }

    /// The counts, which the peer is told now.
    pub(crate) fn tell(&mut self) -> (u64, u64) {
        self.told = (self.read, self.messages);
        self.told
    }
}

#[cfg(test)]
mod tests;
