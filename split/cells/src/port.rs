//! A port of the channel adapter: an address, its work queue pairs, and their output. A work queue pair that fails does not affect
//! others, and a call that fails changes nothing. How a port address is reached is the carrier's business.

mod cells;
mod connect;
mod transmit;

use std::collections::{BTreeMap, VecDeque};

use verbena_nic::Outbox;
use verbena_nic::wr::ReceiveWr;
use verbena_split_wire::cell::{DisconnectReason, PortAddress};
use verbena_wire::number::Qpn;

use crate::config::Config;
use crate::counters::PortCounters;
use crate::descriptor::{Descriptor, Peer};
use crate::error::Error;
use crate::notice::{Effects, EndReason, Notice};
use crate::state::Event;
use crate::wqp::{View, Wqp, WqpInit};
use connect::Request;

pub(crate) use connect::reply_way;

#[cfg(test)]
mod tests;

/// A port.
#[derive(Debug)]
pub struct Port {
    address: PortAddress,
    config: Config,
    wqps: BTreeMap<u32, Wqp>,
    /// Work queue pairs that may have cells to send, in turn.
    ready: VecDeque<u32>,
    /// Numbers that accept requests, and whether their channels are acknowledged.
    listeners: BTreeMap<u32, bool>,
    requests: VecDeque<Request>,
    next_ticket: u64,
    /// The work queue pair that accepted each peer.
    accepted: BTreeMap<Peer, u32>,
    effects: Effects,
    counters: PortCounters,
}

impl Port {
    /// A port with this address.
    pub fn new(address: PortAddress, config: Config) -> Result<Port, Error> {
        config.check()?;
        Ok(Port {
            address,
            config,
            wqps: BTreeMap::new(),
            ready: VecDeque::new(),
            listeners: BTreeMap::new(),
            requests: VecDeque::new(),
            next_ticket: 1,
            accepted: BTreeMap::new(),
            effects: Effects {
                limit: config.answers,
                ..Effects::default()
            },
            counters: PortCounters::default(),
        })
    }

    /// Its address.
    pub fn address(&self) -> PortAddress {
        self.address
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its counters, besides those of its work queue pairs.
    pub fn counters(&self) -> PortCounters {
        PortCounters {
            answers_lost: self.effects.lost,
            ..self.counters
        }
    }

    /// The current state of a work queue pair.
    pub fn view(&self, number: Qpn) -> Option<View> {
        self.wqps.get(&number.get()).map(Wqp::view)
    }

    /// Creates a work queue pair. A connectionless one can be used at once, a connected one when it is connected.
    pub fn create(&mut self, init: WqpInit) -> Result<(), Error> {
        let number = init.number;
        if self.wqps.len() >= self.config.pairs {
            return Err(Error::Full(self.config.pairs));
        }
        let taken = |key: &u32| self.wqps.contains_key(key) || self.listeners.contains_key(key);
        if taken(&number.get()) {
            return Err(Error::InUse(number));
        }
        let wqp = Wqp::new(init, &self.config);
        self.wqps.insert(number.get(), wqp);
        Ok(())
    }

    /// Destroys a work queue pair. If it is connected, the peer is told and posted descriptors flush into the completion queues; in other
    /// states they are discarded without completions.
    pub fn destroy(&mut self, number: Qpn, out: &mut Outbox) -> Result<(), Error> {
        self.close(number, out)?;
        self.wqps.remove(&number.get());
        self.forget_accepted(number);
        Ok(())
    }

    /// Ends a connection: the peer is told, and posted descriptors flush. A Connect that is not answered yet is given up.
    pub fn disconnect(&mut self, number: Qpn, out: &mut Outbox) -> Result<(), Error> {
        if self.close(number, out)? {
            return Ok(());
        }
        let wqp = self.wqps.get(&number.get());
        Err(wqp.map_or(Error::Kind, |wqp| Error::State(wqp.state)))
    }

    fn close(&mut self, number: Qpn, out: &mut Outbox) -> Result<bool, Error> {
        let wqp = get(&mut self.wqps, number)?;
        let tell = Some(DisconnectReason::Closed);
        Ok(wqp.end(
            self.address,
            Event::Disconnect,
            tell,
            &mut self.effects,
            out,
        ))
    }

    /// Returns an ended work queue pair to its initial state.
    pub fn reset(&mut self, number: Qpn) -> Result<(), Error> {
        let wqp = get(&mut self.wqps, number)?;
        if !wqp.reset(&self.config) {
            return Err(Error::State(wqp.state));
        }
        self.forget_accepted(number);
        Ok(())
    }

    fn forget_accepted(&mut self, number: Qpn) {
        self.accepted.retain(|_, served| *served != number.get());
    }

    /// Fails a work queue pair whose completion queue lost entries.
    pub fn fail_overflowed(&mut self, number: Qpn, out: &mut Outbox) -> Result<(), Error> {
        let wqp = get(&mut self.wqps, number)?;
        wqp.fail(
            self.address,
            EndReason::Overflow,
            None,
            &mut self.effects,
            out,
        );
        Ok(())
    }

    /// Posts a descriptor to the send queue (P1). Several can be posted before [`ring_send`](Port::ring_send).
    pub fn post_send(&mut self, number: Qpn, descriptor: &Descriptor<'_>) -> Result<(), Error> {
        get(&mut self.wqps, number)?.post_send(descriptor, &self.config)
    }

    /// Posts a descriptor to the receive queue. Several can be posted before [`ring_receive`](Port::ring_receive).
    pub fn post_receive(&mut self, number: Qpn, receive: &ReceiveWr<'_>) -> Result<(), Error> {
        get(&mut self.wqps, number)?.post_receive(receive)
    }

    /// The send doorbell: posted descriptors are processed.
    pub fn ring_send(&mut self, number: Qpn, out: &mut Outbox) -> Result<(), Error> {
        get(&mut self.wqps, number)?.ring_send(out);
        self.wake(number.get());
        Ok(())
    }

    /// The receive doorbell: packets may use posted descriptors.
    pub fn ring_receive(&mut self, number: Qpn, out: &mut Outbox) -> Result<(), Error> {
        get(&mut self.wqps, number)?.ring_receive(out);
        self.wake(number.get());
        Ok(())
    }

    /// The source of the connectionless packet that completed this receive. It is returned once, and dropped after as many further
    /// receives as the queue holds.
    pub fn take_source(&mut self, number: Qpn, receive: u64) -> Option<Peer> {
        self.wqps.get_mut(&number.get())?.take_source(receive)
    }

    /// Restricts a connectionless work queue pair to packets of this peer; those of others are refused and counted, and not answered.
    pub fn set_source(&mut self, number: Qpn, only: Peer) -> Result<(), Error> {
        let wqp = get(&mut self.wqps, number)?;
        if wqp.init.kind.connected {
            return Err(Error::Kind);
        }
        wqp.source = Some(only);
        Ok(())
    }

    /// The next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let notice = self.effects.notices.pop_front();
        notice.or_else(|| self.next_request())
    }

    /// Schedules a work queue pair that may have cells to send.
    fn wake(&mut self, number: u32) {
        if let Some(wqp) = self.wqps.get_mut(&number)
            && !core::mem::replace(&mut wqp.queued, true)
        {
            self.ready.push_back(number);
        }
    }
}

fn get(wqps: &mut BTreeMap<u32, Wqp>, number: Qpn) -> Result<&mut Wqp, Error> {
    let unknown = Error::Unknown(u64::from(number.get()));
    wqps.get_mut(&number.get()).ok_or(unknown)
}
