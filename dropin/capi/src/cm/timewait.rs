//! `RDMA_CM_EVENT_TIMEWAIT_EXIT`, some time after `RDMA_CM_EVENT_DISCONNECTED` unless the identifier has been destroyed by then: some
//! programs free a connection on that event alone. InfiniBand's connection manager does not reuse a connection's number before it; here
//! the event has no other meaning, since TCP has its own TIME_WAIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::log;

/// About the time that RoCE adapters take. Most programs destroy an identifier sooner, and some do not expect the event.
const TIMEWAIT: Duration = Duration::from_millis(500);

/// Reports the event to its identifier, unless that has been destroyed.
pub(super) type ReportExit = Box<dyn FnOnce() + Send>;

/// The time, and what is done then.
type Due = (Instant, ReportExit);

/// Identifiers in time wait, with a thread that ends when this is dropped.
#[derive(Default)]
pub(crate) struct Timewait(Mutex<Option<Sender<Due>>>);

impl Timewait {
    /// Adds an identifier whose connection was just reported as ended.
    pub(super) fn add(&self, report: ReportExit) {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (give, take) = channel();
            match verbena::unstable::spawn("verbena-cm", move || run(&take)) {
                Ok(_) => *sender = Some(give),
                Err(error) => log::error(|| error.to_string()),
            }
        }
        let due = (Instant::now() + TIMEWAIT, report);
        let rejected = match &*sender {
            Some(give) => give.send(due).err().map(|SendError(due)| due),
            None => Some(due),
        };
        if let Some((_, report)) = rejected {
            // Without the thread the event comes too early, rather than never.
            report();
        }
    }
}

fn run(take: &Receiver<Due>) {
    // The delay is the same for all, so they arrive in the order of their times.
    while let Ok((when, report)) = take.recv() {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        if catch_unwind(AssertUnwindSafe(report)).is_err() {
            log::error(|| "thread verbena-cm panicked; the thread continues".to_owned());
        }
    }
}
