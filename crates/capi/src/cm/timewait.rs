//! The time for which a connection's number is not used again after its end, as InfiniBand's connection manager keeps it.
//! It promises `RDMA_CM_EVENT_TIMEWAIT_EXIT` some time after `RDMA_CM_EVENT_DISCONNECTED`, unless the identifier is gone by then:
//! there are programs that free a connection on that event alone. It refuses to keep anything from being used: TCP sees to that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::link::{Link, Param};
use crate::abi::RDMA_CM_EVENT_TIMEWAIT_EXIT;
use crate::log;

/// About what RoCE adapters take. Most programs destroy an identifier sooner, and some would be surprised by the event.
const TIME: Duration = Duration::from_millis(500);

/// When, and who is told.
type Due = (Instant, Weak<Link>);

/// Identifiers whose time runs, with a thread that ends when nobody has a use for it.
#[derive(Default)]
pub(crate) struct Timewait(Mutex<Option<Sender<Due>>>);

impl Timewait {
    /// The end of this identifier's connection was told just now.
    pub(super) fn add(&self, link: &Arc<Link>) {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (give, take) = channel();
            match verbena::low::spawn("verbena-cm", move || run(&take)) {
                Ok(_) => *sender = Some(give),
                Err(error) => log::error(|| error.to_string()),
            }
        }
        let due = (Instant::now() + TIME, Arc::downgrade(link));
        let given = sender.as_ref().is_some_and(|give| give.send(due).is_ok());
        if !given {
            // Too early is better than never.
            exit(link);
        }
    }
}

fn run(take: &Receiver<Due>) {
    // All wait equally long, so they come in the order of their times.
    while let Ok((when, link)) = take.recv() {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        if let Some(link) = link.upgrade()
            && catch_unwind(AssertUnwindSafe(|| exit(&link))).is_err()
        {
            log::error(|| "thread verbena-cm panicked; it goes on".to_owned());
        }
    }
}

fn exit(link: &Arc<Link>) {
    link.tell(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, Param::NONE);
}
