//! The state of a queue pair that its program reads, written by threads that complete a connection.
//! They refer to the queue pair by its number in a [`QpTable`](crate::qp_table::QpTable), so that one that the program destroys at the same
//! moment is not written to.

use super::Pair;
use crate::function::QpPtr;
use crate::qp_table::QpRef;

impl QpRef<QpPtr> {
    /// Writes the state for the program to read, if the queue pair still exists.
    pub(crate) fn publish_state(&self, state: u32) {
        self.with(|QpPtr(qp)| {
            // SAFETY: `ibv_destroy_qp` removes the queue pair from the table before it is freed, and `with` holds the table's lock. One field
            // is written, which programs only read.
            unsafe { (**qp).state = state };
        });
    }
}

impl Pair {
    /// A reference for updating the state that its program reads.
    pub(crate) fn state_ref(&self) -> QpRef<QpPtr> {
        self.function.pairs.reference(self.transport.number())
    }
}
