//! Counters of a function: those of its queue pairs, destroyed ones included (V1).
//! Nothing is counted twice or missed while queue pairs are created and destroyed. Counting costs the traffic nothing: queue pairs
//! count for themselves, and are summed up on a query.

use verbena_sync::locks::Mutex;

use super::Function;
use crate::error::Error;
use crate::qp::{Counters, Qp};
use crate::ud::{UdCounters, UdQp};

/// Counters of a function since its creation.
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
        sum.bytes_out += one.bytes_out;
        sum.lost += one.lost;
        sum.received += one.received;
        sum.bytes_in += one.bytes_in;
        sum.not_receiving += one.not_receiving;
        sum.wrong_key += one.wrong_key;
        sum.no_receive += one.no_receive;
        sum.too_long += one.too_long;
        sum.pending += one.pending;
    }
}

/// The counters of destroyed queue pairs. The lock is held during their removal, so that a sum includes each of them once.
#[derive(Debug, Default)]
pub(super) struct RetiredCounters(Mutex<FunctionCounters>);

impl RetiredCounters {
    /// Removes a queue pair from its table.
    pub(super) fn remove_qp(
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

    /// Removes a datagram queue pair from its table.
    pub(super) fn remove_ud(
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

    /// Removes a queue pair of an upper-layer protocol from its table; its driver keeps the counters.
    pub(super) fn remove_ulp(
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
    /// The counters since its creation.
    pub fn counters(&self) -> FunctionCounters {
        let gone = self.retired_counters.0.lock();
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
