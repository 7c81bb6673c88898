//! Counted credits: how many may be sent, and how many may arrive, as running numbers since the beginning. No more is in flight than
//! there are receive descriptors, and a repeated or lost grant does no harm, because a grant names the number up to which the other
//! side may send. The same types count messages and packets.

#[cfg(test)]
mod tests;

/// The pool reference under which receive descriptors for messages are granted; no pool may have it.
pub const MESSAGE_POOL: u32 = 0x7fff_ffff;

/// Messages that each side may send before the first grant of the other.
pub const INITIAL_CREDIT: u32 = 8;

/// How far `to` is ahead of `from`; 0 if it is not.
fn ahead(from: u32, to: u32) -> u32 {
    let distance = to.wrapping_sub(from);
    if distance > i32::MAX as u32 {
        0
    } else {
        distance
    }
}

/// How many we may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    sent: u32,
    limit: u32,
}

impl Credit {
    pub(crate) fn new(limit: u32) -> Credit {
        Credit { sent: 0, limit }
    }

    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    pub(crate) fn left(&self) -> u32 {
        ahead(self.sent, self.limit)
    }

    /// Counts one that is sent; the caller has checked the credit, or overdraws.
    pub(crate) fn spend(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// The peer grants sending up to this number; returns how many more that are. More than `most` in flight is an error.
    pub(crate) fn raise(&mut self, limit: u32, most: u32) -> Result<u32, (u32, u32)> {
        let more = ahead(self.limit, limit);
        if more == 0 {
            // A repeated grant.
            return Ok(0);
        }
        if ahead(self.sent, limit) > most {
            return Err((self.limit, self.sent.wrapping_add(most)));
        }
        self.limit = limit;
        Ok(more)
    }
}

/// How many the peer may send to us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    received: u32,
    limit: u32,
}

impl Grant {
    pub(crate) fn new(limit: u32) -> Grant {
        Grant { received: 0, limit }
    }

    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Up to which number the peer may send.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// How many the peer may still send.
    pub(crate) fn left(&self) -> u32 {
        ahead(self.received, self.limit)
    }

    /// Counts one that arrived; `false` if the peer had no credit for it.
    pub(crate) fn receive(&mut self) -> bool {
        let allowed = self.left() > 0;
        if allowed {
            self.received = self.received.wrapping_add(1);
        }
        allowed
    }

    /// Counts some that were sent and will not arrive; returns how many can have been.
    pub(crate) fn count_lost(&mut self, count: u32) -> u32 {
        let lost = count.min(self.left());
        self.received = self.received.wrapping_add(lost);
        lost
    }

    /// How many of those sent up to `number` have not arrived; `None` if that many cannot have been sent.
    pub(crate) fn missing(&self, number: u32) -> Option<u32> {
        let missing = number.wrapping_sub(self.received);
        (missing <= self.left()).then_some(missing)
    }

    /// Whether more than `number` were counted already.
    pub(crate) fn is_passed(&self, number: u32) -> bool {
        ahead(number, self.received) > 0
    }

    /// Sets the count to `number`, and limits the credit of the peer to `most`.
    pub(crate) fn correct(&mut self, number: u32, most: u32) {
        self.received = number;
        if self.left() > most {
            self.limit = number.wrapping_add(most);
        }
    }

    /// How many more can be granted if the peer may have `posted` in flight.
    pub(crate) fn grantable(&self, posted: u32) -> u32 {
        ahead(self.limit, self.received.wrapping_add(posted))
    }

    /// Grants them: the first new number and how many.
    pub(crate) fn grant(&mut self, posted: u32) -> (u32, u32) {
        let (first, count) = (self.limit, self.grantable(posted));
        self.limit = first.wrapping_add(count);
        (first, count)
    }

    /// The current grant, to repeat it.
    pub(crate) fn current(&self) -> (u32, u32) {
        (self.received, self.left())
    }
}
