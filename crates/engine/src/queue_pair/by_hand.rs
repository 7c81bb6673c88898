//! Queue pairs that are connected out of band: the programs exchange number and address, and the queue pairs connect to each other.
//! A number names one queue pair at a time. Only queue pairs of the RoCE personality connect so; iWARP has a connection manager.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_nic::{Personality, QpState, QpType};
use verbena_wire::number::Qpn;

use super::QueuePair;
use crate::core::Core;
use crate::error::Error;
use crate::life::{Expected, Life};

/// The peer of an out-of-band connection, as the program was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Our address as the peer was told.
    pub local: IpAddr,
    /// The peer's address.
    pub address: IpAddr,
    /// The peer's queue pair number.
    pub number: Qpn,
}

/// The number of a callable queue pair, and its connection state.
#[derive(Debug)]
pub(super) struct Callable {
    core: Arc<Core>,
    pub(super) number: Qpn,
    pub(super) life: Arc<Life>,
}

impl Callable {
    pub(super) fn new(core: &Arc<Core>, qp_type: QpType) -> Result<Callable, Error> {
        let number = core.numbers.take(core)?;
        match Life::new(core, number, qp_type) {
            Ok(life) => Ok(Callable {
                core: core.clone(),
                number,
                life,
            }),
            Err(error) => {
                core.numbers.give_back(number, core.config.reuse_delay);
                Err(error)
            }
        }
    }

    /// Registers the queue pair: calls are answered from now on.
    pub(super) fn publish(&self) {
        self.core.calls.add(self.number, self.life.clone());
    }
}

impl Drop for Callable {
    fn drop(&mut self) {
        if !self.core.lives() {
            return;
        }
        self.core.calls.remove(self.number);
        self.life.end();
        let rests = self.core.config.reuse_delay;
        self.core.numbers.give_back(self.number, rests);
    }
}

impl QueuePair {
    /// The number that peers can call, if it has one.
    pub fn callable(&self) -> Option<Qpn> {
        self.callable.as_ref().map(|callable| callable.number)
    }

    /// Sets its peer and moves it to `Rtr`: one of the two calls the other, and they are connected when both programs have done this.
    /// Requests posted before wait, but not longer than the peer may be absent.
    ///
    /// The queue pair must be in `Init`; it is in `Rtr` afterwards, and [`modify`](QueuePair::modify) to `Rts` lets it send.
    pub fn expect(&self, peer: Peer) -> Result<(), Error> {
        self.core.check()?;
        let qp = self.qp.init().name;
        let callable = self.callable.as_ref().ok_or(Error::NotCallable { qp })?;
        // A GID is always 16 bytes: IPv4-mapped addresses stand for IPv4.
        let peer = Peer {
            local: peer.local.to_canonical(),
            address: peer.address.to_canonical(),
            ..peer
        };
        if !self.core.addresses()?.contains(&peer.local) {
            return Err(Error::NotOurs {
                address: peer.local,
            });
        }
        let local = (peer.local, 0).into();
        self.core
            .check_owner(local, Some((peer.address, 0).into()))?;
        let state = self.state();
        let by_hand = self.qp.init().personality == Personality::Roce;
        if !by_hand || state != QpState::Init || !self.modify(QpState::Rtr) {
            return Err(Error::NotConnectable { qp, state });
        }
        callable.life.expect(Expected {
            local: peer.local,
            peer: peer.address,
            number: peer.number,
            options: self.options(&[]),
        });
        self.core.calls.ready(&self.core.config, callable.number);
        Ok(())
    }
}
