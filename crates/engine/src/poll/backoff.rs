//! Exponential backoff for an optimistic strategy, counted in opportunities.
//! While the strategy succeeds it is used each time. After a failure it is skipped, twice as often after each further one up to a limit; one
//! success resets the backoff.

/// Opportunities skipped after a failure: at first, and at most.
const SKIP: (u32, u32) = (2, 64);

/// The state of a backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Opportunities to skip before the next attempt.
    skip: u32,
    /// How many to skip if that fails.
    next_skip: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            skip: 0,
            next_skip: SKIP.0,
        }
    }
}

impl Backoff {
    /// The strategy is to be used now.
    pub fn should_attempt(&self) -> bool {
        self.skip == 0
    }

    /// An opportunity was skipped.
    pub fn skip(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// The result of an attempt.
    pub fn record(&mut self, paid: bool) {
        *self = match paid {
            true => Backoff::default(),
            false => Backoff {
                skip: self.next_skip,
                next_skip: (self.next_skip * 2).min(SKIP.1),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opportunities skipped until the next attempt.
    fn passes(backoff: &mut Backoff) -> u32 {
        let mut passes = 0;
        while !backoff.should_attempt() {
            backoff.skip();
            passes += 1;
        }
        passes
    }

    #[test]
    fn backoff_doubles_after_each_failure() {
        let mut backoff = Backoff::default();
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(passes(&mut backoff));
            backoff.record(false);
        }
        assert_eq!(all, [0, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn success_resets_the_backoff() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            passes(&mut backoff);
            backoff.record(false);
        }
        passes(&mut backoff);
        backoff.record(true);
        assert!(backoff.should_attempt());
        backoff.record(false);
        assert_eq!(passes(&mut backoff), 2);
    }
}
