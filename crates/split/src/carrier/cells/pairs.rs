//! The pairs of a carrier of cells, and the [`Carrier`] implementation. Numbers of pairs are not reused soon, and no event or completion of
//! a destroyed pair is returned. The channel adapter checks requests.

use std::time::Instant;

use verbena_cells::{
    AddressSegment, ChannelKind, ControlSegment, Descriptor, Operation, Peer, WqpInit,
};
use verbena_mem::{Buffer, Pd};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{Data, Flags, ReceiveWr, Remote, Sge};
use verbena_nic::{Cq, Wc};
use verbena_wire::cell::{MAX_PRIVATE, PacketSeq, PortAddress};
use verbena_wire::number::Qpn;

use super::memory::{CellMemory, access};
use super::{ACKNOWLEDGED, CellCarrier, FIRST_PAIR, UNACKNOWLEDGED, memory_error, random};
use crate::carrier::{
    Carrier, CarrierError, Memory, News, Pair, PairOptions, Reach, Result, Sleeper, Ticket,
};

/// A pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    options: PairOptions,
    /// The port that it accepted, while it is connected.
    holds: Option<PortAddress>,
}

/// Polls all completions.
pub(super) fn collect(cq: &Cq, scratch: &mut [Wc], done: &mut Vec<Wc>) {
    loop {
        let count = cq.poll(scratch);
        done.extend(scratch.iter().take(count));
        if count < scratch.len() {
            return;
        }
    }
}

impl CellCarrier {
    pub(super) fn collect(&mut self) {
        collect(&self.cq, &mut self.scratch, &mut self.done);
    }

    /// The number of the next pair: not in use, and not used recently.
    fn number(&mut self) -> Qpn {
        loop {
            self.next_pair = self.next_pair.wrapping_add(1);
            let number = Qpn::wrapping(self.next_pair);
            if number.get() >= FIRST_PAIR && !self.pairs.contains_key(&number.get()) {
                return number;
            }
        }
    }

    /// Resizes the completion queue to hold all that the pairs, and one more with these options, can complete at once.
    fn make_room(&self, more: Option<&PairOptions>) -> Result<()> {
        // A packet that is being reassembled holds one more receive.
        let each = |options: &PairOptions| options.sends + options.receives + 1;
        let known = self.pairs.values().map(|known| &known.options);
        let entries: usize = known.chain(more).map(each).sum();
        let resized = self.cq.resize(entries.max(1));
        resized.map_err(|error| memory_error(entries, &error))
    }

    pub(super) fn remember_request(&mut self, ticket: Ticket, from: PortAddress, now: Instant) {
        let config = self.port.config();
        // As long as the adapter keeps the request.
        let span = config.connect_timeout * config.retries.saturating_add(2);
        self.line.asks(from, now + span);
        self.requests.insert(ticket, from);
        // The adapter has given up the oldest ones.
        while self.requests.len() > self.port.config().requests {
            self.requests.pop_first();
        }
    }

    /// Removes an answered request; returns its port.
    fn answer(&mut self, ticket: Ticket) -> Option<PortAddress> {
        let port = self.requests.remove(&ticket)?;
        if !self.requests.values().any(|other| *other == port) {
            self.line.answered(port);
        }
        Some(port)
    }

    /// Releases the address of a pair's peer.
    pub(super) fn let_go(&mut self, number: u32) {
        let known = self.pairs.get_mut(&number);
        if let Some(port) = known.and_then(|known| known.holds.take()) {
            self.line.release(port);
        }
    }

    /// Whether an event is to be reported: not one of a destroyed pair.
    pub(super) fn is_wanted(&self, news: &News) -> bool {
        of(news).is_none_or(|pair| self.pairs.contains_key(&pair.0))
    }

    fn post(&mut self, pair: Pair, id: u64, operation: Operation, what: What) -> Result<()> {
        let descriptor = Descriptor {
            control: ControlSegment {
                id,
                operation,
                immediate: what.immediate,
                flags: Flags::SIGNALED,
            },
            address: what.remote.map(|remote| AddressSegment {
                remote: Some(remote),
                destination: None,
            }),
            data: Data::Gather(core::slice::from_ref(&what.piece)),
        };
        let number = Qpn::wrapping(pair.0);
        let posted = self.port.post_send(number, &descriptor);
        let posted = posted.and_then(|()| self.port.ring_send(number, &mut self.outbox));
        self.posted(pair, posted)
    }

    fn posted(
        &mut self,
        pair: Pair,
        posted: core::result::Result<(), verbena_cells::Error>,
    ) -> Result<()> {
        self.busy = true;
        self.collect();
        posted.map_err(|error| CarrierError::Post {
            pair,
            why: error.to_string(),
        })
    }
}

/// What is posted.
#[derive(Clone, Copy)]
struct What {
    piece: Sge,
    remote: Option<Remote>,
    immediate: Option<u32>,
}

