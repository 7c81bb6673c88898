//! Shared send queues of a function: create, query, post, destroy (V6).
//! A queue that has channels cannot be destroyed, nor can its domain and its completion queue. Requests are sent by the code that
//! owns the connections of the channels, which pumps the queue.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::Pd;

use super::Function;
use super::users::{Use, Users};
use crate::error::Error;
use crate::ssq::{ChannelInfo, Ssq, SsqInfo, SsqLimits};

/// A shared send queue, the number of its users, and its uses of its parts.
#[derive(Debug)]
pub(super) struct SsqRow {
    ssq: Arc<Ssq>,
    users: Arc<Users>,
    _pd: Use,
    _cq: Use,
}

impl Function {
    /// A shared send queue that completes in this completion queue.
    pub fn create_ssq(&self, pd: Pd, cq: u32, limits: SsqLimits) -> Result<Arc<Ssq>, Error> {
        self.attributes.check_ssq(limits.requests)?;
        let used = self.use_pd(pd)?;
        let (cq, cq_used) = self.use_cq(cq)?;
        let make = |number| {
            Ok(SsqRow {
                ssq: Arc::new(Ssq::new(number, pd, cq, limits)?),
                users: Arc::default(),
                _pd: used,
                _cq: cq_used,
            })
        };
        self.ssqs.add(make, |row| row.ssq.clone())
    }

    /// The shared send queue with this number.
    pub fn ssq(&self, number: u32) -> Result<Arc<Ssq>, Error> {
        self.ssqs.with(number, |row| row.ssq.clone())
    }

    pub(super) fn use_ssq(&self, number: u32) -> Result<(Arc<Ssq>, Use), Error> {
        self.ssqs
            .with(number, |row| (row.ssq.clone(), Use::of(&row.users)))
    }

    /// Attributes of a shared send queue.
    pub fn query_ssq(&self, number: u32) -> Result<SsqInfo, Error> {
        self.ssqs
            .with(number, |row| row.ssq.info(row.users.count()))
    }

    /// Attributes and counters of one channel of a shared send queue.
    pub fn query_channel(&self, number: u32, channel: u32) -> Result<ChannelInfo, Error> {
        let info = self.ssq(number)?.channel(channel);
        info.ok_or(Error::NoChannel {
            ssq: number,
            channel,
        })
    }

    /// Accepts requests for a channel again, or no more; posted ones continue.
    pub fn set_channel_open(&self, number: u32, channel: u32, open: bool) -> Result<(), Error> {
        let there = self.ssq(number)?.set_open(channel, open);
        there.then_some(()).ok_or(Error::NoChannel {
            ssq: number,
            channel,
        })
    }

    /// A queue pair was reset: if it is a channel, its requests in the shared send queue are flushed, each in its turn; the outbox
    /// says that the queue must be pumped. [`Function::modify_qp`] calls this; a caller of [`Qp::modify`](crate::Qp::modify) must do so
    /// itself. Otherwise the requests are flushed by the stall check.
    pub fn flush_channel(&self, number: u32, out: &mut Outbox) {
        let shared = self.qps.with(number, |pair| pair.uses.ssq.clone());
        if let Ok(Some(ssq)) = shared {
            ssq.flush_channel(number);
            out.wake_sends(ssq.number());
        }
    }

    /// Posts a request for a channel; the outbox says that the queue must be pumped.
    #[cfg(test)]
    pub(crate) fn post_shared_send(
        &self,
        number: u32,
        channel: u32,
        wr: &crate::wr::SendWr<'_>,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        self.ssq(number)?.post(channel, wr)?;
        out.wake_sends(number);
        Ok(())
    }

    /// Destroys a shared send queue that has no channels any more; requests of former channels complete before.
    pub fn destroy_ssq(&self, number: u32, out: &mut Outbox) -> Result<(), Error> {
        let row = self.ssqs.remove(number, |row| row.users.count())?;
        // Without channels no request can be given out, so there is nothing to send.
        row.ssq.pump(&mut |_, _| (), out);
        Ok(())
    }
}
