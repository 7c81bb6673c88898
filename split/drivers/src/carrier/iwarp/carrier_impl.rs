//! The [`Carrier`] implementation over the adapter. Sends are posted by the next turn, as one list, and a turn returns completions before
//! the ends that followed them. A request for which the completion queue has no room is not posted.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use verbena::low::{Arm, RecvWr, SendOp, Wc};
use verbena::{Access, Device};
use verbena_nic::wr::{RemoteAddr, Sge};

use super::event_channel::AdapterEvent;
use super::memory::IwarpMemory;
use super::pair::{IwarpPair, Stage};
use super::{IwarpCarrier, POLL_BATCH, Role, unknown};
use crate::carrier::{
    Carrier, CarrierError, CarrierEvent, CarrierFd, Memory, MemoryAccess, Pair, PairOptions,
    Result, Ticket, WaitFd,
};

impl Carrier for IwarpCarrier {
    fn local_addr(&self) -> String {
        match &self.role {
            Role::Listener(_, local) => local.to_string(),
            Role::Dialler(unit) => format!("to {unit}"),
        }
    }

    fn name(&self) -> &'static str {
        "iwarp"
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn new_protection_domain(&mut self) -> Result<()> {
        // The one before lives as long as the objects in it.
        self.pd = self.device.pd()?;
        Ok(())
    }

    fn register_memory(&mut self, len: usize, reach: MemoryAccess) -> Result<Box<dyn Memory>> {
        let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let access = match reach {
            MemoryAccess::Local => own,
            MemoryAccess::RemoteWrite => own | Access::REMOTE_WRITE,
        };
        let refused = |error: verbena::Error| CarrierError::Memory {
            len,
            why: error.to_string(),
        };
        let memory = self.pd.memory(len, access).map_err(refused)?;
        Ok(Box::new(IwarpMemory::new(memory).map_err(refused)?))
    }

    fn create_pair(&mut self, options: PairOptions) -> Result<Pair> {
        let needed = self.needed + options.sends + options.receives;
        self.resize_cq(needed)?;
        let conn = IwarpPair::new(&self.pd, &self.cq, options)?;
        let pair = self.number();
        self.pair_by_qpn.insert(conn.qp.number(), pair);
        self.pairs.insert(pair, conn);
        self.needed = needed;
        Ok(pair)
    }

    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()> {
        let Role::Dialler(unit) = self.role else {
            return Err(CarrierError::Address {
                address: self.local_addr(),
                why: "a listening carrier has no unit to connect to".into(),
            });
        };
        let channel = self.event_channel.clone();
        let conn = self.pair(pair)?;
        let done = move |answer| channel.push(AdapterEvent::Answer(pair, answer));
        conn.qp.connect_from(None, unit, private, done)?;
        conn.stage = Stage::Connecting;
        Ok(())
    }

    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()> {
        let channel = self.event_channel.clone();
        let conn = self.pairs.get_mut(&pair).ok_or_else(|| unknown(pair))?;
        let Some(request) = self.tickets.remove(&ticket) else {
            let why = format!("request {} was answered already", ticket.0);
            return Err(CarrierError::Post { pair, why });
        };
        // A request that found no free ticket can be taken now.
        self.more |= self.has_requests;
        // The acceptor got the peer's private data with the request.
        let done = move |answer: core::result::Result<Vec<u8>, verbena::Error>| {
            channel.push(AdapterEvent::Answer(pair, answer.map(|_| Vec::new())));
        };
        request.accept_with_callback(&conn.qp, private, done)?;
        conn.stage = Stage::Connecting;
        Ok(())
    }

    fn reject(&mut self, ticket: Ticket, private: &[u8]) {
        if let Some(request) = self.tickets.remove(&ticket) {
            self.more |= self.has_requests;
            request.reject(private);
        }
    }

    fn destroy(&mut self, pair: Pair) {
        let Some(conn) = self.pairs.remove(&pair) else {
            return;
        };
        let number = conn.qp.number();
        self.pair_by_qpn.remove(&number);
        self.needed -= conn.cq_entries();
        // After this drop nothing is placed and nothing completes, and its completions are removed from the queue.
        drop(conn);
        self.early.retain(|wc| wc.qpn != number);
        self.events.retain(|news| !concerns(news, pair));
    }

    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()> {
        self.pair(pair)?
            .post_receive(&RecvWr {
                id,
                scatter: piece.as_slice(),
            })
            .map_err(|why| CarrierError::Post { pair, why })
    }

    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()> {
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        self.post(pair, id, piece, op)
    }

    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: RemoteAddr,
        immediate: Option<u32>,
    ) -> Result<()> {
        let op = SendOp::Write {
            remote: to,
            immediate,
        };
        self.post(pair, id, piece, op)
    }

    fn turn(&mut self, _now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        let streams = self.has_long_packets;
        if !streams {
            self.post_lists(false);
        }
        // Before polling: completions that came before an end are in the queue when the end is reported.
        self.event_channel.take(&mut self.received);
        while let Some(event) = self.received.pop_front() {
            self.defer(event);
        }
        let before = done.len();
        self.more = !self.complete(done);
        if streams {
            self.post_lists(done.len() > before);
        }
        while let Some(event) = self.next_deferred() {
            self.handle_event(event);
        }
        self.take_requests()
    }

    fn next_event(&mut self) -> Option<CarrierEvent> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        // The adapter has its own timers.
        None
    }

    fn wait_fds<'a>(&'a self, on: &mut Vec<CarrierFd<'a>>) {
        on.push(CarrierFd {
            fd: self.event_channel.as_fd(),
            write: false,
        });
    }

    fn prepare_sleep(&mut self) -> bool {
        if self.pairs.values().any(IwarpPair::has_list) {
            return false;
        }
        if self.more
            || !self.deferred.is_empty()
            || !self.events.is_empty()
            || !self.early.is_empty()
        {
            return false;
        }
        self.cq.arm(Arm::Next);
        let mut some = [Wc::default(); POLL_BATCH];
        let n = self.cq.poll(&mut some);
        self.early.extend_from_slice(&some[..n]);
        n == 0 && !self.event_channel.is_signalled()
    }

    fn event_device(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn progresses_in_sleep(&self) -> bool {
        true
    }

    fn sleep(&self, others: &mut [WaitFd<'_>], timeout: Option<Duration>) -> Result<()> {
        Ok(self.event_channel.sleep(&self.cq, others, timeout)?)
    }
}

impl IwarpCarrier {
    /// Posts the sends since the last turn. While completions keep coming, a short list is deferred: it is most often answers to a stream,
    /// and each system call would carry one.
    fn post_lists(&mut self, came: bool) {
        for (pair, conn) in &mut self.pairs {
            if conn.has_list()
                && !(came && conn.defers_list())
                && let Err(why) = conn.post_list()
            {
                // Not all of its requests will complete, so the pair cannot be used further.
                conn.stage = Stage::Ended;
                self.events
                    .push_back(CarrierEvent::Ended { pair: *pair, why });
            }
        }
    }

    fn post(&mut self, pair: Pair, id: u64, piece: Sge, op: SendOp) -> Result<()> {
        self.pair(pair)?
            .post_send(id, op, piece)
            .map_err(|why| CarrierError::Post { pair, why })
    }
}

/// Whether an event is about this pair.
fn concerns(news: &CarrierEvent, of: Pair) -> bool {
    match news {
        CarrierEvent::Request { .. } | CarrierEvent::Rejected { .. } => false,
        CarrierEvent::Connected { pair, .. }
        | CarrierEvent::Refused { pair, .. }
        | CarrierEvent::Ended { pair, .. } => *pair == of,
    }
}
