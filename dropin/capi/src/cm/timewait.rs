//! `RDMA_CM_EVENT_TIMEWAIT_EXIT`, some time after `RDMA_CM_EVENT_DISCONNECTED` unless the identifier has been destroyed by then: some
//! programs free a connection on that event alone. InfiniBand's connection manager does not reuse a connection's number before it; here
//! the event has no other meaning, since TCP has its own TIME_WAIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::link::{Link, Param};
use crate::abi::RDMA_CM_EVENT_TIMEWAIT_EXIT;
use crate::log;

/// About the time that RoCE adapters take. Most programs destroy an identifier sooner, and some do not expect the event.
const TIMEWAIT: Duration = Duration::from_millis(500);

/// The time, and the identifier that gets the event.
type Due = (Instant, Weak<Link>);

/// Identifiers in time wait, with a thread that ends when this is dropped.
#[derive(Default)]
pub(crate) struct Timewait(Mutex<Option<Sender<Due>>>);

impl Timewait {
    /// Adds an identifier whose connection was just reported as ended.
    pub(super) fn add(&self, link: &Arc<Link>) {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (give, take) = channel();
            match verbena::low::spawn("verbena-cm", move || run(&take)) {
                Ok(_) => *sender = Some(give),
                Err(error) => log::error(|| error.to_string()),
            }
        }
        let due = (Instant::now() + TIMEWAIT, Arc::downgrade(link));
        let given = sender.as_ref().is_some_and(|give| give.send(due).is_ok());
        if !given {
            // Without the thread the event comes too early, rather than never.
            report_exit(link);
        }
    }
}

fn run(take: &Receiver<Due>) {
    // The delay is the same for all, so they arrive in the order of their times.
    while let Ok((when, link)) = take.recv() {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        if let Some(link) = link.upgrade()
            && catch_unwind(AssertUnwindSafe(|| report_exit(&link))).is_err()
        {
            log::error(|| "thread verbena-cm panicked; the thread continues".to_owned());
        }
    }
}

fn report_exit(link: &Arc<Link>) {
    link.report(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, Param::NONE);
}
