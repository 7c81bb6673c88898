//! Rejected requests of a unit: all are counted, and a limited number is written to the journal. At most `MAX_MESSAGES` messages appear in
//! each `SPAN`, however often unauthenticated peers connect; the next message says how many were left out.

use std::time::{Duration, Instant};

/// Messages about rejected peers, within [`SPAN`].
const MAX_MESSAGES: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);

/// Counts rejections and limits the messages about them.
#[derive(Debug)]
pub(super) struct Rejections {
    count: u64,
    since: Instant,
    logged: u32,
    /// Messages left out since the last one written.
    suppressed: u64,
}

impl Rejections {
    pub(super) fn new(now: Instant) -> Rejections {
        Rejections {
            count: 0,
            since: now,
            logged: 0,
            suppressed: 0,
        }
    }

    /// Rejections since the start.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Counts a rejection.
    pub(super) fn add(&mut self) {
        self.count += 1;
    }

    /// The message to write to the journal, or `None` if the limit is reached.
    pub(super) fn limit_message(&mut self, sentence: String, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.since) >= SPAN {
            (self.since, self.logged) = (now, 0);
        }
        if self.logged >= MAX_MESSAGES {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        match core::mem::take(&mut self.suppressed) {
            0 => Some(sentence),
            more => Some(format!(
                "{sentence} (and {more} times before without a message)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_messages_are_rate_limited() {
        let now = Instant::now();
        let mut rejections = Rejections::new(now);
        let mut say = |at| rejections.limit_message("no".to_owned(), now + at);
        let said = (0..1000).filter_map(|_| say(SPAN / 2)).count();
        assert_eq!(said, MAX_MESSAGES as usize);
        let later = say(SPAN);
        assert!(later.is_some_and(|said| said.contains("and 990 times")));
        assert_eq!(say(SPAN).as_deref(), Some("no"));
    }
}
