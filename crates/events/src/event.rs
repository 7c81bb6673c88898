//! Asynchronous events of the adapter, and how they are raised.
//! An [`Event`] names the object and the cause; every event goes through [`Raise`]. The receiver of the events is not known here.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::toeplitz::Tuple;

/// Failures of queue pairs of this process that were reported to an outbox and not handled yet. Not one of the models' atomics: only the end
/// of the process waits for it, and not for long.
static UNHANDLED_FAILURES: AtomicUsize = AtomicUsize::new(0);

/// Whether the failure of a queue pair is still to be handled. A program that has polled a completion of that queue pair sees it.
pub fn has_unhandled_failures() -> bool {
    UNHANDLED_FAILURES.load(Ordering::Acquire) != 0
}

/// A failure that an outbox reported was handled.
pub fn failure_handled() {
    UNHANDLED_FAILURES.fetch_sub(1, Ordering::Release);
}

/// Why an armed completion queue raises an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is armed for the next completion.
    Next,
    /// The sender asked for a solicited event.
    Solicited,
    /// The completion is a failure.
    Failure,
}

/// What happened on a channel (E7): a queue pair of plain TCP, or a channel of the split driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelEvent {
    /// Its pool holds fewer buffers than its threshold.
    BuffersLow,
    /// Descriptors were returned.
    Returned,
    /// The host posted buffers that it may not post.
    IllegalPost,
}

/// Something happened to an object of the adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// An armed completion queue got an entry (N7).
    Completion {
        /// The queue.
        cq: u32,
        /// The property of the entry that caused the event.
        reason: Reason,
    },
    /// A completion queue had no room: entries are lost and its queue pairs fail.
    CqOverflow {
        /// The queue.
        cq: u32,
    },
    /// A shared receive queue fell below its limit.
    SrqLimit {
        /// The queue.
        srq: u32,
    },
    /// A shared receive queue failed: nothing more is taken from it.
    SrqError {
        /// The queue.
        srq: u32,
    },
    /// A queue pair failed because of an invalid request.
    QpRequest {
        /// The queue pair.
        qp: u32,
    },
    /// A queue pair failed because of an access that was not allowed.
    QpAccess {
        /// The queue pair.
        qp: u32,
    },
    /// A queue pair failed for another reason.
    QpFatal {
        /// The queue pair.
        qp: u32,
    },
    /// The peer's capabilities arrived, with the required nonce if there is one.
    Established {
        /// The queue pair.
        qp: u32,
    },
    /// The send queue is drained.
    SqDrained {
        /// The queue pair.
        qp: u32,
    },
    /// A failed queue pair will take nothing more from its shared receive queue.
    LastWqe {
        /// The queue pair.
        qp: u32,
    },
    /// The peer ended the connection.
    Disconnected {
        /// The queue pair.
        qp: u32,
    },
    /// The link of the adapter's port is up again.
    PortActive {
        /// The port.
        port: u16,
    },
    /// The link of the adapter's port is down.
    PortError {
        /// The port.
        port: u16,
    },
    /// Something happened on a channel that reports it.
    Channel {
        /// The channel, below 32.
        channel: u8,
        /// What.
        what: ChannelEvent,
        /// Buffers or descriptors concerned.
        count: u32,
    },
    /// Unread events filled their queue: so many later ones were dropped.
    Missed {
        /// How many.
        count: u32,
    },
    /// The adapter failed or was shut down: its queue pairs are in the error state, and nothing new is taken.
    DeviceFatal,
}

/// Why a queue pair is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wake {
    /// A shared receive queue has reserved a receive for this queue pair.
    Receive(u32),
    /// An entry of the table that this queue pair waits for is valid now, or will never be (V5).
    Memory(u32),
    /// Requests of this shared send queue have ended, so that it may continue (V6). This names a shared send queue, not a queue pair;
    /// it is woken by the code that owns the connections of its channels.
    Sends(u32),
    /// This queue pair failed, and the failure is to be recorded; it is not woken.
    Failed(u32),
}

