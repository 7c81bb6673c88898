//! The interrupt counters of an adapter, as programs and monitors get them (E12).
//! They are a copy of the event crate's counters at one moment; vectors that were never used are left out.

use verbena_events::interrupts::{Accesses, Interrupts, SignalCounters};

/// What the interrupts of an adapter have cost since it was created (E12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptCounters {
    /// All register accesses of the driver. Serving needs no reads; the writes include those that armed the event queues at first.
    pub accesses: Accesses,
    /// The line and the vectors that have been used, in this order.
    pub signals: Vec<SignalCounters>,
}

impl InterruptCounters {
    pub(crate) fn of(interrupts: &Interrupts) -> InterruptCounters {
        let used = |counters: &SignalCounters| counters.interrupts + counters.events > 0;
        InterruptCounters {
            accesses: interrupts.accesses(),
            signals: interrupts.counters().filter(used).collect(),
        }
    }
}
