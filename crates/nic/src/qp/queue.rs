//! The two ends of a queue pair's work queues: threads that post push at one, the thread that runs the connection pops at the other.
//! Requests keep their order, no more wait than the queue's depth, and there is room for a new one before the completion is visible.
//! Requests are checked before, with what [`QueueStatus`] publish about the other end.

use std::sync::Arc;

use verbena_sync::primitives::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence};
use verbena_sync::ring::{Consumer, Producer, ring};

use super::wqe::Wqe;
use crate::receive::Receive;
use crate::state::QpState;

/// What posting threads read about the other end, without its lock.
#[derive(Debug, Default)]
pub(super) struct QueueStatus {
    /// A position in [`QpState::ALL`].
    state: AtomicU8,
    /// Send requests that have ended.
    ended: AtomicU64,
    /// Receives that have been taken.
    taken: AtomicU64,
    /// No message waits for a receive, and none has to be flushed: a posted one may stay in the queue until a message needs it.
    receives_idle: AtomicBool,
}

impl QueueStatus {
    /// The state as last published. A request that was posted in that state is flushed or dropped if the state has
    /// changed.
    pub(super) fn state(&self) -> QpState {
        let at = usize::from(self.state.load(Ordering::Acquire));
        QpState::ALL.get(at).copied().unwrap_or(QpState::Reset)
    }

    fn set_state(&self, state: QpState) {
        let at = QpState::ALL.iter().position(|s| *s == state);
        self.state.store(at.unwrap_or(0) as u8, Ordering::Release);
    }
}

/// The posting end of one queue.
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

    /// Pushes a request unless `depth` of them wait already; `gone` is the number that have left.
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

    /// The same, and returns its number, from 0 on.
    #[cold]
    #[inline(never)]
    fn post_numbered(&self, request: T, depth: usize, gone: &AtomicU64) -> Option<u64> {
        let mut end = self.0.lock();
        let waiting = end.posted - gone.load(Ordering::Acquire);
        let fits = waiting < depth as u64;
        fits.then(|| {
            let number = end.posted;
            end.posted += 1;
            end.ring.push(request);
            number
        })
    }

    fn waiting(&self, gone: &AtomicU64) -> usize {
        let end = self.0.lock();
        (end.posted - gone.load(Ordering::Acquire)) as usize
    }
}

/// The posting ends.
#[derive(Debug)]
pub(super) struct Tails {
    sends: Tail<Wqe>,
    receives: Tail<Receive>,
    pub(super) status: Arc<QueueStatus>,
}

impl Tails {
    pub(super) fn post_send(&self, wqe: Wqe, depth: usize) -> bool {
        self.sends.post(wqe, depth, &self.status.ended)
    }

    /// The same, and returns the number of the request, from 0 on.
    pub(super) fn post_send_numbered(&self, wqe: Wqe, depth: usize) -> Option<u64> {
        self.sends.post_numbered(wqe, depth, &self.status.ended)
    }

    /// Counts a send that reaches the other end another way.
    pub(super) fn count_send(&self) {
        self.sends.0.lock().posted += 1;
    }

    pub(super) fn post_receive(&self, receive: Receive, depth: usize) -> bool {
        self.receives.post(receive, depth, &self.status.taken)
    }

    /// Adds the requests of a connection that moved here; sends reach the other end another way.
    pub(super) fn refill(&self, sends: usize, receives: Vec<Receive>) {
        self.sends.0.lock().posted += sends as u64;
        let mut end = self.receives.0.lock();
        for receive in receives {
            end.posted += 1;
            end.ring.push(receive);
        }
    }

    /// Whether the connection must be told of the receive that was posted last.
    pub(super) fn must_notify_receive(&self) -> bool {
        // Either this thread sees that `receives_idle` is unset, or the thread that unsets it after this sees the receive (see `publish_receives_idle`).
        fence(Ordering::SeqCst);
        !self.status.receives_idle.load(Ordering::Relaxed)
    }

    /// Send requests that have not ended, and receives that have not been taken.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let sends = self.sends.waiting(&self.status.ended);
        (sends, self.receives.waiting(&self.status.taken))
    }
}

/// The connection's ends. They are `None` only while a queue pair is being reset.
#[derive(Debug, Default)]
pub(super) struct Heads {
    sends: Option<Consumer<Wqe>>,
    receives: Option<Consumer<Receive>>,
    /// The same end while messages find no receive although some are posted.
    hidden: Option<Consumer<Receive>>,
    status: Arc<QueueStatus>,
}

impl Heads {
    /// Until they are shown again it looks as if no receive were posted; false if they are hidden already.
    pub(super) fn hide_receives(&mut self) -> bool {
        let hides = self.hidden.is_none();
        if hides {
            self.hidden = self.receives.take();
        }
        hides
    }

    /// Shows the receives again.
    pub(super) fn show_receives(&mut self) {
        if let Some(hidden) = self.hidden.take() {
            self.receives = Some(hidden);
        }
    }

    pub(super) fn next_send(&mut self) -> Option<Wqe> {
        self.sends.as_mut()?.pop()
    }

    /// Takes the oldest receive.
    pub(super) fn next_receive(&mut self) -> Option<Receive> {
        let receive = self.receives.as_mut()?.pop()?;
        self.status.taken.fetch_add(1, Ordering::Release);
        Some(receive)
    }

    /// A receive waits.
    pub(super) fn has_receive(&self) -> bool {
        self.receives.as_ref().is_some_and(|r| !r.is_empty())
    }

    /// Send requests have ended: there is room for as many, before their completions are visible.
    pub(super) fn ended(&self, count: usize) {
        self.status.ended.fetch_add(count as u64, Ordering::Release);
    }

    /// As last published: threads that post receives need not ring.
    pub(super) fn receives_idle(&self) -> bool {
        self.status.receives_idle.load(Ordering::Relaxed)
    }

    /// Publishes whether threads that post receives need to ring; true if one was posted meanwhile whose thread may not have.
    pub(super) fn publish_receives_idle(&self, idle: bool) -> bool {
        if self.status.receives_idle.load(Ordering::Relaxed) == idle {
            return false;
        }
        self.status.receives_idle.store(idle, Ordering::Relaxed);
        if idle {
            return false;
        }
        fence(Ordering::SeqCst);
        self.has_receive()
    }

    pub(super) fn publish_state(&self, state: QpState) {
        if self.status.state() != state {
            self.status.set_state(state);
        }
    }

    /// The state that was published last.
    pub(super) fn published_state(&self) -> QpState {
        self.status.state()
    }

    /// The number of the send request at this position of those that have not ended, as it was posted.
    pub(super) fn posted_number(&self, at: usize) -> u64 {
        self.status.ended.load(Ordering::Relaxed) + at as u64
    }
}

/// Both ends of both queues.
pub(super) fn queues() -> (Tails, Heads) {
    let marks = Arc::new(QueueStatus::default());
    let (sends_in, sends_out) = ring();
    let (receives_in, receives_out) = ring();
    let tails = Tails {
        sends: Tail::new(sends_in),
        receives: Tail::new(receives_in),
        status: marks.clone(),
    };
    let heads = Heads {
        sends: Some(sends_out),
        receives: Some(receives_out),
        hidden: None,
        status: marks,
    };
    (tails, heads)
}

#[cfg(test)]
mod tests;
