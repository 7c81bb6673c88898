//! Mends of races of the past that a run can leave out, to show that the schedules find these races, and counters of the rare cases in which
//! they matter (docs/schedules.md). Both hold for the whole process, and the engine uses them with `cfg(shuttle)` only. Neither is a point at
//! which another thread may run.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A mend that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// The destruction of a queue pair looks up its connection after the queue pair has been retired.
    LookupAfterRetire,
    /// A callback refers to a queue pair of the C API by number, and not by address.
    StateByNumber,
}

impl Mend {
    /// All of them.
    pub const ALL: [Mend; 2] = [Mend::LookupAfterRetire, Mend::StateByNumber];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mend::LookupAfterRetire => "lookup-after-retire",
            Mend::StateByNumber => "state-by-number",
        }
    }

    /// Whether this process runs without it.
    pub fn is_left_out(self) -> bool {
        LEFT_OUT.load(Ordering::Relaxed) == self.code()
    }

    /// Runs without it from now on.
    pub fn leave_out(self) {
        LEFT_OUT.store(self.code(), Ordering::Relaxed);
    }

    fn code(self) -> u8 {
        1 + self as u8
    }
}

/// The code of the mend that is left out; zero for none.
static LEFT_OUT: AtomicU8 = AtomicU8::new(0);

/// The connection that a destruction closes, of what it found before and after the queue pair was retired.
pub(crate) fn connection_to_close<T>(before: Option<T>, after: Option<T>) -> Option<T> {
    if before.is_none() && after.is_some() {
        Case::BoundDuringDestroy.count();
    }
    if Mend::LookupAfterRetire.is_left_out() {
        before
    } else {
        after
    }
}

/// A rare case that is counted: seeds that pass are evidence only if they reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// A connection was bound to its queue pair after the destruction had begun, and before the queue pair was retired.
    BoundDuringDestroy,
    /// A queue pair had lost its stream before the connection was bound to it.
    BoundAfterDestroy,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 2] = [Case::BoundDuringDestroy, Case::BoundAfterDestroy];

    /// It was reached.
    pub(crate) fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was reached.
    pub fn reached(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

static COUNTS: [AtomicU64; Case::ALL.len()] = [const { AtomicU64::new(0) }; Case::ALL.len()];