impl Wake {
    /// The queue pair, if the wakeup is for one.
    pub fn qp(self) -> Option<u32> {
        match self {
            Wake::Receive(qp) | Wake::Memory(qp) => Some(qp),
            Wake::Sends(_) | Wake::Failed(_) => None,
        }
    }
}

/// Takes events. Called after all locks of the adapter are released.
pub trait Raise: Send + Sync {
    /// One event.
    fn raise(&self, event: Event);

    /// One event that a packet with these addresses caused (E8).
    fn raise_from(&self, event: Event, _packet: Tuple) {
        self.raise(event);
    }
}

/// Events and everything else that must wait until all locks are released.
///
/// The code that drives a queue pair passes its outbox to `Function::settle` before it flushes it:
/// queue pairs that must be woken or failed because of an overflow are reached from there, one lock at a time.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Completion queues whose queue pairs must fail.
    overflows: Vec<u32>,
    events: Vec<Event>,
    woken: Vec<Wake>,
    /// From which event on the events come from which packet; empty unless the caller steers events by their packets (E8).
    packets: Vec<(usize, Option<Tuple>)>,
}

impl Outbox {
    /// Empty.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Empty, which is the usual case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.woken.is_empty() && self.overflows.is_empty()
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        if let Event::CqOverflow { cq } = event {
            self.overflows.push(cq);
        }
        self.events.push(event);
    }

    /// Adds a queue pair for which a shared receive queue has a receive now.
    pub fn wake(&mut self, qpn: u32) {
        self.woken.push(Wake::Receive(qpn));
    }

    /// Adds queue pairs that waited for an entry of the table.
    pub fn wake_for_memory(&mut self, qps: impl IntoIterator<Item = u32>) {
        self.woken.extend(qps.into_iter().map(Wake::Memory));
    }

    /// Adds a shared send queue that may continue (V6).
    pub fn wake_sends(&mut self, ssq: u32) {
        self.woken.push(Wake::Sends(ssq));
    }

    /// Adds a queue pair that failed, before its completions can be polled. The code that takes it calls [`failure_handled`].
    pub fn report_failure(&mut self, qpn: u32) {
        UNHANDLED_FAILURES.fetch_add(1, Ordering::Relaxed);
        self.woken.push(Wake::Failed(qpn));
    }

    /// Queue pairs whose `Qp::wake` must be called. The caller holds no lock.
    #[must_use = "a queue pair that is not woken waits for ever"]
    pub fn take_woken(&mut self) -> Vec<Wake> {
        core::mem::take(&mut self.woken)
    }

    /// The events, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Completion queues whose queue pairs must be failed by `Qp::fail_overflowed`.
    #[must_use = "a queue pair that is not failed continues with a queue that lost entries"]
    pub fn take_overflows(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.overflows)
    }

    /// Events that are added from now on come from this packet, or from none (E8).
    pub fn set_packet(&mut self, packet: Option<Tuple>) {
        let at = self.events.len();
        let current = match self.packets.last_mut() {
            Some((first, current)) if *first == at => {
                *current = packet;
                return;
            }
            Some((_, current)) => *current,
            None => None,
        };
        if current != packet {
            self.packets.push((at, packet));
        }
    }

    /// Events that are added from now on come from no packet.
    #[inline]
    pub fn end_packet(&mut self) {
        if !self.packets.is_empty() {
            self.set_packet(None);
        }
    }

    /// Raises all events. The caller holds no lock.
    pub fn flush(&mut self, raise: &dyn Raise) {
        if !self.packets.is_empty() {
            return self.flush_by_packet(raise);
        }
        for event in self.events.drain(..) {
            raise.raise(event);
        }
    }

    #[cold]
    fn flush_by_packet(&mut self, raise: &dyn Raise) {
        let mut packets = self.packets.drain(..).peekable();
        let mut packet = None;
        for (at, event) in self.events.drain(..).enumerate() {
            while let Some((_, from)) = packets.next_if(|(first, _)| *first <= at) {
                packet = from;
            }
            match packet {
                Some(packet) => raise.raise_from(event, packet),
                None => raise.raise(event),
            }
        }
    }
}

#[cfg(test)]
mod tests;
