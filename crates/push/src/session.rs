//! One side of a service connection (P4): owner of the pools that it advertises, user of those that the peer advertises.
//! It promises to do nothing but through its outputs, in order, and to go on after every violation: what was wrong is ignored.
//! It refuses to know bytes of packets; of messages it knows all.
//!
//! In which order to call: after any `handle_*` or other call, [`poll`](Session::poll) until there is no output, and do
//! each output before the next. Messages are composed by `poll`, so that what happened since the last one shares a message.

mod arrive;
mod config;
mod pools;
mod pump;
mod receive;
mod send;

use std::collections::{BTreeMap, VecDeque};

use verbena_wire::push::Envelope;
#[cfg(test)]
use verbena_wire::push::Pool;

use crate::counters::Counters;
use crate::error::{Misuse, Violation};
use crate::lent::Lents;
use crate::output::{Channel, Event, Output, Packet};
use crate::owned::Owned;
use crate::settings::{Arrangement, Settings};
use crate::transactions::Transactions;
use crate::window::{Credit, FIRST_MESSAGES, Grant};

use send::Flight;

#[cfg(test)]
mod tests;

/// What goes before a packet in a SendData message.
pub const SEND_DATA_HEAD: usize = Envelope::LEN + 4;

/// In a flush request: the pool is the receiver's, whose user has stopped. Without it, the sender's.
pub const YOURS: u32 = 0x8000_0000;

/// Whether we have asked for more elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    No,
    /// A message of this size is due.
    Due(u32),
    /// It was sent, and nothing came yet.
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
    /// Messages that we may send, and that the peer may.
    credit: Credit,
    grant: Grant,
    owned: BTreeMap<u32, Owned>,
    owned_elements: u64,
    lents: Lents,
    flights: BTreeMap<Packet, Flight>,
    /// Writes that have ended and are to be indicated: pool, element, length.
    indications: VecDeque<(u32, u32, u32)>,
    transactions: Transactions,
    asking: Asking,
    /// The shortest packet that was refused.
    refused: Option<u32>,
    /// The peer ran low: tell it of every element.
    hurry: bool,
    next_packet: u64,
}

impl Session {
    /// A session at the beginning of a connection; both sides begin at the same time.
    pub fn new(settings: Settings) -> Result<Session, Misuse> {
        Ok(Session {
            settings: settings.check()?,
            counters: Counters::default(),
            outputs: VecDeque::new(),
            outbox: VecDeque::new(),
            credit: Credit::new(FIRST_MESSAGES),
            grant: Grant::new(FIRST_MESSAGES),
            owned: BTreeMap::new(),
            owned_elements: 0,
            lents: Lents::default(),
            flights: BTreeMap::new(),
            indications: VecDeque::new(),
            transactions: Transactions::default(),
            asking: Asking::No,
            refused: None,
            hurry: false,
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

    /// Free elements of the peer's pools: packets that may be sent.
    pub fn free(&self) -> u64 {
        self.lents.free()
    }

    /// Packets that are under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Our requests that wait for answers.
    pub fn waiting(&self) -> usize {
        self.transactions.waiting()
    }

    /// Receive descriptors that the carrier keeps posted on the control channel, each again as soon as its message was
    /// handled. Those of the data channel are posted as [`Output::Post`] says. In arrangement C
    /// [`advertise`](Session::advertise) raises it, and the size with it: post before polling.
    pub fn descriptors(&self) -> u32 {
        let frames = match self.settings.arrangement {
            Arrangement::Single => self.owned.values().map(|o| o.pool().count).sum(),
            Arrangement::Sends | Arrangement::Writes => 0,
        };
        self.settings.messages.saturating_add(frames)
    }

    /// Bytes that each of those descriptors must hold.
    pub fn message_size(&self) -> u32 {
        let frames = self.owned.values().map(|o| o.pool().size);
        let head = SEND_DATA_HEAD as u32;
        match self.settings.arrangement {
            Arrangement::Single => frames
                .map(|size| size.saturating_add(head))
                .fold(self.settings.frame, u32::max),
            Arrangement::Sends | Arrangement::Writes => self.settings.frame,
        }
    }

    /// The next thing to do or to know.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.pump();
        }
        self.outputs.pop_front()
    }

    /// The carrier knows that so many messages or packets of the peer on this channel are lost (A): their credit is
    /// given back.
    pub fn handle_lost(&mut self, channel: Channel, count: u32) {
        let lost = match (self.settings.arrangement, channel) {
            (Arrangement::Sends, Channel::Data) => {
                let lost = self.owned.values_mut().map(|owned| owned.lose(count)).sum();
                self.settle_drained();
                lost
            }
            // In C it is not known which window a lost message belonged to: the peer's announcement tells.
            (Arrangement::Single, _) | (_, Channel::Data) => 0,
            (_, Channel::Control) => self.grant.lose(count),
        };
        self.counters.lost += u64::from(lost);
    }

    /// Says again what a carrier without acknowledgement may have lost: call it when nothing has moved for a while.
    /// Never needed where channels are acknowledged.
    pub fn refresh(&mut self) {
        if self.is_backlogged() {
            return;
        }
        if let Asking::Sent(size) = self.asking {
            self.asking = Asking::Due(size);
        }
        // What was announced before the last refresh and has not arrived will not arrive.
        let given_up: u32 = self.owned.values_mut().map(Owned::give_up).sum();
        self.counters.lost += u64::from(given_up);
        self.settle_drained();
        if self.settings.arrangement.counts() {
            self.repeat();
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Input is refused while too many outputs wait.
    fn is_backlogged(&self) -> bool {
        self.outputs.len() >= self.settings.limits.outputs
    }

    fn violated(&mut self, violation: Violation) -> Violation {
        self.counters.violations.add((&violation).into());
        violation
    }

    /// Tells the program once that a refused packet may be tried again.
    fn tell_room(&mut self) {
        if let Asking::Due(size) | Asking::Sent(size) = self.asking
            && self.lents.free() >= u64::from(self.settings.low)
            && self.lents.has_room(size)
        {
            self.asking = Asking::No;
        }
        if self.refused.is_some_and(|len| self.lents.has_room(len)) {
            self.refused = None;
            self.event(Event::Room);
        }
    }

    #[cfg(test)]
    pub(crate) fn own_pools(&self) -> Vec<(Pool, crate::owned::Tenure)> {
        let pools = self.owned.values();
        pools.map(|o| (*o.pool(), o.tenure())).collect()
    }

    /// Inequalities that always hold.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let limits = &self.settings.limits;
        assert!(self.owned.len() <= limits.pools as usize);
        assert!(self.lents.len() <= limits.pools as usize);
        assert!(self.lents.elements() <= u64::from(limits.elements));
        assert!(self.owned_elements <= u64::from(limits.elements));
        assert!(self.indications.len() as u64 <= self.lents.elements());
        let (ours, asked, recalls) = self.transactions.sizes();
        let most = limits.transactions as usize;
        assert!(ours <= most && asked <= most && recalls <= most);
        self.lents.invariants();
        self.owned.values().for_each(Owned::invariants);
    }
}
