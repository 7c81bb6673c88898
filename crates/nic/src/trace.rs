//! What a trace of the adapter is told (`verbena trace`, docs/tools.md): posts, requests that were segmented, requests that ended, completions that enter a
//! queue and leave it, and changes of state. An [`Observer`] belongs to a function and brings the clock; nothing here changes the adapter.
//!
//! While no trace is attached to any adapter of the process, each of these places loads one word ([`is_active`]) and has one branch that is not taken.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::state::QpState;
use crate::wc::{Status, WcOp};

/// Traces of all adapters of this process. Not one of the models' atomics: it decides nothing but whether an observer is called.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// An adapter of this process is traced.
#[inline(always)]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// A trace begins: observers are called until as many have ended.
pub fn begin() {
    ACTIVE.fetch_add(1, Ordering::Release);
}

/// A trace that was begun ends.
pub fn end() {
    ACTIVE.fetch_sub(1, Ordering::Release);
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// A send request was posted.
    PostSend {
        /// The queue pair.
        qp: u32,
        /// Its number in completions.
        wc_qpn: u32,
        /// The request's number among those of the queue pair, from 0 on.
        number: u64,
        /// The program's id.
        id: u64,
        /// What it does.
        op: WcOp,
        /// Bytes.
        len: u32,
        /// It completes with an entry if it succeeds.
        signaled: bool,
    },
    /// A receive was posted.
    PostReceive {
        /// The queue pair, or 0.
        qp: u32,
        /// The shared receive queue, or 0.
        srq: u32,
        /// The queue pair's number in completions, or 0.
        wc_qpn: u32,
        /// The program's id.
        id: u64,
        /// Bytes that it takes.
        len: u32,
    },
    /// All frames of a request were made; the last one ends at this offset of the stream. Once more if the request is sent again.
    Segmented {
        /// The queue pair.
        qp: u32,
        /// The request's number.
        number: u64,
        /// Bytes of the stream before the next frame.
        end: u64,
    },
    /// The last packet of a request was written (RoCEv2). Once more if it is sent again.
    LastPacket {
        /// The queue pair.
        qp: u32,
        /// The request's number.
        number: u64,
        /// The peer's queue pair.
        dest_qpn: u32,
        /// The packet sequence number.
        psn: u32,
    },
    /// A send request has ended; its entry follows if it has one.
    Ended {
        /// The queue pair.
        qp: u32,
        /// The request's number.
        number: u64,
        /// The program's id.
        id: u64,
        /// What it did.
        op: WcOp,
        /// How it ended.
        status: Status,
        /// Bytes.
        len: u32,
        /// An entry follows.
        entry: bool,
    },
    /// An entry was added to a completion queue.
    Completion {
        /// The completion queue.
        cq: u32,
        /// Entries added before it.
        position: u64,
        /// The number of the queue pair in the entry.
        wc_qpn: u32,
        /// The program's id.
        id: u64,
        /// The operation.
        op: WcOp,
        /// How it ended.
        status: Status,
        /// Bytes.
        len: u32,
    },
    /// An entry was taken from a completion queue.
    Polled {
        /// The completion queue.
        cq: u32,
        /// Entries taken before it: that of the entry when it was added, unless entries were removed.
        position: u64,
        /// The number of the queue pair in the entry.
        wc_qpn: u32,
        /// The program's id.
        id: u64,
        /// The operation.
        op: WcOp,
        /// How it ended.
        status: Status,
    },
    /// A queue pair has changed its state.
    State {
        /// The queue pair.
        qp: u32,
        /// Its number in completions.
        wc_qpn: u32,
        /// The state before.
        from: QpState,
        /// The state now.
        to: QpState,
    },
}

/// Gets what happens in a function. It is called with locks held: it takes none that a caller of the adapter holds, and does not wait.
pub trait Observer: core::fmt::Debug + Send + Sync {
    /// The time, in nanoseconds.
    fn now(&self) -> u64;

    /// Something happened at this time.
    fn record(&self, at: u64, event: &TraceEvent);
}

/// The observer of a function, once it has one.
#[derive(Debug, Clone, Default)]
pub struct ObserverCell(Arc<OnceLock<Arc<dyn Observer>>>);

impl ObserverCell {
    /// Sets the observer; without effect if there is one.
    pub fn set(&self, observer: Arc<dyn Observer>) {
        // The first one stays.
        let _ = self.0.set(observer);
    }

    /// The time if a trace is active, for [`record_at`](ObserverCell::record_at); 0 otherwise.
    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        if is_active() { self.now() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn now(&self) -> u64 {
        self.0.get().map_or(0, |observer| observer.now())
    }

    /// Records what began at this time of [`start`](ObserverCell::start).
    #[cold]
    #[inline(never)]
    pub(crate) fn record_at(&self, at: u64, event: &TraceEvent) {
        if let Some(observer) = self.0.get() {
            observer.record(at, event);
        }
    }

    /// Records what happens now.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&self, event: &TraceEvent) {
        if let Some(observer) = self.0.get() {
            observer.record(observer.now(), event);
        }
    }
}
