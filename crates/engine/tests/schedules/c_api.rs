//! What the C API adds to a queue pair: memory with a state that the program reads, that the callback of a connect writes, and that the
//! destruction frees. The table that leads from a number to that memory is the C API's own file; the memory is never really freed, so that
//! a write to it afterwards is recorded.

#[path = "../../../../dropin/capi/src/qp_table.rs"]
mod qp_table;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use verbena_engine::QueuePair;
use verbena_engine::sys::simulated::Mend;
use verbena_sync::locks::Mutex;

use qp_table::{QpRef, QpTable};

/// What a write to freed memory is reported as.
pub(crate) const WRITTEN: &str = "a destroyed queue pair is written to";

/// The memory of a `struct ibv_qp`.
#[derive(Debug, Default)]
pub(crate) struct QpMemory {
    // Of `core`: the checks are no points at which another thread may run.
    freed: AtomicBool,
    written_after_free: AtomicBool,
}

impl QpMemory {
    fn write(&self) {
        // real time: none passes, another thread may run before the store.
        shuttle::thread::sleep(Duration::ZERO);
        if self.freed.load(Ordering::Relaxed) {
            self.written_after_free.store(true, Ordering::Relaxed);
        }
    }
}

/// Queue pairs of the C API.
pub(crate) struct CApi {
    table: Arc<QpTable<Arc<QpMemory>>>,
    all: Mutex<Vec<Arc<QpMemory>>>,
}

impl CApi {
    pub(crate) fn new() -> Arc<CApi> {
        Arc::new(CApi {
            table: QpTable::new(),
            all: Mutex::new(Vec::new()),
        })
    }

    /// A queue pair of the C API around this one.
    pub(crate) fn add(self: &Arc<Self>, qp: QueuePair) -> CQueuePair {
        let memory = Arc::new(QpMemory::default());
        self.all.lock().push(memory.clone());
        self.table.add(qp.number(), memory.clone());
        CQueuePair {
            api: self.clone(),
            qp,
            memory,
        }
    }

    /// The memory of no queue pair was written to after the destruction had freed it.
    pub(crate) fn check(&self) {
        let all = self.all.lock();
        let written = all
            .iter()
            .any(|memory| memory.written_after_free.load(Ordering::Relaxed));
        assert!(!written, "{WRITTEN}");
    }
}

/// A queue pair with its memory.
pub(crate) struct CQueuePair {
    api: Arc<CApi>,
    pub(crate) qp: QueuePair,
    memory: Arc<QpMemory>,
}

impl CQueuePair {
    /// For the callback of a connect, which writes the state (`verbena_rdma_connect`, `verbena_rdma_accept`).
    pub(crate) fn state_ref(&self) -> StateRef {
        if Mend::StateByNumber.is_left_out() {
            StateRef::Address(self.memory.clone())
        } else {
            StateRef::Number(self.api.table.reference(self.qp.number()))
        }
    }

    /// Destroys it in the order of `ibv_destroy_qp`.
    pub(crate) fn destroy(self) {
        self.api.table.remove(self.qp.number());
        drop(self.qp);
        self.memory.freed.store(true, Ordering::Relaxed);
    }
}

/// How a callback refers to its queue pair.
pub(crate) enum StateRef {
    Number(QpRef<Arc<QpMemory>>),
    /// Without the mend.
    Address(Arc<QpMemory>),
}

impl StateRef {
    pub(crate) fn publish_state(&self) {
        match self {
            StateRef::Number(reference) => {
                // Nothing to write if it has been destroyed.
                let _ = reference.with(|memory| memory.write());
            }
            StateRef::Address(memory) => memory.write(),
        }
    }
}