/// The pair of an event.
fn of(news: &News) -> Option<Pair> {
    match news {
        News::Request { .. } | News::Rejected { .. } => None,
        News::Connected { pair, .. } | News::Refused { pair, .. } | News::Ended { pair, .. } => {
            Some(*pair)
        }
    }
}

impl Carrier for CellCarrier {
    fn local(&self) -> String {
        self.line.local()
    }

    fn name(&self) -> &'static str {
        self.line.name()
    }

    fn can_lose(&self) -> bool {
        true
    }

    fn separate(&mut self) -> Result<()> {
        // Reused after 2^32 others.
        self.domain = Pd(self.domain.0.wrapping_add(1));
        Ok(())
    }

    fn memory(&mut self, len: usize, reach: Reach) -> Result<Box<dyn Memory>> {
        // How much of it is used depends on the peer, so pages are allocated on first use.
        let buffer = Buffer::sparse(&self.tpt, len, self.domain, access(reach));
        let buffer = buffer.map_err(|misuse| memory_error(len, &misuse))?;
        Ok(Box::new(CellMemory(buffer)))
    }

    fn create(&mut self, options: PairOptions) -> Result<Pair> {
        self.make_room(Some(&options))?;
        let number = self.number();
        self.port.create(WqpInit {
            number,
            kind: ChannelKind {
                acknowledged: options.acknowledged,
                connected: true,
            },
            pd: self.domain,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            tpt: self.tpt.clone(),
            limits: Limits {
                sends: options.sends,
                receives: options.receives,
                pieces: 1,
                inline: 0,
            },
            first: PacketSeq::default(),
        })?;
        let holds = None;
        self.pairs.insert(number.get(), Known { options, holds });
        Ok(Pair(number.get()))
    }

    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let unit = self.line.unit().ok_or_else(|| CarrierError::Address {
            address: self.line.local(),
            why: "it listens here, and was told nobody to dial".to_owned(),
        })?;
        let known = self.pairs.get(&pair.0);
        let acknowledged = known.is_some_and(|known| known.options.acknowledged);
        let to = Peer {
            port: unit,
            wqp: if acknowledged {
                ACKNOWLEDGED
            } else {
                UNACKNOWLEDGED
            },
        };
        let first = PacketSeq::new(random()? as u32);
        self.busy = true;
        Ok(self.port.connect(number, to, first, private)?)
    }

    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let first = PacketSeq::new(random()? as u32);
        let asked = verbena_cells::Ticket(ticket.0);
        self.port.accept(asked, number, first, private)?;
        if let Some(port) = self.answer(ticket) {
            self.line.hold(port);
            if let Some(known) = self.pairs.get_mut(&pair.0) {
                known.holds = Some(port);
            }
        }
        self.busy = true;
        let private = Vec::new();
        self.news.push_back(News::Connected { pair, private });
        Ok(())
    }

    fn reject(&mut self, ticket: Ticket, private: &[u8]) {
        self.answer(ticket);
        self.busy = true;
        let private = private.get(..MAX_PRIVATE).unwrap_or(private);
        // A request that no longer exists was given up by both sides.
        let _ = self.port.reject(verbena_cells::Ticket(ticket.0), private);
    }

    fn destroy(&mut self, pair: Pair) {
        self.let_go(pair.0);
        if self.pairs.remove(&pair.0).is_none() {
            return;
        }
        // The pair exists, so this cannot fail.
        let _ = self.port.destroy(Qpn::wrapping(pair.0), &mut self.outbox);
        self.collect();
        self.done.retain(|wc| wc.qpn != pair.0);
        self.news.retain(|news| of(news) != Some(pair));
        // Shrinking cannot fail: the queue is empty.
        let _ = self.make_room(None);
        self.busy = true;
    }

    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()> {
        let number = Qpn::wrapping(pair.0);
        let scatter = piece.as_slice();
        let posted = self.port.post_receive(number, &ReceiveWr { id, scatter });
        let posted = posted.and_then(|()| self.port.ring_receive(number, &mut self.outbox));
        self.posted(pair, posted)
    }

    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()> {
        let what = What {
            piece,
            remote: None,
            immediate: None,
        };
        self.post(pair, id, Operation::Send, what)
    }

    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: Remote,
        immediate: Option<u32>,
    ) -> Result<()> {
        let what = What {
            piece,
            remote: Some(to),
            immediate,
        };
        self.post(pair, id, Operation::Write, what)
    }

    fn turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        self.take_turn(now, done)
    }

    fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.due?;
        Some(self.epoch + due.since(verbena_stream::Time::ZERO))
    }

    fn sleepers<'a>(&'a self, on: &mut Vec<Sleeper<'a>>) {
        on.push(self.sleeper());
    }

    fn doze(&mut self) -> bool {
        self.is_idle()
    }
}
