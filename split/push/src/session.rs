//! One side of a service connection (P4): owner of the pools that it advertises, user of those that the peer advertises. A session
//! acts only through its outputs, in order, and continues after every violation, of which the offending part is ignored. It encodes
//! and decodes messages itself and never sees the bytes of packets, except inside SendData messages.
//!
//! Order of calls: after any `handle_*` or other call, [`poll`](Session::poll) until there is no output, and perform each output
//! before the next. `poll` composes messages, so that everything since the last poll shares a message.

mod arrive;
mod config;
mod pools;
mod pump;
mod receive;
mod send;

use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
use verbena_split_wire::push::Pool;

use crate::counters::Counters;
use crate::error::{Misuse, Violation};
use crate::output::{Channel, Event, Output, Packet};
use crate::own_pool::OwnPool;
use crate::peer_pools::PeerPools;
use crate::settings::{Arrangement, Settings};
use crate::transactions::Transactions;
use crate::window::{Credit, Grant, INITIAL_CREDIT};

use send::InflightPacket;

#[cfg(test)]
mod tests;

/// Bit of a reference in a flush request: set, the pool is the receiver's and its user has stopped; clear, it is the sender's.
pub const RECEIVER_OWNED: u32 = 0x8000_0000;

/// Whether more elements were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementRequest {
    No,
    /// A request for elements of this size is due.
    Due(u32),
    /// It was sent, and not satisfied yet.
    Sent(u32),
}

/// One side of a service connection.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    counters: Counters,
    outputs: VecDeque<Output>,
    /// Composed messages that wait for credit; bounded by pools, transactions and the peer's credit.
    outbox: VecDeque<Vec<u8>>,
    /// How many messages we may send, and how many the peer may.
    credit: Credit,
    grant: Grant,
    owned: BTreeMap<u32, OwnPool>,
    owned_elements: u64,
    peer_pools: PeerPools,
    inflight: BTreeMap<Packet, InflightPacket>,
    /// Completed writes that are to be indicated: pool, element, length.
    indications: VecDeque<(u32, u32, u32)>,
    transactions: Transactions,
    element_request: ElementRequest,
    /// The shortest packet that was refused.
    refused: Option<u32>,
    /// The peer ran low: tell it of every returned element.
    is_peer_low: bool,
    next_packet: u64,
}

impl Session {
    /// A session at the beginning of a connection; both sides start with the same state.
    pub fn new(settings: Settings) -> Result<Session, Misuse> {
        Ok(Session {
            settings: settings.check()?,
            counters: Counters::default(),
            outputs: VecDeque::new(),
            outbox: VecDeque::new(),
            credit: Credit::new(INITIAL_CREDIT),
            grant: Grant::new(INITIAL_CREDIT),
            owned: BTreeMap::new(),
            owned_elements: 0,
            peer_pools: PeerPools::default(),
            inflight: BTreeMap::new(),
            indications: VecDeque::new(),
            transactions: Transactions::default(),
            element_request: ElementRequest::No,
            refused: None,
            is_peer_low: false,
            next_packet: 0,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Free elements of the peer's pools: packets that can be sent now.
    pub fn free(&self) -> u64 {
        self.peer_pools.free()
    }

    /// Elements of our pools that the peer may use: packets that can arrive now.
    pub fn lent(&self) -> u64 {
        self.owned.values().map(|pool| u64::from(pool.lent())).sum()
    }

    /// Packets that the carrier is not done with.
    pub fn inflight(&self) -> usize {
        self.inflight.len()
    }

    /// Our open requests.
    pub fn open_requests(&self) -> usize {
        self.transactions.open_count()
    }

    /// Receive descriptors that the carrier keeps posted on the control channel, each posted again as soon as its message was
    /// handled. Those of the data channel are posted on [`Output::Post`]. In arrangement C
    /// [`advertise`](Session::advertise) raises the number, and possibly the size: post before polling.
    pub fn descriptors(&self) -> u32 {
        let frames = match self.settings.arrangement {
            Arrangement::Single => self.owned.values().map(|o| o.pool().count).sum(),
            Arrangement::Sends | Arrangement::Writes => 0,
        };
        self.settings.messages.saturating_add(frames)
    }

    /// The next output.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.pump();
        }
        self.outputs.pop_front()
    }

    /// The carrier detected that this many messages or packets of the peer on this channel are lost (A): their credit is
    /// granted again.
    pub fn handle_lost(&mut self, channel: Channel, count: u32) {
        let lost = match (self.settings.arrangement, channel) {
            (Arrangement::Sends, Channel::Data) => {
                let lost = self
                    .owned
                    .values_mut()
                    .map(|owned| owned.count_lost(count))
                    .sum();
                self.settle_drained();
                lost
            }
            // In C a lost message may belong to either window, which the peer's announcement resolves; in B packets are not counted.
            (Arrangement::Single, _) | (_, Channel::Data) => 0,
            (_, Channel::Control) => self.grant.count_lost(count),
        };
        self.counters.lost += u64::from(lost);
    }

    /// Repeats what a carrier without acknowledgement may have lost: to be called when there was no progress for a while. Not needed
    /// where channels are acknowledged.
    pub fn refresh(&mut self) {
        if self.is_backlogged() {
            return;
        }
        if let ElementRequest::Sent(size) = self.element_request {
            self.element_request = ElementRequest::Due(size);
        }
        // What was announced before the last refresh and has not arrived is lost.
        let given_up: u32 = self.owned.values_mut().map(OwnPool::give_up).sum();
        self.counters.lost += u64::from(given_up);
        self.settle_drained();
        if self.settings.arrangement.counts() {
            self.repeat();
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Whether so many outputs wait that input is an error.
    fn is_backlogged(&self) -> bool {
        self.outputs.len() >= self.settings.limits.outputs
    }

    fn count_violation(&mut self, violation: Violation) -> Violation {
        self.counters.violations.add((&violation).into());
        violation
    }

    /// Reports once that a refused packet may be tried again.
    fn report_room(&mut self) {
        if let ElementRequest::Due(size) | ElementRequest::Sent(size) = self.element_request
            && self.peer_pools.free() >= u64::from(self.settings.low)
            && self.peer_pools.has_room(size)
        {
            self.element_request = ElementRequest::No;
        }
        if self
            .refused
            .is_some_and(|len| self.peer_pools.has_room(len))
        {
            self.refused = None;
            self.event(Event::RoomAvailable);
        }
    }

    #[cfg(test)]
    pub(crate) fn own_pools(&self) -> Vec<(Pool, crate::own_pool::OwnPoolState)> {
        let pools = self.owned.values();
        pools.map(|o| (*o.pool(), o.state())).collect()
    }

    /// Relations that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let limits = &self.settings.limits;
        assert!(self.owned.len() <= limits.pools as usize);
        assert!(self.peer_pools.len() <= limits.pools as usize);
        assert!(self.peer_pools.elements() <= u64::from(limits.elements));
        assert!(self.owned_elements <= u64::from(limits.elements));
        assert!(self.indications.len() as u64 <= self.peer_pools.elements());
        let (ours, asked, recalls) = self.transactions.sizes();
        let most = limits.transactions as usize;
        assert!(ours <= most && asked <= most && recalls <= most);
        self.peer_pools.invariants();
        self.owned.values().for_each(OwnPool::invariants);
    }
}
