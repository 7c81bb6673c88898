//! Service connections over iWARP (P5): each pair is a queue pair of the adapter on a TCP connection of its own. A peer without receives
//! is retried without limit, the end of a connection is reported after the completions before it, and completions of a destroyed pair are
//! dropped. Unacknowledged pairs are the same as acknowledged ones, since TCP loses nothing.
//!
//! All pairs complete in one queue: one descriptor is enough to wait for all, and the waiting thread can serve all connections.

mod carrier_impl;
mod event_channel;
mod memory;
mod pair;

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbena::cm::ConnectRequest;
use verbena::low::{BareCq, Pd, Wc};
use verbena::unstable::access::AccessList;
use verbena::{Config, Device, Listener, Status};
use verbena_nic::WcOp;

use super::{Carrier, CarrierError, CarrierEvent, Pair, Result, Source, Ticket};
use event_channel::{AdapterEvent, EventChannel};
use pair::{IwarpPair, Stage};

/// Completions polled at once.
const POLL_BATCH: usize = 64;
/// Completions per turn, so that the driver returns to its other work.
const MAX_COMPLETIONS: usize = 1024;
/// Packets of at least this length are taken as part of a stream.
const LONG_PACKET: u32 = 16 << 10;
/// Requests that wait for the driver's answer; more wait in the listener, which rejects those that it has no room for.
const TICKETS: usize = 128;

/// Queue pairs on connections of the adapter.
pub struct IwarpCarrier {
    /// Dropped first, which rejects the open requests.
    tickets: BTreeMap<Ticket, ConnectRequest>,
    pairs: BTreeMap<Pair, IwarpPair>,
    /// The pair of each queue pair number: the adapter may reuse a number while the driver still holds old completions.
    pair_by_qpn: BTreeMap<u32, Pair>,
    cq: BareCq,
    /// Capacity of the completion queue, and what all pairs together need.
    cq_capacity: usize,
    needed: usize,
    pd: Pd,
    role: Role,
    device: Device,
    event_channel: Arc<EventChannel>,
    /// Events not yet handled, each with the number of completions to return before it: the end of a pair is reported after the completions
    /// before it, even if the queue never becomes empty.
    deferred: VecDeque<(u64, AdapterEvent)>,
    received: VecDeque<AdapterEvent>,
    /// Completions returned since the start.
    returned: u64,
    events: VecDeque<CarrierEvent>,
    /// Completions polled by `prepare_sleep`.
    early: Vec<Wc>,
    /// Long packets came in the last turn.
    has_long_packets: bool,
    /// The last turn stopped at a bound.
    more: bool,
    /// The listener may have requests.
    has_requests: bool,
    next_pair: u32,
    next_ticket: u64,
}

/// Whether it listens or dials.
enum Role {
    Listener(Listener, SocketAddr),
    Dialler(SocketAddr),
}

impl IwarpCarrier {
    /// Listens on this address; port 0 selects a free one.
    pub fn listen(at: SocketAddr, config: Config) -> Result<IwarpCarrier> {
        let device = Device::with(config)?;
        let listener = device.listen(at)?;
        let local = listener.local_addr()?;
        IwarpCarrier::new(device, Role::Listener(listener, local))
    }

    /// Dials the unit at this address.
    pub fn dial(unit: SocketAddr, config: Config) -> Result<IwarpCarrier> {
        IwarpCarrier::new(Device::with(config)?, Role::Dialler(unit))
    }

    fn new(device: Device, way: Role) -> Result<IwarpCarrier> {
        let channel = Arc::new(EventChannel::new()?);
        let (cq, pd) = (device.bare_cq(POLL_BATCH)?, device.pd()?);
        let sink = channel.clone();
        cq.set_notify(Some(Arc::new(move || sink.signal())));
        let sink = channel.clone();
        device.on_event(move |event| sink.push_event(event));
        if let Role::Listener(listener, _) = &way {
            let sink = channel.clone();
            listener.on_request(Arc::new(move || sink.push(AdapterEvent::Request)));
        }
        Ok(IwarpCarrier {
            tickets: BTreeMap::new(),
            pairs: BTreeMap::new(),
            pair_by_qpn: BTreeMap::new(),
            cq,
            cq_capacity: POLL_BATCH,
            needed: 0,
            pd,
            role: way,
            device,
            event_channel: channel,
            deferred: VecDeque::new(),
            received: VecDeque::new(),
            returned: 0,
            events: VecDeque::new(),
            early: Vec::new(),
            has_long_packets: false,
            more: false,
            // Requests that came before the callback was set.
            has_requests: true,
            next_pair: 1,
            next_ticket: 1,
        })
    }

    /// Its adapter, whose events include those of the channels ([`Device::observe`]).
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The access lists of its adapter.
    pub fn access(&self) -> &AccessList {
        self.device.access_list()
    }

