//! When a measurement ends, and which of its messages count. A measurement ends by a number of messages or by time; a warm-up before it does
//! not count. All loops of `verbena bench` and of `cargo xtask peers` are measured by these types.

use std::time::{Duration, Instant};

/// How long a measurement lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Until this number of messages were measured.
    Messages {
        /// Messages before them that do not count.
        warmup: usize,
        /// Messages that count.
        count: usize,
    },
    /// For this time, after a warm-up of a quarter of it.
    Time(Duration),
}

/// The warm-up and the measured part of messages that are timed one by one.
#[derive(Debug)]
pub struct Timer {
    extent: Extent,
    /// Start and end of the measured time.
    begin: Instant,
    end: Instant,
    times: Vec<Duration>,
}

impl Timer {
    /// Starts the warm-up now.
    pub fn start(extent: Extent) -> Timer {
        let (span, room) = match extent {
            Extent::Time(span) => (span, 0),
            Extent::Messages { count, .. } => (Duration::ZERO, count),
        };
        let begin = Instant::now() + span / 4;
        Timer {
            extent,
            begin,
            end: begin + span,
            times: Vec::with_capacity(room),
        }
    }

    /// Whether the message of this turn, which would start at this time, is beyond the measurement. At least one message is measured: on a
    /// busy machine one can take longer than the whole measured time.
    pub fn is_over(&self, turn: usize, at: Instant) -> bool {
        match self.extent {
            Extent::Messages { warmup, count } => turn >= warmup + count,
            Extent::Time(_) => at >= self.end && !self.times.is_empty(),
        }
    }

    /// Adds the time of a message that started at `at`, unless it belongs to the warm-up; `ways` messages made a round trip.
    pub fn record(&mut self, turn: usize, at: Instant, ways: u32) {
        let counts = match self.extent {
            Extent::Messages { warmup, .. } => turn >= warmup,
            Extent::Time(_) => at >= self.begin,
        };
        if counts {
            self.times.push(at.elapsed() / ways);
        }
    }

    /// The times of the measured messages, in order.
    pub fn into_times(self) -> Vec<Duration> {
        self.times
    }
}

/// The figures of a stream of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throughput {
    /// Messages in the measured time.
    pub messages: u64,
    /// Bytes in the measured time.
    pub bytes: u64,
    /// The measured time, at least a nanosecond.
    pub elapsed: Duration,
    /// Bytes with those of the warm-up.
    pub carried: u64,
}

/// Counts the messages of a stream.
#[derive(Debug)]
pub struct Meter {
    /// The measured time; without one, everything counts from the start, and the caller ends the stream.
    span: Option<Duration>,
    /// Start and end of the measured time.
    begin: Instant,
    end: Instant,
    /// Messages that belong to the warm-up, however long they take.
    warmup_messages: u64,
    size: u64,
    carried: u64,
    /// When counting started, and the messages before.
    from: Option<(Instant, u64)>,
}

impl Meter {
    /// Starts now, for messages of this size.
    pub fn start(span: Option<Duration>, size: u32) -> Meter {
        let now = Instant::now();
        let length = span.unwrap_or_default();
        let begin = now + length / 4;
        Meter {
            span,
            begin,
            end: begin + length,
            warmup_messages: 0,
            size: u64::from(size),
            carried: 0,
            from: span.is_none().then_some((now, 0)),
        }
    }

    /// For many connections, by time: nothing counts before two messages per connection. The first one has the costs of a new connection
    /// (cold caches, allocations), and with many connections the measured time would contain little else.
    pub fn for_connections(span: Duration, size: u32, connections: usize) -> Meter {
        Meter {
            warmup_messages: 2 * connections as u64,
            ..Meter::start(Some(span), size)
        }
    }

    /// Adds messages; false when the measured time is over.
    pub fn record(&mut self, messages: u64) -> bool {
        self.carried += messages;
        let Some(span) = self.span else {
            return true;
        };
        let now = Instant::now();
        if self.from.is_none() && now >= self.begin && self.carried >= self.warmup_messages {
            // The warm-up may have taken longer than planned.
            (self.begin, self.end) = (now, now + span);
            self.from = Some((now, self.carried));
        }
        self.from.is_none() || now < self.end
    }

    /// The figures so far.
    pub fn figures(&self) -> Throughput {
        let now = Instant::now();
        let (from, before) = self.from.unwrap_or((now, self.carried));
        let messages = self.carried - before;
        Throughput {
            messages,
            bytes: messages * self.size,
            elapsed: (now - from).max(Duration::from_nanos(1)),
            carried: self.carried * self.size,
        }
    }
}

/// The element at a fraction of a sorted list; zero if it is empty.
pub fn quantile(times: &[Duration], fraction: f64) -> Duration {
    let last = times.len().saturating_sub(1);
    let at = (last as f64 * fraction).round() as usize;
    times.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Warm-ups and ends, by messages and by time.

    use super::*;

    #[test]
    fn timer_by_messages_drops_warmup() {
        let mut timer = Timer::start(Extent::Messages {
            warmup: 2,
            count: 3,
        });
        let turns = (0..).take_while(|turn| !timer.is_over(*turn, Instant::now()));
        let turns: Vec<usize> = turns.collect();
        assert_eq!(turns, [0, 1, 2, 3, 4]);
        for turn in turns {
            timer.record(turn, Instant::now(), 2);
        }
        assert_eq!(timer.into_times().len(), 3);
    }

    #[test]
    fn timer_by_time_measures_one_message() {
        let mut timer = Timer::start(Extent::Time(Duration::from_secs(8)));
        let start = Instant::now();
        let (early, late) = (
            start + Duration::from_secs(1),
            start + Duration::from_secs(11),
        );
        timer.record(0, early, 1);
        assert!(!timer.is_over(1, late), "nothing was measured yet");
        timer.record(1, late, 1);
        assert!(timer.is_over(2, late) && !timer.is_over(2, early));
        assert_eq!(timer.into_times().len(), 1);
    }

    #[test]
    fn meter_without_time_counts_everything() {
        let mut meter = Meter::start(None, 10);
        assert!(meter.record(5) && meter.record(6));
        let figures = meter.figures();
        assert_eq!((figures.messages, figures.bytes), (11, 110));
        assert_eq!(figures.carried, 110);
    }
}
