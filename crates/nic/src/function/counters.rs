//! What went through a function: the counters of its queue pairs, those that are gone included (V1).
//! They promise that nothing is counted twice or missed while queue pairs come and go, and that counting costs the traffic
//! nothing: queue pairs count for themselves, and are added up when somebody asks. They refuse to say who caused what.

use parking_lot::Mutex;

use super::Function;
use crate::error::Error;
use crate::qp::{Counters, Qp};
use crate::ud::{UdCounters, UdQp};

/// What went through a function since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionCounters {
    /// Through connections.
    pub connections: Counters,
    /// As datagrams.
    pub datagrams: UdCounters,
    /// Queue pairs of all kinds that were destroyed.
    pub destroyed: u64,
}

impl FunctionCounters {
    fn add(&mut self, one: &Counters) {
        let sum = &mut self.connections;
        sum.bytes_in += one.bytes_in;
        sum.bytes_out += one.bytes_out;
        sum.bytes_direct += one.bytes_direct;
        sum.messages_in += one.messages_in;
        sum.messages_out += one.messages_out;
        sum.rnr_sent += one.rnr_sent;
        sum.rnr_received += one.rnr_received;
    }

    fn add_ud(&mut self, one: &UdCounters) {
        let sum = &mut self.datagrams;
        sum.sent += one.sent;
        sum.lost += one.lost;
        sum.received += one.received;
        sum.not_receiving += one.not_receiving;
        sum.wrong_key += one.wrong_key;
        sum.no_receive += one.no_receive;
        sum.too_long += one.too_long;
        sum.pending += one.pending;
    }
}

/// The counters of queue pairs that are gone. The lock is held over their leaving, so that a sum has each of them once.
#[derive(Debug, Default)]
pub(super) struct Books(Mutex<FunctionCounters>);

impl Books {
    /// A queue pair leaves its table.
    pub(super) fn close(
        &self,
        qp: &Qp,
        remove: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut gone = self.0.lock();
        remove()?;
        gone.add(&qp.counters());
        gone.destroyed += 1;
        Ok(())
    }

    /// A datagram queue pair leaves its table.
    pub(super) fn close_ud(
        &self,
        qp: &UdQp,
        remove: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut gone = self.0.lock();
        remove()?;
        gone.add_ud(&qp.view().counters);
        gone.destroyed += 1;
        Ok(())
    }

    /// A queue pair of an upper-layer driver leaves its table; what it counted is its driver's.
    pub(super) fn close_upper(
        &self,
        remove: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut gone = self.0.lock();
        remove()?;
        gone.destroyed += 1;
        Ok(())
    }
}

impl Function {
    /// What went through it since it was made.
    pub fn counters(&self) -> FunctionCounters {
        let gone = self.books.0.lock();
        let mut sum = *gone;
        for qp in self.all_qps() {
            sum.add(&qp.counters());
        }
        for qp in self.all_uds() {
            sum.add_ud(&qp.view().counters);
        }
        sum
    }
}