    /// The address that it listens on.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Listener(_, local) => Some(*local),
            Role::Dialler(_) => None,
        }
    }

    fn pair(&mut self, pair: Pair) -> Result<&mut IwarpPair> {
        self.pairs.get_mut(&pair).ok_or_else(|| unknown(pair))
    }

    /// A number that no pair has; numbers are reused after 2^32 others.
    fn number(&mut self) -> Pair {
        loop {
            let pair = Pair(self.next_pair);
            self.next_pair = self.next_pair.wrapping_add(1);
            if !self.pairs.contains_key(&pair) {
                return pair;
            }
        }
    }

    /// Makes room for the completions of all pairs.
    fn resize_cq(&mut self, needed: usize) -> Result<()> {
        if needed > self.cq_capacity {
            // Doubled, so that the queue is rarely resized.
            let room = needed.max(self.cq_capacity * 2);
            self.cq.resize(room)?;
            self.cq_capacity = room;
        }
        Ok(())
    }

    /// Returns completions in order, within bounds; true if none is left. While long packets come, the queue is polled until it is empty:
    /// what arrives meanwhile is handled in the same turn, and the answers share a system call.
    fn complete(&mut self, done: &mut Vec<Wc>) -> bool {
        self.has_long_packets = false;
        let mut early = core::mem::take(&mut self.early);
        early
            .drain(..)
            .for_each(|wc| self.return_completion(wc, done));
        self.early = early;
        let mut some = [Wc::default(); POLL_BATCH];
        for _ in 0..MAX_COMPLETIONS / POLL_BATCH {
            let n = self.cq.poll(&mut some);
            some[..n]
                .iter()
                .for_each(|wc| self.return_completion(*wc, done));
            if n == 0 || n < POLL_BATCH && !self.has_long_packets {
                return true;
            }
        }
        false
    }

    fn return_completion(&mut self, wc: Wc, done: &mut Vec<Wc>) {
        // The adapter drops the completions of a destroyed queue pair, so there is always a pair.
        let Some(pair) = self.pair_by_qpn.get(&wc.qpn).copied() else {
            return;
        };
        let Some(conn) = self.pairs.get_mut(&pair) else {
            return;
        };
        conn.completed(wc.op);
        self.has_long_packets |= is_long(&wc);
        self.returned += 1;
        done.push(Wc { qpn: pair.0, ..wc });
        // A failed request moves the queue pair to the error state, and not every cause raises an event.
        if wc.status != Status::Success && conn.stage == Stage::Connected {
            self.defer(AdapterEvent::Failed(pair));
        }
    }

    /// Defers an event until the completions that exist now have been returned.
    fn defer(&mut self, event: AdapterEvent) {
        let waiting = self.cq_capacity + self.early.len() + MAX_COMPLETIONS;
        self.deferred
            .push_back((self.returned + waiting as u64, event));
    }

    /// The next deferred event that is due.
    fn next_deferred(&mut self) -> Option<AdapterEvent> {
        let (behind, _) = self.deferred.front()?;
        let due = !self.more || *behind <= self.returned;
        due.then(|| self.deferred.pop_front())
            .flatten()
            .map(|(_, event)| event)
    }

    fn handle_event(&mut self, event: AdapterEvent) {
        match event {
            AdapterEvent::Request => self.has_requests = true,
            AdapterEvent::Answer(pair, answer) => self.handle_answer(pair, answer),
            AdapterEvent::Failed(pair) => self.report_end(pair),
            AdapterEvent::Event(qp) => {
                if let Some(pair) = self.pair_by_qpn.get(&qp).copied() {
                    self.report_end(pair);
                }
            }
        }
    }

    fn handle_answer(&mut self, pair: Pair, answer: core::result::Result<Vec<u8>, verbena::Error>) {
        let Some(conn) = self.pairs.get_mut(&pair) else {
            return;
        };
        let (stage, news) = match answer {
            Ok(private) => (
                Stage::Connected,
                CarrierEvent::Connected {
                    pair,
                    private_data: private,
                },
            ),
            Err(error) => {
                let private = error.rejection().unwrap_or_default().to_vec();
                let why = error.to_string();
                (
                    Stage::Ended,
                    CarrierEvent::Refused {
                        pair,
                        why,
                        private_data: private,
                    },
                )
            }
        };
        conn.stage = stage;
        self.events.push_back(news);
        // An end that came before the answer was ignored then.
        self.report_end(pair);
    }

    /// Reports the end of a pair, if it has ended.
    fn report_end(&mut self, pair: Pair) {
        let Some(conn) = self.pairs.get_mut(&pair) else {
            return;
        };
        if let Some(why) = conn.take_end() {
            self.events.push_back(CarrierEvent::Ended { pair, why });
        }
    }

    /// Takes requests from the listener while there are tickets.
    fn take_requests(&mut self) -> Result<()> {
        let Role::Listener(listener, _) = &self.role else {
            return Ok(());
        };
        while self.has_requests && self.tickets.len() < TICKETS {
            let Some(request) = listener.try_next()? else {
                self.has_requests = false;
                break;
            };
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            self.events.push_back(CarrierEvent::Request {
                ticket,
                from: request.peer_addr().to_string(),
                source: Some(Source::of(request.peer_addr().ip())),
                private_data: request.private_data().to_vec(),
                // Both kinds are the same here.
                acknowledged: None,
            });
            self.tickets.insert(ticket, request);
        }
        Ok(())
    }
}

/// A received packet of a stream: segmentation of a byte stream makes packets of the greatest length.
fn is_long(wc: &Wc) -> bool {
    matches!(wc.op, WcOp::Receive | WcOp::ReceiveWriteImm) && wc.len >= LONG_PACKET
}

fn unknown(pair: Pair) -> CarrierError {
    CarrierError::Post {
        pair,
        why: "there is no such pair".into(),
    }
}

impl fmt::Debug for IwarpCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IwarpCarrier")
            .field("local", &self.local_addr())
            .field("pairs", &self.pairs.len())
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
