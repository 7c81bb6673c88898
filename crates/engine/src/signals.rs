//! Signals of the adapter's vectors, and who serves them: the thread that fires, a station, or whoever comes first (E10).
//! It promises that serving is a loop and never a nest: a handler that makes others fire does not grow the stack.
//! It refuses to know what an event means; the core does.

use core::mem::ManuallyDrop;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use verbena_nic::eq::{EventQueue, MAX_ENTRIES};
use verbena_nic::vector::{Delivery, Fire, Shutdown, Signal};
use verbena_stream::Time;

use crate::core::Core;
use crate::error::Error;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Ready};

/// A signal, and whose.
type Task = (Arc<Core>, Signal);

thread_local! {
    /// Signals that this thread still has to serve, the oldest first, so that each has its turn; none while it serves nobody.
    /// Never dropped, since it holds nothing then: a program in the middle of `exit` may still be served.
    static ROUND: ManuallyDrop<RefCell<Option<VecDeque<Task>>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Takes the adapter's signals; none is given before the core is there.
pub(crate) struct Signals(pub(crate) Arc<OnceLock<Weak<Core>>>);

impl Signals {
    fn core(&self) -> Option<Arc<Core>> {
        self.0.get()?.upgrade()
    }
}

impl Fire for Signals {
    fn fire(&self, signal: Signal, delivery: Delivery) {
        let Some(core) = self.core() else {
            return;
        };
        match delivery {
            Delivery::Inline | Delivery::Line => serve_in_turn(&core, signal),
            Delivery::Pinned(at) => {
                let station = core.stations.get(at);
                let taken = station.is_some_and(|s| s.signal(signal, core.class_of(signal)));
                // Stations end before the last notifications do (N8).
                if !taken {
                    serve_in_turn(&core, signal);
                }
            }
        }
    }

    /// E2: a queue that is full gets twice the room, or as much again as a memory can have; what did not fit was kept
    /// beside it.
    fn overflow(&self, queue: u16) {
        if let Some(core) = self.core() {
            let now = sys::now();
            let room = core.interrupts.queue(queue).map(EventQueue::room);
            let more = |entries: usize| entries.saturating_mul(2).min(MAX_ENTRIES);
            // Refused while its reader has not followed earlier ones: it is told again then.
            if let Ok(Ok((entries, _))) = room
                && let Ok(due) = core.interrupts.resize(queue, more(entries), now)
            {
                core.come_back(due);
            }
        }
    }

    fn shutdown(&self, why: Shutdown) {
        if let Some(core) = self.core() {
            core.go_down(why);
        }
    }
}

/// Serves a signal on this thread, now or, if it is serving already, next.
fn serve_in_turn(core: &Arc<Core>, signal: Signal) {
    let first = ROUND.with(|round| match &mut *round.borrow_mut() {
        Some(waiting) => {
            waiting.push_back((core.clone(), signal));
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
    // After a panic this thread must serve again, if only to say that it failed.
    let round = Round;
    core.serve(signal);
    while let Some((core, signal)) = ROUND.with(|round| {
        let mut round = round.borrow_mut();
        let next = round.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *round = None;
        }
        next
    }) {
        core.serve(signal);
    }
    core::mem::forget(round);
}

/// Ends a round whose serving panicked; what was left of it is given up.
struct Round;

impl Drop for Round {
    fn drop(&mut self) {
        let left = ROUND.with(|round| round.borrow_mut().take());
        drop(left);
    }
}

/// Comes back to the adapter's event queues when their signals were held long enough (E6).
pub(crate) struct Ticker {
    core: Weak<Core>,
    place: OnceLock<(Arc<Shard>, u64)>,
}

impl Ticker {
    pub(crate) fn new(core: Weak<Core>) -> Arc<Ticker> {
        let place = OnceLock::new();
        Arc::new(Ticker { core, place })
    }

    /// Comes back then; refused if nobody would, because the shards end.
    pub(crate) fn at(self: &Arc<Self>, core: &Core, when: Time) -> Result<(), Error> {
        if self.place.get().is_none() {
            let (shard, token) = (core.shards.pick()?, next_token());
            shard.serve(token, self.clone())?;
            if self.place.set((shard.clone(), token)).is_err() {
                // Another thread was as fast.
                shard.forget(token);
            }
        }
        if let Some((shard, token)) = self.place.get() {
            if shard.is_stopping() {
                return Err(Error::Closed);
            }
            shard.at(when, *token);
        }
        Ok(())
    }
}

impl Served for Ticker {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        if let Some(core) = self.core.upgrade() {
            core.tick(now);
        }
    }

    fn stop(self: Arc<Self>) {}
}
