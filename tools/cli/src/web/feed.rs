//! Something that is read again and again by a thread of its own, while it is asked for, and given to any number of readers as JSON.
//! A reader gets what was read last and waits only if that is old, for a limited time: a program that answers slowly delays no page. Without readers the
//! thread sleeps.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long after a request the thread goes on: pages ask about every second.
const LINGER: Duration = Duration::from_secs(3);
/// How long a reader waits for what is being read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads something.
pub(super) trait Read: Send + 'static {
    /// Reads it; `fresh` if it has not been read for a while, so that rates need a second look.
    fn read(&mut self, fresh: bool) -> Value;
}

/// What is read, and for whom.
pub(super) struct Feed(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// It is wanted, something was read, or the feed is dropped.
    changed: Condvar,
    interval: Duration,
}

struct State {
    wanted_until: Option<Instant>,
    latest: Option<(Instant, Arc<str>)>,
    /// The feed was dropped.
    is_over: bool,
}

impl Shared {
    /// Waits until it is time to read again after the last time; false if there is nothing more to do. Sleeps as long as nothing is wanted.
    fn wait(&self, last: Option<Instant>) -> bool {
        let mut state = self.lock();
        while !state.is_over {
            let now = Instant::now();
            let is_wanted = state.wanted_until.is_some_and(|until| now < until);
            let next = last.map_or(now, |last| last + self.interval);
            state = match (is_wanted, next.saturating_duration_since(now)) {
                (true, Duration::ZERO) => return true,
                (true, rest) => {
                    let waited = self.changed.wait_timeout(state, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                (false, _) => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// Starts the thread.
    pub(super) fn start(name: &str, interval: Duration, source: impl Read) -> io::Result<Feed> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                wanted_until: None,
                latest: None,
                is_over: false,
            }),
            changed: Condvar::new(),
            interval,
        });
        let reader = shared.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&reader, source))?;
        Ok(Feed(shared))
    }

    /// Says that it will be asked for.
    pub(super) fn want(&self) {
        self.0.lock().wanted_until = Some(Instant::now() + LINGER);
        self.0.changed.notify_all();
    }

    /// What was read last, and how long ago; `null` before the first time.
    pub(super) fn latest(&self) -> (Arc<str>, Duration) {
        self.want();
        let end = Instant::now() + PATIENCE;
        let mut state = self.0.lock();
        loop {
            let now = Instant::now();
            let usable = self.0.interval + LINGER;
            let found = state.latest.as_ref();
            let age = found.map(|(at, _)| now.duration_since(*at));
            if age.is_some_and(|age| age < usable) || now >= end {
                let text = found.map_or_else(|| Arc::from("null"), |(_, text)| text.clone());
                return (text, age.unwrap_or_default());
            }
            let waited = self.0.changed.wait_timeout(state, end - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

fn run(shared: &Shared, mut source: impl Read) {
    let mut last: Option<Instant> = None;
    while shared.wait(last) {
        let fresh = last.is_none_or(|last| last.elapsed() > LINGER);
        let text = source.read(fresh).to_string();
        let now = Instant::now();
        last = Some(now);
        shared.lock().latest = Some((now, text.into()));
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use verbena_testing::wait_until;

    /// Counts, each time that it may.
    struct Counter(u64, Receiver<()>, Sender<bool>);

    impl Read for Counter {
        fn read(&mut self, fresh: bool) -> Value {
            let _ = self.2.send(fresh);
            let _ = self.1.recv();
            self.0 += 1;
            self.0.into()
        }
    }

    #[test]
    fn slow_source_delays_readers_once_and_is_read_on_demand() {
        let ((allow, allowed), (tell, told)) = (channel(), channel());
        let feed = Feed::start("test", Duration::from_millis(1), Counter(0, allowed, tell));
        let feed = feed.unwrap();
        assert!(told.try_recv().is_err(), "nothing is read before");
        // It is being read, and does not come.
        assert_eq!(&*feed.latest().0, "null");
        assert!(told.recv().unwrap(), "the first time");
        allow.send(()).unwrap();
        wait_until("the first value", || &*feed.latest().0 == "1");
        allow.send(()).unwrap();
        wait_until("the second value", || &*feed.latest().0 == "2");
        drop(feed);
        // The thread ends with its source.
        drop(allow);
        while told.recv().is_ok() {}
    }
}
