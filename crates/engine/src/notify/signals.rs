//! The signals of the adapter's vectors, and the threads that serve them: the one that fires, or a handler thread (E10).
//! Serving is a loop per thread and never recursive: a handler that fires further signals does not grow the stack.

use core::mem::ManuallyDrop;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use verbena_events::eq::{EventQueue, MAX_ENTRIES};
use verbena_events::vector::{Delivery, Fire, Shutdown, Signal};
use verbena_sync::locks::OnceLock;
use verbena_sync::thread::thread_local;

use crate::notify::handler_threads;
use crate::notify::pipeline::Notification;
use crate::sys;

/// A signal and the path of its adapter's notifications.
type Task = (Arc<Notification>, Signal);

thread_local! {
    /// Signals that this thread has yet to serve, oldest first; `None` while it serves none.
    /// Never dropped, and empty between rounds: signals may still be served inside `exit`.
    static PENDING_SIGNALS: ManuallyDrop<RefCell<Option<VecDeque<Task>>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

/// The engine of an adapter whose signals are served.
pub(crate) trait SignalHost: Send + Sync {
    fn notification(&self) -> &Arc<Notification>;

    /// An event could not be delivered (E2).
    fn fail_undelivered(&self, why: Shutdown);
}

/// The engine of signals; set when its core is complete.
pub(crate) type SignalHostCell = Arc<OnceLock<Weak<dyn SignalHost>>>;

/// Receives the adapter's signals; none is fired before the core exists.
pub(crate) struct Signals(pub(crate) SignalHostCell);

impl Signals {
    fn engine(&self) -> Option<Arc<dyn SignalHost>> {
        self.0.get()?.upgrade()
    }

    fn notification(&self) -> Option<Arc<Notification>> {
        Some(self.engine()?.notification().clone())
    }
}

impl Fire for Signals {
    fn fire(&self, signal: Signal, delivery: Delivery) {
        let Some(notification) = self.notification() else {
            return;
        };
        match delivery {
            Delivery::Inline | Delivery::Line => serve_in_turn(&notification, signal),
            Delivery::Pinned(at) => {
                let group = notification.handler_threads.get(at);
                let taken = group.is_some_and(|s| {
                    s.queue_task(
                        handler_threads::Task::Signal(signal),
                        notification.class_of(signal),
                    )
                });
                // Handler threads end before the last notifications are raised (N8).
                if !taken {
                    serve_in_turn(&notification, signal);
                }
            }
        }
    }

    /// E2: a full queue is doubled, up to the limit; entries that did not fit are kept beside it.
    fn overflow(&self, queue: u16) {
        if let Some(notification) = self.notification() {
            let now = sys::now();
            let room = notification.interrupts.queue(queue).map(EventQueue::room);
            let more = |entries: usize| entries.saturating_mul(2).min(MAX_ENTRIES);
            // Fails while the reader has not followed an earlier resize; the overflow is reported again then.
            if let Ok(Ok((entries, _))) = room
                && let Ok(due) = notification.interrupts.resize(queue, more(entries), now)
            {
                notification.schedule_tick(due);
            }
        }
    }

    fn shutdown(&self, why: Shutdown) {
        if let Some(engine) = self.engine() {
            engine.fail_undelivered(why);
        }
    }
}

/// Serves a signal on this thread: now, or after the current one if it is serving already.
fn serve_in_turn(notification: &Arc<Notification>, signal: Signal) {
    let first = PENDING_SIGNALS.with(|round| match &mut *round.borrow_mut() {
        Some(waiting) => {
            waiting.push_back((notification.clone(), signal));
            false
        }
        round => {
            *round = Some(VecDeque::new());
            true
        }
    });
    if !first {
        return;
    }
    // Ends the round after a panic: this thread must be able to serve again, if only to report the failure.
    let round = RoundGuard;
    notification.serve(signal);
    while let Some((notification, signal)) = PENDING_SIGNALS.with(|round| {
        let mut round = round.borrow_mut();
        let next = round.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *round = None;
        }
        next
    }) {
        notification.serve(signal);
    }
    core::mem::forget(round);
}

/// Ends a round whose serving panicked; its remaining signals are dropped.
struct RoundGuard;

impl Drop for RoundGuard {
    fn drop(&mut self) {
        let left = PENDING_SIGNALS.with(|round| round.borrow_mut().take());
        drop(left);
    }
}
