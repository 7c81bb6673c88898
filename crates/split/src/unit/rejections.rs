//! Rejected requests of a unit: all are counted, and a limited number is written to the journal. At most `SENTENCES` messages appear in
//! each `SPAN`, however often unauthenticated peers connect; the next message says how many were left out.

use std::time::{Duration, Instant};

/// Messages about rejected peers, within [`SPAN`].
const SENTENCES: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);

/// Counts rejections and limits the messages about them.
#[derive(Debug)]
pub(super) struct Rejections {
    count: u64,
    since: Instant,
    said: u32,
    /// Messages left out since the last one written.
    unsaid: u64,
}

impl Rejections {
    pub(super) fn new(now: Instant) -> Rejections {
        Rejections {
            count: 0,
            since: now,
            said: 0,
            unsaid: 0,
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
    pub(super) fn say(&mut self, sentence: String, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.since) >= SPAN {
            (self.since, self.said) = (now, 0);
        }
        if self.said >= SENTENCES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        match core::mem::take(&mut self.unsaid) {
            0 => Some(sentence),
            more => Some(format!(
                "{sentence} (and {more} times before that nothing was said)"
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
        let mut say = |at| rejections.say("no".to_owned(), now + at);
        let said = (0..1000).filter_map(|_| say(SPAN / 2)).count();
        assert_eq!(said, SENTENCES as usize);
        let later = say(SPAN);
        assert!(later.is_some_and(|said| said.contains("and 990 times")));
        assert_eq!(say(SPAN).as_deref(), Some("no"));
    }
}
