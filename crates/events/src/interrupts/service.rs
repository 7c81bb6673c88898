//! The driver's service routine: the queues that a signal is for are read, handled, acknowledged and re-armed (E4, E12).
//! It needs no register read and at most one register write per queue, and keeps the order of each queue. A queue that never empties
//! is left after [`BUDGET`] events: arming it signals again.

use super::*;
use crate::eq::{Doorbell, Indicator};
use crate::eqe::Eqe;

/// Result of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "the caller may have to call `tick` and `poll` at `due`"]
pub struct Served {
    /// Events handled.
    pub events: u32,
    /// Call [`Interrupts::tick`] and [`Interrupts::poll`] at this time.
    pub due: Option<Time>,
}

impl Served {
    fn add(&mut self, other: Served) {
        self.events += other.events;
        self.due = earlier(self.due, other.due);
    }
}

/// Result of one turn at a queue.
#[derive(Debug, Default)]
struct Turn {
    events: u32,
    acknowledged: u32,
    arm: bool,
    next_poll: Option<Time>,
}

impl Interrupts {
    /// Serves a signal. A spurious one finds no queue and does nothing (E10).
    ///
    /// `handle` gets each event with the number of its queue, and may raise events and fire signals. It must not create
    /// the queue it is called for.
    pub fn service(
        &self,
        signal: Signal,
        now: Time,
        mut handle: impl FnMut(u16, Eqe),
    ) -> Result<Served, VectorError> {
        let mut served = Served::default();
        let message = self.pending_queues(signal)?;
        for (index, word) in message.words.iter().enumerate() {
            // Taken before the queues are read: a bit that is set later has a signal of its own.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut notes = word.swap(0, Ordering::Acquire);
            while notes != 0 {
                let queue = index as u16 * 64 + notes.trailing_zeros() as u16;
                notes &= notes - 1;
                served.add(self.serve_queue(queue, now, &message.writes, &mut handle));
            }
        }
        if served.events > 0 {
            let events = served.events as usize;
            message.events.fetch_add(events, Ordering::Relaxed);
        }
        Ok(served)
    }

    /// Serves the queues that are polled ([`Arming::WhenIdle`]) and due.
    pub fn poll(&self, now: Time, mut handle: impl FnMut(u16, Eqe)) -> Served {
        let mut served = Served::default();
        for (number, slot) in self.slots.iter().enumerate() {
            let polls = slot.next_poll.load(Ordering::Relaxed);
            if polls <= now.nanos() && polls != NEVER {
                slot.next_poll.store(NEVER, Ordering::Relaxed);
                served.add(self.serve_queue(number as u16, now, &self.writes, &mut handle));
            } else if polls != NEVER {
                served.due = earlier(served.due, Some(Time::from_nanos(polls)));
            }
        }
        served
    }

    /// Has the queues that are polled and due served by their signals, on the threads of these: what [`poll`](Interrupts::poll) does for a
    /// driver with one thread. It counts as no interrupt. Returns when to call again.
    pub fn fire_polls(&self, now: Time) -> Option<Time> {
        let mut next = None;
        for (number, slot) in self.slots.iter().enumerate() {
            let polls = slot.next_poll.load(Ordering::Relaxed);
            if polls == NEVER {
                continue;
            }
            if polls > now.nanos() {
                next = earlier(next, Some(Time::from_nanos(polls)));
                continue;
            }
            slot.next_poll.store(NEVER, Ordering::Relaxed);
            let (signal, delivery) = self.vectors.resolve(slot.queue.signal());
            if let Ok(message) = self.pending_queues(signal) {
                message.set(number as u16);
                self.fire.fire(signal, delivery);
            }
        }
        next
    }

    /// From now on every queue is armed at the end of each service, and none waits for a poll: the driver has no timer any more.
    pub fn end_polling(&self) {
        for slot in &self.slots {
            slot.arming.store(0, Ordering::Relaxed);
        }
        let _ = self.fire_polls(Time::MAX);
    }

    fn serve_queue(
        &self,
        queue: u16,
        now: Time,
        writes: &AtomicUsize,
        handle: &mut impl FnMut(u16, Eqe),
    ) -> Served {
        let slot = &self.slots[usize::from(queue)];
        let arming = slot.arming();
        let mut turn = Turn::default();
        // If another thread serves this queue, it takes another turn instead of this one.
        slot.reader.run_or_delegate(|reader| {
            if let Some(reader) = reader {
                turn.serve(queue, reader, arming, now, handle);
            }
        });
        if let Some(polls) = turn.next_poll {
            slot.next_poll.store(polls.nanos(), Ordering::Relaxed);
        }
        let mut due = turn.next_poll;
        if turn.arm || turn.acknowledged > 0 {
            let read = match turn.acknowledged {
                0 => Indicator::Keep,
                count => Indicator::By(count),
            };
            let armed = turn.arm;
            let doorbell = Doorbell { queue, armed, read };
            // Fails if the queue was destroyed meanwhile; then neither is needed.
            writes.fetch_add(1, Ordering::Relaxed);
            let later = self.accept_write(doorbell.pack(), now);
            due = earlier(due, later.unwrap_or(None));
        }
        Served {
            events: turn.events,
            due,
        }
    }
}

impl Turn {
    /// Reads and handles entries, up to the budget, and decides what to write to the register.
    fn serve(
        &mut self,
        queue: u16,
        reader: &mut Reader,
        arming: Arming,
        now: Time,
        handle: &mut impl FnMut(u16, Eqe),
    ) {
        let mut found = false;
        while self.events < BUDGET
            && let Some(eqe) = reader.next()
        {
            found = true;
            self.events += 1;
            handle(queue, eqe);
        }
        match arming {
            // The thread that took events arms; one that found none leaves that to the thread that did.
            Arming::Now if found || reader.polling => {
                reader.polling = false;
                self.arm = true;
                self.acknowledged += reader.acknowledge();
            }
            Arming::Now => {}
            Arming::WhenIdle(gap) if found => {
                reader.polling = true;
                self.arm = false;
                self.next_poll = Some(now + gap);
                // E5: lazily, as long as the adapter has room.
                if reader.is_half_taken() {
                    self.acknowledged += reader.acknowledge();
                }
            }
            Arming::WhenIdle(_) if reader.polling => {
                reader.polling = false;
                self.arm = true;
                self.next_poll = None;
                self.acknowledged += reader.acknowledge();
            }
            Arming::WhenIdle(_) => {}
        }
    }
}
