//! The low-water mark of the carrier (as SO_RCVLOWAT): how many bytes have to be there before a sleeping thread is woken. The certain
//! value never exceeds what is missing of the PDU being read, so that it cannot delay anything else. A larger value is set only for a
//! thread that also wakes by a timeout. Short remainders are not announced, nor is the same value twice.

use verbena_nic::Carrier;

use super::answers::LONG;
use super::inner::Inner;

/// Least remainder of a PDU's data that is announced to the carrier.
pub(super) const MIN_MARK: usize = LONG;
/// Largest mark: with more, target and initiator would work alternately instead of concurrently.
pub(super) const MAX_MARK: usize = 256 << 10;

impl Inner {
    /// Whether a low-water mark above one byte is set.
    pub(super) fn has_low_water(&self) -> bool {
        self.low_water > 1
    }

    /// Called whenever bytes came while a mark was set, and when there is nothing to read; under the lock, so that the last mark set
    /// corresponds to what is missing now.
    pub(super) fn update_low_water(&mut self, carrier: &mut (impl Carrier + ?Sized)) {
        let certain = self.certain_bytes();
        self.set_low_water(carrier, certain);
    }

    /// For a thread that sleeps with a short timeout: sets the mark to what a part of the outstanding commands will bring at least. True if
    /// that is more than what is certain to come.
    pub(super) fn raise_low_water(&mut self, carrier: &mut (impl Carrier + ?Sized)) -> bool {
        let several = self.commands.answers().coalesced_bytes().unwrap_or(0);
        let (several, certain) = (several.min(MAX_MARK), self.certain_bytes());
        self.set_low_water(carrier, several.max(certain));
        several > certain
    }

    /// What comes next for certain, or 1 if that is less than `MIN_MARK`.
    fn certain_bytes(&self) -> usize {
        let rest = match &self.intake.body {
            Some(body) => (body.len - body.done) as usize,
            None => 0,
        };
        match rest {
            MIN_MARK.. => rest.min(MAX_MARK),
            _ => 1,
        }
    }

    fn set_low_water(&mut self, carrier: &mut (impl Carrier + ?Sized), expected: usize) {
        if core::mem::replace(&mut self.low_water, expected) != expected {
            carrier.expect_at_least(expected);
        }
    }
}
