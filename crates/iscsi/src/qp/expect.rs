//! What a carrier is told to expect: so much of a long PDU, or so many short ones, that a sleeper need not be woken for less.
//! It promises never to name more than is missing of the PDU that is coming, so that nothing else can be held up by it: nothing else
//! may come before. More it names only for a sleeper who does not rely on it. It refuses to speak of short rests, and twice of the same.

use verbena_nic::Carrier;

use super::inner::Inner;

/// A rest of a PDU's data that is worth a word to the carrier.
pub(super) const MUCH: usize = 64 << 10;
/// Bytes that are worth waking somebody; with more the target and we would work by turns, not at once.
pub(super) const AT_ONCE: usize = 256 << 10;

impl Inner {
    /// The carrier was told that a sleeper need not be woken for little.
    pub(super) fn expects_much(&self) -> bool {
        self.expected > 1
    }

    /// Called whenever bytes came while much was expected, and when there is nothing to read; under the lock, so that the last word is
    /// about what is missing now.
    pub(super) fn say_expected(&mut self, carrier: &mut impl Carrier) {
        let certain = self.certain();
        self.say(carrier, certain);
    }

    /// For a sleeper that looks again in a moment: as much as a part of the commands under way will bring, if the target does not hesitate.
    /// True if that is more than is certain to come.
    pub(super) fn gather(&mut self, carrier: &mut impl Carrier) -> bool {
        let several = self.commands.answers().several().unwrap_or(0);
        let (several, certain) = (several.min(AT_ONCE), self.certain());
        self.say(carrier, several.max(certain));
        several > certain
    }

    /// What comes next for certain, if it is worth a word.
    fn certain(&self) -> usize {
        let rest = match &self.intake.body {
            Some(body) => (body.len - body.done) as usize,
            None => 0,
        };
        match rest {
            MUCH.. => rest.min(AT_ONCE),
            _ => 1,
        }
    }

    fn say(&mut self, carrier: &mut impl Carrier, expected: usize) {
        if core::mem::replace(&mut self.expected, expected) != expected {
            carrier.expect(expected);
        }
    }
}
