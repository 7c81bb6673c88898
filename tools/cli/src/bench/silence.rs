//! How long a side waits for a peer that sends nothing. The clock and the state of the connections are read once in many empty polls,
//! because both cost more than a poll.

use std::time::{Duration, Instant};

/// Empty polls between two checks.
const CHECK_POLLS: u32 = 4096;

/// The time limit of `verbena bench`, unless `--timeout` sets another.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// The time since the peer's last message.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    polls: u32,
    /// When the first check since the last message was.
    since: Option<Instant>,
}

impl Silence {
    /// With this limit.
    pub fn new(limit: Duration) -> Silence {
        Silence {
            limit,
            polls: 0,
            since: None,
        }
    }

    /// A message arrived or completed.
    pub fn end(&mut self) {
        self.polls = 0;
        self.since = None;
    }

    /// After an empty poll: whether the connections are to be checked now.
    pub fn is_check_due(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(CHECK_POLLS)
    }

    /// At a check: whether the peer has been silent for longer than the limit.
    pub fn is_too_long(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= self.limit
    }

    /// The limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }
}
