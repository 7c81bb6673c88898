//! Limits answers to segments that may be forged: challenge acknowledgements (RFC 5961, 7) and other answers without data.
//! The limit is of one connection, since a limit of the host would tell other hosts about its connections.

use core::time::Duration;
use verbena_stream::Time;

/// Answers of a connection in a second.
pub const MAX_CHALLENGES_PER_SECOND: u32 = 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Limiter {
    since: Time,
    count: u32,
}

impl Limiter {
    /// Whether another answer may be sent.
    pub(crate) fn admits(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= MAX_CHALLENGES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_a_second_are_limited() {
        let mut limiter = Limiter::default();
        let start = Time::ZERO + Duration::from_secs(9);
        let admitted = (0..100).filter(|_| limiter.admits(start)).count();
        assert_eq!(admitted, MAX_CHALLENGES_PER_SECOND as usize);
        assert!(limiter.admits(start + Duration::from_secs(1)));
    }
}
