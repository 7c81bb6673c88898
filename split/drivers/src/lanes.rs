//! Runs all queues of a driver: the first in the caller's thread, each other in its own. When one ends, also by an error or a panic, the
//! others are requested to stop, and all have ended when [`run`] returns.

use core::fmt;
use std::thread::{Builder, ScopedJoinHandle, scope};

use crate::lane::Lane;
use crate::stop::Stop;

/// A queue that runs until a stop is requested, or an error.
pub trait Drive: Send {
    /// The error.
    type Error: std::error::Error + Send + 'static;
    /// The queue's number.
    fn lane(&self) -> Lane;
    /// Runs it.
    fn drive(&mut self, stop: &Stop) -> Result<(), Self::Error>;
}

/// Why a driver ended.
#[derive(Debug)]
pub enum DriverError<E> {
    /// One of its queues failed.
    Queue(Lane, E),
    /// A thread could not be started.
    Thread(Lane, std::io::Error),
}

impl<E: fmt::Display> fmt::Display for DriverError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Queue(Lane::ONLY, error) => write!(f, "{error}"),
            DriverError::Queue(lane, error) => write!(f, "{lane}: {error}"),
            DriverError::Thread(lane, error) => {
                write!(f, "cannot start a thread for {lane}: {error}")
            }
        }
    }
}

impl<E: std::error::Error> std::error::Error for DriverError<E> {}

/// Requests the stop when dropped, also by a panic.
struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Runs the queues until one ends or a stop is requested. Further threads are named `NAME-2` and so on. Returns the error of the first
/// queue that has one.
pub fn run<D: Drive>(
    name: &str,
    queues: &mut [D],
    stop: &Stop,
) -> Result<(), DriverError<D::Error>> {
    let Some((first, further)) = queues.split_first_mut() else {
        return Ok(());
    };
    let drive = |queue: &mut D| {
        let _along = StopOnDrop(stop);
        let lane = queue.lane();
        let driven = queue.drive(stop);
        driven.map_err(|error| DriverError::Queue(lane, error))
    };
    let drive = &drive;
    scope(|scope| {
        let mut threads: Vec<ScopedJoinHandle<'_, _>> = Vec::new();
        let mut refused = Ok(());
        for queue in further {
            let lane = queue.lane();
            let builder = Builder::new().name(format!("{name}-{}", lane.ordinal()));
            match builder.spawn_scoped(scope, move || drive(queue)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.request();
                    refused = Err(DriverError::Thread(lane, error));
                    break;
                }
            }
        }
        let mut ended = refused.and(drive(first));
        for thread in threads {
            let other = thread.join();
            ended = ended.and(other.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        ended
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until a stop is requested, or fails at once.
    struct Waiting {
        lane: Lane,
        fails: bool,
        waited: bool,
        thread: Option<String>,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("broken")]
    struct TestError;

    impl Drive for Waiting {
        type Error = TestError;

        fn lane(&self) -> Lane {
            self.lane
        }

        fn drive(&mut self, stop: &Stop) -> Result<(), TestError> {
            if self.fails {
                return Err(TestError);
            }
            let mut fds = [rustix::event::PollFd::new(
                stop,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
            self.waited = stop.is_requested();
            self.thread = std::thread::current().name().map(str::to_owned);
            Ok(())
        }
    }

    fn queues(of: u8, fails: &[u8]) -> Vec<Waiting> {
        let each = Lane::all(of).map(|lane| Waiting {
            lane,
            fails: fails.contains(&lane.queue()),
            waited: false,
            thread: None,
        });
        each.collect()
    }

    #[test]
    fn failing_queue_stops_the_others() {
        for failing in 0..4 {
            let mut all = queues(4, &[failing]);
            let ended = run("test", &mut all, &Stop::new().unwrap()).unwrap_err();
            let said = format!("queue {} of 4: broken", failing + 1);
            assert_eq!(ended.to_string(), said);
            let waited = all.iter().filter(|queue| queue.waited).count();
            assert_eq!(waited, 3);
        }
        let mut two = queues(4, &[3, 1]);
        let ended = run("test", &mut two, &Stop::new().unwrap()).unwrap_err();
        assert_eq!(ended.to_string(), "queue 2 of 4: broken");
    }

    #[test]
    fn stop_request_ends_all_queues() {
        let stop = Stop::new().unwrap();
        let mut all = queues(16, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| stop.request());
            run("test", &mut all, &stop).unwrap();
        });
        assert!(all.iter().all(|queue| queue.waited));
        // Counted from 1: the first runs in this thread.
        for queue in &all[1..] {
            let name = format!("test-{}", queue.lane.queue() + 1);
            assert_eq!(queue.thread, Some(name));
        }
    }

    #[test]
    fn error_of_a_single_queue_is_unprefixed() {
        let ended = run("test", &mut queues(1, &[0]), &Stop::new().unwrap());
        assert_eq!(ended.unwrap_err().to_string(), "broken");
        assert!(run("test", &mut queues(0, &[]), &Stop::new().unwrap()).is_ok());
    }
}
