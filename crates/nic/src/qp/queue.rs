//! The two ends of a queue pair's work queues: posters leave requests at one, whoever runs the connection finds them at the other.
//! It promises order, that no more requests wait than the queue was made for, and that room is there before its completion is seen.
//! It refuses to judge requests; posters do that before, with what [`Marks`] tell them of the other end.

use std::sync::Arc;

use super::wqe::Wqe;
use crate::receive::Receive;
use crate::ring::{Consumer, Producer, ring};
use crate::state::QpState;
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence};

/// What posters need to know of the other end, without its lock.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// A position in [`QpState::ALL`].
    state: AtomicU8,
    /// Send requests that have ended.
    ended: AtomicU64,
    /// Receives that have been taken.
    taken: AtomicU64,
    /// Nobody at the other end waits for a receive, or has to flush one: it may lie there until a message needs it.
    calm: AtomicBool,
}

impl Marks {
    /// Where the queue pair stood a moment ago. A request that was posted on that word is flushed or dropped if it is
    /// not true any more.
    pub(super) fn state(&self) -> QpState {
        let at = usize::from(self.state.load(Ordering::Acquire));
        QpState::ALL.get(at).copied().unwrap_or(QpState::Reset)
    }

    fn set_state(&self, state: QpState) {
        let at = QpState::ALL.iter().position(|s| *s == state);
        self.state.store(at.unwrap_or(0) as u8, Ordering::Release);
    }
}

/// The posters' end of one queue.
#[derive(Debug)]
pub(super) struct Tail<T>(Mutex<TailEnd<T>>);

#[derive(Debug)]
struct TailEnd<T> {
    ring: Producer<T>,
    posted: u64,
}

impl<T> Tail<T> {
    fn new(ring: Producer<T>) -> Tail<T> {
        Tail(Mutex::new(TailEnd { ring, posted: 0 }))
    }

    /// Leaves a request unless `depth` of them are there already, `gone` having left.
    fn post(&self, request: T, depth: usize, gone: &AtomicU64) -> bool {
        let mut end = self.0.lock();
        let waiting = end.posted - gone.load(Ordering::Acquire);
        let fits = waiting < depth as u64;
        if fits {
            end.posted += 1;
            end.ring.push(request);
        }
        fits
    }

    fn waiting(&self, gone: &AtomicU64) -> usize {
        let end = self.0.lock();
        (end.posted - gone.load(Ordering::Acquire)) as usize
    }
}

/// The posters' ends.
#[derive(Debug)]
pub(super) struct Tails {
    sends: Tail<Wqe>,
    receives: Tail<Receive>,
    pub(super) marks: Arc<Marks>,
}

impl Tails {
    pub(super) fn post_send(&self, wqe: Wqe, depth: usize) -> bool {
        self.sends.post(wqe, depth, &self.marks.ended)
    }

    /// A send goes to the other end by another way, and counts.
    pub(super) fn count_send(&self) {
        self.sends.0.lock().posted += 1;
    }

    pub(super) fn post_receive(&self, receive: Receive, depth: usize) -> bool {
        self.receives.post(receive, depth, &self.marks.taken)
    }

    /// What came along with a connection that moved here: sends go to the other end by another way.
    pub(super) fn refill(&self, sends: usize, receives: Vec<Receive>) {
        self.sends.0.lock().posted += sends as u64;
        let mut end = self.receives.0.lock();
        for receive in receives {
            end.posted += 1;
            end.ring.push(receive);
        }
    }

    /// Whether the receive that was left last must be told of.
    pub(super) fn receive_is_news(&self) -> bool {
        // Either we see that somebody waits, or who begins to wait after this sees the receive (see `tell_calm`).
        fence(Ordering::SeqCst);
        !self.marks.calm.load(Ordering::Relaxed)
    }

    /// Send requests that have not ended, and receives that have not been taken.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let sends = self.sends.waiting(&self.marks.ended);
        (sends, self.receives.waiting(&self.marks.taken))
    }
}

/// The connection's ends. Only while a queue pair is being emptied are there none.
#[derive(Debug, Default)]
pub(super) struct Heads {
    sends: Option<Consumer<Wqe>>,
    receives: Option<Consumer<Receive>>,
    marks: Arc<Marks>,
}

impl Heads {
    pub(super) fn next_send(&mut self) -> Option<Wqe> {
        self.sends.as_mut()?.pop()
    }

    /// Takes the oldest receive.
    pub(super) fn next_receive(&mut self) -> Option<Receive> {
        let receive = self.receives.as_mut()?.pop()?;
        self.marks.taken.fetch_add(1, Ordering::Release);
        Some(receive)
    }

    /// A receive waits.
    pub(super) fn has_receive(&self) -> bool {
        self.receives.as_ref().is_some_and(|r| !r.is_empty())
    }

    /// Send requests have ended: there is room for as many, which must be so before their completions can be seen.
    pub(super) fn ended(&self, count: usize) {
        self.marks.ended.fetch_add(count as u64, Ordering::Release);
    }

    /// What was said last: posters of receives need not ring.
    pub(super) fn is_calm(&self) -> bool {
        self.marks.calm.load(Ordering::Relaxed)
    }

    /// Says whether posters of receives need to ring; true if one came meanwhile that may not have.
    pub(super) fn tell_calm(&self, calm: bool) -> bool {
        if self.marks.calm.load(Ordering::Relaxed) == calm {
            return false;
        }
        self.marks.calm.store(calm, Ordering::Relaxed);
        if calm {
            return false;
        }
        fence(Ordering::SeqCst);
        self.has_receive()
    }

    pub(super) fn tell_state(&self, state: QpState) {
        if self.marks.state() != state {
            self.marks.set_state(state);
        }
    }
}

/// Both ends of both queues.
pub(super) fn queues() -> (Tails, Heads) {
    let marks = Arc::new(Marks::default());
    let (sends_in, sends_out) = ring();
    let (receives_in, receives_out) = ring();
    let tails = Tails {
        sends: Tail::new(sends_in),
        receives: Tail::new(receives_in),
        marks: marks.clone(),
    };
    let heads = Heads {
        sends: Some(sends_out),
        receives: Some(receives_out),
        marks,
    };
    (tails, heads)
}

#[cfg(test)]
mod tests;
